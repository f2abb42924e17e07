/* Fills a heap block of 40 MiB, static data of 16 MiB with and without values, and 5 MiB of its stack, and sleeps until a signal
 * comes. */
#include "common.h"

static char values[16 * MEGABYTE] = {1};
static char zeros[16 * MEGABYTE];

__attribute__((noinline)) static void deep(void)
{
	volatile char stack[5 * MEGABYTE];

	for (size_t at = 0; at < sizeof stack; at += PAGE)
		stack[at] = 1;
	for (;;)
		pause();
}

int main(void)
{
	volatile char *block = malloc(40 * MEGABYTE);

	must(block);
	for (size_t at = 0; at < 40 * MEGABYTE; at += PAGE)
		block[at] = 1;
	memset(values, 2, sizeof values);
	memset(zeros, 1, sizeof zeros);
	deep();
}
