/* A matrix of several times the budget, multiplied by a vector, with advice: rows are used in order, the vector again and
 * again. Arguments: MiB of the matrix.
 *
 *     cc -O2 matrix.c -o matrix $(pkg-config --cflags --libs ream)
 *     ream run --memory 64M -- ./matrix 256 */
#include <ream.h>
#include <stdio.h>
#include <stdlib.h>

#define COLUMNS 8192u

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, ream_error(result));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 256) << 20;
	size_t rows = bytes / (COLUMNS * sizeof(double));
	struct ream_hints large = {.size = sizeof(large), .name = "matrix"};
	struct ream_hints small = {.size = sizeof(small), .name = "vector", .flags = REAM_PINNED};
	double *matrix = ream_alloc(bytes, &large);
	double *vector = ream_alloc(COLUMNS * sizeof(double), &small);
	double sum = 0;

	if (!matrix || !vector || !rows) {
		perror("ream_alloc");
		return 1;
	}
	must(ream_advise(matrix, bytes, REAM_SEQUENTIAL), "ream_advise");
	for (size_t column = 0; column < COLUMNS; column++)
		vector[column] = (double)(column % 7);
	for (size_t row = 0; row < rows; row++)
		for (size_t column = 0; column < COLUMNS; column++)
			matrix[row * COLUMNS + column] = (double)((row * 31 + column * 17) % 1009);
	for (int pass = 0; pass < 2; pass++)
		for (size_t row = 0; row < rows; row++) {
			double product = 0;

			for (size_t column = 0; column < COLUMNS; column++)
				product += matrix[row * COLUMNS + column] * vector[column];
			sum += product * (double)(row % 13 + 1);
		}
	printf("%zu rows, checksum %.0f\n", rows, sum);
	must(ream_free(matrix), "ream_free");
	must(ream_free(vector), "ream_free");
	return 0;
}
