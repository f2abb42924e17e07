/* Has argument 1 blocks of 4 MiB at a time, each a region of its own, with two pages in each; every third is given back and had
 * again, forks, and looks at all. Prints how many lines /proc/self/maps had at most. */
#include "common.h"
#include <sys/wait.h>

#define BYTES (4 * MEGABYTE)

static uint64_t **blocks;
static size_t count;

static size_t mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t lines = 0;
	int c;

	must(maps);
	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static size_t larger(size_t one, size_t other)
{
	return one > other ? one : other;
}

static uint64_t *second(size_t i)
{
	return blocks[i] + PAGE_WORDS * (1 + i % 1000);
}

static void make(size_t i, uint64_t generation)
{
	must((blocks[i] = malloc(BYTES)));
	fill(blocks[i], PAGE_WORDS, i * 2 * PAGE_WORDS, generation);
	fill(second(i), PAGE_WORDS, (i * 2 + 1) * PAGE_WORDS, generation);
}

static void look_at_all(void)
{
	for (size_t i = 0; i < count; i++) {
		check(blocks[i], PAGE_WORDS, i * 2 * PAGE_WORDS, i % 3 == 0, "the first page of a region");
		check(second(i), PAGE_WORDS, (i * 2 + 1) * PAGE_WORDS, i % 3 == 0, "the second page of a region");
	}
}

int main(int argc, char **argv)
{
	size_t most;
	pid_t child;
	int status;

	count = argument(argc, argv, 1, 10000);
	must((blocks = malloc(count * sizeof *blocks)));
	for (size_t i = 0; i < count; i++)
		make(i, 0);
	most = mappings();
	for (size_t i = 0; i < count; i += 3)
		free(blocks[i]);
	most = larger(most, mappings());
	for (size_t i = 0; i < count; i += 3)
		make(i, 1);
	most = larger(most, mappings());
	look_at_all();
	must((child = fork()) >= 0);
	if (child == 0) {
		look_at_all();
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	look_at_all();
	most = larger(most, mappings());
	printf("%zu\n", most);
	return 0;
}
