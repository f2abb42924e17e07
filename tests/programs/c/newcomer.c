/* Processes that have all that they reserved, together nearly the budget, wait; then one more begins, and goes through its
 * memory until it has a good part of it in RAM. Arguments: how many wait, MiB of each, MiB that are a good part, MiB that
 * those who wait keep of theirs, if not all, and MiB of the newcomer, if not as many. */
#include "common.h"
#include <sys/wait.h>
#include <time.h>

static void one(size_t words, long enough, size_t kept)
{
	uint64_t *data = malloc(words * 8);
	time_t end = time(NULL) + 60;
	char byte = 0;

	must(data);
	fill(data, words, 7, 0);
	if (enough == 0 && kept < words) {
		free(data);
		words = kept;
		data = malloc(words * 8);
		must(data);
		fill(data, words, 7, 0);
	}
	must(write(4, &byte, 1) == 1);
	if (enough == 0)
		must(read(3, &byte, 1) == 1);
	while (own_kib(getpid()) < enough) {
		if (time(NULL) > end)
			fail("%ld KiB of its own in RAM, should come to %ld", own_kib(getpid()), enough);
		check(data, words, 7, 0, "in the newcomer");
	}
	check(data, words, 7, 0, "in the end");
	_exit(0);
}

static pid_t start(char *size, char *enough, char *kept)
{
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0) {
		execl("/proc/self/exe", "one", size, enough, kept, NULL);
		must(!"execl");
	}
	return pid;
}

int main(int argc, char **argv)
{
	size_t count = argument(argc, argv, 1, 3);
	int gun[2], ready[2], status;
	char byte = 0;

	if (strcmp(argv[0], "one") == 0)
		one(argument(argc, argv, 1, 5) * MEGABYTE / 8, argument(argc, argv, 2, 0) << 10, argument(argc, argv, 3, 0) * MEGABYTE / 8);
	must(argc >= 4 && pipe(gun) == 0 && pipe(ready) == 0);
	/* Everybody reads from 3 and writes to 4. */
	must(dup2(gun[1], 105) == 105 && dup2(ready[0], 106) == 106 && dup2(gun[0], 103) == 103 && dup2(ready[1], 104) == 104);
	must(dup2(103, 3) == 3 && dup2(104, 4) == 4);
	for (size_t i = 0; i < count; i++)
		start(argv[2], "0", argc > 4 ? argv[4] : argv[2]);
	for (size_t i = 0; i < count; i++)
		must(read(106, &byte, 1) == 1);
	pid_t last = start(argc > 5 ? argv[5] : argv[2], argv[3], "0");
	must(waitpid(last, &status, 0) == last && status == 0);
	for (size_t i = 0; i < count; i++)
		must(write(105, &byte, 1) == 1);
	for (size_t i = 0; i < count; i++)
		must(wait(&status) > 0 && status == 0);
	printf("all\n");
	return 0;
}
