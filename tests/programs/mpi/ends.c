/* Ranks that end before their time. Arguments: how, directory. Each writes its number and "/proc/..." of its session into
 * DIRECTORY/RANK when it begins, and "done" behind it when it has come to its end.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
	int rank, ranks, value = 0;
	char path[4096], *session = getenv("REAM_SESSION");
	const char *how = words[1];

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	snprintf(path, sizeof(path), "%s/%d", words[2], rank);
	FILE *file = fopen(path, "w");

	fprintf(file, "%d %s\n", (int)getpid(), session ? session : "none");
	fflush(file);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!strcmp(how, "computing") && rank == 1) {
		raise(SIGKILL);
	} else if (!strcmp(how, "blocked") && rank == 1) {
		/* Its child kills it; until then it waits for a message that never comes, as the others wait for it. */
		pid_t own = getpid();

		if (fork() == 0) {
			usleep(200000);
			kill(own, SIGKILL);
			_exit(0);
		}
		MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (!strcmp(how, "for-ever")) {
		/* Turns change hands until somebody ends it. */
		for (;;) {
			double until = now() + 0.01;

			while (now() < until)
				;
			MPI_Sendrecv_replace(&value, 1, MPI_INT, (rank + 1) % ranks, 3, (rank + ranks - 1) % ranks, 3,
					     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
	} else {
		double until = now() + 0.5;

		while (now() < until)
			;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	fprintf(file, "done\n");
	fclose(file);
	MPI_Finalize();
	return !strcmp(how, "status") && rank == 1 ? 3 : 0;
}
