/* What Ream says of this process: its status, and its regions before and after some of them were sent out of RAM.
 *
 *     cc regions.c -o regions $(pkg-config --cflags --libs ream)
 *     ream run --memory 64M -- ./regions */
#include <ream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

static int show(const struct ream_region *region, void *unused)
{
	static const char *const kinds[] = {"?", "ream_alloc", "block", "small blocks", "mapping", "static data"};

	(void)unused;
	if (region->length < (1 << 20))
		return 0;
	printf("%-12s %14p %8.1f MiB: %8.1f resident, %8.1f stored  %s\n",
	       kinds[region->kind < 6 ? region->kind : 0], region->address, region->length / MIB,
	       region->resident / MIB, (region->staged + region->stored) / MIB, region->name);
	return 0;
}

int main(void)
{
	struct ream_status status = {.size = sizeof(status)};
	struct ream_hints hints = {.size = sizeof(hints), .name = "table"};
	size_t bytes = (size_t)96 << 20;
	int error = ream_status(&status);

	if (error) {
		fprintf(stderr, "ream_status: %s\n", ream_error(error));
		return 1;
	}
	printf("session %u, large pages of %.0f KiB, budget %.0f MiB\n", status.session, status.large_page / 1024.0,
	       status.budget / MIB);
	char *table = ream_alloc(bytes, &hints);
	char *block = malloc(bytes);

	if (!table || !block) {
		perror("no memory");
		return 1;
	}
	memset(table, 1, bytes);
	memset(block, 2, bytes);
	ream_each_region(show, NULL);
	error = ream_advise(table, bytes, REAM_COLD);
	if (error)
		fprintf(stderr, "ream_advise: %s\n", ream_error(error));
	puts("after REAM_COLD:");
	ream_each_region(show, NULL);
	free(block);
	return ream_free(table) != 0;
}
