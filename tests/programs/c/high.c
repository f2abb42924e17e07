/* Memory at addresses that only page tables of five levels have: used, left alone by Ream, and not moved to. Where the
 * machine has none, nothing. Argument: MiB. */
#include "common.h"

#define HIGH ((void *)(1UL << 50))

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 64) * MEGABYTE;
	uint64_t *high = mmap(HIGH, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *low = malloc(bytes);

	must(low && high != MAP_FAILED);
	fill(low, bytes / 8, 0, 0);
	fill(high, bytes / 8, bytes / 8, 0);
	check(low, bytes / 8, 0, 0, "low");
	check(high, bytes / 8, bytes / 8, 0, "high");
	must((uintptr_t)high < 1UL << 48 || munmap(high, bytes) == 0);
	low = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(low != MAP_FAILED);
	fill(low, bytes / 8, 0, 1);
	high = mremap(low, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, HIGH);
	check(high == MAP_FAILED ? low : high, bytes / 8, 0, 1, "moved, or not");
	puts("right");
	return 0;
}
