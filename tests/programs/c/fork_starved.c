/* A process whose memory is all charged, most of it untouched, forks while its watcher gets no processor: the child fills its
 * part, then the parent everything, and neither ever leaves the only processor that they may use. Prints what both have in
 * RAM then, in KiB; "not allowed" where real time is not for this user. */
#include "common.h"
#include <sched.h>
#include <sys/wait.h>

#define ALL 56
#define TOUCHED 4
#define PART 24

int main(void)
{
	struct sched_param param = { .sched_priority = 50 };
	size_t words = ALL * MEGABYTE / 8, part = PART * MEGABYTE / 8, touched = TOUCHED * MEGABYTE / 8;
	int written[2], end[2], status;
	uint64_t *data;
	char byte = 0;
	cpu_set_t one;
	pid_t pid;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	must(pipe(written) == 0 && pipe(end) == 0);
	if (sched_setaffinity(0, sizeof one, &one) || sched_setscheduler(0, SCHED_FIFO, &param)) {
		printf("not allowed\n");
		return 0;
	}
	data = malloc(words * 8);
	must(data);
	fill(data, touched, 3, 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		fill(data + touched, part, 3, 2);
		must(write(written[1], &byte, 1) == 1 && read(end[0], &byte, 1) == 1);
		check(data + touched, part, 3, 2, "in the child");
		_exit(0);
	}
	must(read(written[0], &byte, 1) == 1);
	fill(data, words, 3, 1);
	printf("%ld\n", own_kib(getpid()) + own_kib(pid));
	must(write(end[1], &byte, 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	check(data, words, 3, 1, "in the parent");
	return 0;
}
