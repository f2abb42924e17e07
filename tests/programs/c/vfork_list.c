/* Children of vfork that execute a program with execl leave nothing in their parent's address space, by the kernel's count of
 * its pages. */
#include "common.h"
#include <sys/wait.h>

static size_t mapped(void)
{
	size_t pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	must(file && fscanf(file, "%zu", &pages) == 1 && fclose(file) == 0);
	return pages;
}

static void run(void)
{
	int status;
	pid_t pid = vfork();

	must(pid >= 0);
	if (pid == 0) {
		execl("/bin/true", "true", "1", "2", "3", "4", "5", "6", "7", (char *)NULL);
		_exit(99);
	}
	must(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 160) * MEGABYTE / 8, before, now;
	uint64_t *data = malloc(words * 8);

	must(data);
	fill(data, words, 5, 0);
	run();
	before = mapped();
	for (int k = 0; k < 64; k++)
		run();
	now = mapped();
	/* Whatever else happens beside, such as a block of some library's. */
	if (now > before + 32)
		fail("%zu pages more are mapped after 64 children", now - before);
	check(data, words, 5, 0, "after the children");
	printf("executed\n");
	return 0;
}
