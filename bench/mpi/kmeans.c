/* k-means: each rank has points of its own, the centres are everybody's. Points are gone through in order. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define DIMENSIONS 16
#define CENTRES 32

static float centre[CENTRES][DIMENSIONS], before[CENTRES][DIMENSIONS];
static double sums[CENTRES][DIMENSIONS + 1];

static void make(float *point, size_t p, uint64_t *random)
{
	uint64_t bits = next(random);

	for (int d = 0; d < DIMENSIONS; d++)
		point[d] = (float)(bits >> d & 0xffff) / 65536.0f + (float)(p % CENTRES);
}

static float distance(const float *one, const float *other)
{
	float result = 0;

	for (int d = 0; d < DIMENSIONS; d++) {
		float apart = one[d] - other[d];

		result += apart * apart;
	}
	return result;
}

/* Centres are the means of the points that were made and are said to be nearest to them; of some points it is looked whether
 * they are. */
static void check(float (*point)[DIMENSIONS], const uint32_t *nearest, size_t points)
{
	uint64_t random = 7 + (uint64_t)rank;

	memset(sums, 0, sizeof(sums));
	for (size_t p = 0; p < points; p++) {
		float made[DIMENSIONS];

		make(made, p, &random);
		if (memcmp(made, point[p], sizeof(made)))
			wrong("a point is not where it was");
		if (nearest[p] >= CENTRES) {
			wrong("a point belongs to no centre");
			continue;
		}
		for (int c = 0; p % 64 == 0 && c < CENTRES; c++)
			if (distance(made, before[c]) < distance(made, before[nearest[p]]))
				wrong("a point has a nearer centre");
		for (int d = 0; d < DIMENSIONS; d++)
			sums[nearest[p]][d] += (double)made[d];
		sums[nearest[p]][DIMENSIONS] += 1;
	}
	MPI_Allreduce(MPI_IN_PLACE, sums, CENTRES * (DIMENSIONS + 1), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int c = 0; c < CENTRES; c++)
		for (int d = 0; d < DIMENSIONS && sums[c][DIMENSIONS] > 0; d++) {
			double apart = sums[c][d] / sums[c][DIMENSIONS] - (double)centre[c][d];

			if (!(apart < 1e-4 && apart > -1e-4))
				wrong("a centre is not the mean of its points");
		}
}

uint64_t kmeans(size_t bytes, int rounds)
{
	size_t points = bytes / (sizeof(float) * DIMENSIONS + sizeof(uint32_t));
	float(*point)[DIMENSIONS] = memory(points, sizeof(*point));
	uint32_t *nearest = memory(points, sizeof(*nearest));
	uint64_t random = 7 + (uint64_t)rank;

	for (size_t p = 0; p < points; p++)
		make(point[p], p, &random);
	memcpy(centre, point, sizeof(centre));
	MPI_Bcast(centre, CENTRES * DIMENSIONS, MPI_FLOAT, 0, MPI_COMM_WORLD);
	begin();
	if (corrupt && rank == ranks - 1)
		point[points / 2][3] += 0.5f;
	for (int round = 0; round < rounds; round++) {
		memcpy(before, centre, sizeof(before));
		memset(sums, 0, sizeof(sums));
		for (size_t p = 0; p < points; p++) {
			uint32_t best = 0;
			float least = 1e30f;

			for (uint32_t c = 0; c < CENTRES; c++) {
				float far = distance(point[p], centre[c]);

				if (far < least) {
					least = far;
					best = c;
				}
			}
			nearest[p] = best;
			for (int d = 0; d < DIMENSIONS; d++)
				sums[best][d] += (double)point[p][d];
			sums[best][DIMENSIONS] += 1;
		}
		MPI_Allreduce(MPI_IN_PLACE, sums, CENTRES * (DIMENSIONS + 1), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int c = 0; c < CENTRES; c++)
			for (int d = 0; d < DIMENSIONS; d++)
				if (sums[c][DIMENSIONS] > 0)
					centre[c][d] = (float)(sums[c][d] / sums[c][DIMENSIONS]);
	}
	end();
	check(point, nearest, points);
	uint64_t result = digest(digest(0, centre, sizeof(centre)), nearest, points * sizeof(*nearest));

	free(point);
	free(nearest);
	return result;
}
