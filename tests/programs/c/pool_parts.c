/* Memory that may lie on pages of a pool, of which the program does not know: it discards any part of it. */
#include "common.h"
#include <sys/mman.h>

enum { PAGE_SIZE = 4096, BLOCK = 2 << 20, BYTES = 16 << 20 };

static char data[BYTES];

/* Discards a part of an area full of sevens, which reads as zeros then, and nothing else does. */
static void discard(const char *what, char *area, size_t from, size_t bytes)
{
	size_t zeros = 0, sevens = 0;

	memset(area, 7, BYTES - BLOCK);
	must(madvise(area + from, bytes, MADV_DONTNEED) == 0);
	for (size_t k = 0; k < BYTES - BLOCK; k++) {
		int inside = k >= from && k < from + bytes;

		zeros += inside && area[k] == 0;
		sevens += !inside && area[k] == 7;
	}
	printf("%s: %zu zeros, %zu sevens\n", what, zeros, sevens);
	memset(area, 7, BYTES - BLOCK);
	must(madvise(area + from, bytes, MADV_FREE) == 0);
	must(madvise(area + from, bytes, MADV_HUGEPAGE) == 0 || errno == EINVAL);
	memset(area, 7, BYTES - BLOCK);
}

int main(void)
{
	char *heap = aligned_alloc(PAGE_SIZE, BYTES), *areas[2];

	must(heap != NULL);
	areas[0] = heap + (-(uintptr_t)heap & (BLOCK - 1));
	areas[1] = data + (-(uintptr_t)data & (BLOCK - 1));
	for (int k = 0; k < 2; k++) {
		discard("from within a page", areas[k], 5 << 20, 4 << 20);
		discard("from a page's start", areas[k], 4 << 20, (3 << 20) + PAGE_SIZE);
		discard("a part of one", areas[k], 3 * PAGE_SIZE, 2 * PAGE_SIZE);
		discard("whole ones", areas[k], BLOCK, 2 * BLOCK);
		/* What is protected, and another mapping in the place of a block. */
		must(mprotect(areas[k] + BLOCK, BLOCK, PROT_READ) == 0);
		must(madvise(areas[k] + BLOCK, BLOCK, MADV_DONTNEED) == 0);
		must(mprotect(areas[k] + BLOCK, BLOCK, PROT_READ | PROT_WRITE) == 0);
		printf("then: %d %d %d\n", areas[k][0], areas[k][BLOCK], areas[k][2 * BLOCK]);
		must(mmap(areas[k] + BLOCK, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		     areas[k] + BLOCK);
		memset(areas[k] + BLOCK, 4, BLOCK);
		must(madvise(areas[k] + BLOCK + PAGE_SIZE, PAGE_SIZE, MADV_DONTNEED) == 0);
		printf("then: %d %d\n", areas[k][BLOCK], areas[k][BLOCK + PAGE_SIZE]);
	}
	return 0;
}
