/* Finds Ream's functions. In a session they are in the process already. Otherwise a library is loaded that exports
 * nothing else and takes malloc over only when ream_enable says so; it is never unloaded, since blocks of its own are in
 * use as long as the process runs. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "glue.h"

static struct reached functions;
static char place[4096];
/* Why a library that is there could not be loaded. */
static char problem[4096];

/* A pointer to a function from one to data, as POSIX has it. */
static void find(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	memcpy(function, &found, sizeof(found));
}

static int take(void *library)
{
	find(library, "ream_status", &functions.status);
	find(library, "ream_regions", &functions.regions);
	find(library, "ream_enable", &functions.enable);
	find(library, "ream_budget", &functions.budget);
	find(library, "ream_start", &functions.start);
	find(library, "ream_error", &functions.text);
	return functions.status && functions.regions && functions.enable && functions.budget && functions.text;
}

static void *open_in(const char *prefix, const char *below)
{
	void *library;

	snprintf(place, sizeof(place), "%s%s/libream_inside.so", prefix, below);
	library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
	if (!library && access(place, F_OK) == 0)
		snprintf(problem, sizeof(problem), "Ream's library cannot be loaded: %s", dlerror());
	return library;
}

/* The library that is loaded, or null. */
static void *open_library(void)
{
	const char *home = getenv("REAM_HOME");
	void *library = NULL;

	/* Who names a place means that one: another version would be a surprise. */
	if (home && *home)
		return open_in(home, "/lib/ream");
#ifdef REAM_LIBRARY_DIRECTORY
	library = open_in(REAM_LIBRARY_DIRECTORY, "");
#endif
	if (!library)
		library = open_in("/usr/local/lib/ream", "");
	if (!library)
		library = open_in("/usr/lib/ream", "");
	return library;
}

attribute_hidden const struct reached *reach(const char **where)
{
	/* Once it has failed it may be tried again: REAM_HOME may have been set since. */
	static int found;

	if (!found) {
		void *library = RTLD_DEFAULT;

		strcpy(problem, "Ream's library is not found; set REAM_HOME to the prefix that it was installed to");
		if (dlsym(RTLD_DEFAULT, "ream_status")) {
			Dl_info information;
			void *status = dlsym(RTLD_DEFAULT, "ream_status");
			const char *file = dladdr(status, &information) ? information.dli_fname : NULL;

			snprintf(place, sizeof(place), "%s", file ? file : "");
		} else {
			library = open_library();
		}
		found = (library || dlsym(RTLD_DEFAULT, "ream_status")) && take(library);
	}
	*where = found ? place : problem;
	return found ? &functions : NULL;
}
