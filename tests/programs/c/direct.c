/* A file is open past the page cache while memory is filled, and closed then. Where a pager cannot tell what a device writes,
 * nothing leaves meanwhile; afterwards all comes to fit the budget. Arguments: MiB of data, KiB that may be in RAM in the end, and
 * a directory. */
#include "common.h"
#include <fcntl.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	long most = (long)argument(argc, argv, 2, 72 << 10), kib = 0;
	uint64_t *data = malloc(words * 8);
	char name[4096];
	int file;

	must(data);
	snprintf(name, sizeof(name), "%s/direct", argc > 3 ? argv[3] : ".");
	file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (file < 0) {
		printf("not here\n");
		return 0;
	}
	must(unlink(name) == 0);
	fill(data, words, 3, 1);
	check(data, words, 3, 1, "while the file was open");
	printf("%s, ", own_kib(getpid()) > (long)(words / 128) ? "all in RAM" : "not all in RAM");
	must(close(file) == 0);
	for (int tries = 0; tries < 600 && (kib = own_kib(getpid())) > most; tries++)
		usleep(100000);
	printf("%s\n", kib <= most ? "fits" : "does not fit");
	check(data, words, 3, 1, "in the end");
	return 0;
}
