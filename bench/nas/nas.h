/* What the five NAS kernels share: classes, the common generator of random numbers, memory, and how they report. Written
 * after "The NAS Parallel Benchmarks" (RNR-94-007, NASA Ames) and the verification values that its authors publish. */
#ifndef NAS_H
#define NAS_H

#include <stddef.h>
#include <stdint.h>

/* What a kernel returns. */
struct outcome {
	double seconds;		/* of the timed part */
	int verified;		/* its result is the published one */
	double result;		/* the value that was compared, or the first that differs */
	double expected;	/* what it should have been */
};

/* One of the problem sizes S, W, A, B as an index. */
enum class { S, W, A, B, CLASSES };

struct outcome ep(enum class class);
struct outcome cg(enum class class);
struct outcome mg(enum class class);
struct outcome ft(enum class class);
struct outcome is(enum class class);

/* Set by --corrupt: each kernel then spoils one value of its data, and must find that out. */
extern int corrupt;

/* Seconds since some moment. */
double now(void);

/* Zeroed memory for so many things of a size, by malloc as any program has it; ends the program when there is none. */
void *array(size_t count, size_t size);

/* Whether a value is the published one, to a relative error. */
int close_to(double value, double published, double error);

/* The generator: x := a x mod 2^46; its values are x / 2^46. */
#define FIFTH_OF_13 1220703125ULL
#define MODULUS_MASK ((1ULL << 46) - 1)

static inline double draw(uint64_t *x, uint64_t a)
{
	*x = *x * a & MODULUS_MASK;
	return (double)*x * 0x1p-46;
}

/* a to the n-th: what x is multiplied by to go n numbers on. */
static inline uint64_t power(uint64_t a, uint64_t n)
{
	uint64_t result = 1;

	for (; n; n >>= 1, a = a * a & MODULUS_MASK)
		if (n & 1)
			result = result * a & MODULUS_MASK;
	return result;
}

#endif
