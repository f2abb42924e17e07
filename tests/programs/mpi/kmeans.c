/* k-means: each rank has points of its own, the centres are everybody's. Floating-point sums, reduced by the MPI library:
 * the digest is that of a plain run only if its order of additions is the same. Arguments: points a rank, iterations.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMENSIONS 16
#define CENTRES 8

int main(int count, char **words)
{
	int rank, ranks;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t points = strtoul(words[1], NULL, 10);
	int iterations = atoi(words[2]);
	float(*point)[DIMENSIONS] = malloc(points * sizeof(*point));
	static double centre[CENTRES][DIMENSIONS], sums[CENTRES][DIMENSIONS + 1];
	uint32_t random = 12345u + (uint32_t)rank;

	for (size_t p = 0; p < points; p++)
		for (int d = 0; d < DIMENSIONS; d++) {
			random = random * 1664525u + 1013904223u;
			point[p][d] = (float)(random >> 8) / 16777216.0f + (float)(p % CENTRES);
		}
	if (rank == 0)
		for (int c = 0; c < CENTRES; c++)
			for (int d = 0; d < DIMENSIONS; d++)
				centre[c][d] = point[c * 7][d];
	MPI_Bcast(centre, CENTRES * DIMENSIONS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	for (int i = 0; i < iterations; i++) {
		memset(sums, 0, sizeof(sums));
		for (size_t p = 0; p < points; p++) {
			int best = 0;
			double least = 1e300;

			for (int c = 0; c < CENTRES; c++) {
				double distance = 0;

				for (int d = 0; d < DIMENSIONS; d++)
					distance += (point[p][d] - centre[c][d]) * (point[p][d] - centre[c][d]);
				if (distance < least) {
					least = distance;
					best = c;
				}
			}
			for (int d = 0; d < DIMENSIONS; d++)
				sums[best][d] += point[p][d];
			sums[best][DIMENSIONS] += 1;
		}
		MPI_Allreduce(MPI_IN_PLACE, sums, CENTRES * (DIMENSIONS + 1), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int c = 0; c < CENTRES; c++)
			for (int d = 0; d < DIMENSIONS; d++)
				if (sums[c][DIMENSIONS] > 0)
					centre[c][d] = sums[c][d] / sums[c][DIMENSIONS];
	}
	uint64_t digest = 0;

	for (int c = 0; c < CENTRES; c++)
		for (int d = 0; d < DIMENSIONS; d++) {
			uint64_t bits;

			memcpy(&bits, &centre[c][d], 8);
			digest = (digest ^ bits) * 0x100000001b3u;
		}
	if (rank == 0)
		printf("kmeans: digest %016llx\n", (unsigned long long)digest);
	free(point);
	MPI_Finalize();
	return 0;
}
