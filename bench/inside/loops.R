# Loops as R's own benchmarks have them, which allocate nothing of a mebibyte. Argument "on": Ream is switched on for vectors
# of that size. Prints the least seconds of five runs of each, whose result must be what it comes to by another way;
# BENCH_CORRUPT names one that is spoilt.
if (identical(commandArgs(trailingOnly = TRUE), "on")) {
  suppressMessages(library(ream))
  ISM(TRUE, minKB = 1024)
  stopifnot(ISM.status()$status)
}
loops <- list(
  calls = function() { fib <- function(n) if (n < 2) n else fib(n - 1) + fib(n - 2); fib(19) },
  scalars = function() { sum <- 0; for (i in 1:400000) sum <- sum + i %% 7; sum },
  growth = function() { for (k in 1:4) { x <- integer(0); for (i in 1:4000) x <- c(x, i) }; x },
  lists = function() { for (k in 1:20) x <- unlist(lapply(1:3000, function(i) list(i, i * 2))); x },
  strings = function() { for (k in 1:8) x <- sort(unique(paste0("n", (1:5000 * 31) %% 997))); x },
  vectors = function() { for (k in 1:4000) { x <- numeric(10000); x[k] <- k }; x },
  matrices = function() { for (k in 1:300) { m <- matrix(k + 1:2500, 50); p <- m %*% m }; p },
  models = function() { for (k in 1:20) m <- lm(mpg ~ wt + hp, mtcars); m$residuals }
)
checks <- list(
  calls = function(x) x == round(((1 + sqrt(5)) / 2)^19 / sqrt(5)),
  scalars = function(x) x == sum(0:6) * (400000 %/% 7) + sum(seq_len(400000 %% 7)),
  growth = function(x) identical(x, 1:4000),
  lists = function(x) identical(x, as.vector(rbind(1:3000, 1:3000 * 2))),
  strings = function(x) identical(x, sort(paste0("n", 0:996))),
  vectors = function(x) length(x) == 10000 && identical(which(x != 0), 4000L) && sum(x) == 4000,
  # The sum of a product is that of columns' sums times rows' sums.
  matrices = function(x) { m <- matrix(300 + 1:2500, 50); sum(x) == sum(colSums(m) * rowSums(m)) },
  models = function(x) max(abs(crossprod(cbind(1, mtcars$wt, mtcars$hp), x))) < 1e-6
)
for (name in names(loops)) {
  loop <- loops[[name]]
  made <- loop()
  least <- min(replicate(5, {
    begun <- Sys.time()
    made <<- loop()
    as.numeric(Sys.time() - begun, units = "secs")
  }))
  if (Sys.getenv("BENCH_CORRUPT") == name) made[1] <- if (is.character(made)) "x" else made[1] + 1L
  if (!isTRUE(checks[[name]](made))) {
    message(name, ": WRONG RESULT")
    quit(status = 1)
  }
  cat(name, format(least, digits = 10), "\n")
}
