/* Fills static data and argument 1 MiB of a heap's block, walks through the block argument 2 times, waits argument 3 ms, and says how
 * many KiB of block and static data lie on large pages at most: looked at after each walk, and at the end. */
#include "common.h"
#include <time.h>

static char data[32 * MEGABYTE];

static size_t on_large(const void *start, size_t bytes)
{
	uintptr_t from, to, first = (uintptr_t)start;
	FILE *smaps = fopen("/proc/self/smaps", "r");
	size_t sum = 0, kib;
	int inside = 0;
	char line[512];

	must(smaps);
	while (fgets(line, sizeof line, smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from < first + bytes && first < to;
		else if (inside && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
			sum += kib;
	}
	fclose(smaps);
	return sum;
}

static size_t larger(size_t one, size_t other)
{
	return one > other ? one : other;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 96) * MEGABYTE, rounds = argument(argc, argv, 2, 1), heap = 0, statics = 0;
	long wait = (long)argument(argc, argv, 3, 0);
	struct timespec pause = {wait / 1000, wait % 1000 * 1000000};
	volatile char *block = malloc(bytes);
	size_t sum = 0;

	must(block);
	memset(data, 1, sizeof data);
	for (size_t round = 0; round <= rounds; round++) {
		for (size_t at = 0; at < bytes; at += PAGE) {
			sum += (size_t)block[at];
			block[at] = (char)(round + 1);
		}
		if (round == rounds)
			nanosleep(&pause, NULL);
		heap = larger(heap, on_large((const void *)block, bytes));
		statics = larger(statics, on_large(data, sizeof data));
	}
	printf("%zu %zu\n", heap, statics);
	return sum == bytes / PAGE * (rounds * (rounds + 1) / 2) ? 0 : 1;
}
