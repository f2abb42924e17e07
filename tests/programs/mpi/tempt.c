/* Programs in which one rank keeps the processor while it needs something of another: with one rank at a time they hang
 * if it is not made to let the other one compute. The argument says which.
 */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static void compute(void)
{
	volatile double sum = 0;

	for (int i = 0; i < 20000000; i++)
		sum = sum + i;
}

static void *receives(void *value)
{
	MPI_Recv(value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return NULL;
}

int main(int count, char **words)
{
	int level, value = 0, flag = 0;
	const char *what = words[1];

	MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(what, "test") || !strcmp(what, "iprobe")) {
		/* All but the last ask again and again for what comes from their right. */
		MPI_Request request;

		if (rank < ranks - 1 && !strcmp(what, "test")) {
			MPI_Irecv(&value, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD, &request);
			while (!flag)
				MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
		} else if (rank < ranks - 1) {
			while (!flag)
				MPI_Iprobe(rank + 1, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
			MPI_Recv(&value, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		compute();
		value += rank;
		if (rank > 0)
			MPI_Send(&value, 1, MPI_INT, rank - 1, 1, MPI_COMM_WORLD);
	} else if (!strcmp(what, "pauses") || !strcmp(what, "yields")) {
		/* The same with a rest after each time; the last one computes when the others ask. */
		if (rank < ranks - 1)
			MPI_Send(&value, 1, MPI_INT, ranks - 1, 2, MPI_COMM_WORLD);
		for (int i = 0; rank == ranks - 1 && i < rank; i++)
			MPI_Recv(&value, 1, MPI_INT, i, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		while (rank < ranks - 1 && !flag) {
			MPI_Iprobe(rank + 1, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
			if (!strcmp(what, "yields"))
				sched_yield();
			else
				usleep(1000);
		}
		if (rank < ranks - 1)
			MPI_Recv(&value, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		compute();
		value += rank;
		if (rank > 0)
			MPI_Send(&value, 1, MPI_INT, rank - 1, 1, MPI_COMM_WORLD);
	} else if (!strcmp(what, "overlap")) {
		/* The first works while it looks for messages; the others compute when it has come to an end, one at a time. */
		volatile double sum = 0;

		for (int piece = 0; rank == 0 && piece < 400; piece++) {
			MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
			for (int i = 0; i < 500000; i++)
				sum = sum + i;
		}
		if (rank > 0) {
			compute();
			MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
		}
		for (int i = 1; rank == 0 && i < ranks; i++) {
			int theirs;

			MPI_Recv(&theirs, 1, MPI_INT, i, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			value += theirs;
		}
	} else if (!strcmp(what, "passive")) {
		/* The first looks into its own window until the others have been there. */
		int *mine, seen = 0;
		MPI_Win window;

		MPI_Win_allocate(4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
		*mine = 0;
		MPI_Win_unlock(rank, window);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank > 0) {
			compute();
			MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
			MPI_Accumulate(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
			MPI_Win_unlock(0, window);
		}
		while (rank == 0 && seen != ranks * (ranks - 1) / 2) {
			MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
			MPI_Get(&seen, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
			MPI_Win_unlock(0, window);
		}
		value = seen;
		MPI_Win_free(&window);
	} else if (!strcmp(what, "memory")) {
		/* The first reads shared memory until the others have written there: no call of MPI at all. */
		MPI_Win window;
		MPI_Aint bytes;
		int unit;
		volatile int *first;

		MPI_Win_allocate_shared(rank == 0 ? 256 : 0, 4, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&first, &window);
		MPI_Win_shared_query(window, 0, &bytes, &unit, (void *)&first);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank > 0) {
			compute();
			__atomic_fetch_add(first, rank, __ATOMIC_SEQ_CST);
		}
		while (rank == 0 && *first != ranks * (ranks - 1) / 2)
			;
		MPI_Barrier(MPI_COMM_WORLD);
		value = *first;
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_free(&window);
	} else if (!strcmp(what, "threads")) {
		/* A thread of each waits in MPI while the main thread computes, and then for the thread. */
		pthread_t thread;

		if (level != MPI_THREAD_MULTIPLE) {
			printf("no threads\n");
			MPI_Finalize();
			return 0;
		}
		if (rank > 0)
			pthread_create(&thread, NULL, receives, &value);
		compute();
		if (rank == 0)
			for (int i = 1; i < ranks; i++) {
				int number = i * 10;

				MPI_Send(&number, 1, MPI_INT, i, 5, MPI_COMM_WORLD);
			}
		if (rank > 0)
			pthread_join(thread, NULL);
	}
	MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s: %d\n", what, value);
	MPI_Finalize();
	return 0;
}
