/* Messages so large that they are worth a copy straight out of the other rank's memory, if that were allowed. Argument: rounds.
 * Each rank prints, once MPI has ended, how much of what came was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (512 * 1024)

int main(int count, char **words)
{
	int rank, ranks, from, part;
	long wrong = 0;
	char *own, *others;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	from = (rank + ranks - 1) % ranks;
	part = BYTES / ranks;
	own = malloc(BYTES);
	others = malloc((size_t)BYTES * (size_t)ranks);
	for (int round = 0; round < atoi(words[1]); round++) {
		memset(own, rank + 1, BYTES);
		MPI_Sendrecv(own, BYTES, MPI_CHAR, (rank + 1) % ranks, 1, others, BYTES, MPI_CHAR, from, 1, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (int i = 0; i < BYTES; i++)
			wrong += others[i] != from + 1;
		memset(others, rank + 1, (size_t)BYTES * (size_t)ranks);
		MPI_Alltoall(MPI_IN_PLACE, 0, MPI_CHAR, others, part, MPI_CHAR, MPI_COMM_WORLD);
		for (int i = 0; i < part * ranks; i++)
			wrong += others[i] != i / part + 1;
	}
	MPI_Finalize();
	printf("%ld wrong\n", wrong);
	return 0;
}
