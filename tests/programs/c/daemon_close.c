/* A daemon: pages, closes every descriptor there is, forks twice with setsid, and goes on verifying what it had; its
 * result goes to the file that argument 2 names. The first process ends at once. */
#include "common.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	uint64_t *block = malloc(words * 8), random = 3;
	char line[64], name[4096];
	struct rlimit limit;
	int file, length;

	must(block && argc > 2);
	fill(block, words, 0, 0);
	snprintf(name, sizeof(name), "%s.part", argv[2]);
	/* What the first process prints must not be printed again by its children. */
	puts("daemon started");
	fflush(stdout);
	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int round = 0; round < 2; round++) {
		pid_t pid = fork();

		if (pid < 0)
			_exit(1);
		if (pid > 0)
			_exit(0);
		setsid();
		for (long k = 0; k < (long)limit.rlim_cur && k < 70000; k++)
			close(k);
		syscall(SYS_close_range, 0, ~0U, 0);
		check(block, words, 0, 0, "the daemon's block");
	}
	umask(0);
	if (chdir("/") != 0)
		_exit(1);
	for (int k = 0; k < 3000; k++) {
		size_t page = next_random(&random) % (words / PAGE_WORDS);

		fill(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0);
	}
	check(block, words, 0, 0, "the daemon's block at the end");
	length = snprintf(line, sizeof(line), "daemon %016lx\n", checksum(block, words, 1));
	file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (file < 0 || write(file, line, length) != length || close(file) != 0 || rename(name, argv[2]) != 0)
		_exit(1);
	return 0;
}
