/* Touches one page in the middle of an allocation that lies in the store, nearly all of it, waits until nothing more of
 * it comes, and says how much of what was not in RAM has come, in percent. Arguments: MiB of the allocation, MiB that
 * drive it out, and how many percent are waited for, for a minute: nothing may come for a while where the disk is busy. */
#include "common.h"
#include <sys/mman.h>

static size_t look(void *memory, size_t bytes, unsigned char *seen)
{
	size_t pages = bytes / PAGE, count = 0;

	memory = (void *)((uintptr_t)memory / PAGE * PAGE);
	must(mincore(memory, bytes, seen) == 0);
	for (size_t page = 0; page < pages; page++)
		count += seen[page] & 1;
	return count;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 48) * MEGABYTE, others = argument(argc, argv, 2, 96) * MEGABYTE;
	size_t pages = bytes / PAGE, touched = pages / 2, missing, before, now;
	uint64_t *a = malloc(bytes), *b = malloc(others);
	unsigned char *seen = malloc(pages);
	size_t wanted = argument(argc, argv, 3, 0), tries = 0;

	must(a && b && seen);
	fill(a, bytes / 8, 0, 1);
	fill(b, others / 8, 7, 1);
	/* The others are not read again before: that would bring their neighbours, too, and a page of the allocation that is
	 * in RAM still, though not mapped, comes without the others. */
	now = look(a, bytes, seen);
	missing = pages - now;
	must(missing > pages / 2);
	while (seen[touched] & 1)
		touched = (touched + 1) % pages;
	/* malloc's blocks need not begin at a page, so a word in the middle of what mincore calls a page. */
	must(((volatile uint64_t *)((uintptr_t)a / PAGE * PAGE))[touched * PAGE_WORDS + PAGE_WORDS / 2] != 0);
	do {
		before = now;
		usleep(500000);
		now = look(a, bytes, seen);
	} while (now != before || (now + missing < pages + missing * wanted / 100 && tries++ < 120));
	now = now + missing > pages ? now + missing - pages : 0;
	printf("%zu\n", now * 100 / missing);
	check(a, bytes / 8, 0, 1, "allocation");
	check(b, others / 8, 7, 1, "others");
	return 0;
}
