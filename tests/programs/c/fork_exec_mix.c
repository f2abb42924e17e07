/* fork and exec, vfork and exec, posix_spawn, system and popen out of a program whose memory is paged, while
 * another thread keeps it busy; the program that is started pages as well. */
#include "common.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

extern char **environ;
static uint64_t *block;
static size_t pages;
static atomic_int stop_writing;

static void *keep_busy(void *unused)
{
	uint64_t random = 5;

	while (!atomic_load(&stop_writing)) {
		size_t page = next_random(&random) % pages;

		check(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0, "the busy thread's page");
	}
	return unused;
}

static int grandchild(size_t megabytes)
{
	size_t words = megabytes * MEGABYTE / 8;
	uint64_t *data = malloc(words * 8);

	must(data);
	fill(data, words, 7, 0);
	check(data, words, 7, 0, "the started program's data");
	printf("started program %016lx\n", checksum(data, words, 1));
	return 5;
}

static int ended(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	size_t megabytes = argument(argc, argv, 1, 256);
	char size[32], line[128];
	char *again[] = { argv[0], size, "started", NULL };
	char *missing[] = { "/nonexistent/program", NULL };
	pthread_t thread;
	pid_t pid;
	FILE *pipe;
	int status;

	if (argc > 2)
		return grandchild(megabytes);
	snprintf(size, sizeof(size), "%zu", megabytes / 2);
	pages = megabytes * MEGABYTE / PAGE;
	block = malloc(pages * PAGE);
	must(block);
	fill(block, pages * PAGE_WORDS, 0, 0);
	must(pthread_create(&thread, NULL, keep_busy, NULL) == 0);
	for (int round = 0; round < 3; round++) {
		fflush(stdout);
		must((pid = fork()) >= 0);
		if (pid == 0) {
			execve("/proc/self/exe", again, environ);
			_exit(98);
		}
		printf("fork, exec: %d\n", ended(pid));
		fflush(stdout);
		must((pid = vfork()) >= 0);
		if (pid == 0) {
			execve("/proc/self/exe", again, environ);
			_exit(98);
		}
		printf("vfork, exec: %d\n", ended(pid));
		must((pid = vfork()) >= 0);
		if (pid == 0) {
			execve(missing[0], missing, environ);
			_exit(97);
		}
		printf("vfork, failed exec: %d\n", ended(pid));
		fflush(stdout);
		must(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, again, environ) == 0);
		printf("posix_spawn: %d\n", ended(pid));
		must(posix_spawn(&pid, missing[0], NULL, NULL, missing, environ) == ENOENT);
		status = system("exit 3");
		printf("system: %d\n", WEXITSTATUS(status));
		must((pipe = popen("echo from a pipe; exit 4", "r")));
		must(fgets(line, sizeof(line), pipe));
		status = pclose(pipe);
		printf("popen: %d %s", WEXITSTATUS(status), line);
	}
	atomic_store(&stop_writing, 1);
	must(pthread_join(thread, NULL) == 0);
	check(block, pages * PAGE_WORDS, 0, 0, "the block at the end");
	printf("block %016lx\n", checksum(block, pages * PAGE_WORDS, 1));
	return 0;
}
