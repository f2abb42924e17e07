# Loops as R's own benchmarks have them, which allocate nothing of a mebibyte. Argument "on": Ream is switched on for vectors
# of that size. Prints the least seconds of five runs of each.
if (identical(commandArgs(trailingOnly = TRUE), "on")) {
  suppressMessages(library(ream))
  ISM(TRUE, minKB = 1024)
  stopifnot(ISM.status()$status)
}
loops <- list(
  calls = function() { fib <- function(n) if (n < 2) n else fib(n - 1) + fib(n - 2); fib(19) },
  scalars = function() { sum <- 0; for (i in 1:400000) sum <- sum + i %% 7; sum },
  growth = function() for (k in 1:4) { x <- integer(0); for (i in 1:4000) x <- c(x, i) },
  lists = function() for (k in 1:20) unlist(lapply(1:3000, function(i) list(i, i * 2))),
  strings = function() for (k in 1:8) sort(unique(paste0("n", (1:5000 * 31) %% 997))),
  vectors = function() for (k in 1:4000) { x <- numeric(10000); x[k] <- k },
  matrices = function() for (k in 1:300) { m <- matrix(k + 1:2500, 50); m %*% m },
  models = function() for (k in 1:20) lm(mpg ~ wt + hp, mtcars)
)
for (name in names(loops)) {
  loop <- loops[[name]]
  loop()
  least <- min(replicate(5, { begun <- Sys.time(); loop(); as.numeric(Sys.time() - begun, units = "secs") }))
  cat(name, format(least, digits = 10), "\n")
}
