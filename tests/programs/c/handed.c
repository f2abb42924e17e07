/* More functions of libc, and system calls by their numbers, whose arguments lie in paged-out memory: contexts and jumps,
 * scheduling, lists of messages and vectors, semaphores, directories, extents. Argument 2 is a directory for files. */
#include "area.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

extern char **environ;

static ucontext_t *here, *there;
static volatile int switched, times, rounds;

static void other(void)
{
	switched++;
}

/* Their masks of signals begin a page that nothing else of them is on. */
static void contexts(void)
{
	for (rounds = 0; rounds < 3; rounds++) {
		here = (ucontext_t *)(edge() - 288);
		there = (ucontext_t *)(edge() - 288);
		use_others();
		must(getcontext(there) == 0);
		there->uc_stack.ss_sp = edge();
		there->uc_stack.ss_size = 128 * 1024;
		there->uc_link = here;
		makecontext(there, other, 0);
		use_others();
		must(swapcontext(here, there) == 0 && switched == rounds + 1);
		times = 0;
		use_others();
		must(getcontext(here) == 0);
		if (times++ == 0) {
			use_others();
			setcontext(here);
			fail("setcontext came back");
		}
		must(times == 2);
	}
}

static sigjmp_buf *jump;
static sigset_t *set;

static void jumps(void)
{
	jump = (sigjmp_buf *)(edge() - 72);
	set = (sigset_t *)place();
	sigemptyset(set);
	sigaddset(set, SIGUSR1);
	times = 0;
	use_others();
	must(pthread_sigmask(SIG_BLOCK, set, NULL) == 0);
	use_others();
	if (sigsetjmp(*jump, 1) == 0) {
		must(pthread_sigmask(SIG_UNBLOCK, set, NULL) == 0);
		use_others();
		times++;
		siglongjmp(*jump, 1);
	}
	use_others();
	must(pthread_sigmask(SIG_UNBLOCK, NULL, set) == 0 && sigismember(set, SIGUSR1) == 1 && times == 1);
	must(pthread_sigmask(SIG_UNBLOCK, set, NULL) == 0);
}

static void *nothing(void *argument_)
{
	return argument_;
}

static void scheduling(void)
{
	struct sched_param *priority = (struct sched_param *)(edge() - 2);
	uint32_t *attributes = (uint32_t *)place();
	struct timespec *when = (struct timespec *)(edge() - 8);
	struct timex *times_ = (struct timex *)place();
	unsigned *processor = (unsigned *)(edge() - 2), *node = (unsigned *)(edge() - 2);
	gid_t *groups = (gid_t *)(edge() - 2);
	pthread_t thread;

	memset(priority, 0, sizeof(*priority));
	use_others();
	must(pthread_setschedparam(pthread_self(), SCHED_OTHER, priority) == 0);
	use_others();
	must(syscall(SYS_sched_getattr, 0, attributes, 48, 0) == 0 && attributes[0] >= 48);
	use_others();
	must(syscall(SYS_getcpu, processor, node, NULL) == 0);
	use_others();
	must(timespec_get(when, TIME_UTC) == TIME_UTC && when->tv_sec > 0);
	when->tv_sec += 1000;
	must(pthread_create(&thread, NULL, nothing, NULL) == 0);
	use_others();
	must(pthread_timedjoin_np(thread, NULL, when) == 0);
	memset(times_, 0, sizeof(*times_));
	use_others();
	must(clock_adjtime(CLOCK_REALTIME, times_) >= 0);
	use_others();
	must(getgroups(1000, groups) >= 0);

	/* Capabilities: version 3 of the header, and of this process. */
	uint32_t *header = (uint32_t *)(edge() - 4), *sets = (uint32_t *)(edge() - 12);

	header[0] = 0x20080522;
	header[1] = 0;
	use_others();
	must(syscall(SYS_capget, header, sets) == 0);
}

