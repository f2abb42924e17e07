/* ream-bench-dlm KERNEL SIDE ROUNDS THREADS [--corrupt]: the benchmarks by which DLM was measured, written anew: touches
 * page by page, STREAM, matrix multiplication, a 7-point stencil with and without temporal blocking, a Fourier transform in
 * three dimensions. Prints the seconds of the timed part and a checksum; the exit status is 1 when the result is wrong. */
#define _GNU_SOURCE
#include "dlm.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define USAGE 125
#define NO_MEMORY 124
#define NOT_BUILT 123

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double *array(size_t count)
{
	double *memory = malloc(count * sizeof(*memory));

	if (!memory) {
		fprintf(stderr, "ream-bench-dlm: no memory for %zu numbers\n", count);
		exit(NO_MEMORY);
	}
	return memory;
}

static const struct {
	const char *name;
	struct outcome (*run)(const struct job *job);
	size_t least;
} kernels[] = {{"micro", micro, 1},	  {"stream", stream, 1},   {"matmul", matmul, 1},
	       {"blas", blas, 1},   {"stencil", stencil, 3}, {"blocked", blocked, 3},
#ifdef WITH_FFTW
	       {"fft", fft, 2},
#endif
};

static void usage(void)
{
	fprintf(stderr, "usage: ream-bench-dlm micro|stream|matmul|blas|stencil|blocked|fft SIDE ROUNDS THREADS [--corrupt]\n");
	exit(USAGE);
}

static long number(const char *text, long most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || value < 1 || value > most)
		usage();
	return value;
}

int main(int argc, char **argv)
{
	struct outcome outcome;
	struct job job;

	if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "--corrupt")))
		usage();
	job.side = (size_t)number(argv[2], 1L << 40);
	job.rounds = (int)number(argv[3], 1 << 20);
	job.threads = (int)number(argv[4], 1 << 10);
	job.corrupt = argc == 6;
#ifdef _OPENMP
	omp_set_num_threads(job.threads);
#endif
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
		if (strcmp(argv[1], kernels[i].name))
			continue;
		if (job.side < kernels[i].least)
			usage();
		outcome = kernels[i].run(&job);
		if (outcome.missing) {
			fprintf(stderr, "ream-bench-dlm: %s\n", outcome.missing);
			return NOT_BUILT;
		}
		/* Written so that an error that is no number is too large. */
		if (!(outcome.error <= outcome.allowed)) {
			fprintf(stderr, "ream-bench-dlm: %s: WRONG RESULT: an error of %g, where %g is allowed\n",
				argv[1], outcome.error, outcome.allowed);
			return 1;
		}
		printf("%.6f verified:%.15e\n", outcome.seconds, outcome.checksum);
		return fflush(stdout) ? 1 : 0;
	}
	if (!strcmp(argv[1], "fft")) {
		fprintf(stderr, "ream-bench-dlm: built without FFTW (Debian: libfftw3-dev)\n");
		return NOT_BUILT;
	}
	usage();
}
