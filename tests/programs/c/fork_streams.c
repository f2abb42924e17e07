/* Forks while threads write paged memory to a stream, each asleep in a fault with the stream's lock in hand, and another
 * flushes all streams, which waits for them with the lock on the list of streams. Arguments: MiB, forks. Children use streams
 * of their own. */
#include "common.h"
#include <pthread.h>
#include <sys/wait.h>

#define PIECE 65536UL

static char *data;
static size_t bytes;
static FILE *out;

static void *writes(void *seed)
{
	uint64_t random = (uint64_t)(uintptr_t)seed;

	for (;;)
		fwrite(data + next_random(&random) % (bytes / PAGE - PIECE / PAGE) * PAGE, 1, PIECE, out);
	return NULL;
}

static void *flushes(void *unused)
{
	(void)unused;
	for (;;) {
		fflush(NULL);
		usleep(200);
	}
	return NULL;
}

static void *opens(void *unused)
{
	(void)unused;
	for (;;) {
		FILE *file = fopen("/dev/null", "w");

		must(file && fputc('x', file) == 'x' && fclose(file) == 0);
		usleep(100);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	size_t forks = argument(argc, argv, 2, 20);
	pthread_t thread;
	char line[64];

	bytes = argument(argc, argv, 1, 160) * MEGABYTE;
	data = malloc(bytes);
	out = fopen("/dev/null", "w");
	must(data && out);
	fill((uint64_t *)data, bytes / sizeof(uint64_t), 0, 1);
	must(pthread_create(&thread, NULL, writes, (void *)1) == 0);
	must(pthread_create(&thread, NULL, writes, (void *)2) == 0);
	must(pthread_create(&thread, NULL, flushes, NULL) == 0);
	must(pthread_create(&thread, NULL, opens, NULL) == 0);
	for (size_t i = 0; i < forks; i++) {
		int status;
		pid_t child;

		usleep(20000);
		child = fork();
		must(child >= 0);
		if (child == 0) {
			FILE *file = fopen("/dev/null", "w");

			check((uint64_t *)data + i * PAGE_WORDS, PAGE_WORDS, i * PAGE_WORDS, 1, "in the child");
			must(file && fprintf(file, "child %zu", i) > 0 && fclose(file) == 0 && fflush(NULL) == 0);
			_exit(7);
		}
		must(waitpid(child, &status, 0) == child);
		must(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	/* Not with dprintf, whose stream has no lock: the other thread may flush it as well. */
	snprintf(line, sizeof(line), "%zu forks\n", forks);
	must(write(STDOUT_FILENO, line, strlen(line)) == (ssize_t)strlen(line));
	_exit(0);
}
