/* PageRank on a graph like that of the web: fifteen of sixteen links stay near, the others lead anywhere, most often to
 * vertices that many know. Each rank has the edges that lead to its own vertices, which it goes through in order, and the
 * values of all vertices, which are exchanged after each round. Values are whole numbers, so that sums are the same in any
 * order. */
#include "bench.h"

#include <stdlib.h>

#define ONE (1 << 20)
#define NEAR 2048

uint64_t pagerank(size_t bytes, int rounds)
{
	size_t own = bytes * 2 / 5 / sizeof(int64_t) / (size_t)ranks, vertices = own * (size_t)ranks;
	size_t edges = bytes * 3 / 5 / sizeof(uint32_t);
	uint32_t *from = memory(edges, sizeof(*from)), *first = memory(own + 1, sizeof(*first));
	int64_t *value = memory(vertices, sizeof(*value)), *part = memory(own, sizeof(*part));
	uint64_t random = 42 + (uint64_t)rank;

	/* Vertices' numbers of edges differ as v to the power of -1/2. */
	for (size_t v = 0; v <= own; v++) {
		double share = (double)v / (double)own;

		first[v] = (uint32_t)((double)edges * share * (2 - share));
	}
	for (size_t v = 0; v < own; v++)
		for (uint32_t e = first[v]; e < first[v + 1]; e++) {
			double u = unit(&random);

			if (next(&random) % 16)
				from[e] = (uint32_t)(((size_t)rank * own + v + (size_t)(u * NEAR)) % vertices);
			else
				from[e] = (uint32_t)(u * u * u * u * (double)vertices);
		}
	for (size_t v = 0; v < vertices; v++)
		value[v] = ONE;
	begin();
	for (int round = 0; round < rounds; round++) {
		for (size_t v = 0; v < own; v++) {
			int64_t sum = 0;

			for (uint32_t e = first[v]; e < first[v + 1]; e++)
				sum += value[from[e]];
			part[v] = ONE / 100 * 15 + sum / (1 + (int64_t)(first[v + 1] - first[v])) * 85 / 100;
		}
		MPI_Allgather(part, (int)own, MPI_INT64_T, value, (int)own, MPI_INT64_T, MPI_COMM_WORLD);
	}
	uint64_t result = digest(0, value, vertices * sizeof(*value));

	free(from);
	free(first);
	free(value);
	free(part);
	return result;
}
