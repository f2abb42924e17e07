/* The routines that the R code calls: each passes one of Ream's functions on, in R's types. Numbers of bytes are doubles,
 * which are exact up to 2^53. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <R.h>
#include <Rinternals.h>
#include <R_ext/Rdynload.h>
#include <R_ext/Visibility.h>

#include "glue.h"

static const struct reached *reached(void)
{
	const char *where;
	const struct reached *functions = reach(&where);

	if (!functions)
		Rf_errorcall(R_NilValue, "%s", where);
	return functions;
}

static SEXP named(int count, const char *const names[])
{
	SEXP list = PROTECT(Rf_allocVector(VECSXP, count));
	SEXP texts = PROTECT(Rf_allocVector(STRSXP, count));

	for (int at = 0; at < count; at++)
		SET_STRING_ELT(texts, at, Rf_mkChar(names[at]));
	Rf_setAttrib(list, R_NamesSymbol, texts);
	UNPROTECT(2);
	return list;
}

/* The file that the functions are from; where there is none NULL, or an error when there must be one. */
static SEXP ream_library(SEXP must)
{
	const char *where;

	if (reach(&where))
		return Rf_mkString(where);
	if (Rf_asLogical(must))
		Rf_errorcall(R_NilValue, "%s", where);
	return R_NilValue;
}

static SEXP ream_state(void)
{
	static const char *const names[] = {"support", "enabled", "session", "paging", "min", "max", "large_page",
					    "budget", "managed", "resident", "engine"};
	struct ream_status status = {.size = sizeof(status)};
	char engine[sizeof(status.engine) + 1] = "";
	int code = reached()->status(&status);
	SEXP list;

	if (code)
		Rf_errorcall(R_NilValue, "ream_status: %s", reached()->text(code));
	memcpy(engine, status.engine, sizeof(status.engine));
	list = PROTECT(named(11, names));
	SET_VECTOR_ELT(list, 0, Rf_ScalarInteger((int)status.support));
	SET_VECTOR_ELT(list, 1, Rf_ScalarLogical(status.enabled != 0));
	SET_VECTOR_ELT(list, 2, Rf_ScalarLogical(status.session != 0));
	SET_VECTOR_ELT(list, 3, Rf_ScalarLogical(status.paging != 0));
	SET_VECTOR_ELT(list, 4, Rf_ScalarReal((double)status.min));
	SET_VECTOR_ELT(list, 5, Rf_ScalarReal((double)status.max));
	SET_VECTOR_ELT(list, 6, Rf_ScalarReal((double)status.large_page));
	SET_VECTOR_ELT(list, 7, Rf_ScalarReal((double)status.budget));
	SET_VECTOR_ELT(list, 8, Rf_ScalarReal((double)status.managed));
	SET_VECTOR_ELT(list, 9, Rf_ScalarReal((double)status.resident));
	SET_VECTOR_ELT(list, 10, Rf_mkString(engine));
	UNPROTECT(1);
	return list;
}

/* A size of R's as one of C's; what is too large for that, infinity too, has no limit. */
static size_t bytes_of(SEXP number)
{
	double bytes = Rf_asReal(number);

	if (!(bytes > 0))
		return 0;
	return bytes < 9e18 ? (size_t)bytes : SIZE_MAX;
}

/* on, and both bounds in bytes; an upper one of 0 or infinity is none. */
static SEXP ream_switch(SEXP on, SEXP min, SEXP max)
{
	size_t most = bytes_of(max);
	int code = reached()->enable(Rf_asLogical(on) == 1, bytes_of(min), most == SIZE_MAX ? 0 : most);

	if (code)
		Rf_errorcall(R_NilValue, "ream_enable: %s", reached()->text(code));
	return R_NilValue;
}

