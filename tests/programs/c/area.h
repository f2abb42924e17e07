/* Memory that does not fit the budget, of which the part used next was not used for long. */
#ifndef AREA_H
#define AREA_H

#include "common.h"
#include <sys/mman.h>

#define PIECE (1UL << 20)

static char *area;
static size_t pieces;

/* Makes the area: as many megabytes as the first argument says. */
static void make_area(int argc, char **argv)
{
	pieces = argument(argc, argv, 1, 160);
	must((area = mmap(NULL, pieces * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	for (size_t k = 0; k < pieces; k++)
		fill((uint64_t *)(area + k * PIECE), PIECE / 8, k * PIECE / 8, 0);
}

/* A page's beginning with 256 KiB behind it, in a megabyte of its own. */
static char *edge(void)
{
	static size_t turn;

	turn++;
	return area + turn * 37 % pieces * PIECE + PAGE * (turn % 50 + 1);
}

/* The same, a little before that, so that what is there lies on two pages. */
static char *place(void)
{
	return edge() - 24;
}

/* Reads half of everything, so that what was used before is paged out. */
static void use_others(void)
{
	static size_t start;
	volatile char *bytes = area;

	for (size_t k = 0; k < pieces / 2; k++)
		for (size_t page = 0; page < PIECE / PAGE; page++)
			(void)bytes[(start + k) % pieces * PIECE + page * PAGE];
	start += pieces / 2;
}

#endif
