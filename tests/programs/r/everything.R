# Everything that R does with vectors, with vectors on large pages: half of the work with the switch on, half after it.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))
ISM(TRUE, 1024, 4194304)

x <- values(16)
text <- paste0("row", seq_len(1.2e6))
frame <- data.frame(n = seq_along(text) + 0, t = text, f = factor(rep(c("a", "b"), length.out = length(text))))
frame$t <- as.character(frame$t)
stopifnot(nrow(ISM.list()) >= 3)

# Written to files and read from them.
file <- file.path(scratch, "data.rda")
copy <- list(x = x, frame = frame)
save(x, frame, file = file, compress = FALSE)
rm(x, frame)
invisible(gc())
ISM(FALSE)
load(file)
stopifnot(identical(copy, list(x = x, frame = frame)))
ISM(TRUE)
load(file)
stopifnot(identical(copy, list(x = x, frame = frame)))
saveRDS(x, file)
stopifnot(identical(readRDS(file), x))
writeBin(x, file)
stopifnot(identical(readBin(file, "double", length(x)), x))
connection <- file(file, "w+b")
invisible(serialize(frame, connection))
stopifnot(identical(unserialize(connection), frame))
close(connection)
unlink(file)
stopifnot(identical(unserialize(serialize(x, NULL)), x))

# Copies, growing, attributes, sub-assignment, gc in between.
y <- x
y[length(y) + 1] <- -1
stopifnot(length(x) == 2 * MiB, y[1] == x[1], y[2 * MiB + 1] == -1)
length(y) <- MiB
attr(y, "note") <- "kept"
dim(y) <- c(1024, 1024)
for (i in 1:4) {
  invisible(gc())
  y[i, ] <- i
  ISM(i %% 2 == 0)
}
stopifnot(identical(y[4, ], rep(4, 1024)), attr(y, "note") == "kept", identical(x, values(16)))
ISM(TRUE)
product <- crossprod(matrix(x[1:MiB], 1024))
stopifnot(isTRUE(all.equal(product, t(product))), identical(order(frame$n), seq_along(text)))
stopifnot(sum(table(frame$f)) == length(text), identical(unique(text), text))
merged <- merge(frame[1:1e5, ], frame[5e4:2e5, ], by = "t")
stopifnot(nrow(merged) == 50001)
local({
  a <- x
  f <- function(v) { v[1] <- 0; v[1] + a[1] }
  stopifnot(f(x) == x[1], identical(a, x))
})

# Processes that are forked: they read what is there, make their own, and free it.
part <- function(i) {
  own <- x + i
  x[1:10] <<- i
  ISM(i %% 2 == 0)
  right <- identical(own - i, values(16)) && sum(x[1:10]) == 10 * i
  x <<- own - i
  ISM(FALSE)
  more := raw(21 * MiB)
  found <- listed(22 * MiB)
  rm(more)
  invisible(gc())
  c(right, found == 1, listed(22 * MiB) == 0)
}
stopifnot(all(unlist(parallel::mclapply(1:6, part, mc.cores = 3))))
stopifnot(identical(x, values(16)))
cluster <- parallel::makeForkCluster(2)
stopifnot(all(unlist(parallel::clusterApply(cluster, 1:4, part))))
parallel::stopCluster(cluster)
job <- parallel::mcparallel({ x := values(16, 1); x })
stopifnot(identical(parallel::mccollect(job)[[1]], values(16, 1)), identical(x, values(16)))

# A long vector, which only a session's budget makes cheap: it is zeros.
if (in_session) {
  long <- raw(2^31 + 8 * MiB)
  long[2^31 + 5] <- as.raw(3)
  stopifnot(length(long) > .Machine$integer.max, long[2^31 + 5] == 3, which(long[(2^31):(2^31 + 9)] == 3) == 6)
  stopifnot(any(ISM.list()$size > 2^31))
  rm(long)
}
rm(list = setdiff(ls(), c("in_session", "MiB")))
invisible(gc())
# R's own table of strings may be in a block; nothing else is left.
left <- ream.list()
if (!is.null(left) && (any(!is.na(left$name)) || nrow(left) > 1 || left$size > 20 * MiB)) {
  print(left)
  stop("blocks are left")
}
cat("ok\n")
