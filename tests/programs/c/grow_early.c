/* Mappings are touched here and there, last part first, and then resized and moved in every way that mremap(2) knows,
 * before the program has touched more than it may keep in RAM, and again after. */
#include "common.h"
#include <sys/mman.h>

#define ROOM (96 * MEGABYTE)
#define MAPPINGS 24

/* The kernel's place for a mapping that has so much free room behind it. */
static char *placed(size_t bytes, size_t room, size_t skew)
{
	char *start = mmap(NULL, room + MEGABYTE * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(start != MAP_FAILED);
	must(munmap(start, room + MEGABYTE * 2) == 0);
	start = (char *)(((uintptr_t)start + MEGABYTE * 2 - 1) & ~(MEGABYTE * 2 - 1)) + skew;
	must(mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == start);
	return start;
}

static void touch(char *start, size_t page, uint64_t seed)
{
	*(uint64_t *)(start + page * PAGE) = mix(seed + page);
}

static void verify(char *start, size_t page, uint64_t seed, const char *when)
{
	uint64_t found = *(uint64_t *)(start + page * PAGE);

	if (found != mix(seed + page))
		fail("page %zu of mapping %lx holds %lx %s", page, seed, found, when);
}

/* Every sixteenth page, those in the middle last. */
static size_t touch_all(char *start, size_t pages, uint64_t seed)
{
	touch(start, 0, seed);
	touch(start, pages - 1, seed);
	for (size_t page = pages / 2; page < pages; page += 16)
		touch(start, page, seed);
	for (size_t page = 0; page < pages / 2; page += 16)
		touch(start, page, seed);
	return pages;
}

static void verify_all(char *start, size_t pages, uint64_t seed, const char *when)
{
	verify(start, 0, seed, when);
	verify(start, pages - 1, seed, when);
	for (size_t page = pages / 2; page < pages; page += 16)
		verify(start, page, seed, when);
	for (size_t page = 0; page < pages / 2; page += 16)
		verify(start, page, seed, when);
}

static void round_of(size_t how, size_t pages, uint64_t seed)
{
	size_t old = pages * PAGE, more = old + (3 + seed % 700) * PAGE;
	char *start = placed(old, ROOM, seed % 512 * PAGE), *new = NULL;

	touch_all(start, pages, seed);
	switch (how) {
	case 0: /* anywhere */
		new = mremap(start, old, more, MREMAP_MAYMOVE);
		break;
	case 1: /* where it is */
		new = mremap(start, old, more, 0);
		must(new == start);
		break;
	case 2: /* where something is in the way */
		must(mmap(start + old, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start + old);
		must(mremap(start, old, more, 0) == MAP_FAILED && errno == ENOMEM);
		new = mremap(start, old, more, MREMAP_MAYMOVE);
		must(new != start && munmap(start + old, PAGE) == 0);
		break;
	case 3: /* to a place */
		new = placed(PAGE, ROOM, 5 * PAGE);
		must(mremap(start, old, more, MREMAP_MAYMOVE | MREMAP_FIXED, new) == new);
		break;
	case 4: /* smaller, and to a place */
		new = placed(PAGE, ROOM, 7 * PAGE);
		must(mremap(start, old, old - PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, new) == new);
		for (size_t page = 0; page < pages / 2; page += 16)
			verify(new, page, seed, "after it shrank");
		must(munmap(new, old - PAGE) == 0);
		return;
	default: /* away, leaving zeros behind */
		new = mremap(start, old, old, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
		must(new != MAP_FAILED && new != start);
		for (size_t page = 0; page < pages; page++)
			must(start[page * PAGE] == 0);
		must(munmap(start, old) == 0);
		more = old;
	}
	must(new != MAP_FAILED);
	verify_all(new, pages, seed, "after it moved");
	for (size_t page = pages; page < more / PAGE; page++) {
		must(new[page * PAGE] == 0);
		touch(new, page, seed);
	}
	verify_all(new, pages, seed, "after it grew");
	/* And once more: by now it is more than one mapping, or it is not. */
	start = mremap(new, more, more + 9 * PAGE, MREMAP_MAYMOVE);
	must(start != MAP_FAILED);
	verify_all(start, pages, seed, "after it grew again");
	must(munmap(start, more + 9 * PAGE) == 0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 256) * MEGABYTE;
	static const size_t sizes[] = { 300, 896, 1023, 1300, 2816 };
	char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(block != MAP_FAILED);
	for (size_t time = 0; time < 2; time++) {
		for (size_t i = 0; i < MAPPINGS; i++)
			for (size_t how = 0; how < 6; how++)
				round_of(how, sizes[i % 5], (time << 40) + (i << 20) + how * 57 + i);
		fill((uint64_t *)block, bytes / 8, 1, 0);
	}
	printf("grown %016lx\n", *(uint64_t *)(block + bytes - 8));
	return 0;
}