/* The regions, a list of columns; addresses as numbers and as text. */
static SEXP ream_table(void)
{
	static const char *const names[] = {"id", "start", "address", "length", "resident", "large",
					    "staged", "stored", "kind", "managed"};
	const struct reached *functions = reached();
	struct ream_region *regions = NULL;
	long room = 0, count;
	SEXP list;
	void *mark = vmaxget();

	/* What is allocated here may be a region itself, and the table's length grow by it. */
	while ((count = functions->regions(regions, (size_t)room, sizeof(*regions))) > room) {
		room = count + 16;
		regions = (struct ream_region *)R_alloc((size_t)room, sizeof(*regions));
		/* The library writes by way of the kernel, which checkers of memory do not see. */
		memset(regions, 0, (size_t)room * sizeof(*regions));
	}
	if (count < 0)
		Rf_errorcall(R_NilValue, "ream_regions: %s", functions->text((int)count));
	list = PROTECT(named(10, names));
	for (int column = 0; column < 10; column++) {
		SEXPTYPE type = column == 2 ? STRSXP : column == 8 ? INTSXP : column == 9 ? LGLSXP : REALSXP;

		SET_VECTOR_ELT(list, column, Rf_allocVector(type, count));
	}
	for (long at = 0; at < count; at++) {
		const struct ream_region *region = &regions[at];
		char text[32];

		snprintf(text, sizeof(text), "0x%llx", (unsigned long long)(uintptr_t)region->address);
		REAL(VECTOR_ELT(list, 0))[at] = (double)region->id;
		REAL(VECTOR_ELT(list, 1))[at] = (double)(uintptr_t)region->address;
		SET_STRING_ELT(VECTOR_ELT(list, 2), at, Rf_mkChar(text));
		REAL(VECTOR_ELT(list, 3))[at] = (double)region->length;
		REAL(VECTOR_ELT(list, 4))[at] = (double)region->resident;
		REAL(VECTOR_ELT(list, 5))[at] = (double)region->large;
		REAL(VECTOR_ELT(list, 6))[at] = (double)region->staged;
		REAL(VECTOR_ELT(list, 7))[at] = (double)region->stored;
		INTEGER(VECTOR_ELT(list, 8))[at] = (int)region->kind;
		LOGICAL(VECTOR_ELT(list, 9))[at] = (region->flags & REAM_REGION_MANAGED) != 0;
	}
	vmaxset(mark);
	UNPROTECT(1);
	return list;
}

/* Begins a session; 0 or the error. NA when the library cannot. */
static SEXP ream_begin(SEXP budget, SEXP store)
{
	const struct reached *functions = reached();
	const char *directory = store == R_NilValue ? NULL : Rf_translateChar(STRING_ELT(store, 0));

	if (!functions->start)
		return Rf_ScalarInteger(NA_INTEGER);
	return Rf_ScalarInteger(functions->start((uint64_t)bytes_of(budget), directory));
}

static SEXP ream_another_budget(SEXP budget)
{
	return Rf_ScalarInteger(reached()->budget((uint64_t)bytes_of(budget)));
}

static SEXP ream_text(SEXP code)
{
	return Rf_mkString(reached()->text(Rf_asInteger(code)));
}

/* Bytes that a vector has in front of its data, in the same block. */
static SEXP ream_header(void)
{
	SEXP vector = PROTECT(Rf_allocVector(RAWSXP, 1024));
	double bytes = (double)((char *)RAW(vector) - (char *)vector);

	UNPROTECT(1);
	return Rf_ScalarReal(bytes);
}

/* By way of a type that any function may be cast to. */
#define ROUTINE(name, arguments) {#name, (DL_FUNC)(void (*)(void))&name, arguments}

static const R_CallMethodDef routines[] = {
	ROUTINE(ream_library, 1),
	ROUTINE(ream_state, 0),
	ROUTINE(ream_switch, 3),
	ROUTINE(ream_table, 0),
	ROUTINE(ream_begin, 2),
	ROUTINE(ream_another_budget, 1),
	ROUTINE(ream_text, 1),
	ROUTINE(ream_header, 0),
	ROUTINE(ream_owners, 4),
	{NULL, NULL, 0}
};

void attribute_visible R_init_ream(DllInfo *library)
{
	R_registerRoutines(library, NULL, routines, NULL, NULL);
	R_useDynamicSymbols(library, FALSE);
	R_forceSymbols(library, TRUE);
}
