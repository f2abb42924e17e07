/* What the five benchmarks of the distributed large memory share: sizes, memory, time, and how they report. */
#ifndef DLM_H
#define DLM_H

#include <stddef.h>
#include <stdint.h>

/* What is to be computed. */
struct job {
	size_t side;	/* size: points of a side, rows, or elements, as the benchmark has it */
	int rounds;	/* how often */
	int threads;	/* by how many threads */
	int corrupt;	/* one value is spoilt, which must be found */
};

/* What came of it. */
struct outcome {
	double seconds;		/* of the timed part */
	double checksum;	/* the same in every run of the same job */
	double error;		/* the largest found */
	double allowed;		/* larger ones are wrong */
	const char *missing;	/* what is not there, and so nothing was computed */
};

struct outcome micro(const struct job *job);
struct outcome stream(const struct job *job);
struct outcome matmul(const struct job *job);
struct outcome blas(const struct job *job);
struct outcome stencil(const struct job *job);
struct outcome blocked(const struct job *job);
struct outcome fft(const struct job *job);

/* Seconds since some moment. */
double now(void);

/* Memory for so many doubles, by malloc as any program has it; ends the program when there is none. */
double *array(size_t count);

/* A number in [0, 1) that depends on nothing but its index. */
static inline double noise(uint64_t index)
{
	uint64_t x = index * 0x9e3779b97f4a7c15ULL;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 32;
	return (double)(x >> 11) * 0x1p-53;
}

/* The larger of two; a value that is no number counts as larger than any. */
static inline double worse(double a, double b)
{
	return b != b || a <= b ? b : a;
}

#endif
