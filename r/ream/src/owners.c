/* Which variables hold which blocks. R makes a vector of more than 128 bytes by one malloc, so a vector is in a block when
 * its address is. From environments that R hands in, everything is gone through that they hold: elements, attributes,
 * slots, environments of functions. Nothing is evaluated: an active binding is passed by, a promise has its value looked
 * at once it has one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <R.h>
#include <Rinternals.h>
#include <Rversion.h>
#include <R_ext/Altrep.h>
#include <R_ext/Visibility.h>

#include "glue.h"

/* How deep structures are followed. */
#define DEEPEST 100
/* Most elements of a character vector whose texts are looked at: long texts are few. */
#define TEXTS 4096
#define PATH 160
#define NAMES 400

struct block {
	uintptr_t start;
	uintptr_t end;
	SEXPTYPE type;
	int owners;
	char names[NAMES];
};

struct search {
	SEXP places;
	SEXP labels;
	SEXP starts;
	SEXP ends;
	struct block *blocks; /* in order of address */
	R_xlen_t count;
	/* What has been gone through already: a table of addresses, a power of two long and half full at most. */
	uintptr_t *seen;
	size_t room;
	size_t held;
	int depth;
	char path[PATH];
	SEXP result;
};

static void visit(struct search *search, SEXP value);

/* ---- What differs between versions of R ------------------------------------------------------------------------- */

#if R_VERSION >= R_Version(4, 6, 0)

/* What a variable is bound to, when that is known without evaluating anything; else null. */
static SEXP bound(SEXP symbol, SEXP environment)
{
	R_BindingType_t type;

	if (symbol == R_DotsSymbol)
		return NULL;
	type = R_GetBindingType(symbol, environment);
	if (type != R_BindingTypeValue && type != R_BindingTypeForced)
		return NULL;
	return R_getVar(symbol, environment, FALSE);
}

static SEXP forced(SEXP promise)
{
	return NULL;
}

#else

static SEXP forced(SEXP promise)
{
	SEXP value = PRVALUE(promise);

	return value == R_UnboundValue ? NULL : value;
}

static SEXP bound(SEXP symbol, SEXP environment)
{
	SEXP value;

	if (R_BindingIsActive(symbol, environment))
		return NULL;
	value = Rf_findVarInFrame3(environment, symbol, TRUE);
	return value == R_UnboundValue ? NULL : value;
}

static SEXP R_mapAttrib(SEXP value, SEXP (*tell)(SEXP, SEXP, void *), void *argument)
{
	for (SEXP at = ATTRIB(value); at != R_NilValue; at = CDR(at))
		tell(TAG(at), CAR(at), argument);
	return NULL;
}

#endif

#if R_VERSION < R_Version(4, 5, 0)
#define R_ClosureEnv CLOENV
#define R_ParentEnv ENCLOS
#endif

/* ---- What has been seen ----------------------------------------------------------------------------------------- */

static size_t place_of(const struct search *search, uintptr_t address)
{
	size_t at = (size_t)((uint64_t)address * 0x9e3779b97f4a7c15u >> 20) & (search->room - 1);

	while (search->seen[at] && search->seen[at] != address)
		at = (at + 1) & (search->room - 1);
	return at;
}

