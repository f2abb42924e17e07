# The switch moves 1000 times while vectors are made and freed, here and in four processes at a time; nothing is left.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))

# Values here and there, zeros between them.
filled <- function(value, bytes) {
  vector <- raw(bytes)
  vector[seq(1, bytes, length.out = 50)] <- as.raw(value)
  vector
}
is_filled <- function(vector, value) {
  is.null(vector) || sum(vector[seq(1, length(vector), length.out = 50)] == value) == 50
}

work <- function(seed) {
  set.seed(seed)
  held <- vector("list", 6)
  for (i in 1:1000) {
    ISM(i %% 2 == 0, sample(c(1024, 2048, 6144), 1), Inf)
    place <- sample(6, 1)
    bytes <- sample(c(200, 3e4, 1.5e6, 3e6, 5e6), 1)
    held[[place]] <- filled(place, bytes)
    if (i %% 7 == 0) other := filled(9, bytes) else other <- filled(9, 200)
    stopifnot(is_filled(other, 9))
    for (one in seq_along(held)) stopifnot(is_filled(held[[one]], one))
  }
  rm(held, other)
  invisible(gc())
  is.null(ISM.list())
}
resident <- function() {
  line <- grep("^VmRSS", readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line)) / 1024
}
# The heap grows to what such work needs, however its blocks come to lie.
stopifnot(work(1), work(7), work(6))
first <- resident()
stopifnot(all(unlist(parallel::mclapply(2:5, work, mc.cores = 4))))
stopifnot(work(6))
# A leak of a hundredth of what was allocated would be 20 MiB. Large pages that are hardly used are given back by and by, later on
# a busy machine; a leak stays.
for (second in 1:30) if (resident() > first + 20) Sys.sleep(1)
if (resident() > first + 20) stop("grew from ", first, " to ", resident(), " MiB")
ISM(FALSE)
cat("ok\n")
