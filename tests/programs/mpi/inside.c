/* Ranks that work in MPI: adding goes through all of this rank's data, in an order that nobody foresees, and finds out whether
 * they are what they were, while another thread forks again and again. Arguments: MiB a rank, rounds. Prints what all have
 * added, and how much was wrong.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE (4096 / sizeof(uint64_t))

static uint64_t *data, pages, wrong, wrong_in_children;
static int rank;
static atomic_int done;

static uint64_t content(uint64_t page)
{
	return page * 0x9e3779b97f4a7c15u + (uint64_t)rank;
}

static void add(void *from, void *to, int *count, MPI_Datatype *type)
{
	uint64_t *in = from, *sum = to;

	(void)type;
	for (int i = 0; i < *count; i++)
		sum[i] += in[i];
	for (uint64_t i = 0, page = 0; i < pages; i++, page = (page * 5 + 12345) % pages)
		wrong += data[page * PAGE] != content(page);
}

static void *fork_on(void *unused)
{
	(void)unused;
	while (!done) {
		int status = -1;
		pid_t child;

		usleep(300 * 1000);
		child = fork();
		if (child == 0)
			_exit(data[0] != content(0) || data[(pages - 1) * PAGE] != content(pages - 1));
		wrong_in_children += waitpid(child, &status, 0) != child || status != 0;
	}
	return NULL;
}

int main(int count, char **words)
{
	MPI_Op op;
	pthread_t forking;
	int level;
	uint64_t sum = 1, all = 0, all_wrong = 0;

	MPI_Init_thread(&count, &words, MPI_THREAD_FUNNELED, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Op_create(add, 1, &op);
	/* A power of two, so that the order above has all of them. */
	for (pages = 1; pages * 4096 < strtoul(words[1], NULL, 10) << 20;)
		pages *= 2;
	data = malloc(pages * 4096);
	for (uint64_t page = 0; page < pages; page++)
		data[page * PAGE] = content(page);
	if (pthread_create(&forking, NULL, fork_on, NULL) != 0)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int round = 0; round < atoi(words[2]); round++) {
		MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, op, MPI_COMM_WORLD);
		sum = all * 31 + (uint64_t)round;
	}
	done = 1;
	pthread_join(forking, NULL);
	wrong += wrong_in_children;
	MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%016llx, %llu wrong\n", (unsigned long long)sum, (unsigned long long)all_wrong);
	MPI_Finalize();
	return 0;
}
