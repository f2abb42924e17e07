/* The second of two files that share dlm arrays; its own array has the name of one that the first has. */
#include "dlm_files.h"

dlm long second[1000];
static dlm long own[10];

long sum_of_first(void)
{
	long sum = own[3];

	for (long i = 0; i < ROWS; i++)
		for (long j = 0; j < COLUMNS; j++)
			sum += first[i][j];
	return sum;
}
