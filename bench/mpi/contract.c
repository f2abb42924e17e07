/* Contraction of a graph in levels, as partitioners do it: neighbours with a heavy edge between them become one vertex, until
 * few are left; these are divided into parts, and each part is followed back to the first graph. A rank has the vertices of a
 * range, in each level, so its memory grows and shrinks.
 *
 * No weight may be lost on the way, and an edge that is cut below is cut above: the cut of a division is the same in all
 * levels, and with METIS what that says of its own. */
#include "bench.h"
#include "whole.h"

#include <stdlib.h>

/* Contraction stops here, or where it comes to nothing. */
#define COARSEST 2000
#define LEVELS 40
/* METIS is asked about a level of so many vertices at most. */
#define FINE 40000
#define WIDTH 512

struct edge {
	uint32_t to, weight;
};

struct level {
	/* Of each rank's vertices the first, and the number of all. */
	uint32_t *first;
	/* Of this rank: vertices, where the edges of each begin, edges, vertices' weights, their vertices in the next level. */
	uint32_t count, *at;
	struct edge *edge;
	uint32_t *weight, *next;
};

/* Other ranks' vertices to which edges lead, in order, and what their owners know of them. */
struct ghosts {
	uint32_t *id, *value;
	size_t count;
};

static int by_number(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

static uint32_t own_first(const struct level *level)
{
	return level->first[rank];
}

static int is_own(const struct level *level, uint32_t vertex)
{
	return vertex >= level->first[rank] && vertex < level->first[rank + 1];
}

/* Asks the owners of all neighbours for what their tables say. */
static struct ghosts ask(const struct level *level, const uint32_t *table)
{
	int *out = memory((size_t)ranks * 4, sizeof(int)), *from = out + ranks, *in = from + ranks, *to = in + ranks, asked = 0;
	struct ghosts ghosts = { .count = 0 };
	size_t edges = level->at[level->count], kept = 0;

	for (size_t e = 0; e < edges; e++)
		ghosts.count += !is_own(level, level->edge[e].to);
	ghosts.id = memory(ghosts.count + 1, sizeof(uint32_t));
	ghosts.count = 0;
	for (size_t e = 0; e < edges; e++)
		if (!is_own(level, level->edge[e].to))
			ghosts.id[ghosts.count++] = level->edge[e].to;
	qsort(ghosts.id, ghosts.count, sizeof(uint32_t), by_number);
	for (size_t i = 0; i < ghosts.count; i++)
		if (i == 0 || ghosts.id[i] != ghosts.id[i - 1])
			ghosts.id[kept++] = ghosts.id[i];
	ghosts.count = kept;
	ghosts.value = memory(kept + 1, sizeof(uint32_t));

	for (size_t i = 0, owner = 0; i < kept; i++) {
		while (ghosts.id[i] >= level->first[owner + 1])
			owner++;
		out[owner]++;
	}
	MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		from[r] = r ? from[r - 1] + out[r - 1] : 0;
		to[r] = asked;
		asked += in[r];
	}
	uint32_t *wanted = memory((size_t)asked + 1, sizeof(*wanted));

	MPI_Alltoallv(ghosts.id, out, from, MPI_UINT32_T, wanted, in, to, MPI_UINT32_T, MPI_COMM_WORLD);
	for (int i = 0; i < asked; i++)
		wanted[i] = table[wanted[i] - own_first(level)];
	MPI_Alltoallv(wanted, in, to, MPI_UINT32_T, ghosts.value, out, from, MPI_UINT32_T, MPI_COMM_WORLD);
	free(wanted);
	free(out);
	return ghosts;
}

static void forget(struct ghosts ghosts)
{
	free(ghosts.id);
	free(ghosts.value);
}

/* What the table says of a vertex, wherever it is. */
static uint32_t look_up(const struct level *level, const uint32_t *table, const struct ghosts *ghosts, uint32_t vertex)
{
	const uint32_t *found;

	if (is_own(level, vertex))
		return table[vertex - own_first(level)];
	found = bsearch(&vertex, ghosts->id, ghosts->count, sizeof(vertex), by_number);
	return ghosts->value[found - ghosts->id];
}

