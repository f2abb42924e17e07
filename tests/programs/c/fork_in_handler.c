/* Forks in a signal handler that interrupts malloc, in a program with one thread. Arguments: forks, MiB that are written
 * first. */
#include "common.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t forks;

static void handler(int signal)
{
	int before = errno, status;
	pid_t child = fork();

	(void)signal;
	if (child == 0)
		_exit(7);
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
		_exit(98);
	forks++;
	errno = before;
}

int main(int argc, char **argv)
{
	size_t wanted = argument(argc, argv, 1, 300), words = argument(argc, argv, 2, 0) * MEGABYTE / sizeof(uint64_t);
	struct itimerval often = {{0, 1700}, {0, 1700}};
	struct sigaction action = {.sa_handler = handler};
	uint64_t *data = malloc((words + 1) * sizeof(*data)), random = 1;
	void *blocks[64] = {NULL};

	must(data);
	fill(data, words, 0, 1);
	must(sigaction(SIGVTALRM, &action, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	while ((size_t)forks < wanted) {
		uint64_t number = next_random(&random);
		void **place = blocks + number % 64;

		/* Up to half a megabyte; one in 16 is large. */
		free(*place);
		*place = malloc((number >> 8) % 16 ? (number >> 16) % 64 << 13 : 5 * MEGABYTE);
		must(*place);
	}
	memset(&often, 0, sizeof(often));
	must(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	check(data, words, 0, 1, "after the forks");
	printf("%zu forks at least\n", wanted);
	return 0;
}
