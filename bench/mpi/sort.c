/* Sample sort: each rank makes keys, sorts them, learns from samples of all ranks which keys are to be whose, and sends each
 * rank its own. What a rank has is as large as the keys are unequal. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 32

static int by_size(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

/* What stays the same while keys change their places: how many they are, their sum, and that of another function of them. */
static void sum_up(const uint64_t *key, size_t count, uint64_t sums[3])
{
	sums[0] = count;
	sums[1] = sums[2] = 0;
	for (size_t i = 0; i < count; i++) {
		sums[1] += key[i];
		sums[2] += key[i] * key[i];
	}
	MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

/* Where each rank's keys begin among those of this one, and their end. */
static void divide(const uint64_t *key, size_t count, size_t *at)
{
	uint64_t own[SAMPLES], *all = memory((size_t)ranks * SAMPLES, sizeof(*all));
	size_t place = 0;

	for (size_t i = 0; i < SAMPLES; i++)
		own[i] = key[count * i / SAMPLES];
	MPI_Allgather(own, SAMPLES, MPI_UINT64_T, all, SAMPLES, MPI_UINT64_T, MPI_COMM_WORLD);
	qsort(all, (size_t)ranks * SAMPLES, sizeof(*all), by_size);
	for (int r = 1; r < ranks; r++) {
		while (place < count && key[place] < all[r * SAMPLES])
			place++;
		at[r] = place;
	}
	at[0] = 0;
	at[ranks] = count;
	free(all);
}

/* Exchanges sorted keys, and frees them; returns this rank's, not sorted, and how many. */
static uint64_t *exchange(uint64_t *key, const size_t *at, size_t *count)
{
	int *out = memory((size_t)ranks * 4, sizeof(int)), *from = out + ranks, *in = from + ranks, *to = in + ranks;
	uint64_t *got;

	for (int r = 0; r < ranks; r++) {
		out[r] = (int)(at[r + 1] - at[r]);
		from[r] = (int)at[r];
	}
	MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
	*count = 0;
	for (int r = 0; r < ranks; r++) {
		to[r] = (int)*count;
		*count += (size_t)in[r];
	}
	got = memory(*count + 1, sizeof(*got));
	MPI_Alltoallv(key, out, from, MPI_UINT64_T, got, in, to, MPI_UINT64_T, MPI_COMM_WORLD);
	free(key);
	free(out);
	return got;
}

uint64_t sort(size_t bytes, int rounds)
{
	size_t own = bytes / 2 / sizeof(uint64_t), *at = memory((size_t)ranks + 1, sizeof(*at));
	uint64_t random = 23 + (uint64_t)rank, result = 0;

	begin();
	for (int round = 0; round < rounds; round++) {
		uint64_t *key = memory(own, sizeof(*key)), before[3], after[3], largest, passed = 0;
		size_t count;

		/* Small ones are more frequent. */
		for (size_t i = 0; i < own; i++) {
			uint64_t bits = next(&random);

			key[i] = bits >> (bits & 7);
		}
		sum_up(key, own, before);
		qsort(key, own, sizeof(*key), by_size);
		divide(key, own, at);
		key = exchange(key, at, &count);
		qsort(key, count, sizeof(*key), by_size);

		if (corrupt && count)
			key[count / 2]++;
		sum_up(key, count, after);
		insist(!memcmp(before, after, sizeof(before)), "sort: keys were lost or changed");
		for (size_t i = 1; i < count; i++)
			insist(key[i - 1] <= key[i], "sort: keys are not in order");
		/* What the ranks before this one have at most. */
		largest = count ? key[count - 1] : 0;
		MPI_Exscan(&largest, &passed, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
		insist(rank == 0 || !count || passed <= key[0], "sort: ranks are not in order");
		result = digest(result, key, count * sizeof(*key));
		free(key);
	}
	free(at);
	return result;
}
