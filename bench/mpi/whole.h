/* A graph that one rank has wholly, and two ways to divide it. */
#ifndef WHOLE_H
#define WHOLE_H

#include <stdint.h>
#include <stdio.h>

#define PARTS 8

/* As METIS has it: where the edges of each vertex begin, where they lead, weights. */
struct whole {
	int32_t count, *at, *edge, *edge_weight, *weight;
};

/* Divides it in the order in which neighbours are found from the first vertex. */
void grow(const struct whole *whole, uint32_t *part);
/* Whether METIS is there. */
int has_metis(void);
/* METIS divides it; returns the cut that it names. */
uint64_t ask_metis(const struct whole *whole, uint32_t *part);
void release(struct whole *whole);

#endif
