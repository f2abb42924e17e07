/* What the files of the glue share: how Ream's functions are reached, and the search for the variables that hold blocks. */
#ifndef REAM_GLUE_H
#define REAM_GLUE_H

#include <ream.h>
#include <Rinternals.h>
#include <R_ext/Visibility.h>

/* Ream's functions, as they were found; those that are not there are null. */
struct reached {
	int (*status)(struct ream_status *status);
	long (*regions)(struct ream_region *regions, size_t count, size_t each);
	int (*enable)(int on, size_t min, size_t max);
	int (*budget)(uint64_t bytes);
	int (*start)(uint64_t budget, const char *store);
	const char *(*text)(int code);
};

/*
 * Finds them on the first call: in the process, when it was started by `ream run`, else in libream_inside.so, which is
 * loaded then. Returns null when there is none. `where` is the library's file, or what to say.
 */
attribute_hidden const struct reached *reach(const char **where);

/* Routines of R that are not in ream.c; see there. */
attribute_hidden SEXP ream_owners(SEXP places, SEXP labels, SEXP starts, SEXP ends);

#endif
