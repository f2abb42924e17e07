/* fork() that fails time and again, here because a filter refuses it, must not cost memory: says how much of the data is
 * in RAM after it was read again, in MiB. Argument: MiB of data. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Threads can be made, processes cannot: EAGAIN, as beyond RLIMIT_NPROC, which does not hold for root. */
static void refuse_processes(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_VM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 160) * MEGABYTE;
	uint64_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(data != MAP_FAILED);
	fill(data, bytes / 8, 5, 0);
	refuse_processes();
	for (int k = 0; k < 6; k++) {
		errno = 0;
		must(fork() == -1 && errno == EAGAIN);
	}
	check(data, bytes / 8, 5, 0, "after the forks");
	check(data, bytes / 8, 5, 0, "once more");
	printf("%zu\n", in_core(data, bytes) * PAGE / MEGABYTE);
	return 0;
}
