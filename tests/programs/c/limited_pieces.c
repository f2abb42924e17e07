/* Under a limit on address space, maps pieces of 1 MiB and then a large one that fits only if nothing was mapped in
 * reserve. Touches and checks all of it. */
#include "common.h"
#include <sys/mman.h>
#include <sys/resource.h>

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED);
	return memory;
}

int main(void)
{
	unsigned long pages;
	struct rlimit limit;
	FILE *file = fopen("/proc/self/statm", "r");
	void *pieces[20], *large;

	must(file && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
	limit.rlim_cur = limit.rlim_max = pages * PAGE + 48 * MEGABYTE;
	must(setrlimit(RLIMIT_AS, &limit) == 0);
	for (int i = 0; i < 20; i++) {
		pieces[i] = map(MEGABYTE);
		fill(pieces[i], MEGABYTE / 8, i, 1);
	}
	large = map(24 * MEGABYTE);
	fill(large, 24 * MEGABYTE / 8, 99, 1);
	for (int i = 0; i < 20; i++)
		check(pieces[i], MEGABYTE / 8, i, 1, "piece");
	check(large, 24 * MEGABYTE / 8, 99, 1, "large");
	printf("all fits\n");
	return 0;
}
