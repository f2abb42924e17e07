/* A sparse tensor times two matrices in each of its three modes, as in a canonical decomposition: in each phase a rank goes
 * through its nonzeros, which are sorted by the first mode and nearly so by the second, reads rows of two matrices and adds to
 * rows of the third, which are summed over all ranks then. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS 16
#define NEAR 1024

struct entry {
	uint32_t at[3];
	float value;
};

uint64_t mttkrp(size_t bytes, int rounds)
{
	size_t count = bytes / 2 / sizeof(struct entry), rows = bytes / 2 / 4 / sizeof(float[COLUMNS]);
	struct entry *entry = memory(count, sizeof(*entry));
	float(*matrix[3])[COLUMNS], (*sum)[COLUMNS] = memory(rows, sizeof(*sum));
	uint64_t random = 17 + (uint64_t)rank, same = 5;

	for (size_t e = 0; e < count; e++) {
		double u = unit(&random);

		entry[e].at[0] = (uint32_t)((double)e / (double)count * (double)rows);
		entry[e].at[1] = (uint32_t)((entry[e].at[0] + next(&random) % NEAR) % rows);
		entry[e].at[2] = (uint32_t)(u * u * u * u * (double)rows);
		entry[e].value = (float)(next(&random) % 100) / 100;
	}
	for (int mode = 0; mode < 3; mode++) {
		matrix[mode] = memory(rows, sizeof(*sum));
		for (size_t r = 0; r < rows; r++)
			for (int c = 0; c < COLUMNS; c++)
				matrix[mode][r][c] = (float)unit(&same);
	}
	begin();
	for (int round = 0; round < rounds; round++)
		for (int mode = 0; mode < 3; mode++) {
			float(*one)[COLUMNS] = matrix[(mode + 1) % 3], (*other)[COLUMNS] = matrix[(mode + 2) % 3];

			memset(sum, 0, rows * sizeof(*sum));
			for (size_t e = 0; e < count; e++) {
				const float *a = one[entry[e].at[(mode + 1) % 3]], *b = other[entry[e].at[(mode + 2) % 3]];
				float *to = sum[entry[e].at[mode]];

				for (int c = 0; c < COLUMNS; c++)
					to[c] += entry[e].value * a[c] * b[c];
			}
			MPI_Allreduce(sum, matrix[mode], (int)(rows * COLUMNS), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			/* Kept from growing beyond what numbers can be. */
			for (size_t r = 0; r < rows; r++)
				for (int c = 0; c < COLUMNS; c++)
					matrix[mode][r][c] /= 1 + matrix[mode][r][c];
		}
	uint64_t result = 0;

	for (int mode = 0; mode < 3; mode++) {
		result = digest(result, matrix[mode], rows * sizeof(*sum));
		free(matrix[mode]);
	}
	free(entry);
	free(sum);
	return result;
}