/* A number for two vertices, in whichever order. */
static uint32_t chance(uint32_t one, uint32_t other, int round)
{
	uint64_t state = (uint64_t)(one < other ? one : other) << 32 | (one < other ? other : one);

	state ^= (uint64_t)round << 56;
	return (uint32_t)(next(&state) >> 32);
}

/* A mesh, with some light edges that lead far away. */
static struct level mesh(size_t own, int round)
{
	struct level level = { .first = memory((size_t)ranks + 1, sizeof(uint32_t)), .count = (uint32_t)own };
	uint32_t all = (uint32_t)(own * (size_t)ranks), used = 0;

	for (int r = 0; r <= ranks; r++)
		level.first[r] = (uint32_t)(own * (size_t)r);
	level.at = memory(own + 1, sizeof(uint32_t));
	level.weight = memory(own, sizeof(uint32_t));
	level.edge = memory(own * 5, sizeof(*level.edge));
	for (uint32_t i = 0; i < own; i++) {
		uint32_t v = own_first(&level) + i, far = all - 1 - v;
		const uint32_t near[4] = { v - WIDTH, v - 1, v + 1, v + WIDTH };
		const int there[4] = { v >= WIDTH, v % WIDTH > 0, (v + 1) % WIDTH > 0 && v + 1 < all, v + WIDTH < all };

		for (int n = 0; n < 4; n++)
			if (there[n])
				level.edge[used++] = (struct edge){ near[n], 8 + chance(v, near[n], round) % 24 };
		if ((v > far ? v - far : far - v) > WIDTH && chance(v, far, round) % 64 == 0)
			level.edge[used++] = (struct edge){ far, 1 };
		level.weight[i] = 1;
		level.at[i + 1] = used;
	}
	return level;
}

