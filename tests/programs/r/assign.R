# The assignment `:=`.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))
ISM(FALSE, 1024, 4194304)

x := raw(8 * MiB)
stopifnot(listed(10 * MiB) == 1, !ISM.status()$status, length(x) == 8 * MiB)
stopifnot(!withVisible(y := 1)$visible, y == 1)

# It is the one reference: a change in place stays in the block.
address <- ISM.list()$address
x[1] <- as.raw(7)
stopifnot(identical(ISM.list()$address, address), x[1] == 7)

# Copy on modify: the other keeps its values.
other <- x
other[1] <- as.raw(9)
stopifnot(x[1] == 7, other[1] == 9, nrow(ISM.list()) == 1)
rm(x, other)
invisible(gc())
stopifnot(is.null(ISM.list()))

# It evaluates where it stands, with what R code may do there.
f <- function(n, ...) {
  local_value := raw(n)
  stopifnot(exists("local_value", inherits = FALSE), !exists("n_of_frame"))
  n_of_frame := sys.function()
  taken := ...elt(1)
  stopifnot(identical(taken, 5), identical(n_of_frame, f))
  early := return(nrow(ISM.list()))
  stop("was not left")
}
stopifnot(f(8 * MiB, 5) == 1, !ISM.status()$status, !exists("local_value"))
g := function() 3
stopifnot(g() == 3)
a := b := values(8)
stopifnot(identical(a, b), identical(a, values(8)))
do.call(":=", list(quote(d), 11))
stopifnot(d == 11)
within_loop <- 0
for (i in 1:3) within_loop := within_loop + i
stopifnot(within_loop == 6)

# An error, a condition that jumps, a locked variable: the switch is as before, on or off.
for (on in c(FALSE, TRUE)) {
  ISM(on, 2048, 1048576)
  before <- ISM.status()
  suppressWarnings(rm(e))
  fails(e := { raw(8 * MiB); stop("in the middle") }, "in the middle")
  stopifnot(identical(ISM.status(), before), !exists("e"))
  fails(e := { h := stop("deeper"); 1 }, "deeper")
  stopifnot(identical(ISM.status(), before))
  withCallingHandlers(
    withRestarts(e := warning("out"), skip = function() NULL),
    warning = function(w) invokeRestart("skip")
  )
  stopifnot(identical(ISM.status(), before))
  for (i in 1:2) e := if (i == 1) next else break
  stopifnot(identical(ISM.status(), before))
  locked <- 1
  lockBinding("locked", environment())
  fails(locked := 2, "locked")
  stopifnot(identical(ISM.status(), before), locked == 1)
  unlockBinding("locked", environment())
  e := ISM(!on, 4096, 8192)
  stopifnot(identical(ISM.status(), before), identical(environmentName(environment(ISM)), "ream"))
}
ISM(FALSE, 1024, 4194304)

# What is not the name of a variable is another's.
fails("x" := 1, "name of a variable")
fails(x$a := 1, "name of a variable")
fails(`:=`(a = 1, b = 2), "name of a variable")
fails(`:=`(a), "name of a variable")
cat("ok\n")