/* Whether something is met for the first time. */
static int first_time(struct search *search, SEXP value)
{
	uintptr_t address = (uintptr_t)value;
	size_t at;

	if (search->held * 2 >= search->room) {
		uintptr_t *old = search->seen;
		size_t room = search->room;
		uintptr_t *larger = calloc(room ? room * 2 : 1024, sizeof(*larger));

		if (!larger)
			Rf_error("ream.list: no memory for the list of what has been seen");
		search->seen = larger;
		search->room = room ? room * 2 : 1024;
		for (size_t one = 0; one < room; one++) {
			if (old[one])
				larger[place_of(search, old[one])] = old[one];
		}
		free(old);
	}
	at = place_of(search, address);
	if (search->seen[at])
		return 0;
	search->seen[at] = address;
	search->held++;
	return 1;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static int is_plain(const char *name)
{
	if (!*name || strchr("0123456789_", *name))
		return 0;
	for (; *name; name++) {
		if ((unsigned char)*name < 128 && !strchr("._", *name) &&
		    !(*name >= '0' && *name <= '9') && !((*name | 32) >= 'a' && (*name | 32) <= 'z'))
			return 0;
	}
	return 1;
}

/* Goes on with the path behind `before`; returns where it ended, to be cut off there again. */
static size_t go_on(struct search *search, const char *before, const char *name)
{
	size_t end = strlen(search->path);
	const char *quote = is_plain(name) ? "" : "`";

	snprintf(search->path + end, PATH - end, "%s%s%s%s", before, quote, name, quote);
	return end;
}

static void add_owner(struct search *search, SEXP value)
{
	uintptr_t address = (uintptr_t)value;
	R_xlen_t low = 0, high = search->count;
	struct block *block;
	size_t end;

	while (low < high) {
		R_xlen_t middle = low + (high - low) / 2;

		if (search->blocks[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	block = &search->blocks[low];
	if (low == search->count || address < block->start)
		return;
	end = strlen(block->names);
	if (!block->owners++)
		block->type = TYPEOF(value);
	if (end + strlen(search->path) + 8 < NAMES)
		snprintf(block->names + end, NAMES - end, "%s%s", end ? "; " : "", search->path);
	else if (end < 3 || strcmp(block->names + end - 3, "...") != 0)
		snprintf(block->names + end, NAMES - end, "; ...");
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

static int is_known_place(SEXP environment)
{
	return environment == R_GlobalEnv || environment == R_BaseEnv || environment == R_BaseNamespace ||
	       environment == R_EmptyEnv || R_IsPackageEnv(environment) || R_IsNamespaceEnv(environment);
}

/* What an environment binds; each name follows `before` in the path. */
static void visit_bindings(struct search *search, SEXP environment, const char *before)
{
	SEXP names;

	/* Its variables are calculated. */
	if (Rf_inherits(environment, "UserDefinedDatabase"))
		return;
	names = PROTECT(R_lsInternal3(environment, TRUE, FALSE));
	for (R_xlen_t at = 0; at < XLENGTH(names); at++) {
		SEXP value = bound(Rf_installTrChar(STRING_ELT(names, at)), environment);
		size_t end;

		if (!value)
			continue;
		end = go_on(search, before, CHAR(STRING_ELT(names, at)));
		visit(search, value);
		search->path[end] = 0;
	}
	UNPROTECT(1);
}

static void visit_environment(struct search *search, SEXP environment)
{
	char path[PATH];

	if (is_known_place(environment) || !first_time(search, environment))
		return;
	visit_bindings(search, environment, "$");
	memcpy(path, search->path, PATH);
	snprintf(search->path, PATH, "parent.env(%.120s)", path);
	if (search->depth < DEEPEST) {
		search->depth++;
		visit_environment(search, R_ParentEnv(environment));
		search->depth--;
	}
	memcpy(search->path, path, PATH);
}

static void visit_function(struct search *search, SEXP function)
{
	char path[PATH];

	if (is_known_place(R_ClosureEnv(function)))
		return;
	memcpy(path, search->path, PATH);
	snprintf(search->path, PATH, "environment(%.120s)", path);
	visit_environment(search, R_ClosureEnv(function));
	memcpy(search->path, path, PATH);
}

static void visit_elements(struct search *search, SEXP list)
{
	SEXP names = Rf_getAttrib(list, R_NamesSymbol);
	int has_names = TYPEOF(names) == STRSXP && !ALTREP(names) && XLENGTH(names) == XLENGTH(list);

	for (R_xlen_t at = 0; at < XLENGTH(list); at++) {
		SEXP element = VECTOR_ELT(list, at);
		const char *name = has_names ? CHAR(STRING_ELT(names, at)) : "";
		size_t end = strlen(search->path);

		if (*name)
			go_on(search, "$", name);
		else
			snprintf(search->path + end, PATH - end, "[[%lld]]", (long long)at + 1);
		visit(search, element);
		search->path[end] = 0;
	}
}

static SEXP visit_attribute(SEXP tag, SEXP value, void *argument)
{
	struct search *search = argument;
	char path[PATH];

	/* Only the names of a list may be many; they are texts of a few bytes. */
	if (value == R_NilValue)
		return NULL;
	memcpy(path, search->path, PATH);
	snprintf(search->path, PATH, "attr(%.100s, \"%.40s\")", path, CHAR(PRINTNAME(tag)));
	visit(search, value);
	memcpy(search->path, path, PATH);
	return NULL;
}

static SEXP visit_slot(SEXP tag, SEXP value, void *argument)
{
	struct search *search = argument;
	size_t end = go_on(search, "@", CHAR(PRINTNAME(tag)));

	visit(search, value);
	search->path[end] = 0;
	return NULL;
}

/* Follows the pairs themselves: their number is not bounded by how deep a structure is. */
static void visit_pairs(struct search *search, SEXP pairs)
{
	while (TYPEOF(pairs) == LISTSXP || TYPEOF(pairs) == LANGSXP || TYPEOF(pairs) == DOTSXP) {
		visit(search, CAR(pairs));
		pairs = CDR(pairs);
	}
}

static void visit_inside(struct search *search, SEXP value)
{
	SEXPTYPE type = TYPEOF(value);

	switch (type) {
	case LGLSXP:
	case INTSXP:
	case REALSXP:
	case CPLXSXP:
	case RAWSXP:
	case STRSXP:
	case VECSXP:
	case EXPRSXP:
		if (ALTREP(value)) {
			visit(search, R_altrep_data1(value));
			visit(search, R_altrep_data2(value));
			break;
		}
		add_owner(search, value);
		if (type == STRSXP && XLENGTH(value) <= TEXTS) {
			for (R_xlen_t at = 0; at < XLENGTH(value); at++)
				add_owner(search, STRING_ELT(value, at));
		}
		if ((type == VECSXP || type == EXPRSXP) && first_time(search, value))
			visit_elements(search, value);
		break;
	case LISTSXP:
	case LANGSXP:
	case DOTSXP:
		if (first_time(search, value))
			visit_pairs(search, value);
		break;
	case PROMSXP:
		if (forced(value))
			visit(search, forced(value));
		return;
	case ENVSXP:
		visit_environment(search, value);
		break;
	case CLOSXP:
		visit_function(search, value);
		break;
	case EXTPTRSXP:
		if (first_time(search, value)) {
			visit(search, R_ExternalPtrProtected(value));
			visit(search, R_ExternalPtrTag(value));
		}
		break;
	case S4SXP:
		break;
	default:
		return;
	}
	R_mapAttrib(value, Rf_isS4(value) ? visit_slot : visit_attribute, search);
}

static void visit(struct search *search, SEXP value)
{
	if (value == R_NilValue || search->depth == DEEPEST)
		return;
	search->depth++;
	visit_inside(search, value);
	search->depth--;
}

static SEXP walk(void *argument)
{
	struct search *search = argument;
	SEXP names, types;

	search->blocks = calloc((size_t)search->count + 1, sizeof(*search->blocks));
	if (!search->blocks)
		Rf_error("ream.list: no memory for %lld blocks", (long long)search->count);
	for (R_xlen_t at = 0; at < search->count; at++) {
		search->blocks[at].start = (uintptr_t)REAL(search->starts)[at];
		search->blocks[at].end = (uintptr_t)REAL(search->ends)[at];
	}
	for (R_xlen_t at = 0; at < XLENGTH(search->places); at++) {
		SEXP place = VECTOR_ELT(search->places, at);

		snprintf(search->path, PATH, "%s", CHAR(STRING_ELT(search->labels, at)));
		if (TYPEOF(place) == ENVSXP && first_time(search, place))
			visit_bindings(search, place, "");
	}
	search->result = PROTECT(Rf_allocVector(VECSXP, 2));
	names = Rf_allocVector(STRSXP, search->count);
	SET_VECTOR_ELT(search->result, 0, names);
	types = Rf_allocVector(STRSXP, search->count);
	SET_VECTOR_ELT(search->result, 1, types);
	for (R_xlen_t at = 0; at < search->count; at++) {
		const struct block *block = &search->blocks[at];

		SET_STRING_ELT(names, at, block->owners ? Rf_mkCharCE(block->names, CE_UTF8) : NA_STRING);
		SET_STRING_ELT(types, at, block->owners ? Rf_mkChar(Rf_type2char(block->type)) : NA_STRING);
	}
	UNPROTECT(1);
	return search->result;
}

static void release(void *argument)
{
	struct search *search = argument;

	free(search->seen);
	free(search->blocks);
}

/*
 * For blocks from `starts` to `ends` (numbers, in order): a list of the names of what holds them, and of its types.
 * `places` are environments; what is found in each has its label in front.
 */
attribute_hidden SEXP ream_owners(SEXP places, SEXP labels, SEXP starts, SEXP ends)
{
	struct search search = {.places = places, .labels = labels, .starts = starts, .ends = ends};

	search.count = XLENGTH(starts);
	/* R leaves by a jump where memory runs out. */
	return R_ExecWithCleanup(walk, &search, release, &search);
}
