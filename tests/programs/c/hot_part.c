/* Writes pages in order, then reads one part of them at random, many times; at last reads all. Arguments: MiB, first MiB of
 * the part and how many it has, and how often each of its pages is read. */
#include "common.h"

int main(int argc, char **argv)
{
	size_t pages = argument(argc, argv, 1, 64) * MEGABYTE / PAGE, first = argument(argc, argv, 2, 0) * MEGABYTE / PAGE;
	size_t part = argument(argc, argv, 3, 8) * MEGABYTE / PAGE, times = argument(argc, argv, 4, 8);
	uint64_t *block = malloc(pages * PAGE), state = 1;

	must(block && first + part <= pages);
	for (size_t i = 0; i < pages * PAGE_WORDS; i++)
		block[i] = mix(i);
	for (size_t i = 0; i < part * times; i++) {
		size_t at = (first + next_random(&state) % part) * PAGE_WORDS + next_random(&state) % PAGE_WORDS;

		if (block[at] != mix(at))
			fail("word %zu is not what was written", at);
	}
	for (size_t i = 0; i < pages * PAGE_WORDS; i++)
		if (block[i] != mix(i))
			fail("word %zu is not what was written", i);
	puts("right");
	return 0;
}
