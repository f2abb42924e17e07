/* A thread discards memory, and is held up on its way into the kernel while paging begins and everything goes to the store:
 * what it has discarded reads as zeros. Argument: MiB that other data take. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BYTES (8 * MEGABYTE)

static char *discarded;
static atomic_int listener = -1, filled;

/* Its calls that discard so many bytes wait for an answer. */
static void *discard(void *unused)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, BYTES, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog all = { sizeof(program) / sizeof(*program), program };

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all);

	must(fd >= 0);
	atomic_store(&listener, (int)fd);
	must(madvise(discarded, BYTES, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < BYTES; i++)
		if (discarded[i])
			fail("byte %zu of what was discarded is %d", i, discarded[i]);
	return unused;
}

static void *use(void *argument_)
{
	size_t bytes = *(size_t *)argument_;
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(words != MAP_FAILED);
	for (uint64_t round = 0; round < 2; round++)
		fill(words, bytes / 8, 0, round);
	check(words, bytes / 8, 0, 1, "beside what is discarded");
	atomic_store(&filled, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 96) * MEGABYTE;
	struct seccomp_notif call = { 0 };
	struct seccomp_notif_resp answer = { 0 };
	pthread_t one, other;

	discarded = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(discarded != MAP_FAILED);
	memset(discarded, 7, BYTES);
	must(pthread_create(&one, NULL, discard, NULL) == 0);
	while (atomic_load(&listener) < 0)
		usleep(1000);
	must(ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_RECV, &call) == 0);
	must(pthread_create(&other, NULL, use, &bytes) == 0);
	/* Whoever pages may wait for the discard. */
	for (int tries = 0; tries < 200 && !atomic_load(&filled); tries++)
		usleep(10000);
	answer.id = call.id;
	answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	must(ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0);
	must(pthread_join(one, NULL) == 0 && pthread_join(other, NULL) == 0);
	puts("right");
	return 0;
}
