/* The first of two files that share dlm arrays: it has main, and defines one of them. */
#include "dlm_files.h"

dlm long first[ROWS][COLUMNS];
static dlm long own[10];
static long *seen_early;

/* The program's own constructors find the arrays there. */
__attribute__((constructor)) static void early(void)
{
	second[0] = 40;
	seen_early = second;
}

int main(void)
{
	for (long i = 0; i < ROWS; i++)
		for (long j = 0; j < COLUMNS; j++)
			first[i][j] = i * j;
	own[3] = 2;
	second[0] += own[3];
	printf("%ld %ld %d %zu\n", sum_of_first(), second[0], seen_early == second, sizeof first);
	return 0;
}
