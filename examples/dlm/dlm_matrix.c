/* DLM's example: an array larger than the RAM that the program may use, declared as any other, filled and summed by all
 * processors.
 *
 *     dlmc -O2 -fopenmp dlm_matrix.c -o dlm_matrix
 *     ream run --memory 64M -- ./dlm_matrix
 */
#include <stdio.h>

#define MAX 8192

dlm int a[MAX][MAX];

int main(int argc, char *argv[])
{
	long sum = 0;
	int i, j;

	(void)argv;
#pragma omp parallel for private(j)
	for (i = 0; i < MAX; i++)
		for (j = 0; j < MAX; j++)
			a[i][j] = (i * 31 + j * 17) % 1009 + argc - 1;
#pragma omp parallel for private(j) reduction(+:sum)
	for (i = 0; i < MAX; i++)
		for (j = 0; j < MAX; j++)
			sum += a[i][j];
	printf("%zu MiB, sum %ld\n", sizeof(a) >> 20, sum);
	return 0;
}
