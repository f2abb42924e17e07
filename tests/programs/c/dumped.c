/* Fills argument 1 MiB, says where they lie and how many words there are, and ends with a core dump. */
#include "common.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t *block = malloc(words * 8);

	must(block && setrlimit(RLIMIT_CORE, &limit) == 0);
	fill(block, words, 3, 0);
	printf("%p %zu\n", (void *)block, words);
	fflush(stdout);
	abort();
}
