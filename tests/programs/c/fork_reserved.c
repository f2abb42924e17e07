/* Forks of a process that has reserved far more than its budget, and has so much of it in RAM that parent and child do not
 * both fit, before anything is paged; and forks while a thread touches more and more, so that paging begins at any time.
 * Argument: MiB to begin with; half as much again is touched while it forks, and much more is reserved. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static uint64_t *data;
static size_t words;
static _Atomic size_t touched;

static void *touch(void *argument)
{
	(void)argument;
	for (size_t at = words; at < words + words / 2; at += PAGE_WORDS) {
		fill(data + at, PAGE_WORDS, at, 0);
		touched = at + PAGE_WORDS;
		if (at % (64 * PAGE_WORDS) == 0)
			usleep(500);
	}
	return NULL;
}

static pid_t child(void)
{
	size_t until = touched;
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0) {
		check(data, until, 0, 0, "in the child");
		fill(data, until, 0, 1);
		check(data, until, 0, 1, "in the child, changed");
		_exit(0);
	}
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) == pid);
	if (status != 0)
		fail("child %d: status %#x", (int)pid, status);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	pid_t pid;

	words = argument(argc, argv, 1, 96) * MEGABYTE / 8;
	data = mmap(NULL, words * 8 * 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(data != MAP_FAILED);
	/* Slowly enough to be seen by whoever looks. */
	for (size_t at = 0; at < words; at += MEGABYTE / 8) {
		fill(data + at, MEGABYTE / 8, at, 0);
		usleep(2000);
	}
	touched = words;
	usleep(200000);
	pid = child();
	must(pthread_create(&thread, NULL, touch, NULL) == 0);
	while (touched < words + words / 2)
		reap(child());
	must(pthread_join(thread, NULL) == 0);
	reap(pid);
	check(data, words + words / 2, 0, 0, "in the end");
	printf("forked\n");
	return 0;
}
