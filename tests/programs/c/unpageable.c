/* Leaves no descriptor to be opened, so that paging cannot begin, and then fills and checks memory. Argument: MiB. */
#include "common.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 48) * MEGABYTE / 8;
	struct rlimit none = { 0, 0 };
	uint64_t *data;

	must(setrlimit(RLIMIT_NOFILE, &none) == 0);
	data = malloc(words * 8);
	must(data);
	fill(data, words, 1, 0);
	check(data, words, 1, 0, "data");
	printf("all there\n");
	return 0;
}
