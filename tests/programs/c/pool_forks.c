/* Forks with memory on pages of a pool under hardship: "killed", a thread kills children as soon as they are there, mostly
 * while they take their copy and their parent waits for it; "descriptors", no descriptor is left for a pipe between the
 * two. Arguments: one of these words, forks. */
#include "common.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BYTES (48 * MEGABYTE)

static atomic_int stop;

/* Allocates nothing: the fork that is under way holds the heap's locks. */
static void *killer(void *unused)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	while (!atomic_load(&stop)) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

		if (fd >= 0)
			close(fd);
		if (length > 0) {
			text[length] = 0;
			kill(atoi(text), SIGKILL);
		}
	}
	return unused;
}

int main(int argc, char **argv)
{
	int killed = 0, kills = argc > 1 && !strcmp(argv[1], "killed"), rounds = (int)argument(argc, argv, 2, 10);
	uint64_t *block = malloc(BYTES);
	pthread_t thread;

	must(block);
	fill(block, BYTES / 8, 0, 0);
	if (kills) {
		must(pthread_create(&thread, NULL, killer, NULL) == 0);
	} else {
		struct rlimit limit = { 0, 0 };

		must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
		limit.rlim_cur = 64;
		must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		while (dup(2) >= 0)
			;
		must(errno == EMFILE);
	}
	for (int round = 0; round < rounds; round++) {
		pid_t pid = fork();
		int status;

		must(pid >= 0);
		if (pid == 0) {
			check(block, BYTES / 8, 0, (uint64_t)round, "in the child");
			fill(block, BYTES / 8, 0, 1000);
			check(block, BYTES / 8, 0, 1000, "of the child");
			_exit(0);
		}
		/* At once: without the wait this takes pages from the child. */
		fill(block, BYTES / 8, 0, (uint64_t)round + 1);
		must(waitpid(pid, &status, 0) == pid);
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kills)
			killed++;
		else
			must(status == 0);
		check(block, BYTES / 8, 0, (uint64_t)round + 1, "in the parent");
	}
	atomic_store(&stop, 1);
	if (kills)
		must(pthread_join(thread, NULL) == 0);
	fprintf(stderr, "killed %d\n", killed);
	printf("right\n");
	return 0;
}
