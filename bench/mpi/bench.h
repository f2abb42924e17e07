/* What the programs of ream-bench-mpi have in common. Each divides its data among the ranks, computes a fixed number of
 * rounds, checks what came of it, and returns a number that is the same in every run with as many ranks. */
#ifndef BENCH_H
#define BENCH_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

extern int rank, ranks;
/* Set by --corrupt: each program then spoils one value of its data, and must find that out. */
extern int corrupt;
/* What the program is to read; NULL if nothing was named. */
extern const char *file;

/* A program: bytes of data that each rank is to have, rounds. It calls begin() when its data are there. */
typedef uint64_t program(size_t bytes, int rounds);
program pagerank, kmeans, sgd, mttkrp, sort, contract, graph, pair, cells_read, cells_write, cells_both;

/* All ranks are here: the clock starts. */
void begin(void);
/* All rounds are done: the clock stops. What follows is checked, not measured. Without a call it stops at the end. */
void end(void);
/* This rank found something wrong; the first time says what. The program then ends with status 1. */
void wrong(const char *what);
/* Memory that is zeros, or the end of the job. */
void *memory(size_t count, size_t size);
/* What must be so, else the job ends with a line that says what is wrong. */
void insist(int holds, const char *else_what);
/* Numbers that look like chance: the same for the same seed. */
uint64_t next(uint64_t *state);
/* The same, from 0 to below 1. */
double unit(uint64_t *state);
/* Joins what a rank has with what was joined before. */
uint64_t digest(uint64_t before, const void *data, size_t bytes);
/* What all ranks have, joined. */
uint64_t digest_of_all(uint64_t own);

/* Whether all ranks have the same number. */
int same_everywhere(uint64_t own);

#endif
