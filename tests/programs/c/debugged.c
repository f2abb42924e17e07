/* Goes through its memory again and again until somebody sets `go` from outside, and then verifies all of it. Arguments: MiB,
 * and a file that is made when all has been written. */
#include "common.h"
#include <fcntl.h>

uint64_t *area;
volatile int go;

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 160) * MEGABYTE / 8;
	volatile uint64_t sum = 0;

	must((area = malloc(words * 8)));
	fill(area, words, 3, 0);
	must(argc < 3 || close(open(argv[2], O_WRONLY | O_CREAT, 0600)) == 0);
	while (!go)
		for (size_t page = 0; page < words / PAGE_WORDS && !go; page++)
			sum += area[page * PAGE_WORDS];
	check(area, words, 3, 0, "after the debugger");
	printf("debugged\n");
	return 0;
}
