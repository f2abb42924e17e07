/* A graph that one rank has wholly: divided by the order in which it is found, and by METIS where that is there. */
#include "whole.h"
#include "bench.h"

#include <stdlib.h>

#ifdef WITH_METIS
#include <metis.h>
#endif

void grow(const struct whole *whole, uint32_t *part)
{
	int32_t *queue = memory((size_t)whole->count, sizeof(*queue)), head = 0, tail = 0, unseen = 0;
	char *seen = memory((size_t)whole->count, 1);
	uint64_t all = 0, given = 0;

	for (int32_t v = 0; v < whole->count; v++)
		all += (uint64_t)whole->weight[v];
	while (head < whole->count) {
		if (head == tail) {
			while (seen[unseen])
				unseen++;
			seen[unseen] = 1;
			queue[tail++] = unseen;
		}
		int32_t v = queue[head++];

		part[v] = (uint32_t)(given * PARTS / all);
		given += (uint64_t)whole->weight[v];
		for (int32_t e = whole->at[v]; e < whole->at[v + 1]; e++)
			if (!seen[whole->edge[e]]) {
				seen[whole->edge[e]] = 1;
				queue[tail++] = whole->edge[e];
			}
	}
	free(queue);
	free(seen);
}

void release(struct whole *whole)
{
	free(whole->at);
	free(whole->edge);
	free(whole->edge_weight);
	free(whole->weight);
}

#if defined(WITH_METIS) && IDXTYPEWIDTH == 32

int has_metis(void)
{
	return 1;
}

uint64_t ask_metis(const struct whole *whole, uint32_t *part)
{
	idx_t count = whole->count, constraints = 1, parts = PARTS, options[METIS_NOPTIONS], cut = 0;

	METIS_SetDefaultOptions(options);
	options[METIS_OPTION_SEED] = 1;
	insist(METIS_PartGraphKway(&count, &constraints, whole->at, whole->edge, whole->weight, NULL, whole->edge_weight, &parts,
				  NULL, NULL, options, &cut, (idx_t *)part) == METIS_OK,
	      "contract: METIS does not take the graph");
	return (uint64_t)cut;
}

#else

int has_metis(void)
{
	return 0;
}

uint64_t ask_metis(const struct whole *whole, uint32_t *part)
{
	(void)whole;
	(void)part;
	return 0;
}

#endif
