/* A child that executes another program at once, which runs on: the parent comes to hold more than its half of the budget
 * all the same. Arguments: MiB of data at the fork, and in all. */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* MiB that are in RAM after all was read. */
static size_t resident(const uint64_t *data, size_t words)
{
	check(data, words, 3, 0, "beside another program");
	return in_core(data, words * 8) * PAGE / MEGABYTE;
}

int main(int argc, char **argv)
{
	size_t first = argument(argc, argv, 1, 128) * MEGABYTE / 8, words = argument(argc, argv, 2, 128) * MEGABYTE / 8;
	uint64_t *data = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t most = 0;
	time_t end;
	pid_t pid;

	must(data != MAP_FAILED);
	fill(data, first, 3, 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		execl("/bin/sleep", "sleep", "300", (char *)NULL);
		_exit(99);
	}
	fill(data + first, words - first, 3 + first, 0);
	for (end = time(NULL) + 30; most < 38 && time(NULL) < end;) {
		size_t now = resident(data, words);

		most = now > most ? now : most;
	}
	must(waitpid(pid, NULL, WNOHANG) == 0);
	must(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	if (most < 38)
		fail("%zu MiB are in RAM at most", most);
	printf("outside\n");
	return 0;
}
