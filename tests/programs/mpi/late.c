/* A thread of the second rank waits in MPI while its main thread rests, so that the rank gives its place up, and then computes
 * without a call of MPI. The first one, with as much data, waits meanwhile. Says how long that took the first rank, which had a
 * place, and the second. Argument: MiB of each rank, of which two do not fit.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PASSES 300

static void *receives(void *value)
{
	MPI_Recv(value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return NULL;
}

static double compute(volatile char *data, size_t bytes)
{
	double began = MPI_Wtime();

	for (int pass = 0; pass < PASSES; pass++)
		for (size_t i = 0; i < bytes; i += 64)
			data[i]++;
	return MPI_Wtime() - began;
}

int main(int count, char **words)
{
	int level, rank, value = 0;
	pthread_t thread;

	MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	size_t bytes = strtoul(words[1], NULL, 10) << 20;
	char *data = malloc(bytes);

	if (level != MPI_THREAD_MULTIPLE) {
		printf("no threads\n");
		MPI_Finalize();
		return 0;
	}
	memset(data, rank, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1) {
		pthread_create(&thread, NULL, receives, &value);
		usleep(500000);
		printf("beside %f\n", compute(data, bytes));
		MPI_Send(&value, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
		pthread_join(thread, NULL);
	} else {
		printf("alone %f\n", compute(data, bytes));
		MPI_Recv(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return 0;
}
