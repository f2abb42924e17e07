/* The program's last thread ends by itself (exit(2)), past libc, and with it the process does, with its main thread's status.
 * (Where another thread ended last, whose it is depends on the kernel: here all have the same.) Arguments: MiB to fill; `main`,
 * `strict` (where seccomp allows no other end) or `other` (a thread that outlives main). */
#include "common.h"
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *other(void *unused)
{
	(void)unused;
	/* Long enough that it is looked meanwhile whether anybody is left. */
	sleep(3);
	puts("bye");
	fflush(stdout);
	syscall(SYS_exit, 4);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 96) * MEGABYTE;
	const char *how = argc > 2 ? argv[2] : "main";
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	must(words != MAP_FAILED);
	fill(words, bytes / 8, 0, 0);
	if (!strcmp(how, "other")) {
		must(pthread_create(&thread, NULL, other, NULL) == 0);
		syscall(SYS_exit, 4);
	}
	puts("bye");
	fflush(stdout);
	if (!strcmp(how, "strict"))
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	syscall(SYS_exit, 4);
	return 1;
}
