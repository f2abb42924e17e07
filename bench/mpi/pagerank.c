/* PageRank on a graph like that of the web: fifteen of sixteen links stay near, the others lead anywhere, most often to
 * vertices that many know. Each rank has the edges that lead to its own vertices, which it goes through in order, and the
 * values of all vertices, which are exchanged after each round. Values are whole numbers, so that sums are the same in any
 * order. */
#include "bench.h"

#include <stdlib.h>

#define ONE (1 << 20)
#define NEAR 2048

static void degrees(size_t own, size_t edges, uint32_t *first)
{
	/* Vertices' numbers of edges differ as v to the power of -1/2. */
	for (size_t v = 0; v <= own; v++) {
		double share = (double)v / (double)own;

		first[v] = (uint32_t)((double)edges * share * (2 - share));
	}
}

/* Where the next edge of a vertex comes from. */
static uint32_t source(uint64_t *random, size_t v, size_t own, size_t vertices)
{
	double u = unit(random);

	if (next(random) % 16)
		return (uint32_t)(((size_t)rank * own + v + (size_t)(u * NEAR)) % vertices);
	return (uint32_t)(u * u * u * u * (double)vertices);
}

/* One more round adds up to the same over edges as they lie and over vertices, as often as the edges that were made lead from
 * them; all ranks know the same values. */
static void check(const uint32_t *from, const uint32_t *first, const int64_t *value, const int64_t *part, size_t own)
{
	size_t vertices = own * (size_t)ranks;
	uint32_t *count = memory(vertices, sizeof(*count));
	uint64_t random = 42 + (uint64_t)rank;
	uint64_t over_edges = 0, over_vertices = 0;

	for (size_t v = 0; v < own; v++) {
		if (part[v] != value[(size_t)rank * own + v])
			wrong("a value is not what this rank computed");
		for (uint32_t e = first[v]; e < first[v + 1]; e++) {
			over_edges += (uint64_t)value[from[e]];
			count[source(&random, v, own, vertices)]++;
		}
	}
	for (size_t v = 0; v < vertices; v++)
		over_vertices += count[v] * (uint64_t)value[v];
	free(count);
	if (over_edges != over_vertices)
		wrong("edges are not what they were");
	if (!same_everywhere(digest(0, value, vertices * sizeof(*value))))
		wrong("ranks have different values");
}

uint64_t pagerank(size_t bytes, int rounds)
{
	size_t own = bytes * 2 / 5 / sizeof(int64_t) / (size_t)ranks, vertices = own * (size_t)ranks;
	size_t edges = bytes * 3 / 5 / sizeof(uint32_t);
	uint32_t *from = memory(edges, sizeof(*from)), *first = memory(own + 1, sizeof(*first));
	int64_t *value = memory(vertices, sizeof(*value)), *part = memory(own, sizeof(*part));
	uint64_t random = 42 + (uint64_t)rank;

	degrees(own, edges, first);
	for (size_t v = 0; v < own; v++)
		for (uint32_t e = first[v]; e < first[v + 1]; e++)
			from[e] = source(&random, v, own, vertices);
	for (size_t v = 0; v < vertices; v++)
		value[v] = ONE;
	begin();
	if (corrupt && rank == ranks - 1)
		from[first[own] / 2] = (from[first[own] / 2] + (uint32_t)vertices / 2) % (uint32_t)vertices;
	for (int round = 0; round < rounds; round++) {
		for (size_t v = 0; v < own; v++) {
			int64_t sum = 0;

			for (uint32_t e = first[v]; e < first[v + 1]; e++)
				sum += value[from[e]];
			part[v] = ONE / 100 * 15 + sum / (1 + (int64_t)(first[v + 1] - first[v])) * 85 / 100;
		}
		MPI_Allgather(part, (int)own, MPI_INT64_T, value, (int)own, MPI_INT64_T, MPI_COMM_WORLD);
	}
	end();
	check(from, first, value, part, own);
	uint64_t result = digest(0, value, vertices * sizeof(*value));

	free(from);
	free(first);
	free(value);
	free(part);
	return result;
}
