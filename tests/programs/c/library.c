/* A library with static data of its own, for c/library_user.c. */
#include "common.h"

char *library_memory(size_t which, size_t *bytes);

static char bss[32 * MEGABYTE];
static char data[16 * MEGABYTE] = {1};

/* Its static data: 0 those without values, 1 those with. */
char *library_memory(size_t which, size_t *bytes)
{
	*bytes = which ? sizeof data : sizeof bss;
	return which ? data : bss;
}
