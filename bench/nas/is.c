/* IS: ranks of integer keys by counting, ten times with two keys changed each time; counts are touched at random. */
#include "nas.h"

#include <stdlib.h>
#include <string.h>

#define SEED 314159265ULL
#define ITERATIONS 10
#define PROBES 5

static const struct {
	int log_keys, log_range;
	int32_t place[PROBES]; /* of the keys whose ranks are published */
	int32_t rank[PROBES];
} sizes[CLASSES] = {
	[S] = {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}},
	[W] = {20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}},
	[A] = {23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}},
	[B] = {25, 21, {41869, 812306, 5102857, 18232239, 26860214}, {33422937, 10244, 59149, 33135281, 99}},
};

/* What the rank of a probe changes by in an iteration (1 to 10), as published. */
static int expected_change(enum class class, int probe, int iteration)
{
	switch (class) {
	case S:
		return probe <= 2 ? iteration : -iteration;
	case W:
		return probe < 2 ? iteration - 2 : -iteration;
	case A:
		return probe <= 2 ? iteration - 1 : 1 - iteration;
	default:
		return probe == 1 || probe == 2 || probe == 4 ? iteration : -iteration;
	}
}

/* before[k] := how many keys are less than k. */
static void count(long keys, int range, const int32_t *key, int32_t *before)
{
	memset(before, 0, ((size_t)range + 1) * sizeof(*before));
#pragma omp parallel
	{
		int32_t *own = array(range, sizeof(*own));

#pragma omp for schedule(static) nowait
		for (long i = 0; i < keys; i++)
			own[key[i]]++;
#pragma omp critical
		for (int k = 0; k < range; k++)
			before[k + 1] += own[k];
		free(own);
	}
	for (int k = 0; k < range; k++)
		before[k + 1] += before[k];
}

struct outcome is(enum class class)
{
	long keys = 1L << sizes[class].log_keys;
	int range = 1 << sizes[class].log_range;
	int32_t *key = array(keys, sizeof(*key)), *sorted = array(keys, sizeof(*sorted));
	int32_t *before = array((size_t)range + 1, sizeof(*before));
	uint64_t seed = SEED;
	struct outcome outcome = {.verified = 1};
	double begun;

	for (long i = 0; i < keys; i++) {
		double sum = draw(&seed, FIFTH_OF_13);

		for (int j = 0; j < 3; j++)
			sum += draw(&seed, FIFTH_OF_13);
		key[i] = (int32_t)(range / 4 * sum);
	}
	if (corrupt)
		key[keys / 2] = key[keys / 2] > range / 2 ? 0 : range - 1;
	begun = now();
	for (int iteration = 1; iteration <= ITERATIONS; iteration++) {
		key[iteration] = iteration;
		key[iteration + ITERATIONS] = range - iteration;
		count(keys, range, key, before);
		for (int probe = 0; probe < PROBES; probe++) {
			int32_t rank = before[key[sizes[class].place[probe]]];
			int32_t right = sizes[class].rank[probe] + expected_change(class, probe, iteration);

			if (rank != right && outcome.verified) {
				outcome.verified = 0;
				outcome.result = rank;
				outcome.expected = right;
			}
		}
	}
	outcome.seconds = now() - begun;
	/* That the ranks put all keys in order is checked as well, outside of what is timed. */
	for (long i = 0; i < keys; i++)
		sorted[before[key[i]]++] = key[i];
	for (long i = 1; i < keys && outcome.verified; i++)
		if (sorted[i - 1] > sorted[i]) {
			outcome.verified = 0;
			outcome.result = sorted[i - 1];
			outcome.expected = sorted[i];
		}
	if (outcome.verified)
		outcome.expected = outcome.result = before[key[sizes[class].place[0]]];
	free(key);
	free(sorted);
	free(before);
	return outcome;
}
