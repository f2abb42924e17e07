/* Many children that live side by side, as those of a pool of workers do: each checks some of the data and waits for the
 * others, also for the last. */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t ended;

static void too_early(int signal)
{
	ended = signal;
}

int main(int argc, char **argv)
{
	size_t pages = argument(argc, argv, 1, 128) * MEGABYTE / PAGE;
	size_t children = argument(argc, argv, 2, 100);
	uint64_t *data = malloc(pages * PAGE);
	int born[2], over[2];
	char byte = 0;

	must(data && pipe(born) == 0 && pipe(over) == 0);
	fill(data, pages * PAGE_WORDS, 7, 0);
	/* Without SA_RESTART: the reads below do not wait for one that will not write. */
	must(sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = too_early }, NULL) == 0);
	for (size_t child = 0; child < children; child++) {
		uint64_t random = child;
		pid_t pid = fork();

		must(pid >= 0 && !ended);
		if (pid != 0)
			continue;
		close(over[1]);
		for (int k = 0; k < 50; k++) {
			size_t page = next_random(&random) % pages;

			check(data + page * PAGE_WORDS, PAGE_WORDS, 7 + page * PAGE_WORDS, 0, "a child's page");
		}
		must(write(born[1], &byte, 1) == 1);
		must(read(over[0], &byte, 1) == 0);
		_exit(0);
	}
	close(born[1]);
	for (size_t child = 0; child < children; child++)
		must(read(born[0], &byte, 1) == 1);
	must(signal(SIGCHLD, SIG_DFL) != SIG_ERR && !ended);
	close(over[1]);
	for (size_t child = 0; child < children; child++) {
		int status;

		must(wait(&status) > 0 && status == 0);
	}
	check(data, pages * PAGE_WORDS, 7, 0, "after the children");
	printf("%zu children\n", children);
	return 0;
}
