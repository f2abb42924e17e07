/* What f90/coverage.f90 calls to look at its own pages. */
#include "look.h"

void look_begin(void);
void look_say(const char *name, const void *memory, size_t bytes);

void look_begin(void)
{
	begin_to_look();
}

/* The region of so many bytes, whose pages have been touched. */
void look_say(const char *name, const void *memory, size_t bytes)
{
	struct sum sum = {0, 0, 0, 0};

	add(&sum, memory, bytes);
	say(name, &sum);
	fflush(stdout);
}
