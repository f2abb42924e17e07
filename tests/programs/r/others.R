# Beside data.table and rlang, whose `:=` goes on working, attached before the package or behind it.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))
for (name in c("data.table", "rlang")) {
  if (!requireNamespace(name, quietly = TRUE)) {
    cat("missing:", name, "\n")
    quit(status = 0)
  }
}
unloadNamespace("data.table")
unloadNamespace("rlang")
ISM(FALSE, 1024, 4194304)
fails("x" := 1, "name of a variable")

check <- function(assigns) {
  table <- data.table::data.table(a = 1:3, b = 4:6)
  table[, d := a + b]
  table[, c("e", "f") := list(a, b)]
  table[, `:=`(g = 1, h = 2)]
  table[a > 1, d := 0L]
  stopifnot(identical(names(table), c("a", "b", "d", "e", "f", "g", "h")), identical(table$d, c(5L, 0L, 0L)))
  name <- "made"
  made <- rlang::list2(!!name := 5, "other" := 6)
  stopifnot(identical(made, list(made = 5, other = 6)))
  # What is attached last has `:=`, as ever in R; ours is there as ream::`:=` then.
  if (assigns) x := raw(8 * MiB) else ream::`:=`(x, raw(8 * MiB))
  stopifnot(listed(10 * MiB) == 1, !ISM.status()$status)
  rm(x)
  invisible(gc())
}
library(data.table)
check(FALSE)
# A call that is evaluated goes to theirs, and says what theirs says.
message_of <- function(expression) tryCatch(expression, error = conditionMessage)
theirs <- message_of(data.table::`:=`("x", 1))
stopifnot(identical(message_of(ream::`:=`("x", 1)), theirs), !grepl("name of a variable", theirs))
detach("package:data.table")
library(rlang)
check(FALSE)
stopifnot(identical(message_of(ream::`:=`("x", 1)), message_of(rlang::`:=`("x", 1))))
detach("package:ream")
library(ream)
check(TRUE)
cat("ok\n")
