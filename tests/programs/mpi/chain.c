/* A number goes around all ranks; whoever has it goes through all of its memory, the others wait in MPI_Recv. Arguments: MiB a
 * rank, rounds. Prints what becomes of the number.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	int rank, ranks;
	uint64_t number = 0, *data;
	size_t length;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	length = (strtoul(words[1], NULL, 10) << 20) / sizeof(*data);
	data = malloc(length * sizeof(*data));
	for (size_t i = 0; i < length; i++)
		data[i] = i + (uint64_t)rank;
	for (int round = 0; round < atoi(words[2]); round++) {
		if (rank || round)
			MPI_Recv(&number, 1, MPI_UINT64_T, (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < length; i++)
			number = number * 31 + ++data[i];
		MPI_Send(&number, 1, MPI_UINT64_T, (rank + 1) % ranks, 1, MPI_COMM_WORLD);
	}
	if (rank == 0) {
		MPI_Recv(&number, 1, MPI_UINT64_T, ranks - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("%016llx\n", (unsigned long long)number);
	}
	MPI_Finalize();
	return 0;
}