/* Weights of vertices and of edges, of all ranks. */
static void weigh(const struct level *level, uint64_t sums[2])
{
	sums[0] = sums[1] = 0;
	for (uint32_t v = 0; v < level->count; v++)
		sums[0] += level->weight[v];
	for (uint32_t e = 0; e < level->at[level->count]; e++)
		sums[1] += level->edge[e].weight;
	MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

/* Finds for each vertex the neighbour on this rank with the heaviest edge that has no other yet, and numbers the pairs:
 * `pair` has both vertices of each, which are one where there was none. Returns how many there are. */
static uint32_t match(struct level *level, uint32_t heaviest, uint32_t (*pair)[2])
{
	uint32_t pairs = 0, *number = level->next = memory(level->count + 1, sizeof(uint32_t));

	for (uint32_t v = 0; v < level->count; v++) {
		uint32_t best = v, weight = 0;

		if (number[v])
			continue;
		for (uint32_t e = level->at[v]; e < level->at[v + 1]; e++) {
			uint32_t other = level->edge[e].to - own_first(level);

			if (is_own(level, level->edge[e].to) && !number[other] && level->edge[e].weight > weight &&
			    level->weight[v] + level->weight[other] <= heaviest) {
				best = other;
				weight = level->edge[e].weight;
			}
		}
		pair[pairs][0] = v;
		pair[pairs][1] = best;
		number[v] = number[best] = ++pairs;
	}
	return pairs;
}

static int by_target(const void *one, const void *other)
{
	return by_number(&((const struct edge *)one)->to, &((const struct edge *)other)->to);
}

/* Edges of one vertex that lead to the same one are joined. Returns how many are left. */
static uint32_t join(struct edge *edge, uint32_t count)
{
	uint32_t kept = 0;

	qsort(edge, count, sizeof(*edge), by_target);
	for (uint32_t e = 0; e < count; e++)
		if (kept && edge[kept - 1].to == edge[e].to)
			edge[kept - 1].weight += edge[e].weight;
		else
			edge[kept++] = edge[e];
	return kept;
}

/* Makes the next level. */
static struct level contract_once(struct level *fine)
{
	uint32_t(*pair)[2] = memory(fine->count + 1, sizeof(*pair)), used = 0;
	struct level coarse = { .first = memory((size_t)ranks + 1, sizeof(uint32_t)) };
	uint64_t sums[2], after[2], inside = 0;

	weigh(fine, sums);
	coarse.count = match(fine, (uint32_t)(sums[0] / (20 * PARTS)), pair);
	MPI_Allgather(&coarse.count, 1, MPI_UINT32_T, coarse.first + 1, 1, MPI_UINT32_T, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		coarse.first[r + 1] += coarse.first[r];
	for (uint32_t v = 0; v < fine->count; v++)
		fine->next[v] += own_first(&coarse) - 1;

	struct ghosts ghosts = ask(fine, fine->next);

	coarse.at = memory(coarse.count + 1, sizeof(uint32_t));
	coarse.weight = memory(coarse.count + 1, sizeof(uint32_t));
	coarse.edge = memory(fine->at[fine->count] + 1, sizeof(*coarse.edge));
	for (uint32_t c = 0; c < coarse.count; c++) {
		for (int member = 0; member < 2 && (member == 0 || pair[c][1] != pair[c][0]); member++) {
			uint32_t v = pair[c][member];

			coarse.weight[c] += fine->weight[v];
			for (uint32_t e = fine->at[v]; e < fine->at[v + 1]; e++) {
				uint32_t to = look_up(fine, fine->next, &ghosts, fine->edge[e].to);

				if (to == own_first(&coarse) + c)
					inside += fine->edge[e].weight;
				else
					coarse.edge[used++] = (struct edge){ to, fine->edge[e].weight };
			}
		}
		coarse.at[c + 1] = used = coarse.at[c] + join(coarse.edge + coarse.at[c], used - coarse.at[c]);
	}
	struct edge *smaller = realloc(coarse.edge, (used + 1) * sizeof(*coarse.edge));

	coarse.edge = smaller ? smaller : coarse.edge;
	forget(ghosts);
	free(pair);
	if (corrupt && coarse.count)
		coarse.weight[0]++;
	weigh(&coarse, after);
	MPI_Allreduce(MPI_IN_PLACE, &inside, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	insist(after[0] == sums[0] && after[1] + inside == sums[1], "contract: weight was lost");
	return coarse;
}

/* The weight of the edges between parts. */
static uint64_t cut(const struct level *level, const uint32_t *part)
{
	struct ghosts ghosts = ask(level, part);
	uint64_t sum = 0;

	for (uint32_t v = 0; v < level->count; v++)
		for (uint32_t e = level->at[v]; e < level->at[v + 1]; e++)
			if (look_up(level, part, &ghosts, level->edge[e].to) != part[v])
				sum += level->edge[e].weight;
	forget(ghosts);
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return sum / 2;
}

/* The graph of a level, all of it, at the first rank. */
static struct whole gather(const struct level *level)
{
	int *counts = memory((size_t)ranks * 2, sizeof(int)), *places = counts + ranks, own = (int)level->at[level->count];
	struct whole whole = { .count = (int32_t)level->first[ranks] };
	size_t all = 0;
	int32_t *degree = memory(level->count + 1, sizeof(*degree)), *target = memory((size_t)own + 1, sizeof(*target));
	int32_t *weight = memory((size_t)own + 1, sizeof(*weight));

	for (uint32_t v = 0; v < level->count; v++)
		degree[v] = (int32_t)(level->at[v + 1] - level->at[v]);
	for (int e = 0; e < own; e++) {
		target[e] = (int32_t)level->edge[e].to;
		weight[e] = (int32_t)level->edge[e].weight;
	}
	for (int r = 0; r < ranks; r++) {
		counts[r] = (int)(level->first[r + 1] - level->first[r]);
		places[r] = (int)level->first[r];
	}
	if (rank == 0) {
		whole.at = memory((size_t)whole.count + 1, sizeof(int32_t));
		whole.weight = memory((size_t)whole.count, sizeof(int32_t));
	}
	MPI_Gatherv(level->weight, counts[rank], MPI_INT32_T, whole.weight, counts, places, MPI_INT32_T, 0, MPI_COMM_WORLD);
	MPI_Gatherv(degree, counts[rank], MPI_INT32_T, rank ? NULL : whole.at + 1, counts, places, MPI_INT32_T, 0, MPI_COMM_WORLD);
	for (int32_t v = 0; rank == 0 && v < whole.count; v++)
		whole.at[v + 1] += whole.at[v];
	MPI_Gather(&own, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		places[r] = (int)all;
		all += (size_t)counts[r];
	}
	if (rank == 0) {
		whole.edge = memory(all + 1, sizeof(int32_t));
		whole.edge_weight = memory(all + 1, sizeof(int32_t));
	}
	MPI_Gatherv(target, own, MPI_INT32_T, whole.edge, counts, places, MPI_INT32_T, 0, MPI_COMM_WORLD);
	MPI_Gatherv(weight, own, MPI_INT32_T, whole.edge_weight, counts, places, MPI_INT32_T, 0, MPI_COMM_WORLD);
	free(counts);
	free(degree);
	free(target);
	free(weight);
	return whole;
}

/* Follows a division of the last level, which the first rank has, up to the first level; its cut, and a digest of it. */
static uint64_t follow(const struct level *level, int levels, const uint32_t *all, uint64_t *result)
{
	const struct level *last = level + levels - 1;
	int *counts = memory((size_t)ranks * 2, sizeof(int)), *places = counts + ranks;
	uint32_t *part = memory(last->count + 1, sizeof(*part));
	uint64_t first;

	for (int r = 0; r < ranks; r++) {
		counts[r] = (int)(last->first[r + 1] - last->first[r]);
		places[r] = (int)last->first[r];
	}
	MPI_Scatterv(all, counts, places, MPI_UINT32_T, part, counts[rank], MPI_UINT32_T, 0, MPI_COMM_WORLD);
	free(counts);
	first = cut(last, part);
	for (int l = levels - 2; l >= 0; l--) {
		uint32_t *finer = memory(level[l].count + 1, sizeof(*finer));

		for (uint32_t v = 0; v < level[l].count; v++)
			finer[v] = part[level[l].next[v] - own_first(&level[l + 1])];
		free(part);
		part = finer;
		insist(cut(&level[l], part) == first, "contract: a cut is not the same in two levels");
	}
	*result = digest(*result ^ first, part, level->count * sizeof(*part));
	free(part);
	return first;
}

/* Divides the last level, alone and by METIS. */
static uint64_t divide(const struct level *level, int levels, uint64_t result)
{
	struct whole whole = gather(level + levels - 1), first;
	uint32_t *part = memory((size_t)whole.count, sizeof(*part));
	uint64_t own, said[2] = { 0, 0 }, there;
	int fine = 0;

	if (rank == 0)
		grow(&whole, part);
	own = follow(level, levels, part, &result);
	if (has_metis()) {
		if (rank == 0)
			said[0] = ask_metis(&whole, part);
		there = follow(level, levels, part, &result);
		release(&whole);
		while (fine < levels - 1 && level[fine].first[ranks] > FINE)
			fine++;
		first = gather(&level[fine]);
		if (rank == 0) {
			part = realloc(part, (size_t)first.count * sizeof(*part));
			insist(part != NULL, "contract: no memory for parts");
			said[1] = ask_metis(&first, part);
		}
		release(&first);
		MPI_Bcast(said, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
		insist(there == said[0], "contract: the cut is not what METIS says of it");
		insist(own <= said[0] * 10, "contract: METIS finds a much smaller cut");
		/* What the levels cost: METIS with one of them, and with what became of it. */
		insist(there <= said[1] * 2, "contract: METIS finds a much smaller cut in a level with more vertices");
	} else {
		release(&whole);
	}
	free(part);
	return result;
}

uint64_t contract(size_t bytes, int rounds)
{
	/* All levels of a mesh, and what is needed on the way. */
	size_t own = bytes / 128;
	uint64_t result = 0;

	begin();
	if (rank == 0 && !has_metis())
		fprintf(stderr, "ream-bench-mpi: built without METIS, to which contractions are compared\n");
	for (int round = 0; round < rounds; round++) {
		struct level level[LEVELS];
		int levels = 1;

		level[0] = mesh(own, round);
		while (levels < LEVELS && level[levels - 1].first[ranks] > COARSEST) {
			level[levels] = contract_once(&level[levels - 1]);
			result = digest(result, level[levels].edge, level[levels].at[level[levels].count] * sizeof(struct edge));
			levels++;
			if (level[levels - 1].first[ranks] > level[levels - 2].first[ranks] / 20 * 19)
				break;
		}
		result = divide(level, levels, result);
		while (levels--) {
			free(level[levels].first);
			free(level[levels].at);
			free(level[levels].edge);
			free(level[levels].weight);
			free(level[levels].next);
		}
	}
	return result;
}
