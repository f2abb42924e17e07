/* A graph is contracted level by level, as partitioners do it: neighbours are matched by the weight of their edges, each pair
 * becomes one vertex, and edges that then join the same two are added up. At the end vertices get a side, which goes back
 * through all levels. Memory grows and shrinks: each level is a graph of its own, all are kept until the way back.
 *
 * Each rank has the rows of its own vertices and matches those among themselves. Vertex v has edges to v ± some distances, so
 * everybody knows what the graph was. What is known beforehand: weights of vertices and of edges stay the same in sum, and the
 * edges between the two sides weigh the same on every level. */
#include "bench.h"

#include <stdlib.h>

#define LEVELS 6
#define DEGREE 8

struct level {
	size_t own, before, all;	/* vertices: this rank's, those of ranks before it, everybody's */
	uint32_t *first, *to, *weight;	/* edges, by vertex */
	uint64_t *size;			/* how many vertices of the first level one stands for */
	uint64_t inner;			/* weight of edges within vertices */
	uint32_t *map;			/* vertices of the next level, of everybody's */
};

static uint32_t neighbour(size_t v, int k, size_t all)
{
	static const size_t distance[DEGREE / 2] = { 1, 17, 1031, 65521 };
	size_t far = distance[k / 2] % all;

	return (uint32_t)((k % 2 ? v + all - far : v + far) % all);
}

static uint32_t heavy(size_t v, size_t w)
{
	uint64_t both = v < w ? v << 32 | w : w << 32 | v;

	return (uint32_t)(next(&both) % 100 + 1);
}

static struct level finest(size_t own)
{
	struct level level = { .own = own, .before = own * (size_t)rank, .all = own * (size_t)ranks };

	level.first = memory(own + 1, sizeof(*level.first));
	level.to = memory(own * DEGREE, sizeof(*level.to));
	level.weight = memory(own * DEGREE, sizeof(*level.weight));
	level.size = memory(own, sizeof(*level.size));
	for (size_t v = 0; v < own; v++) {
		for (uint32_t k = 0; k < DEGREE; k++) {
			level.to[v * DEGREE + k] = neighbour(level.before + v, (int)k, level.all);
			level.weight[v * DEGREE + k] = heavy(level.before + v, level.to[v * DEGREE + k]);
		}
		level.first[v + 1] = (uint32_t)(v + 1) * DEGREE;
		level.size[v] = 1;
	}
	return level;
}

