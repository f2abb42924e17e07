/* One allocation of argument 1 GiB of which argument 2 single pages all over are written and verified; and ten
 * thousand allocations of 1 MiB with a page each. */
#include "common.h"
#include <sys/mman.h>

#define MANY 10000

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 1024) << 30, pages = argument(argc, argv, 2, 20000);
	size_t step = bytes / pages / PAGE * PAGE;
	char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t *many[MANY];

	must(area != MAP_FAILED);
	/* A huge page for every page that is touched would be the kernel's doing, not Ream's. */
	madvise(area, bytes, MADV_NOHUGEPAGE);
	for (size_t k = 0; k < pages; k++)
		fill((uint64_t *)(area + k * step), PAGE_WORDS, k * PAGE_WORDS, 0);
	for (size_t k = 0; k < MANY; k++) {
		must((many[k] = malloc(MEGABYTE)));
		fill(many[k] + 1000, 64, k, 7);
	}
	for (size_t k = pages; k-- > 0;)
		check((uint64_t *)(area + k * step), PAGE_WORDS, k * PAGE_WORDS, 0, "sparse");
	for (size_t k = 0; k < MANY; k++) {
		check(many[k] + 1000, 64, k, 7, "one of many");
		free(many[k]);
	}
	must(munmap(area, bytes) == 0);
	printf("sparse\n");
	return 0;
}
