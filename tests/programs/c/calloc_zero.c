/* calloc gives zeros, also where memory that was full, paged out and freed is used again; what is written to it
 * then holds. */
#include "common.h"

#define BLOCKS 256

int main(int argc, char **argv)
{
	size_t limit = argument(argc, argv, 1, 256) * MEGABYTE / 8, total = 0, sizes[BLOCKS] = { 0 };
	uint64_t *blocks[BLOCKS] = { NULL }, random = 2, sum = 0;

	for (int step = 0; step < 1500; step++) {
		int k = next_random(&random) % BLOCKS;
		size_t shift = next_random(&random) % 22, want = (next_random(&random) % 4 + 1) << shift;

		check(blocks[k], sizes[k], (uint64_t)k << 40, 0, "before free");
		free(blocks[k]);
		total -= sizes[k];
		if (total + want > limit)
			want = 1 + want % 512;
		blocks[k] = calloc(want, 8);
		must(blocks[k]);
		for (size_t i = 0; i < want; i++)
			if (blocks[k][i])
				fail("calloc of %zu words: word %zu is %016lx", want, i, blocks[k][i]);
		fill(blocks[k], want, (uint64_t)k << 40, 0);
		sizes[k] = want;
		total += want;
	}
	for (int k = 0; k < BLOCKS; k++) {
		check(blocks[k], sizes[k], (uint64_t)k << 40, 0, "at the end");
		sum = checksum(blocks[k], sizes[k], sum);
		free(blocks[k]);
	}
	printf("calloc %016lx\n", sum);
	return 0;
}
