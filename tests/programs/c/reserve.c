/* Reserves argument 1 MiB in all, in several ways, and touches argument 2 MiB of it. */
#include "common.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
	size_t reserve = argument(argc, argv, 1, 640) * MEGABYTE, touch = argument(argc, argv, 2, 32) * MEGABYTE;
	void *none = mmap(NULL, reserve / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t *block = malloc(reserve / 2);

	must(none != MAP_FAILED && block);
	for (int round = 0; round < 20; round++) {
		fill(block, touch / 8, round, 0);
		check(block, touch / 8, round, 0, "what was touched");
		usleep(20000);
	}
	printf("touched %016lx\n", checksum(block, touch / 8, 1));
	return 0;
}
