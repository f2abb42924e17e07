/* Ranks that compute all at once until their data outgrow what there is. Arguments: MiB a rank, rounds, passes over its data in a
 * round (0: it touches one page). Between two rounds all wait for each other. Prints a digest of what all have counted.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	MPI_Init(&count, &words);
	size_t numbers = strtoul(words[1], NULL, 10) * (1024 * 1024 / sizeof(uint64_t));
	int rounds = atoi(words[2]), passes = atoi(words[3]), rank;
	uint64_t *data = malloc(numbers * sizeof(*data)), sum = 0, all;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (size_t i = 0; i < numbers; i++)
		data[i] = i * 0x9e3779b97f4a7c15u + (uint64_t)rank;
	for (int round = 0; round < rounds; round++) {
		for (int pass = 0; pass < passes; pass++)
			for (size_t i = 0; i < numbers; i++)
				data[i] = data[i] * 0x2545f4914f6cdd1du + sum++;
		if (passes == 0)
			data[(size_t)round * 512 % numbers] += sum++;
		MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		sum = sum * 31 + all;
	}
	for (size_t i = 0; i < numbers; i++)
		sum = sum * 31 + data[i];
	MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%016llx\n", (unsigned long long)all);
	MPI_Finalize();
	return 0;
}
