/* Locks more memory than the budget has, works on other memory beside it, and lets go again: what is locked has to stay
 * in RAM, and what is not goes on being paged. Arguments: MiB to lock, MiB beside them. */
#include "common.h"
#include <sys/mman.h>

static uint64_t *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED);
	return memory;
}

int main(int argc, char **argv)
{
	size_t locked = argument(argc, argv, 1, 96) * MEGABYTE, beside = argument(argc, argv, 2, 128) * MEGABYTE;
	uint64_t *a = map(locked), *b = map(beside);

	fill(a, locked / 8, 0, 1);
	/* In pieces: more than half a budget at once may be refused, as it would be beyond RLIMIT_MEMLOCK. */
	for (size_t at = 0; at < locked; at += 16 * MEGABYTE)
		must(mlock((char *)a + at, 16 * MEGABYTE) == 0);
	for (int round = 0; round < 3; round++) {
		fill(b, beside / 8, 7, (uint64_t)round);
		check(b, beside / 8, 7, (uint64_t)round, "beside");
	}
	check(a, locked / 8, 0, 1, "locked");
	must(in_core(a, locked) == locked / PAGE);
	must(munlock(a, locked) == 0);
	fill(b, beside / 8, 9, 4);
	check(a, locked / 8, 0, 1, "locked");
	check(b, beside / 8, 9, 4, "beside");
	puts("locked and unlocked");
	return 0;
}