/* Matches this rank's vertices; says in `map` what becomes of everybody's, and how many are left of this rank's. */
static size_t match(struct level *fine, struct level *coarse)
{
	uint32_t none = UINT32_MAX, *own = memory(fine->own, sizeof(*own));
	int *counts = memory((size_t)ranks, sizeof(*counts)), *places = memory((size_t)ranks, sizeof(*places));
	uint64_t left = 0, mine;
	int count = (int)fine->own;

	for (size_t v = 0; v < fine->own; v++)
		own[v] = none;
	for (size_t v = 0; v < fine->own; v++) {
		uint32_t best = none, most = 0;

		if (own[v] != none)
			continue;
		for (uint32_t e = fine->first[v]; e < fine->first[v + 1]; e++) {
			size_t w = fine->to[e] - fine->before;

			if (fine->to[e] >= fine->before && w < fine->own && w != v && own[w] == none && fine->weight[e] > most) {
				best = (uint32_t)w;
				most = fine->weight[e];
			}
		}
		own[v] = (uint32_t)left;
		if (best != none)
			own[best] = (uint32_t)left;
		left++;
	}
	mine = left;
	MPI_Scan(&mine, &left, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	coarse->own = mine;
	coarse->before = left - mine;
	MPI_Allreduce(&mine, &left, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	coarse->all = left;
	for (size_t v = 0; v < fine->own; v++)
		own[v] += (uint32_t)coarse->before;
	MPI_Allgather(&count, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
	for (int r = 1; r < ranks; r++)
		places[r] = places[r - 1] + counts[r - 1];
	fine->map = memory(fine->all, sizeof(*fine->map));
	MPI_Allgatherv(own, count, MPI_UINT32_T, fine->map, counts, places, MPI_UINT32_T, MPI_COMM_WORLD);
	free(own);
	free(counts);
	free(places);
	return mine;
}

static struct level coarser(struct level *fine)
{
	struct level coarse = { .inner = fine->inner };
	size_t own = match(fine, &coarse), edges = fine->first[fine->own], made = 0;
	/* The vertices that became one are at most two; where in the new row an edge to a vertex is, plus one. */
	uint32_t(*members)[2] = memory(own, sizeof(*members)), *place = memory(coarse.all, sizeof(*place));

	coarse.first = memory(own + 1, sizeof(*coarse.first));
	coarse.to = memory(edges, sizeof(*coarse.to));
	coarse.weight = memory(edges, sizeof(*coarse.weight));
	coarse.size = memory(own, sizeof(*coarse.size));
	for (size_t v = 0; v < fine->own; v++) {
		size_t c = fine->map[fine->before + v] - coarse.before;

		members[c][members[c][0] != 0] = (uint32_t)v + 1;
		coarse.size[c] += fine->size[v];
	}
	for (size_t c = 0; c < own; c++) {
		for (int m = 0; m < 2 && members[c][m]; m++)
			for (uint32_t v = members[c][m] - 1, e = fine->first[v]; e < fine->first[v + 1]; e++) {
				uint32_t to = fine->map[fine->to[e]];

				if (to == c + coarse.before) {
					coarse.inner += fine->weight[e];
				} else if (place[to] > coarse.first[c]) {
					coarse.weight[place[to] - 1] += fine->weight[e];
				} else {
					coarse.to[made] = to;
					coarse.weight[made++] = fine->weight[e];
					place[to] = (uint32_t)made;
				}
			}
		coarse.first[c + 1] = (uint32_t)made;
	}
	free(members);
	free(place);
	coarse.to = realloc(coarse.to, (made + 1) * sizeof(*coarse.to));
	coarse.weight = realloc(coarse.weight, (made + 1) * sizeof(*coarse.weight));
	return coarse;
}

/* Whether weights are what they were on the first level. */
static void conserved(const struct level *level, const uint64_t *known)
{
	uint64_t sums[2] = { 0, level->inner };

	for (size_t v = 0; v < level->own; v++)
		sums[0] += level->size[v];
	for (uint32_t e = 0; e < level->first[level->own]; e++)
		sums[1] += level->weight[e];
	if (sums[0] != known[0] || sums[1] != known[1])
		wrong("weights are lost, or more than there were");
}

/* Weight of the edges of this rank's vertices that lead to the other side. */
static uint64_t between(const struct level *level, const unsigned char *side)
{
	uint64_t sum = 0;

	for (size_t v = 0; v < level->own; v++)
		for (uint32_t e = level->first[v]; e < level->first[v + 1]; e++)
			if (side[level->before + v] != side[level->to[e]])
				sum += level->weight[e];
	return sum;
}

static void drop(struct level *level)
{
	free(level->first);
	free(level->to);
	free(level->weight);
	free(level->size);
	free(level->map);
}

uint64_t contract(size_t bytes, int rounds)
{
	struct level level[LEVELS + 1];
	size_t own = bytes / (260 + 8 * (size_t)ranks);
	uint64_t known[2] = { own, 0 }, result = 0;

	level[0] = finest(own);
	for (size_t v = 0; v < own; v++)
		for (int k = 0; k < DEGREE; k++)
			known[1] += heavy(level[0].before + v, neighbour(level[0].before + v, k, level[0].all));
	begin();
	if (corrupt && rank == ranks - 1)
		level[0].weight[own * DEGREE / 2]++;
	for (int round = 0; round < rounds; round++) {
		for (int l = 0; l < LEVELS; l++)
			level[l + 1] = coarser(&level[l]);
		unsigned char *side = memory(level[LEVELS].all, 1);

		for (size_t v = 0; v < level[LEVELS].all; v++)
			side[v] = (unsigned char)((v + (size_t)round) / 64 % 2);
		uint64_t cut = between(&level[LEVELS], side);

		for (int l = LEVELS - 1; l >= 0; l--) {
			unsigned char *finer = memory(level[l].all, 1);

			for (size_t v = 0; v < level[l].all; v++)
				finer[v] = side[level[l].map[v]];
			free(side);
			side = finer;
			if (between(&level[l], side) != cut)
				wrong("the sides are not as far apart as on the last level");
		}
		result = digest(result, side, level[0].all);
		result = digest(result, &cut, sizeof(cut));
		free(side);
		for (int l = LEVELS; l > 0; l--) {
			conserved(&level[l], known);
			drop(&level[l]);
			free(level[l - 1].map);
			level[l - 1].map = NULL;
		}
	}
	end();
	conserved(&level[0], known);
	drop(&level[0]);
	return result;
}
