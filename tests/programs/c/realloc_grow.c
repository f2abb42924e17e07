/* realloc: one block grown from 4 KiB to the whole size and shrunk again, then many blocks of all sizes grown and
 * shrunk in turn; contents hold at every step. */
#include "common.h"

#define BLOCKS 64

int main(int argc, char **argv)
{
	size_t limit = argument(argc, argv, 1, 256) * MEGABYTE / 8, words = PAGE_WORDS, sizes[BLOCKS] = { 0 };
	uint64_t *block = malloc(words * 8), *blocks[BLOCKS] = { NULL }, random = 1, sum;
	size_t total = 0;

	must(block);
	fill(block, words, 0, 0);
	while (words < limit) {
		size_t larger = words + words / 2;

		if (larger > limit)
			larger = limit;
		block = realloc(block, larger * 8);
		must(block);
		check(block, words > 1000000 ? 1000000 : words, 0, 0, "the beginning of a grown block");
		fill(block + words, larger - words, words, 0);
		words = larger;
	}
	check(block, words, 0, 0, "the grown block");
	sum = checksum(block, words, 1);
	while (words > 4 * PAGE_WORDS) {
		words = words / 3;
		block = realloc(block, words * 8);
		must(block);
		check(block, words, 0, 0, "the shrunk block");
	}
	free(block);
	for (int step = 0; step < 2000; step++) {
		int k = next_random(&random) % BLOCKS;
		size_t most = limit / BLOCKS * 2;
		size_t want = step % 3 ? next_random(&random) % (most / 64) : next_random(&random) % most;
		uint64_t base = (uint64_t)(k + 1) << 40;

		if (total - sizes[k] + want > limit)
			want = want % 1000;
		check(blocks[k], sizes[k] < want ? sizes[k] : want, base, 0, "before realloc");
		blocks[k] = realloc(blocks[k], want * 8 + 8);
		must(blocks[k]);
		check(blocks[k], sizes[k] < want ? sizes[k] : want, base, 0, "after realloc");
		if (want > sizes[k])
			fill(blocks[k] + sizes[k], want - sizes[k], base + sizes[k], 0);
		total = total - sizes[k] + want;
		sizes[k] = want;
	}
	for (int k = 0; k < BLOCKS; k++) {
		check(blocks[k], sizes[k], (uint64_t)(k + 1) << 40, 0, "at the end");
		sum = checksum(blocks[k], sizes[k], sum);
		free(blocks[k]);
	}
	printf("realloc %016lx\n", sum);
	return 0;
}
