/* The functions of an allocator with a context: large blocks get the hints, small ones come from the functions before, and
 * each goes back to where it came from. */
#include "abi.h"

static long taken;

static void *usual_malloc(void *context, size_t size)
{
	must(context == &taken);
	taken++;
	return malloc(size);
}

static void *usual_calloc(void *context, size_t count, size_t each)
{
	must(context == &taken);
	taken++;
	return calloc(count, each);
}

static void *usual_realloc(void *context, void *block, size_t size)
{
	must(context == &taken);
	taken += !block;
	return realloc(block, size);
}

static void usual_free(void *context, void *block, size_t size)
{
	must(context == &taken && size > 0);
	taken -= !!block;
	free(block);
}

static int all_are(const char *block, size_t count, char value)
{
	for (size_t i = 0; i < count; i++)
		if (block[i] != value)
			return 0;
	return 1;
}

int main(void)
{
	struct ream_hints hints = {.size = sizeof(hints), .name = "with context"};
	struct ream_allocator it = {sizeof(it), MEGABYTE, &hints, &taken, usual_malloc, usual_calloc, usual_realloc, usual_free};
	struct ream_region region;
	size_t large = 3 * MEGABYTE;
	volatile size_t half = SIZE_MAX / 2;
	char *block, *small;

	small = ream_allocator_malloc(&it, 100);
	must(small && taken == 1 && !find(hints.name, &region));
	memset(small, 7, 100);
	block = ream_allocator_malloc(&it, large);
	must(block && taken == 1 && region_at(block, &region) && !strcmp(region.name, hints.name));
	must(region.length == large && all_are(block, large, 0));
	memset(block, 5, large);
	/* Larger and smaller, and across the bound in both directions. */
	block = ream_allocator_realloc(&it, block, 2 * large);
	must(block && region_at(block, &region) && region.length == 2 * large);
	must(all_are(block, large, 5) && all_are(block + large, large, 0));
	block = ream_allocator_realloc(&it, block, 100);
	must(block && taken == 2 && !find(hints.name, &region) && all_are(block, 100, 5));
	block = ream_allocator_realloc(&it, block, large);
	must(block && taken == 2 && !find(hints.name, &region) && all_are(block, 100, 5));
	ream_allocator_free(&it, block, large);
	small = ream_allocator_realloc(&it, small, 200);
	must(small && all_are(small, 100, 7));
	ream_allocator_free(&it, small, 200);
	must(taken == 0);
	block = ream_allocator_calloc(&it, 1024, 4096);
	must(block && region_at(block, &region) && all_are(block, 4 * MEGABYTE, 0));
	ream_allocator_free(&it, block, 4 * MEGABYTE);
	small = ream_allocator_calloc(&it, 10, 10);
	must(small && taken == 1 && all_are(small, 100, 0));
	ream_allocator_free(&it, small, 100);
	/* Nothing, too much, and what is no wish. */
	ream_allocator_free(&it, NULL, 1);
	must(!ream_allocator_calloc(&it, half, 4) && !ream_allocator_malloc(&it, (size_t)1 << 47));
	must(errno == ENOMEM);
	hints.flags = 77;
	must(!ream_allocator_malloc(&it, large) && errno == EINVAL);
	must(!find(hints.name, &region));
	puts("context");
	return 0;
}
