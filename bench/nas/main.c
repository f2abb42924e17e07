/* ream-bench-nas KERNEL CLASS [--corrupt]: runs one of the NAS kernels EP, CG, MG, FT, IS, compares its result with the
 * published one, and prints the seconds of its timed part. The exit status is 1 when the result is another. */
#define _GNU_SOURCE
#include "nas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define USAGE 125
#define NO_MEMORY 124

int corrupt;

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void *array(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory) {
		fprintf(stderr, "ream-bench-nas: no memory for %zu times %zu bytes\n", count, size);
		exit(NO_MEMORY);
	}
	return memory;
}

int close_to(double value, double published, double error)
{
	/* Written so that a value that is no number is not close to anything. */
	return fabs((value - published) / published) <= error;
}

static const struct {
	const char *name;
	struct outcome (*run)(enum class);
} kernels[] = {{"ep", ep}, {"cg", cg}, {"mg", mg}, {"ft", ft}, {"is", is}};

static void usage(void)
{
	fprintf(stderr, "usage: ream-bench-nas ep|cg|mg|ft|is S|W|A|B [--corrupt]\n");
	exit(USAGE);
}

int main(int argc, char **argv)
{
	static const char classes[] = "SWAB";
	const char *class;
	struct outcome outcome;

	if (argc < 3 || argc > 4 || strlen(argv[2]) != 1)
		usage();
	class = strchr(classes, argv[2][0]);
	if (!class || !*class)
		usage();
	if (argc == 4) {
		if (strcmp(argv[3], "--corrupt"))
			usage();
		corrupt = 1;
	}
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
		if (strcasecmp(argv[1], kernels[i].name))
			continue;
		outcome = kernels[i].run((enum class)(class - classes));
		if (!outcome.verified) {
			fprintf(stderr, "ream-bench-nas: %s %s: WRONG RESULT: %.13e, and not %.13e\n", kernels[i].name,
				argv[2], outcome.result, outcome.expected);
			return 1;
		}
		printf("%.6f verified:%.12e\n", outcome.seconds, outcome.expected);
		return fflush(stdout) ? 1 : 0;
	}
	usage();
}
