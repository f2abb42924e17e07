// Heaps that programs map themselves, each page touched before the next piece is there: pieces of 256 KiB that may lie
// anywhere ("small"), pieces that are reserved where the program wishes, aligned and opened (as V8's: "wished"), a
// reservation that is opened bit by bit ("grown"), one whose bits are mapped over it (as Java's: "over"), and what sbrk
// gives ("break"). Half of "wished", 128 pieces side by side each time, are unmapped and mapped anew on the way. Waits for a
// file, checks the content. Usage: own_heap KIND FILE
#include "common.h"
#include <sys/mman.h>

#define PIECE ((size_t)256 << 10)
#define PIECES 1200

static char *pieces[PIECES];

static void *reserved(void *wish, size_t bytes)
{
	void *place = mmap(wish, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(place != MAP_FAILED);
	return place;
}

static char *wished(size_t number)
{
	static uint64_t count;
	size_t more = 2 * PIECE - PAGE;
	char *wish = (char *)((mix(number + 10000 * count++) % (1UL << 26)) * PIECE + (1UL << 40));
	char *base = reserved(wish, more), *start = (char *)(((uintptr_t)base + PIECE - 1) & ~(PIECE - 1));

	if (start > base)
		must(munmap(base, start - base) == 0);
	must(munmap(start + PIECE, base + more - start - PIECE) == 0);
	must(mprotect(start, PIECE, PROT_READ | PROT_WRITE) == 0);
	return start;
}

static void compare(size_t number, uint64_t generation)
{
	uint64_t *words = (uint64_t *)pieces[number];

	for (size_t i = 0; i < PIECE / 8; i += 61)
		must(words[i] == mix(number * PIECE + i) + generation);
}

static void put(size_t number, uint64_t generation)
{
	uint64_t *words = (uint64_t *)pieces[number];

	for (size_t i = 0; i < PIECE / 8; i += 61) {
		must(words[i] == 0);
		words[i] = mix(number * PIECE + i) + generation;
	}
}

static int again(size_t number)
{
	return number / 128 % 2 == 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "small";
	char *heap = NULL;
	int open = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (!strcmp(kind, "grown") || !strcmp(kind, "over"))
		heap = reserved(NULL, PIECES * PIECE);
	for (size_t i = 0; i < PIECES; i++) {
		if (!strcmp(kind, "wished")) {
			pieces[i] = wished(i);
		} else if (!strcmp(kind, "small")) {
			pieces[i] = mmap(NULL, PIECE, open, flags, -1, 0);
			must(pieces[i] != MAP_FAILED);
		} else if (!strcmp(kind, "break")) {
			pieces[i] = sbrk(PIECE);
			must(pieces[i] != (char *)-1);
		} else {
			pieces[i] = heap + i * PIECE;
			if (!strcmp(kind, "over"))
				must(mmap(pieces[i], PIECE, open, flags | MAP_FIXED, -1, 0) == pieces[i]);
			else
				must(mprotect(pieces[i], PIECE, open) == 0);
		}
		put(i, 0);
	}
	for (size_t i = 0; !strcmp(kind, "wished") && i < PIECES; i++) {
		if (!again(i))
			continue;
		compare(i, 0);
		must(munmap(pieces[i], PIECE) == 0);
	}
	for (size_t i = 0; !strcmp(kind, "wished") && i < PIECES; i++) {
		if (!again(i))
			continue;
		pieces[i] = wished(i);
		put(i, 1);
	}
	printf("ready\n");
	fflush(stdout);
	while (argc > 2 && access(argv[2], F_OK) != 0)
		usleep(10000);
	for (size_t i = 0; i < PIECES; i++)
		compare(i, !strcmp(kind, "wished") && again(i));
	printf("right\n");
	return 0;
}
