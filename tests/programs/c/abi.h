/* What the tests of ream.h share. */
#ifndef REAM_TEST_ABI_H
#define REAM_TEST_ABI_H

#include "common.h"
#include <ream.h>

struct wanted {
	const char *name;
	void *address;
	struct ream_region *to;
};

static int is_wanted(const struct ream_region *region, void *argument)
{
	struct wanted *wanted = argument;

	if (wanted->name ? strcmp(region->name, wanted->name) : region->address != wanted->address)
		return 0;
	*wanted->to = *region;
	return 1;
}

/* The region of this name, if there is one. */
__attribute__((unused)) static int find(const char *name, struct ream_region *to)
{
	struct wanted wanted = {.name = name, .to = to};

	return ream_each_region(is_wanted, &wanted);
}

/* The region that begins at this address. */
__attribute__((unused)) static int region_at(void *address, struct ream_region *to)
{
	struct wanted wanted = {.address = address, .to = to};

	return ream_each_region(is_wanted, &wanted);
}

#endif
