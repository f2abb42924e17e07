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

/* Of one row in so many the last product is computed again, in double precision. */
#define SAMPLE 512

static struct entry made(size_t e, size_t count, size_t rows, uint64_t *random)
{
	struct entry entry;
	double u = unit(random);

	entry.at[0] = (uint32_t)((double)e / (double)count * (double)rows);
	entry.at[1] = (uint32_t)((entry.at[0] + next(random) % NEAR) % rows);
	entry.at[2] = (uint32_t)(u * u * u * u * (double)rows);
	entry.value = (float)(next(random) % 100) / 100;
	return entry;
}

/* Entries are what was made; some rows of the matrix that was computed last are what they and the other two come to. */
static void check(const struct entry *entry, size_t count, size_t rows, float (*matrix[3])[COLUMNS])
{
	size_t samples = (rows + SAMPLE - 1) / SAMPLE;
	double(*sum)[COLUMNS] = memory(samples, sizeof(*sum));
	uint64_t random = 17 + (uint64_t)rank;

	for (size_t e = 0; e < count; e++) {
		struct entry was = made(e, count, rows, &random);

		if (memcmp(&was, &entry[e], sizeof(was)))
			wrong("an entry is not what it was");
		if (was.at[2] % SAMPLE)
			continue;
		for (int c = 0; c < COLUMNS; c++)
			sum[was.at[2] / SAMPLE][c] +=
				(double)was.value * (double)matrix[0][was.at[0]][c] * (double)matrix[1][was.at[1]][c];
	}
	MPI_Allreduce(MPI_IN_PLACE, sum, (int)(samples * COLUMNS), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (size_t s = 0; s < samples; s++)
		for (int c = 0; c < COLUMNS; c++) {
			double apart = sum[s][c] / (1 + sum[s][c]) - (double)matrix[2][s * SAMPLE][c];

			if (!(apart < 1e-3 && apart > -1e-3))
				wrong("a row is not the product that it should be");
		}
	free(sum);
}

uint64_t mttkrp(size_t bytes, int rounds)
{
	size_t count = bytes / 2 / sizeof(struct entry), rows = bytes / 2 / 4 / sizeof(float[COLUMNS]);
	struct entry *entry = memory(count, sizeof(*entry));
	float(*matrix[3])[COLUMNS], (*sum)[COLUMNS] = memory(rows, sizeof(*sum));
	uint64_t random = 17 + (uint64_t)rank, same = 5;

	for (size_t e = 0; e < count; e++)
		entry[e] = made(e, count, rows, &random);
	for (int mode = 0; mode < 3; mode++) {
		matrix[mode] = memory(rows, sizeof(*sum));
		for (size_t r = 0; r < rows; r++)
			for (int c = 0; c < COLUMNS; c++)
				matrix[mode][r][c] = (float)unit(&same);
	}
	begin();
	if (corrupt && rank == ranks - 1)
		entry[count / 2].value += 1;
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
	end();
	check(entry, count, rows, matrix);
	uint64_t result = 0;

	for (int mode = 0; mode < 3; mode++) {
		result = digest(result, matrix[mode], rows * sizeof(*sum));
		free(matrix[mode]);
	}
	if (!same_everywhere(result))
		wrong("ranks have different matrices");
	free(entry);
	free(sum);
	return result;
}
