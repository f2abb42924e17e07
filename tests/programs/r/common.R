# What the scripts share. Arguments: "session" under `ream run`, "alone" in an ordinary R; and the scratch directory.
library(ream)
arguments <- commandArgs(trailingOnly = TRUE)
in_session <- arguments[1] == "session"
scratch <- arguments[2]

MiB <- 2^20
# A vector of so many MiB, from values that can be checked.
values <- function(mebibytes, salt = 0) (seq_len(mebibytes * MiB / 8) * 7 + salt) %% 65521

fails <- function(expression, words) {
  error <- tryCatch({ force(expression); NULL }, error = conditionMessage)
  if (is.null(error) || !grepl(words, error, fixed = TRUE)) {
    stop("should have failed with '", words, "', not with '", error, "'")
  }
  if (grepl("\n", error)) stop("more than a line: ", error)
}

listed <- function(size) sum(ISM.list()$size == size)
