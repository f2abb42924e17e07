# What holds in any process: with a session or without.
library(ream)

status <- ISM.status()
stopifnot(identical(names(status), c("support", "status", "minKB", "maxKB", "largepagesize")))
stopifnot(identical(names(formals(ISM)), c("on", "minKB", "maxKB")))

ISM(TRUE, 2048, 1048576)
stopifnot(ISM.status()$status, ISM.status()$minKB == 2048, ISM.status()$maxKB == 1048576)
ISM(FALSE)
stopifnot(!ISM.status()$status, ISM.status()$minKB == 2048, ISM.status()$maxKB == 1048576)

x := seq_len(10) + 0
stopifnot(identical(x, seq_len(10) + 0), !ISM.status()$status)
stopifnot(inherits(try(y := stop("no"), silent = TRUE), "try-error"), !ISM.status()$status, !exists("y"))
stopifnot(grepl("name of a variable", try("x" := 1, silent = TRUE)))
stopifnot(inherits(try(ISM(NA), silent = TRUE), "try-error"), inherits(try(ISM(TRUE, 5, 4), silent = TRUE), "try-error"))
