/* Parent and child both write all of a block whose content they shared, before anything was paged: together they come to
 * fit the budget again, and stay there. Arguments: MiB of data, KiB that both may have of their own in RAM, and MiB of
 * memory that is never touched. */
#include "common.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 96) * MEGABYTE / 8;
	long most = (long)argument(argc, argv, 2, 128 << 10), mine = 0, its = 0;
	uint64_t *data = malloc(words * 8);
	int written[2], end[2], status, fit = 0;
	char byte = 0;
	pid_t pid;

	must(data && pipe(written) == 0 && pipe(end) == 0);
	must(mmap(NULL, argument(argc, argv, 3, 1) * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	     MAP_FAILED);
	fill(data, words, 3, 0);
	pid = fork();
	must(pid >= 0);
	fill(data, words, 3, pid ? 1 : 2);
	if (pid == 0) {
		sigset_t blocked;

		must(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0 && sigisemptyset(&blocked));
		/* With its parent's end closed, it ends with its parent. */
		close(end[1]);
		must(write(written[1], &byte, 1) == 1 && read(end[0], &byte, 1) == 1);
		check(data, words, 3, 2, "in the child");
		_exit(0);
	}
	must(read(written[0], &byte, 1) == 1);
	for (int tries = 0; tries < 600 && fit < 10; tries++) {
		mine = own_kib(getpid());
		its = own_kib(pid);
		fit = mine + its <= most ? fit + 1 : 0;
		usleep(100000);
	}
	if (!fit)
		fail("parent and child have %ld and %ld KiB, may have %ld", mine, its, most);
	must(write(end[1], &byte, 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	check(data, words, 3, 1, "in the parent");
	printf("both\n");
	return 0;
}
