/* Fills argument 1 MiB, reads single pages of it all over, then goes through all of it argument 2 times, changing every word the
 * second half of them, and says how many KiB of it are in memory then, and how many of those on large pages. */
#include "common.h"

static uint64_t *data;
static size_t words;

static void on_pages(size_t *resident, size_t *large)
{
	uintptr_t from, to, first = (uintptr_t)data;
	FILE *smaps = fopen("/proc/self/smaps", "r");
	char line[512];
	int inside = 0;
	size_t kib;

	must(smaps);
	while (fgets(line, sizeof line, smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from < first + words * 8 && first < to;
		else if (inside && sscanf(line, "Anonymous: %zu kB", &kib) == 1)
			*resident += kib;
		else if (inside && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
			*large += kib;
	}
	fclose(smaps);
}

int main(int argc, char **argv)
{
	size_t passes = argument(argc, argv, 2, 10), changes = 0, resident = 0, large = 0;

	words = argument(argc, argv, 1, 512) * MEGABYTE / 8;
	must((data = malloc(words * 8)));
	fill(data, words, 0, 0);
	for (size_t k = 0, at = 1; k < words / PAGE_WORDS / 8; k++) {
		at = mix(at) % words;
		must(data[at] == mix(at));
	}
	for (size_t pass = 0; pass < passes; pass++) {
		size_t change = pass >= passes / 2;

		for (size_t k = 0; k < words; k++) {
			must(data[k] == mix(k) + changes);
			if (change)
				data[k]++;
		}
		changes += change;
	}
	on_pages(&resident, &large);
	printf("%zu %zu\n", resident, large);
	return 0;
}
