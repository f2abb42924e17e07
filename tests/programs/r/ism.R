# RISM's functions, to the letter.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))

status <- ISM.status()
stopifnot(is.list(status), identical(names(status), c("support", "status", "minKB", "maxKB", "largepagesize")))
stopifnot(identical(names(formals(ISM)), c("on", "minKB", "maxKB")), formals(ISM)$on == TRUE)
stopifnot(identical(formals(ISM)$minKB, quote(ISM.status()$minKB)), identical(formals(ISM)$maxKB, quote(ISM.status()$maxKB)))
stopifnot(is.logical(status$support), is.logical(status$status), length(formals(ISM.list)) == 0)
stopifnot(is.null(ISM.list()))
if (in_session) {
  stopifnot(status$status, status$minKB == 0, status$maxKB == Inf)
} else {
  stopifnot(!status$status, status$minKB == 1024, status$maxKB == 4194304)
}
if (status$support) stopifnot(status$largepagesize == 2048)

# On: what is made is in the list. Off: it is not, and what is there stays.
ISM(FALSE)
stopifnot(!ISM.status()$status)
plain <- values(8)
stopifnot(is.null(ISM.list()))
ISM()
stopifnot(ISM.status()$status, is.null(ISM.list()))
ISM(TRUE, 1024, 4194304)
stopifnot(ISM.status()$status, ISM.status()$minKB == 1024, ISM.status()$maxKB == 4194304)
x <- raw(8 * MiB)
list <- ISM.list()
stopifnot(is.data.frame(list), identical(names(list), c("shmid", "address", "size")), nrow(list) == 1)
stopifnot(is.character(list$address), grepl("^0x[0-9a-f]+$", list$address))
# The header does not fit beside 8 MiB of data.
stopifnot(list$size == 10 * MiB, is.numeric(list$shmid))
ISM(FALSE)
y <- raw(8 * MiB)
stopifnot(identical(ISM.list(), list))
x[] <- as.raw(1)
stopifnot(all(x == 1))
rm(x)
invisible(gc())
stopifnot(is.null(ISM.list()))

# The bounds are for the data of a vector; what is not given stays.
ISM(TRUE, 8192, 8192)
a <- raw(6 * MiB)
b <- raw(8 * MiB)
d <- raw(8 * MiB + 64 * 1024)
stopifnot(NROW(ISM.list()) == 1, listed(10 * MiB) == 1)
d <- NULL
invisible(gc())
ISM(TRUE, 1024, 1024)
b <- list(raw(MiB - 256 * 1024), raw(MiB), raw(MiB + 64 * 1024))
# In a session that began with R, blocks below 4 MiB share memory.
if (!in_session) stopifnot(listed(2 * MiB) == 1)
b <- raw(8 * MiB)
invisible(gc())
ISM(TRUE, 8192, 8192)
b <- raw(8 * MiB)
ISM(maxKB = Inf)
stopifnot(ISM.status()$minKB == 8192, ISM.status()$maxKB == Inf)
d <- raw(8 * MiB + 64 * 1024)
stopifnot(NROW(ISM.list()) == 2)
ISM(FALSE)
stopifnot(ISM.status()$minKB == 8192, ISM.status()$maxKB == Inf)
rm(a, b, d)
invisible(gc())

# The example of its authors.
ISM(TRUE, 1024, 4194304)
x <- sample.int(5e6)
sorted <- sort(x)
stopifnot(identical(as.integer(sorted), seq_len(5e6)), nrow(ISM.list()) >= 2)
rm(x, sorted)
invisible(gc())
stopifnot(is.null(ISM.list()))

fails(ISM(NA), "'on' is to be TRUE or FALSE")
fails(ISM("yes"), "'on' is to be TRUE or FALSE")
fails(ISM(TRUE, -1), "0 or more")
fails(ISM(TRUE, NA), "0 or more")
fails(ISM(TRUE, 4096, 2048), "is larger than")
fails(ream.memory("much"), "a size is")
fails(ream.memory("1M"), "16 MiB at least")
stopifnot(ISM.status()$minKB == 1024)

# A session's budget is changed from inside.
if (in_session) {
  budget <- ream.memory()
  stopifnot(identical(ream.memory(2 * budget), 2 * budget), ream.memory() == 2 * budget, ream.status()$budget == 2 * budget)
  fails(ream.memory(100 * budget), "out of range")
  ream.memory(budget)
}

# What it says when asked to.
options(ream.verbose = TRUE)
said <- character()
withCallingHandlers({ ISM(FALSE); z := raw(8 * MiB) }, message = function(m) {
  said <<- c(said, conditionMessage(m))
  invokeRestart("muffleMessage")
})
stopifnot(any(grepl("large pages are off", said)), any(grepl("^ream: z has 8 MiB", said)))
cat("ok\n")
