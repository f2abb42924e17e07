# What RISM did not have: status of the session, a budget at run time, blocks with the variables that hold them.

ream.status <- function() {
  file <- library_file(must = TRUE)
  now <- .Call(C_ream_state)
  regions <- .Call(C_ream_table)
  # REAM_SUPPORTS_... of ream.h.
  supports <- bitwAnd(now$support, c(large_pages = 1L, budget = 2L, paging = 4L)) != 0
  names(supports) <- c("large_pages", "budget", "paging")
  status <- list(
    library = file, supports = supports, enabled = now$enabled, min = now$min,
    max = if (now$max == 0) Inf else now$max, large_page = now$large_page, session = now$session,
    paging = now$paging, engine = now$engine, budget = now$budget, managed = now$managed,
    resident = now$resident, on_large_pages = sum(regions$large), stored = sum(regions$stored)
  )
  structure(status, class = "ream.status")
}

print.ream.status <- function(x, ...) {
  line <- function(name, ...) cat(formatC(name, width = -12), ..., "\n", sep = "")
  upper <- if (is.finite(x$max)) paste("to", human(x$max)) else "without a limit"
  line("library", x$library)
  line(
    "large pages", if (!x$supports[["large_pages"]]) "none to be had: see 'ream doctor'" else human(x$large_page),
    if (x$enabled) paste0(", on for blocks from ", human(x$min), " ", upper) else ", off for new blocks"
  )
  if (x$session) {
    line("session", "budget ", human(x$budget), ", ", if (x$paging) paste("paging, engine", x$engine) else "not paging yet")
    line("managed", human(x$managed), ", ", human(x$stored), " in the store")
  } else {
    line("session", "none: ream.memory() begins one, or 'ream run' before R")
  }
  line("in RAM", human(x$resident), ", ", human(x$on_large_pages), " of it on large pages")
  invisible(x)
}

# Where variables are looked for: functions that are running, the workspace, what is attached, loaded packages. Each has
# what stands in front of its variables' names.
places <- function(frames, calls) {
  label <- function(call) {
    name <- if (is.call(call) && is.symbol(call[[1]])) as.character(call[[1]]) else "function"
    paste0(name, "()$")
  }
  attached <- search()
  attached <- attached[!grepl("^package:|^\\.GlobalEnv$|^Autoloads$", attached)]
  packages <- setdiff(loadedNamespaces(), "base")
  environments <- c(
    list(globalenv()), frames, lapply(attached, as.environment), lapply(packages, asNamespace),
    lapply(grep("^package:", setdiff(search(), "package:base"), value = TRUE), as.environment)
  )
  labels <- c(
    "", vapply(calls, label, ""), if (length(attached)) paste0(attached, "$"), paste0(packages, ":::"),
    sub("^package:(.*)$", "\\1::", grep("^package:", setdiff(search(), "package:base"), value = TRUE))
  )
  list(environments, as.character(labels))
}

ream.list <- function() {
  if (is.null(library_file())) {
    return(NULL)
  }
  found <- blocks()
  if (length(found$id) == 0) {
    return(NULL)
  }
  # Not this function's own frame, nor a generic's on the way here.
  count <- sys.nframe() - 1L
  frames <- lapply(seq_len(count), sys.frame)
  where <- places(frames, lapply(seq_len(count), sys.call))
  owners <- .Call(C_ream_owners, where[[1]], where[[2]], found$start, found$start + found$length)
  data.frame(
    name = owners[[1]], type = owners[[2]], address = found$address,
    size = whole_pages(found$length, .Call(C_ream_state)$large_page),
    resident = (found$resident + found$staged) / found$length, stored = found$stored / found$length,
    large = found$large / found$length, managed = found$managed, stringsAsFactors = FALSE
  )
}

# Bytes of "4G", "512M", "50%" (of the machine's RAM), or of a number.
bytes_of_text <- function(size) {
  if (is.numeric(size) && length(size) == 1 && is.finite(size) && size >= 0) {
    return(floor(size))
  }
  form <- "^[[:space:]]*([0-9]+([.][0-9]+)?)[[:space:]]*([kKmMgGtT]?)([iI]?[bB])?[[:space:]]*$"
  if (is.character(size) && length(size) == 1 && grepl(form, size)) {
    unit <- toupper(sub(form, "\\3", size))
    return(floor(as.numeric(sub(form, "\\1", size)) * 1024^(match(unit, c("", "K", "M", "G", "T")) - 1)))
  }
  share <- "^[[:space:]]*([0-9]+([.][0-9]+)?)[[:space:]]*%[[:space:]]*$"
  if (is.character(size) && length(size) == 1 && grepl(share, size)) {
    total <- grep("^MemTotal:", readLines("/proc/meminfo"), value = TRUE)
    return(floor(as.numeric(sub(share, "\\1", size)) / 100 * as.numeric(gsub("[^0-9]", "", total)) * 1024))
  }
  fail("a size is a number of bytes, or a text like \"4G\", \"512M\" or \"50%\"")
}

ream.memory <- function(size, store = NULL) {
  if (missing(size)) {
    return(ream.status()$budget)
  }
  library_file(must = TRUE)
  bytes <- bytes_of_text(size)
  if (!is.null(store)) {
    if (!is.character(store) || length(store) != 1 || is.na(store)) {
      fail("'store' is to be the path of a directory")
    }
    store <- path.expand(store)
  }
  if (bytes < 16 * 1024^2) {
    fail("a budget is 16 MiB at least, not ", human(bytes))
  }
  EALREADY <- -114L
  if (.Call(C_ream_state)$session) {
    code <- EALREADY
  } else {
    code <- .Call(C_ream_begin, bytes, store)
  }
  if (is.na(code)) {
    fail("this library cannot begin a session from inside: start R with 'ream run --memory ", size, " -- R'")
  }
  if (code == EALREADY) {
    if (!is.null(store)) {
      warning("there is a session already: its store stays what it is")
    }
    code <- .Call(C_ream_another_budget, bytes)
  } else if (code == 0L) {
    # What ISM() or := have said meanwhile would leave other vectors out of the budget.
    ISM(TRUE, min(state$minKB, 1024), Inf)
  }
  reason <- c(
    "-2" = "the 'ream' command is neither beside the library nor in PATH",
    "-22" = "the budget or the store cannot be used; the line before says why"
  )[as.character(code)]
  if (code != 0L) {
    fail("ream.memory: ", if (is.na(reason)) .Call(C_ream_text, code) else reason)
  }
  say("the budget is ", human(bytes))
  invisible(bytes)
}
