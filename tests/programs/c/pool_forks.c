/* Forks with memory on pages of a pool under hardship: "killed", a thread kills children as soon as they are there, mostly
 * while they take their copy and their parent waits for it; "descriptors", no descriptor is left for a pipe between the
 * two; "writer", a thread writes meanwhile, and takes pages from children when the pool has no others: those end with
 * status 125, and none sees anything else than what was written. Arguments: one of these words, forks. */
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

/* Writes what is there already. */
static void *writer(void *block)
{
	volatile uint64_t *words = block;

	while (!atomic_load(&stop))
		for (size_t i = 0; i < BYTES / 8; i += PAGE_WORDS)
			words[i] = mix(i);
	return NULL;
}

/* Forks beside the writer. Returns how many children were stopped. */
static int beside_writer(uint64_t *block, int rounds)
{
	int stopped = 0, status;
	pthread_t thread;

	must(pthread_create(&thread, NULL, writer, block) == 0);
	for (int round = 0; round < rounds; round++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0) {
			check(block, BYTES / 8, 0, 0, "in the child");
			_exit(0);
		}
		must(waitpid(pid, &status, 0) == pid);
		must(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 125));
		stopped += WEXITSTATUS(status) == 125;
	}
	atomic_store(&stop, 1);
	must(pthread_join(thread, NULL) == 0);
	check(block, BYTES / 8, 0, 0, "in the parent");
	return stopped;
}

int main(int argc, char **argv)
{
	int killed = 0, kills = argc > 1 && !strcmp(argv[1], "killed"), rounds = (int)argument(argc, argv, 2, 10);
	uint64_t *block = malloc(BYTES);
	pthread_t thread;

	must(block);
	fill(block, BYTES / 8, 0, 0);
	if (argc > 1 && !strcmp(argv[1], "writer")) {
		printf("stopped %d\n", beside_writer(block, rounds));
		return 0;
	}
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
