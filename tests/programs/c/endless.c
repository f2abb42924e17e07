/* Keeps its memory paged until it is ended: argument 1 is the MiB of data, argument 2 how many processes share the
 * work (default 1). Prints a line a round. Ends by itself after two minutes. */
#include "common.h"
#include <time.h>

int main(int argc, char **argv)
{
	size_t pages = argument(argc, argv, 1, 256) * MEGABYTE / PAGE, processes = argument(argc, argv, 2, 1);
	uint64_t *block = malloc(pages * PAGE), random = 9;
	time_t begun = time(NULL);

	must(block);
	fill(block, pages * PAGE_WORDS, 0, 0);
	while (--processes > 0)
		if (fork() == 0)
			break;
	random += processes;
	while (time(NULL) < begun + 120) {
		for (int k = 0; k < 1000; k++) {
			size_t page = next_random(&random) % pages;
			uint64_t *words = block + page * PAGE_WORDS;

			check(words, PAGE_WORDS, page * PAGE_WORDS, words[0] - mix(page * PAGE_WORDS), "endless");
			for (size_t i = 0; i < PAGE_WORDS; i++)
				words[i]++;
		}
		must(puts("round") >= 0 && fflush(stdout) == 0);
	}
	return 0;
}
