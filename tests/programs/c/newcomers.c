/* Processes that reserve more than the budget together and fill it all at once, as soon as each of them is ready. Arguments:
 * how many, and MiB of each. */
#include "common.h"
#include <sys/wait.h>

static void one(size_t words)
{
	uint64_t *data = malloc(words * 8);
	char byte = 0;

	must(data && write(4, &byte, 1) == 1 && read(3, &byte, 1) == 1);
	for (int generation = 0; generation < 3; generation++) {
		fill(data, words, 7, generation);
		check(data, words, 7, generation, "in a newcomer");
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	size_t count = argument(argc, argv, 1, 4), words = argument(argc, argv, 2, 5) * MEGABYTE / 8;
	int gun[2], ready[2], status;
	char byte = 0;

	if (argc > 3)
		one(words);
	must(pipe(gun) == 0 && pipe(ready) == 0);
	for (size_t i = 0; i < count; i++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0) {
			must(dup2(gun[0], 103) == 103 && dup2(ready[1], 104) == 104);
			must(dup2(103, 3) == 3 && dup2(104, 4) == 4);
			execl("/proc/self/exe", "newcomer", argv[1], argv[2], "one", NULL);
			must(!"execl");
		}
	}
	for (size_t i = 0; i < count; i++)
		must(read(ready[0], &byte, 1) == 1);
	for (size_t i = 0; i < count; i++)
		must(write(gun[1], &byte, 1) == 1);
	for (size_t i = 0; i < count; i++)
		must(wait(&status) > 0 && status == 0);
	printf("all\n");
	return 0;
}
