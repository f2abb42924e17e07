# A picture of what is where: a bar for each block, the largest first.

ream.plot <- function(most = 30, ...) {
  found <- ream.list()
  colours <- c("large pages" = "#1b6ca8", "small pages" = "#7fb7de", "store" = "#e0a030", "zeros, or never touched" = "#e4e4e4")
  if (is.null(found)) {
    plot.new()
    title("Ream: no blocks", ...)
    return(invisible(NULL))
  }
  shown <- found[order(found$size, decreasing = TRUE), , drop = FALSE]
  left_out <- max(0, nrow(shown) - most)
  shown <- shown[rev(seq_len(min(nrow(shown), most))), , drop = FALSE]
  rows <- nrow(shown)
  names <- ifelse(is.na(shown$name), shown$address, shown$name)
  long <- nchar(names) > 24
  names[long] <- paste0(substr(names[long], 1, 21), "...")
  mib <- shown$size / 1024^2

  large <- pmin(shown$large, shown$resident)
  shares <- cbind(large, shown$resident - large, shown$stored, pmax(0, 1 - shown$resident - shown$stored))
  edges <- t(apply(cbind(0, shares), 1, cumsum)) * mib
  before <- par(mar = c(6, 11, 3, 1), las = 1)
  on.exit(par(before))
  plot.new()
  plot.window(xlim = c(0, max(mib)), ylim = c(0.4, rows + 0.6))
  for (part in 1:4) {
    rect(edges[, part], seq_len(rows) - 0.4, edges[, part + 1], seq_len(rows) + 0.4, col = colours[[part]], border = NA)
  }
  axis(1)
  axis(2, at = seq_len(rows), labels = names, tick = FALSE, cex.axis = 0.8)
  legend(
    grconvertX(0.5, "nfc"), grconvertY(0.01, "nfc"), names(colours), fill = colours, horiz = TRUE, bty = "n", xpd = NA,
    xjust = 0.5, yjust = 0, cex = 0.8
  )
  budget <- .Call(C_ream_state)$budget
  title(main = if (budget > 0) paste("Ream: blocks, budget", human(budget)) else "Ream: blocks", ...)
  mtext("MiB", side = 1, line = 2.2)
  if (left_out > 0) {
    mtext(paste(left_out, "smaller blocks are not shown"), side = 3, cex = 0.8)
  }
  invisible(found)
}