/* Several messages, and vectors of one's own process, by the function and by the number. */
static void lists(void)
{
	int ends[2];
	struct mmsghdr *messages = (struct mmsghdr *)place();
	struct iovec *parts = (struct iovec *)place(), *theirs = (struct iovec *)place();

	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	for (int number = 0; number < 2; number++) {
		char *from = place(), *to = place();

		memset(messages, 0, 3 * sizeof(*messages));
		for (size_t k = 0; k < 3; k++) {
			memset(from + k * 20000, 'a' + (int)k, 10000);
			parts[k] = (struct iovec){ from + k * 20000, 10000 };
			messages[k].msg_hdr.msg_iov = &parts[k];
			messages[k].msg_hdr.msg_iovlen = 1;
		}
		use_others();
		must((number ? syscall(SYS_sendmmsg, ends[0], messages, 3, 0) : sendmmsg(ends[0], messages, 3, 0)) == 3);
		for (size_t k = 0; k < 3; k++)
			parts[k].iov_base = to + k * 20000;
		use_others();
		must((number ? syscall(SYS_recvmmsg, ends[1], messages, 3, 0, NULL) :
			       recvmmsg(ends[1], messages, 3, 0, NULL)) == 3);
		for (size_t k = 0; k < 3; k++)
			must(messages[k].msg_len == 10000 && to[k * 20000] == 'a' + (int)k && to[k * 20000 + 9999] == to[k * 20000]);
		use_others();
		must(syscall(SYS_sendto, ends[0], from, 30000, 0, NULL, 0) == 30000);
		use_others();
		must(syscall(SYS_recvfrom, ends[1], to, 100000, 0, NULL, NULL) == 30000 && to[29999] == from[29999]);

		*parts = (struct iovec){ to, 100000 };
		*theirs = (struct iovec){ from, 100000 };
		use_others();
		ssize_t got = number ? syscall(SYS_process_vm_readv, getpid(), parts, 1, theirs, 1, 0) :
				       process_vm_readv(getpid(), parts, 1, theirs, 1, 0);
		/* Where a sandbox forbids it there is nothing to see. */
		must(got == 100000 || (got == -1 && (errno == EPERM || errno == ENOSYS)));
	}
	struct pollfd *polled = (struct pollfd *)(edge() - 4);

	*polled = (struct pollfd){ ends[0], POLLOUT, 0 };
	use_others();
	must(syscall(SYS_ppoll, polled, 1, NULL, NULL, 8) == 1 && polled->revents == POLLOUT);
	must(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void semaphores(void)
{
	enum { COUNT = 8000 };
	unsigned short *values = (unsigned short *)place();
	int set_ = semget(IPC_PRIVATE, COUNT, 0600);

	if (set_ < 0) {
		must(errno == ENOSYS || errno == ENOSPC || errno == EINVAL || errno == ENOMEM);
		return;
	}
	for (int k = 0; k < COUNT; k++)
		values[k] = (unsigned short)(k % 1000);
	use_others();
	must(semctl(set_, 0, SETALL, values) == 0);
	memset(values, 0, COUNT * sizeof(*values));
	use_others();
	must(semctl(set_, 0, GETALL, values) == 0);
	for (int k = 0; k < COUNT; k++)
		must(values[k] == k % 1000);
	must(semctl(set_, 0, IPC_RMID) == 0);
}

static void files(const char *directory)
{
	char *name = place(), *bytes = place(), *events = place();
	struct dirent **list;
	int file, watch;

	snprintf(name, 4000, "%s/handed", directory);
	use_others();
	must(mkdir(name, 0700) == 0 && (watch = inotify_init1(IN_NONBLOCK)) >= 0);
	use_others();
	must(inotify_add_watch(watch, name, IN_CREATE) >= 0);
	strcat(name, "/file");
	use_others();
	must((file = open(name, O_RDWR | O_CREAT, 0600)) >= 0);
	use_others();
	must(read(watch, events, 3 * PIECE / 16) >= (ssize_t)sizeof(struct inotify_event));
	must(close(watch) == 0);
	use_others();
	must(realpath(name, bytes) == bytes && strcmp(bytes + strlen(bytes) - 12, "/handed/file") == 0);
	use_others();
	must(pathconf(name, _PC_NAME_MAX) > 0);

	/* Many extents; not every file system tells them. */
	enum { EXTENTS = 150 };
	struct fiemap *extents = (struct fiemap *)place();

	for (size_t k = 0; k < EXTENTS; k++)
		must(pwrite(file, bytes, 4096, k * 65536) == 4096);
	memset(extents, 0, sizeof(*extents));
	extents->fm_length = FIEMAP_MAX_OFFSET;
	extents->fm_flags = FIEMAP_FLAG_SYNC;
	extents->fm_extent_count = EXTENTS;
	use_others();
	must(ioctl(file, FS_IOC_FIEMAP, extents) == 0 || errno == EOPNOTSUPP || errno == ENOTTY);
	use_others();
	must(syscall(SYS_ioctl, file, FIONREAD, events) == 0);

	/* The kernel's own asynchronous I/O, by number: a read into two parts. */
	unsigned long *context = (unsigned long *)(edge() - 8);
	struct iocb *block = (struct iocb *)(edge() - 32), **blocks = (struct iocb **)(edge() - 8);
	struct io_event *done = (struct io_event *)(edge() - 16);
	struct iovec *parts = (struct iovec *)(edge() - 16);
	char *to = place();

	*context = 0;
	use_others();
	if (syscall(SYS_io_setup, 8, context) == 0) {
		parts[0] = (struct iovec){ to, 1000 };
		parts[1] = (struct iovec){ to + 50000, 3096 };
		memset(block, 0, sizeof(*block));
		block->aio_fildes = file;
		block->aio_lio_opcode = IOCB_CMD_PREADV;
		block->aio_buf = (uintptr_t)parts;
		block->aio_nbytes = 2;
		*blocks = block;
		use_others();
		must(syscall(SYS_io_submit, *context, 1, blocks) == 1);
		use_others();
		must(syscall(SYS_io_getevents, *context, 1, 1, done, NULL) == 1 && done->res == 4096);
		must(memcmp(to, bytes, 1000) == 0 && memcmp(to + 50000, bytes + 1000, 3096) == 0);
		must(syscall(SYS_io_destroy, *context) == 0);
	} else {
		must(errno == ENOSYS || errno == EPERM || errno == EAGAIN);
	}
	must(close(file) == 0);
	use_others();
	must(unlink(name) == 0);
	name[strlen(name) - 5] = 0;
	use_others();
	int found = scandir(name, &list, NULL, alphasort);

	must(found == 2);
	while (found > 0)
		free(list[--found]);
	free(list);
	use_others();
	must(rmdir(name) == 0);
}

/* The attributes of a program that is started, and one that is executed by the call's number. */
static void programs(void)
{
	posix_spawnattr_t *attributes = (posix_spawnattr_t *)(edge() - 16);
	char *path = place(), *command = place(), **list = (char **)(edge() - 8);
	sigset_t none;
	int status;
	pid_t child;

	strcpy(path, "/bin/sh");
	strcpy(command, "exit 17");
	list[0] = (char *)"sh";
	list[1] = (char *)"-c";
	list[2] = command;
	list[3] = NULL;
	sigemptyset(&none);
	must(posix_spawnattr_init(attributes) == 0 && posix_spawnattr_setsigmask(attributes, &none) == 0);
	must(posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSCHEDULER) == 0);
	use_others();
	must(posix_spawn(&child, path, NULL, attributes, list, environ) == 0);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 17);
	must((child = fork()) >= 0);
	if (child == 0) {
		use_others();
		syscall(SYS_execve, path, list, environ);
		_exit(1);
	}
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 17);
}

int main(int argc, char **argv)
{
	make_area(argc, argv);
	contexts();
	jumps();
	scheduling();
	lists();
	semaphores();
	files(argc > 2 ? argv[2] : ".");
	programs();
	printf("all was there\n");
	return 0;
}
