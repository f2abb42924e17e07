/* PageRank on a generated power-law graph, its edges divided among the ranks: each iteration every rank goes through its
 * edges, then the ranks exchange the sums of all vertices. Prints the sum, the largest value and a digest of all values.
 * Arguments: vertices, edges a rank, iterations.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int main(int count, char **words)
{
	int rank, ranks;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t vertices = strtoul(words[1], NULL, 10) / (size_t)ranks * (size_t)ranks, edges = strtoul(words[2], NULL, 10);
	int iterations = atoi(words[3]), own = (int)(vertices / (size_t)ranks);
	uint32_t(*edge)[2] = malloc(edges * sizeof(*edge));
	/* Out-degrees and ranks are whole numbers, so that sums are the same in any order. */
	int64_t *degree = calloc(vertices, 8), *value = malloc(vertices * 8), *sum = malloc(vertices * 8), *part = malloc((size_t)own * 8);

	state = 42 + (uint64_t)rank;
	for (size_t i = 0; i < edges; i++) {
		/* The smaller the number, the more edges: as u^3 spreads over the vertices. */
		double u = (double)(next() >> 11) / 9007199254740992.0, v = (double)(next() >> 11) / 9007199254740992.0;

		edge[i][0] = (uint32_t)((double)vertices * u);
		edge[i][1] = (uint32_t)((double)vertices * v * v * v);
		degree[edge[i][0]]++;
	}
	MPI_Allreduce(MPI_IN_PLACE, degree, (int)vertices, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (size_t v = 0; v < vertices; v++)
		value[v] = 1 << 20;
	for (int i = 0; i < iterations; i++) {
		memset(sum, 0, vertices * 8);
		for (size_t e = 0; e < edges; e++)
			sum[edge[e][1]] += value[edge[e][0]] / degree[edge[e][0]];
		MPI_Reduce_scatter_block(sum, part, own, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (int v = 0; v < own; v++)
			part[v] = (15 << 20) / 100 + part[v] * 85 / 100;
		MPI_Allgather(part, own, MPI_INT64_T, value, own, MPI_INT64_T, MPI_COMM_WORLD);
	}
	int64_t total = 0, most = 0;
	uint64_t digest = 0;

	for (size_t v = 0; v < vertices; v++) {
		total += value[v];
		most = value[v] > most ? value[v] : most;
		digest = (digest ^ (uint64_t)value[v]) * 0x100000001b3u;
	}
	if (rank == 0)
		printf("pagerank: sum %lld most %lld digest %016llx\n", (long long)total, (long long)most, (unsigned long long)digest);
	free(edge);
	MPI_Finalize();
	return 0;
}
