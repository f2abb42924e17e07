/* ream-bench-models MODEL SIZE [--file DIR] [--corrupt]: runs a model, checks its result, and prints its figure and a sum. The
 * exit status is 1 when the result is wrong. */
#define _GNU_SOURCE
#include "models.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define USAGE 125
#define NO_MEMORY 124

int corrupt;
static const char *directory;

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *in_a_file(size_t bytes)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	void *memory = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return memory == MAP_FAILED ? NULL : memory;
}

void *array(size_t count, size_t size)
{
	void *memory = directory ? in_a_file(count * size) : calloc(count, size);

	if (!memory) {
		fprintf(stderr, "ream-bench-models: no memory for %zu times %zu bytes\n", count, size);
		exit(NO_MEMORY);
	}
	return memory;
}

static const struct {
	const char *name;
	struct outcome (*run)(size_t size);
	const char *size;
} models[] = {
	{"adi", adi, "points in each dimension"},
	{"ocean", ocean, "points from west to east"},
	{"table-read", table_read, "MiB"},
	{"table-write", table_write, "MiB"},
	{"table-change", table_change, "MiB"},
	{"stream", stream, "MiB of the ring"},
};

static void usage(void)
{
	fprintf(stderr, "usage: ream-bench-models MODEL SIZE [--file DIR] [--corrupt]\n");
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		fprintf(stderr, "       %-14s SIZE: %s\n", models[i].name, models[i].size);
	exit(USAGE);
}

int main(int argc, char **argv)
{
	unsigned long long size;
	char *end;

	if (argc < 3)
		usage();
	size = strtoull(argv[2], &end, 10);
	if (*end || size < 8 || size > 1 << 20)
		usage();
	for (int i = 3; i < argc; i++) {
		if (!strcmp(argv[i], "--corrupt"))
			corrupt = 1;
		else if (!strcmp(argv[i], "--file") && i + 1 < argc)
			directory = argv[++i];
		else
			usage();
	}
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		struct outcome outcome;

		if (strcmp(argv[1], models[i].name))
			continue;
		outcome = models[i].run((size_t)size);
		if (outcome.wrong) {
			fprintf(stderr, "ream-bench-models: %s: WRONG RESULT: %s\n", models[i].name, outcome.wrong);
			return 1;
		}
		printf("%.6f verified:%016llx\n", outcome.figure, (unsigned long long)outcome.sum);
		return fflush(stdout) ? 1 : 0;
	}
	usage();
}
