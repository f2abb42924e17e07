/* Calls that the kernel refuses, wholly or in part, lose nothing of the memory they were about. Argument: MiB. */
#include "common.h"
#include <sys/mman.h>

#define UNKNOWN 64

static char *start;
static size_t bytes;

#define refused(call, number)                                                                                         \
	do {                                                                                                          \
		errno = 0;                                                                                            \
		must((void *)(intptr_t)(call) == MAP_FAILED && errno == (number));                                    \
		check((uint64_t *)start, bytes / 8, 0, 0, #call);                                                     \
	} while (0)

/* Of four ranges a page is locked, and then in vain all that comes before a hole: no more than the page stays in RAM. */
static void half_locked(size_t size)
{
	uint64_t *ranges[4];

	for (int k = 0; k < 4; k++) {
		ranges[k] = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(ranges[k] != MAP_FAILED && munmap((char *)ranges[k] + size, size) == 0);
		fill(ranges[k], size / 8, k, 0);
		must(mlock(ranges[k], PAGE) == 0 && mlock(ranges[k], 2 * size) == -1);
	}
	for (int k = 0; k < 4; k++) {
		check(ranges[k], size / 8, k, 0, "half locked");
		must(munmap(ranges[k], size) == 0);
	}
}

int main(int argc, char **argv)
{
	bytes = argument(argc, argv, 1, 96) * MEGABYTE;
	size_t part = bytes / 8, whole = PROT_READ | PROT_WRITE;
	char *end;

	start = mmap(NULL, bytes + part, (int)whole, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(start != MAP_FAILED);
	end = start + bytes - part;
	/* Nothing is mapped behind it. */
	must(munmap(start + bytes, part) == 0);
	fill((uint64_t *)start, bytes / 8, 0, 0);

	refused(mremap(start, part, part / 2, UNKNOWN), EINVAL);
	refused(mremap(start, part, part / 2, MREMAP_FIXED, start + 2 * part), EINVAL);
	refused(mremap(start, part, part, MREMAP_MAYMOVE | MREMAP_FIXED | UNKNOWN, start + 2 * part), EINVAL);
	refused(mremap(start, part, part / 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
	refused(mremap(start, part, part / 2, MREMAP_MAYMOVE | MREMAP_FIXED, start + part / 4), EINVAL);
	refused(mremap(start, part, part / 2, MREMAP_MAYMOVE | MREMAP_FIXED, start + 2 * part + 5), EINVAL);
	/* No program has such addresses. */
	refused(mremap(start, part, part / 2, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(1UL << 60)), EINVAL);
	refused(mremap(start, part, 0, MREMAP_MAYMOVE), EINVAL);

	/* What was protected stays protected, and what comes before a hole is. */
	must(mprotect(end, part, PROT_READ) == 0);
	refused(mprotect(end, part, 1 << 20), EINVAL);
	refused(mprotect(end, 2 * part, PROT_READ), ENOMEM);
	must(mprotect(end, 2 * part, PROT_NONE) == -1 && errno == ENOMEM);
	check((uint64_t *)start, (bytes - part) / 8, 0, 0, "beside what is protected");
	must(mprotect(end, part, PROT_READ) == 0);
	check((uint64_t *)start, bytes / 8, 0, 0, "what was protected");
	must(mprotect(end, part, (int)whole) == 0);

	/* What was locked stays locked. */
	if (mlock(end, part / 8) == 0) {
		unsigned char there[1024];
		size_t pages = part / 8 / PAGE < 1024 ? part / 8 / PAGE : 1024;

		must(mlock(end, 2 * part) == -1);
		fill((uint64_t *)start, bytes / 8, 0, 1);
		must(mincore(end, pages * PAGE, there) == 0);
		for (size_t page = 0; page < pages; page++)
			must(there[page] & 1);
		check((uint64_t *)start, bytes / 8, 0, 1, "beside what is locked");
	} else {
		fill((uint64_t *)start, bytes / 8, 0, 1);
	}
	half_locked(part);
	must(mremap(start, bytes, bytes - part, 0) == start);
	check((uint64_t *)start, (bytes - part) / 8, 0, 1, "what is left");
	puts("right");
	return 0;
}
