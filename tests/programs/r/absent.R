# Without Ream's library: the package loads and says what is missing; scripts that only assign go on.
library(ream)
fails <- function(expression) {
  error <- tryCatch({ force(expression); "" }, error = conditionMessage)
  if (!grepl("^Ream's library is not found[^\n]*REAM_HOME[^\n]*$", error)) stop("said '", error, "'")
}
status <- ISM.status()
stopifnot(!status$support, !status$status, status$minKB == 1024, status$maxKB == 4194304, is.null(ISM.list()))
warned <- 0
withCallingHandlers({ x := 1:3; y := x }, warning = function(w) {
  warned <<- warned + 1
  stopifnot(grepl("without large pages", conditionMessage(w)))
  invokeRestart("muffleWarning")
})
stopifnot(identical(y, 1:3), warned == 1, is.null(ream.list()))
fails(ISM(TRUE))
fails(ream.status())
fails(ream.memory("1G"))
fails(ream.memory())
pdf(NULL)
ream.plot()
stopifnot(is.null(ream.list()))
