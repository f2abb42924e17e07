/* A tool that is preloaded and finds the next function itself, as some do: MPI's own then, not Ream's. With -DONLY_RECEIVES it
 * leaves MPI_Init alone, and what it calls is the next MPI_Recv, not the next PMPI_Recv.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static long received;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

#ifdef ONLY_RECEIVES
#define NEXT(name) next("MPI_" name)
#else
#define NEXT(name) next("PMPI_" name)

int MPI_Init(int *count, char ***words)
{
	int (*function)(int *, char ***);

	*(void **)&function = NEXT("Init");
	return function(count, words);
}
#endif

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
	int (*function)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);

	*(void **)&function = NEXT("Recv");
	received++;
	return function(buffer, count, type, from, tag, comm, status);
}

int MPI_Finalize(void)
{
	int (*function)(void);

	*(void **)&function = NEXT("Finalize");
	printf("%ld received\n", received);
	fflush(stdout);
	return function();
}
