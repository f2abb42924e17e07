/* Ranks that end before their time. Arguments: how, directory, and the MiB that each goes through meanwhile. Each writes its
 * number and "/proc/..." of its session into DIRECTORY/RANK when it begins, and "done" behind it when it has come to its end.
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
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

/* A child kills this process, which waits in MPI by then. */
static void be_killed(void)
{
	pid_t own = getpid();

	if (fork() == 0) {
		usleep(200000);
		kill(own, SIGKILL);
		_exit(0);
	}
}

/* Says that this rank has begun. */
static FILE *begun(const char *directory, int rank)
{
	char path[4096], *session = getenv("REAM_SESSION");

	snprintf(path, sizeof(path), "%s/%d", directory, rank);
	FILE *file = fopen(path, "w");

	fprintf(file, "%d %s\n", (int)getpid(), session ? session : "none");
	fflush(file);
	return file;
}

/* Waits until the second rank has ended, without MPI. */
static void outlive_second(const char *directory)
{
	char path[4096];
	int pid = 0;

	snprintf(path, sizeof(path), "%s/1", directory);
	while (!pid || kill(pid, 0) == 0) {
		FILE *file = fopen(path, "r");

		if (file) {
			if (fscanf(file, "%d ", &pid) != 1)
				pid = 0;
			fclose(file);
		}
		usleep(5000);
	}
}

static int number_of_rank(void)
{
	const char *text = getenv("OMPI_COMM_WORLD_RANK");

	text = text ? text : getenv("PMI_RANK");
	return text ? atoi(text) : 0;
}

int main(int count, char **words)
{
	int rank, ranks, value = 0;
	const char *how = words[1];
	size_t numbers = count > 3 ? (strtoul(words[3], NULL, 10) << 20) / sizeof(uint64_t) : 0;
	FILE *file = NULL;

	if (!strcmp(how, "init")) {
		/* MPI_Init ends for nobody before all have come. */
		file = begun(words[2], number_of_rank());
		if (number_of_rank() == 1)
			be_killed();
		if (number_of_rank() == 0)
			outlive_second(words[2]);
	}
	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!file)
		file = begun(words[2], rank);
	MPI_Barrier(MPI_COMM_WORLD);

	uint64_t *number = malloc((numbers + 1) * sizeof(*number));

	for (size_t i = 0; i < numbers; i++)
		number[i] = i * 2654435761u + (uint64_t)rank;
	if (!strcmp(how, "computing") && rank == 1) {
		raise(SIGKILL);
	} else if (!strcmp(how, "blocked") && rank == 1) {
		/* It waits for a message that never comes, as the others wait for it. */
		be_killed();
		MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (!strcmp(how, "abort") && rank == 1) {
		MPI_Abort(MPI_COMM_WORLD, 7);
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
	for (size_t i = 0; i < numbers; i++)
		if (number[i] != i * 2654435761u + (uint64_t)rank)
			MPI_Abort(MPI_COMM_WORLD, 9);
	fprintf(file, "done\n");
	fclose(file);
	if (!strcmp(how, "finalize")) {
		if (rank == 1)
			be_killed();
		if (rank == 0)
			outlive_second(words[2]);
	}
	MPI_Finalize();
	return !strcmp(how, "status") && rank == 1 ? 3 : 0;
}
