# What the package remembers, and how it says something when options(ream.verbose = TRUE).

# The bounds that ISM() uses until others are said: those of RISM.
state <- new.env(parent = emptyenv())
state$minKB <- 1024
state$maxKB <- 4194304
state$warned <- FALSE

# An error in one line.
fail <- function(...) stop(..., call. = FALSE)

say <- function(...) {
  if (isTRUE(getOption("ream.verbose"))) {
    message("ream: ", ...)
  }
}

# The file of Ream's library; where there is none NULL, or an error. Says which it is when it is found.
library_file <- function(must = FALSE) {
  file <- .Call(C_ream_library, must)
  if (!is.null(file) && is.null(state$library)) {
    state$library <- file
    say("using ", file)
  }
  file
}

# A number of bytes as people read it.
human <- function(bytes) {
  units <- c("bytes", "KiB", "MiB", "GiB", "TiB")
  power <- if (is.finite(bytes) && bytes > 0) min(4, max(0, floor(log(bytes, 1024)))) else 0
  paste(format(signif(bytes / 1024^power, 4), trim = TRUE, scientific = FALSE), units[power + 1])
}

# Bounds are for the data of a vector: malloc is asked for those, with a header in front. The library counts in whole pages.
least_bytes <- function(kb) if (kb > 0) kb * 1024 + .Call(C_ream_header) else 0

most_bytes <- function(kb) ceiling((kb * 1024 + .Call(C_ream_header)) / 4096) * 4096

# The bounds that the library has, in KiB: as they were said here, when it was here.
bounds_of <- function(now) {
  most <- if (now$max == 0) Inf else now$max
  if (now$min == least_bytes(state$minKB) && most == most_bytes(state$maxKB)) {
    return(c(state$minKB, state$maxKB))
  }
  c(now$min, most) / 1024
}
