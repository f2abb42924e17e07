/* ream-bench-mpi-* PROGRAM MIB ROUNDS [FILE] [--corrupt]: runs one of the programs with so many MiB of data a rank, checks its
 * result, and prints the seconds from when all ranks have made their data until all have done their rounds, and a digest of the
 * result, then, where BENCH_MEMORY is set, the KiB that ranks had in RAM at most, added up. Ends with 3 when the result is wrong: launchers may lose what a rank said before it ended all of them. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define USAGE 125
#define NO_MEMORY 124
#define WRONG 3

int rank, ranks, corrupt;
const char *file;
static double begun, seconds;
static int faults, stopped;

void begin(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	begun = MPI_Wtime();
}

void end(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime() - begun;
	stopped = 1;
}

void wrong(const char *what)
{
	if (!faults++)
		fprintf(stderr, "ream-bench-mpi: WRONG RESULT: rank %d: %s\n", rank, what);
}

void insist(int holds, const char *else_what)
{
	if (holds)
		return;
	wrong(else_what);
	/* MPICH's launcher ends without passing on what has just been written. */
	sleep(1);
	MPI_Abort(MPI_COMM_WORLD, WRONG);
	exit(WRONG);
}

int same_everywhere(uint64_t own)
{
	uint64_t both[2] = { own, ~own };

	/* The greatest, and what the least is the complement of. */
	MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	return both[0] == own && both[1] == ~own;
}

void *memory(size_t count, size_t size)
{
	void *result = calloc(count, size);

	if (!result) {
		fprintf(stderr, "ream-bench-mpi: no memory for %zu times %zu bytes\n", count, size);
		MPI_Abort(MPI_COMM_WORLD, NO_MEMORY);
		exit(NO_MEMORY);
	}
	return result;
}

uint64_t next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

double unit(uint64_t *state)
{
	return (double)(next(state) >> 11) / 9007199254740992.0;
}

uint64_t digest(uint64_t before, const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t word;

	for (; bytes >= sizeof(word); at += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		before = (before ^ word) * 0x100000001b3u;
		before ^= before >> 29;
	}
	for (; bytes; at++, bytes--)
		before = (before ^ *at) * 0x100000001b3u;
	return before;
}

uint64_t digest_of_all(uint64_t own)
{
	uint64_t *all = memory((size_t)ranks, sizeof(own)), result;

	MPI_Allgather(&own, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
	result = digest(1469598103934665603u, all, (size_t)ranks * sizeof(own));
	free(all);
	return result;
}

static const struct {
	const char *name;
	program *run;
} programs[] = {
	{ "pagerank", pagerank }, { "kmeans", kmeans }, { "sgd", sgd }, { "mttkrp", mttkrp }, { "sort", sort },
	{ "contract", contract }, { "graph", graph }, { "pair", pair },
	{ "cells-read", cells_read }, { "cells-write", cells_write }, { "cells-both", cells_both },
};

int main(int argc, char **argv)
{
	if (argc > 4 && !strcmp(argv[argc - 1], "--corrupt")) {
		corrupt = 1;
		argv[--argc] = NULL;
	}
	int right = argc == 4 || argc == 5;
	size_t mebibytes = right ? strtoul(argv[2], NULL, 10) : 0;
	int rounds = right ? atoi(argv[3]) : 0;
	program *run = NULL;

	for (size_t i = 0; right && i < sizeof(programs) / sizeof(*programs); i++)
		if (!strcmp(argv[1], programs[i].name))
			run = programs[i].run;
	if (!run || mebibytes < 1 || rounds < 1) {
		fprintf(stderr, "usage: ream-bench-mpi PROGRAM MIB ROUNDS [FILE] [--corrupt]\nprograms:");
		for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
			fprintf(stderr, " %s", programs[i].name);
		fprintf(stderr, "; graph reads FILE, an edge on each line\n");
		return USAGE;
	}
	file = argv[4];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	uint64_t result = run(mebibytes << 20, rounds);
	struct rusage usage;
	long kib;

	if (!stopped)
		end();
	MPI_Allreduce(MPI_IN_PLACE, &faults, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	result = digest_of_all(result);
	getrusage(RUSAGE_SELF, &usage);
	MPI_Reduce(&usage.ru_maxrss, &kib, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0 && !faults) {
		printf("%.6f %016llx", seconds, (unsigned long long)result);
		if (getenv("BENCH_MEMORY"))
			printf(" %ld", kib);
		printf("\n");
	}
	MPI_Finalize();
	if (faults)
		return WRONG;
	return fflush(stdout) ? 1 : 0;
}
