# RISM's functions, with its names, arguments, fields and meanings.

ISM.status <- function() {
  status <- list(support = FALSE, status = FALSE, minKB = state$minKB, maxKB = state$maxKB, largepagesize = 0)
  if (is.null(library_file())) {
    return(status)
  }
  now <- .Call(C_ream_state)
  status$support <- now$large_page > 0
  status$status <- now$enabled
  status$largepagesize <- now$large_page / 1024
  # While it is off the library may not know of any; what ISM() will use counts.
  if (now$enabled) {
    bounds <- bounds_of(now)
    status$minKB <- bounds[1]
    status$maxKB <- bounds[2]
  }
  status
}

ISM <- function(on = TRUE, minKB = ISM.status()$minKB, maxKB = ISM.status()$maxKB) {
  if (!is.logical(on) || length(on) != 1 || is.na(on)) {
    fail("'on' is to be TRUE or FALSE")
  }
  for (bound in list(minKB, maxKB)) {
    if (!is.numeric(bound) || length(bound) != 1 || is.na(bound) || bound < 0) {
      fail("'minKB' and 'maxKB' are to be numbers of KiB, 0 or more")
    }
  }
  if (minKB > maxKB) {
    fail("'minKB' (", format(minKB), ") is larger than 'maxKB' (", format(maxKB), ")")
  }
  library_file(must = TRUE)
  .Call(C_ream_switch, on, least_bytes(minKB), most_bytes(maxKB))
  state$minKB <- minKB
  state$maxKB <- maxKB
  status <- ISM.status()
  if (on && !status$support) {
    warning("the kernel makes no large pages: 'ream doctor' says why")
  }
  say("large pages are ", if (on) paste("on from", format(minKB), "to", format(maxKB), "KiB") else "off")
  invisible(status)
}

# Whole large pages, as they are what a block takes.
whole_pages <- function(bytes, page) if (page > 0) ceiling(bytes / page) * page else bytes

# Malloc's large blocks that are on large pages, or managed: a list of columns.
blocks <- function() {
  # REAM_REGION_BLOCK of ream.h.
  block <- 2L
  regions <- .Call(C_ream_table)
  lapply(regions, `[`, regions$kind == block)
}

ISM.list <- function() {
  if (is.null(library_file())) {
    return(NULL)
  }
  found <- blocks()
  if (length(found$id) == 0) {
    return(NULL)
  }
  size <- whole_pages(found$length, .Call(C_ream_state)$large_page)
  data.frame(shmid = found$id, address = found$address, size = size, stringsAsFactors = FALSE)
}
