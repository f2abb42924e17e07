# qr, lm, sort and mclapply over data of several times the budget; argument 1: the part of them that is wanted, in percent.
asked <- commandArgs(trailingOnly = TRUE)
part <- if (length(asked)) as.numeric(asked[1]) / 100 else 1
set.seed(42)
rows <- 100000 * part
x <- matrix(rnorm(rows * 60), rows, 60)
y <- x %*% seq_len(60) + rnorm(rows)
decomposed <- qr(x)
cat("rank", decomposed$rank, "\n")
cat("solved", format(sum(qr.coef(decomposed, y)), digits = 10), "\n")
frame <- as.data.frame(x)
frame$y <- as.vector(y)
model <- lm(y ~ V1 + V2 + V3 + V4 + V5, frame)
cat("lm", format(coef(model), digits = 8), "\n")
many <- runif(6e6 * part)
ordered <- sort(many)
cat("sort", is.unsorted(ordered), format(ordered[c(1, length(many) / 2, length(many))], digits = 12), "\n")
total <- parallel::mclapply(1:6, function(worker) {
  own <- sort(many[seq(worker, length(many), by = 6)])
  sum(own) + own[1]
}, mc.cores = 2)
cat("mclapply", format(unlist(total), digits = 12), "\n")
words <- paste0("w", (seq_len(400000 * part) * 7919) %% 400009)
cat("strings", length(unique(words)), sum(nchar(words)), "\n")
