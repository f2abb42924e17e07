# The assignment `x := value`: whatever the switch says, large pages are on while `value` is evaluated.

`:=` <- function(x, value, ...) {
  call <- sys.call()
  if (length(call) != 3 || !is.null(names(call)) || !is.symbol(call[[2]]) || identical(call[[3]], quote(...))) {
    return(others_assign(call, parent.frame()))
  }
  if (is.null(library_file())) {
    if (!state$warned) {
      state$warned <- TRUE
      warning("':=' assigns without large pages, for Ream's library is not found: set REAM_HOME", call. = FALSE)
    }
  } else {
    before <- .Call(C_ream_state)
    # First, so that an error or an interrupt at any moment puts it back.
    bounds <- c(state$minKB, state$maxKB)
    on.exit({
      .Call(C_ream_switch, before$enabled, before$min, before$max)
      state$minKB <- bounds[1]
      state$maxKB <- bounds[2]
    })
    if (!before$enabled) {
      .Call(C_ream_switch, TRUE, least_bytes(state$minKB), most_bytes(state$maxKB))
    }
  }
  # Evaluated here, where the caller wrote it.
  force(value)
  assign(as.character(call[[2]]), value, envir = parent.frame())
  if (isTRUE(getOption("ream.verbose"))) {
    say(as.character(call[[2]]), " has ", human(as.numeric(object.size(value))))
  }
  invisible(value)
}

# A call whose left side is not a variable is meant for another package's `:=`: the one that is attached first, else one
# that is loaded.
others_assign <- function(call, frame) {
  known <- c("data.table", "rlang")
  attached <- sub("^package:", "", search())
  for (name in unique(c(attached[attached %in% known], known[known %in% loadedNamespaces()]))) {
    call[[1]] <- getExportedValue(name, ":=")
    return(eval(call, frame))
  }
  fail(
    "the left side of ':=' is to be the name of a variable ",
    "(neither data.table nor rlang is loaded, whose ':=' takes others)"
  )
}
