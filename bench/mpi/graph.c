/* PageRank on a graph from a file, for many beginnings at once: each column is the part of a walk that begins at one vertex,
 * again and again, and is found at each of the others. A rank has the vertices of a range, and copies of all values. Values
 * are whole numbers, so that sums are the same in any order.
 *
 * The file has an edge on each line, the numbers of two vertices; lines that begin with # say nothing. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define ONE ((int64_t)1 << 40)

struct edge {
	uint32_t from, to;
};

static int by_target(const void *one, const void *other)
{
	const struct edge *a = one, *b = other;

	if (a->to != b->to)
		return a->to < b->to ? -1 : 1;
	return (a->from > b->from) - (a->from < b->from);
}

/* Reads all edges, in order of where they lead. */
static struct edge *edges_of(const char *path, size_t *count, size_t *vertices)
{
	size_t room = 1 << 16;
	struct edge *edge = memory(room, sizeof(*edge));
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[256];

	insist(file != NULL, "graph: no file of edges, or it cannot be read");
	*count = *vertices = 0;
	while (fgets(line, sizeof(line), file)) {
		struct edge this;

		if (line[0] == '#' || sscanf(line, "%u %u", &this.from, &this.to) != 2)
			continue;
		if (*count == room) {
			room *= 2;
			edge = realloc(edge, room * sizeof(*edge));
			insist(edge != NULL, "graph: no memory for edges");
		}
		edge[(*count)++] = this;
		if (this.from >= *vertices)
			*vertices = (size_t)this.from + 1;
		if (this.to >= *vertices)
			*vertices = (size_t)this.to + 1;
	}
	fclose(file);
	insist(*count > 0, "graph: a file without edges");
	qsort(edge, *count, sizeof(*edge), by_target);
	return edge;
}

uint64_t graph(size_t bytes, int rounds)
{
	size_t count, vertices, e = 0;
	struct edge *edge = edges_of(file, &count, &vertices);
	size_t first = vertices * (size_t)rank / (size_t)ranks, own = vertices * (size_t)(rank + 1) / (size_t)ranks - first;
	/* As many in each rank. */
	size_t columns = bytes / sizeof(int64_t) / (vertices + vertices / (size_t)ranks) + 1;
	int64_t *value = memory(vertices * columns, sizeof(*value)), *part = memory(own * columns, sizeof(*part));
	int64_t *leave = memory(vertices, sizeof(*leave));
	int *counts = memory((size_t)ranks * 2, sizeof(int)), *places = counts + ranks;

	for (int r = 0; r < ranks; r++) {
		size_t from = vertices * (size_t)r / (size_t)ranks, to = vertices * (size_t)(r + 1) / (size_t)ranks;

		counts[r] = (int)((to - from) * columns);
		places[r] = (int)(from * columns);
	}
	for (size_t i = 0; i < count; i++)
		leave[edge[i].from]++;
	for (size_t c = 0; c < columns; c++)
		value[c % vertices * columns + c] = ONE;
	while (e < count && edge[e].to < first)
		e++;
	size_t begins = e;

	begin();
	for (int round = 0; round < rounds; round++) {
		e = begins;
		for (size_t v = 0; v < own; v++) {
			int64_t *sum = part + v * columns;

			for (size_t c = 0; c < columns; c++)
				sum[c] = c % vertices == first + v ? ONE / 100 * 15 : 0;
			for (; e < count && edge[e].to == first + v; e++) {
				const int64_t *from = value + edge[e].from * columns;

				for (size_t c = 0; c < columns; c++)
					sum[c] += from[c] / leave[edge[e].from] / 100 * 85;
			}
		}
		MPI_Allgatherv(part, (int)(own * columns), MPI_INT64_T, value, counts, places, MPI_INT64_T, MPI_COMM_WORLD);
	}
	int64_t *sum = memory(columns, sizeof(*sum));

	end();
	if (corrupt && rank == ranks - 1)
		value[0] += ONE;
	for (size_t v = 0; v < vertices; v++)
		for (size_t c = 0; c < columns; c++) {
			insist(value[v * columns + c] >= 0, "graph: a part below nothing");
			sum[c] += value[v * columns + c];
		}
	/* Walks that come to an end are not followed. */
	for (size_t c = 0; c < columns; c++)
		insist(sum[c] >= ONE / 100 * 15 && sum[c] <= ONE, "graph: the parts of a walk are not one");
	free(sum);
	uint64_t result = digest(0, value, vertices * columns * sizeof(*value)), same[2] = { result, ~result };

	MPI_Allreduce(MPI_IN_PLACE, same, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	insist(same[0] == result && same[1] == ~result, "graph: ranks have not the same values");
	free(edge);
	free(value);
	free(part);
	free(leave);
	free(counts);
	return result;
}
