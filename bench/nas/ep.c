/* EP: pairs of Gaussian deviates from uniform ones, by the polar method; nothing but arithmetic, next to no memory. */
#include "nas.h"

#include <math.h>

#define SEED 271828183ULL
#define BATCH (1L << 16)
#define ERROR 1e-8

static const struct {
	int log_pairs;
	double x, y; /* the published sums of the deviates */
} sizes[CLASSES] = {
	[S] = {24, -3.247834652034740e+3, -6.958407078382297e+3},
	[W] = {25, -2.863319731645753e+3, -6.320053679109499e+3},
	[A] = {28, -4.295875165629892e+3, -1.580732573678431e+4},
	[B] = {30, 4.033815542441498e+4, -2.660669192809235e+4},
};

struct outcome ep(enum class class)
{
	long batches = (1L << sizes[class].log_pairs) / BATCH;
	double sum_x = 0, sum_y = 0, begun = now();
	struct outcome outcome = {0};

	/* Each batch begins where 2 BATCH numbers a batch lead to, so any thread may do any. */
#pragma omp parallel for reduction(+ : sum_x, sum_y) schedule(static)
	for (long batch = 0; batch < batches; batch++) {
		uint64_t seed = SEED * power(FIFTH_OF_13, 2 * (uint64_t)(batch * BATCH)) & MODULUS_MASK;

		for (long pair = 0; pair < BATCH; pair++) {
			double x = 2 * draw(&seed, FIFTH_OF_13) - 1;
			double y = 2 * draw(&seed, FIFTH_OF_13) - 1;
			double square = x * x + y * y;

			if (square <= 1) {
				double factor = sqrt(-2 * log(square) / square);

				sum_x += x * factor;
				sum_y += y * factor;
			}
		}
	}
	if (corrupt)
		sum_y += 1;
	outcome.seconds = now() - begun;
	outcome.verified = close_to(sum_x, sizes[class].x, ERROR) && close_to(sum_y, sizes[class].y, ERROR);
	outcome.result = sum_y;
	outcome.expected = sizes[class].y;
	return outcome;
}
