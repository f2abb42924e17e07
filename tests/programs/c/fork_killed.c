/* Children that are killed before they can do anything, of a process that ends right after them. */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 160) * MEGABYTE / 8;
	uint64_t *data = malloc(words * 8);

	must(data);
	fill(data, words, 5, 0);
	for (int k = 0; k < 8; k++) {
		int status;
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0)
			_exit(0);
		must(kill(pid, SIGKILL) == 0);
		must(waitpid(pid, &status, 0) == pid);
	}
	check(data, words, 5, 0, "after the children");
	printf("killed\n");
	return 0;
}
