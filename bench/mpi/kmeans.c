/* k-means: each rank has points of its own, the centres are everybody's. Points are gone through in order. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define DIMENSIONS 16
#define CENTRES 32

uint64_t kmeans(size_t bytes, int rounds)
{
	static float centre[CENTRES][DIMENSIONS];
	static double sums[CENTRES][DIMENSIONS + 1];
	size_t points = bytes / (sizeof(float) * DIMENSIONS + sizeof(uint32_t));
	float(*point)[DIMENSIONS] = memory(points, sizeof(*point));
	uint32_t *nearest = memory(points, sizeof(*nearest));
	uint64_t random = 7 + (uint64_t)rank;

	for (size_t p = 0; p < points; p++) {
		uint64_t bits = next(&random);

		for (int d = 0; d < DIMENSIONS; d++)
			point[p][d] = (float)(bits >> d & 0xffff) / 65536.0f + (float)(p % CENTRES);
	}
	memcpy(centre, point, sizeof(centre));
	MPI_Bcast(centre, CENTRES * DIMENSIONS, MPI_FLOAT, 0, MPI_COMM_WORLD);
	begin();
	for (int round = 0; round < rounds; round++) {
		memset(sums, 0, sizeof(sums));
		for (size_t p = 0; p < points; p++) {
			uint32_t best = 0;
			float least = 1e30f;

			for (uint32_t c = 0; c < CENTRES; c++) {
				float distance = 0;

				for (int d = 0; d < DIMENSIONS; d++) {
					float apart = point[p][d] - centre[c][d];

					distance += apart * apart;
				}
				if (distance < least) {
					least = distance;
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
	uint64_t result = digest(digest(0, centre, sizeof(centre)), nearest, points * sizeof(*nearest));

	free(point);
	free(nearest);
	return result;
}
