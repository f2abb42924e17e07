/* Pins, advice and another budget, under a budget of 64 MiB: what they do shows in where pages are. */
#include "abi.h"
#include <time.h>

#define PINNED (16 * MEGABYTE)
#define BYTES (24 * MEGABYTE)

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits until so many pages, at least or at most, are mapped. */
static void until(void *memory, size_t bytes, size_t least, size_t most, const char *what)
{
	uint64_t end = now_ms() + 60000;
	size_t count;

	while ((count = in_core(memory, bytes)) < least || count > most)
		if (now_ms() > end)
			fail("%s: %zu of %zu pages are mapped", what, count, bytes / PAGE);
}

int main(void)
{
	struct ream_status status = {.size = sizeof(status)};
	struct ream_hints named = {.size = sizeof(named), .name = "data"};
	struct ream_region region;
	uint64_t *pinned = ream_alloc(PINNED, NULL), *data = ream_alloc(BYTES, &named);
	uint64_t *pressure = malloc(192 * MEGABYTE);

	must(pinned && data && pressure);
	fill(pinned, PINNED / 8, 1, 1);
	must(ream_pin(pinned, PINNED) == 0);
	must(ream_pin(data, BYTES) == -ENOMEM);
	/* Again is nothing more. */
	must(ream_pin(pinned, PINNED) == 0);
	for (int round = 0; round < 2; round++) {
		fill(pressure, 192 * MEGABYTE / 8, 7, round);
		must(in_core(pinned, PINNED) == PINNED / PAGE);
	}
	must(ream_status(&status) == 0 && status.paging == 1);
	must(region_at(pinned, &region) && region.flags & REAM_REGION_PINNED && region.resident == PINNED);
	must(ream_unpin(pinned, PINNED) == 0);
	must(region_at(pinned, &region) && !(region.flags & REAM_REGION_PINNED));
	fill(pressure, 192 * MEGABYTE / 8, 7, 2);
	fill(pressure, 192 * MEGABYTE / 8, 7, 3);
	must(in_core(pinned, PINNED) < PINNED / PAGE / 2);
	check(pinned, PINNED / 8, 1, 1, "unpinned");
	must(ream_free(pinned) == 0);

	/* Out, and in again, untouched. */
	fill(data, BYTES / 8, 2, 1);
	must(ream_advise(data, BYTES, REAM_COLD) == 0);
	must(in_core(data, BYTES) == 0);
	must(find("data", &region) && region.resident == 0 && region.staged + region.stored == BYTES);
	must(ream_advise(data, BYTES, REAM_WILLNEED) == 0);
	until(data, BYTES, BYTES / PAGE * 9 / 10, BYTES / PAGE, "willneed");
	check(data, BYTES / 8, 2, 1, "cold and needed");

	/* Advice about use changes no content. */
	for (int advice = REAM_SEQUENTIAL; advice <= REAM_KEEP; advice++) {
		must(ream_advise(data, BYTES / 2, advice) == 0);
		must(ream_advise(pressure, 192 * MEGABYTE, advice) == 0);
		check(pressure, 192 * MEGABYTE / 8, 7, 3, "advised");
		check(data, BYTES / 8, 2, 1, "advised");
	}
	must(ream_advise(pressure, 192 * MEGABYTE, REAM_NORMAL) == 0);

	/* Dropped, from the middle of a page to that of another. */
	must(ream_advise((char *)data + 100, BYTES / 2, REAM_DROP) == 0);
	check(data, PAGE / 8, 2, 1, "before the dropped");
	for (size_t word = PAGE / 8; word < BYTES / 16; word++)
		must(data[word] == 0);
	check(data + BYTES / 16, BYTES / 16, 2 + BYTES / 16, 1, "behind the dropped");
	fill(data, BYTES / 8, 3, 1);
	must(ream_advise(data, BYTES, REAM_COLD) == 0);
	must(ream_advise(data, BYTES, REAM_DROP) == 0);
	must(find("data", &region) && region.staged + region.stored == 0);

	/* A smaller budget, and the old one again. */
	must(ream_budget(32 * MEGABYTE) == 0);
	must(ream_status(&status) == 0 && status.budget == 32 * MEGABYTE);
	check(pressure, 192 * MEGABYTE / 8, 7, 3, "in half the budget");
	until(pressure, 192 * MEGABYTE, 0, 32 * MEGABYTE / PAGE, "a smaller budget");
	must(ream_budget(160 * MEGABYTE) == 0);
	check(pressure, 192 * MEGABYTE / 8, 7, 3, "in a larger budget");
	until(pressure, 192 * MEGABYTE, 64 * MEGABYTE / PAGE, 160 * MEGABYTE / PAGE, "a larger budget");
	must(ream_budget(64 * MEGABYTE) == 0);

	/* Never paged, and taken out of the budget. */
	struct ream_hints resident = {.size = sizeof(resident), .flags = REAM_RESIDENT, .name = "resident"};
	uint64_t *fixed = ream_alloc(PINNED, &resident);

	must(fixed && !ream_alloc(64 * MEGABYTE, &resident) && errno == ENOMEM);
	fill(fixed, PINNED / 8, 5, 5);
	fill(pressure, 192 * MEGABYTE / 8, 7, 4);
	must(in_core(fixed, PINNED) == PINNED / PAGE);
	must(find("resident", &region) && !(region.flags & REAM_REGION_MANAGED));
	check(fixed, PINNED / 8, 5, 5, "resident");
	must(ream_budget(17 * MEGABYTE) == -EBUSY);
	must(ream_free(fixed) == 0);
	check(pressure, 192 * MEGABYTE / 8, 7, 4, "pressure");
	puts("kept, sent and fetched");
	return 0;
}
