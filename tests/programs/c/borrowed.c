/* Functions of libc whose arguments lie in paged-out memory: locks and what waits on them, stacks of signals, streams,
 * long texts, paths, lists of arguments, structures of all kinds. Argument 2 is a directory for files. */
#include "area.h"
#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#define ROUNDS 20000

extern char **environ;

struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t turned;
	sem_t semaphore;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	pthread_once_t once;
	size_t turn, count;
};

static size_t once_count;
static void once(void)
{
	once_count++;
}

static void *player(void *argument_)
{
	struct shared *shared = argument_;

	must(pthread_once(&shared->once, once) == 0);
	for (size_t k = 0; k < ROUNDS / 100; k++) {
		must(pthread_mutex_lock(&shared->mutex) == 0);
		while (shared->turn % 2 == 0)
			must(pthread_cond_wait(&shared->turned, &shared->mutex) == 0);
		shared->turn++;
		shared->count++;
		must(pthread_cond_signal(&shared->turned) == 0);
		must(pthread_mutex_unlock(&shared->mutex) == 0);
	}
	must(sem_wait(&shared->semaphore) == 0);
	must(pthread_rwlock_wrlock(&shared->rwlock) == 0);
	shared->count++;
	must(pthread_rwlock_unlock(&shared->rwlock) == 0);
	pthread_barrier_wait(&shared->barrier);
	return NULL;
}

static void locks(void)
{
	struct shared *shared = (struct shared *)(place() + 24);
	pthread_t thread;

	memset(shared, 0, sizeof(*shared));
	shared->once = (pthread_once_t)PTHREAD_ONCE_INIT;
	must(pthread_mutex_init(&shared->mutex, NULL) == 0 && pthread_cond_init(&shared->turned, NULL) == 0);
	must(sem_init(&shared->semaphore, 0, 0) == 0 && pthread_rwlock_init(&shared->rwlock, NULL) == 0);
	must(pthread_barrier_init(&shared->barrier, NULL, 2) == 0);
	use_others();
	must(pthread_create(&thread, NULL, player, shared) == 0);
	for (size_t k = 0; k < ROUNDS / 100; k++) {
		must(pthread_mutex_lock(&shared->mutex) == 0);
		while (shared->turn % 2 == 1)
			must(pthread_cond_wait(&shared->turned, &shared->mutex) == 0);
		shared->turn++;
		must(pthread_cond_signal(&shared->turned) == 0);
		must(pthread_mutex_unlock(&shared->mutex) == 0);
		if (k % 50 == 0)
			use_others();
	}
	must(pthread_rwlock_rdlock(&shared->rwlock) == 0);
	must(sem_post(&shared->semaphore) == 0);
	use_others();
	must(pthread_rwlock_unlock(&shared->rwlock) == 0);
	pthread_barrier_wait(&shared->barrier);
	must(pthread_join(thread, NULL) == 0);
	must(shared->count == ROUNDS / 100 + 1 && once_count == 1);

	struct timespec *soon = (struct timespec *)(place() + 8);

	must(pthread_mutex_lock(&shared->mutex) == 0);
	use_others();
	must(clock_gettime(CLOCK_REALTIME, soon) == 0);
	soon->tv_nsec = (soon->tv_nsec + 1000000) % 1000000000;
	must(pthread_cond_timedwait(&shared->turned, &shared->mutex, soon) == ETIMEDOUT || soon->tv_nsec < 2000000);
	must(pthread_mutex_unlock(&shared->mutex) == 0);
}

static volatile sig_atomic_t handled;
static volatile char *handler_stack;
static void handler(int number, siginfo_t *info, void *context)
{
	char here;

	(void)number, (void)info, (void)context;
	handler_stack = &here;
	handled++;
}

static void signals(void)
{
	stack_t *stack = (stack_t *)place();
	struct sigaction *action = (struct sigaction *)place();
	sigset_t *set = (sigset_t *)place();
	char *room = place();

	memset(action, 0, sizeof(*action));
	action->sa_sigaction = handler;
	action->sa_flags = SA_ONSTACK | SA_SIGINFO;
	stack->ss_sp = room;
	stack->ss_size = 128 * 1024;
	stack->ss_flags = 0;
	use_others();
	must(sigaltstack(stack, NULL) == 0);
	must(sigaction(SIGUSR1, action, NULL) == 0);
	for (int k = 0; k < 3; k++) {
		use_others();
		must(raise(SIGUSR1) == 0);
		must(handled == k + 1 && handler_stack > room && handler_stack < room + 128 * 1024);
	}
	sigemptyset(set);
	sigaddset(set, SIGUSR2);
	use_others();
	must(sigprocmask(SIG_BLOCK, set, NULL) == 0);
	must(raise(SIGUSR2) == 0);
	siginfo_t *info = (siginfo_t *)place();
	struct timespec *limit = (struct timespec *)place();
	limit->tv_sec = 5;
	limit->tv_nsec = 0;
	use_others();
	must(sigtimedwait(set, info, limit) == SIGUSR2 && info->si_pid == getpid());
	stack->ss_flags = SS_DISABLE;
	must(sigaltstack(stack, NULL) == 0);
}

static void print(FILE *file, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	must(vfprintf(file, format, list) > 0);
	va_end(list);
}

/* Long texts written and read in all ways, through streams with and without buffers of their own. */
static void streams(const char *directory)
{
	enum { LONG = 100000 };
	char *text = place(), *name = place(), *back = place(), *buffer = place(), *line = NULL;
	size_t capacity = 0;
	FILE *file;

	snprintf(name, 4000, "%s/stream", directory);
	for (size_t k = 0; k < LONG; k++)
		text[k] = 'a' + mix(k) % 26;
	text[LONG] = 0;
	use_others();
	must((file = fopen(name, "w+")));
	must(setvbuf(file, buffer, _IOFBF, 200 * 1024) == 0);
	use_others();
	must(fputs(text, file) >= 0 && fputc('\n', file) == '\n');
	use_others();
	must(fprintf(file, "%d %s %.3f %s\n", 7, text, 2.5, "end") == LONG + 2 + 6 + 6 - 1);
	print(file, "%s|%ld|%s\n", text, 1L << 40, text + LONG - 10);
	use_others();
	must(fwrite(text, 10, LONG / 10, file) == LONG / 10);
	must(fputc('\n', file) == '\n' && fflush(file) == 0);
	rewind(file);
	use_others();
	must(fread(back, 1, LONG + 1, file) == LONG + 1);
	must(memcmp(back, text, LONG) == 0 && back[LONG] == '\n');
	must(getline(&line, &capacity, file) == LONG + 13 && memcmp(line + 2, text, LONG) == 0);
	must(strcmp(line + LONG + 2, " 2.500 end\n") == 0);
	use_others();
	must(getline(&line, &capacity, file) == LONG + 26 && strcmp(line + LONG, "|1099511627776|") > 0);
	use_others();
	must(fgets(back, LONG + 2, file) && memcmp(back, text, LONG) == 0);
	fclose(file);
	free(line);
	must((file = fopen(name, "r")));
	setbuf(file, NULL);
	use_others();
	must(fread(back, LONG, 1, file) == 1 && memcmp(back, text, LONG) == 0);
	fclose(file);
	use_others();
	must(dprintf(STDOUT_FILENO, "%.70s %s\n", text, text + LONG - 8) == 80);
	use_others();
	must(remove(name) == 0);
}

static void programs(void)
{
	char *path = place(), **list = (char **)(place() + 24), *word = place(), *command = place();
	pid_t *child = (pid_t *)(place() + 24);
	int *status = (int *)(place() + 24);

	strcpy(path, "/bin/sh");
	strcpy(command, "test \"$0$1$2\" = onetwothree && exit 42");
	strcpy(word, "two");
	list[0] = (char *)"sh";
	list[1] = (char *)"-c";
	list[2] = command;
	list[3] = (char *)"one";
	list[4] = word;
	list[5] = (char *)"three";
	list[6] = NULL;
	use_others();
	must(posix_spawn(child, path, NULL, NULL, list, environ) == 0);
	must(waitpid(*child, status, 0) == *child && WIFEXITED(*status) && WEXITSTATUS(*status) == 42);
	use_others();
	must((*child = fork()) >= 0);
	if (*child == 0) {
		use_others();
		execl(path, "sh", "-c", command, "one", word, "three", (char *)NULL);
		_exit(1);
	}
	must(waitpid(*child, status, 0) == *child && WIFEXITED(*status) && WEXITSTATUS(*status) == 42);
	must((*child = fork()) >= 0);
	if (*child == 0) {
		use_others();
		execv(path, list);
		_exit(1);
	}
	must(waitpid(*child, status, 0) == *child && WIFEXITED(*status) && WEXITSTATUS(*status) == 42);
	strcpy(command, "exit 9");
	use_others();
	*status = system(command);
	must(WIFEXITED(*status) && WEXITSTATUS(*status) == 9);
}

static void structures(const char *directory)
{
	int *pair = (int *)place();
	char *name = place(), *bytes = place();
	struct pollfd *polled = (struct pollfd *)place();
	fd_set *readable = (fd_set *)place();
	struct epoll_event *events = (struct epoll_event *)place();
	struct utsname *host = (struct utsname *)place();
	struct rusage *usage = (struct rusage *)place();
	struct timespec *sleep = (struct timespec *)place();
	struct msghdr *message = (struct msghdr *)place();
	struct iovec *parts = (struct iovec *)place();
	struct aiocb *block = (struct aiocb *)(place() + 24);
	int epoll;

	use_others();
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	memset(bytes, 7, 60000);
	parts[0] = (struct iovec){ bytes, 20000 };
	parts[1] = (struct iovec){ place(), 0 };
	parts[2] = (struct iovec){ bytes + 20000, 40000 };
	memset(message, 0, sizeof(*message));
	message->msg_iov = parts;
	message->msg_iovlen = 3;
	use_others();
	must(sendmsg(pair[0], message, 0) == 60000);
	polled->fd = pair[1];
	polled->events = POLLIN;
	use_others();
	must(poll(polled, 1, 1000) == 1 && polled->revents == POLLIN);
	FD_ZERO(readable);
	FD_SET(pair[1], readable);
	use_others();
	must(select(pair[1] + 1, readable, NULL, NULL, NULL) == 1 && FD_ISSET(pair[1], readable));
	must((epoll = epoll_create1(0)) >= 0);
	events->events = EPOLLIN;
	events->data.u64 = 99;
	use_others();
	must(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], events) == 0);
	memset(events, 0, sizeof(*events));
	use_others();
	must(epoll_wait(epoll, events, 8, 1000) == 1 && events->data.u64 == 99);
	memset(bytes, 0, 60000);
	use_others();
	must(recvmsg(pair[1], message, MSG_WAITALL) == 60000 && bytes[0] == 7 && bytes[59999] == 7);
	must(close(pair[0]) == 0 && close(pair[1]) == 0 && close(epoll) == 0);
	use_others();
	must(uname(host) == 0 && strcmp(host->sysname, "Linux") == 0);
	use_others();
	must(getrusage(RUSAGE_SELF, usage) == 0 && usage->ru_maxrss > 0);
	sleep->tv_sec = 0;
	sleep->tv_nsec = 1000;
	use_others();
	must(nanosleep(sleep, NULL) == 0);
	use_others();
	must(getcwd(bytes, 4096) && bytes[0] == '/');
	snprintf(name, 4000, "%s/made", directory);
	use_others();
	must(mkdir(name, 0700) == 0);
	use_others();
	must(access(name, X_OK) == 0);
	use_others();
	must(rmdir(name) == 0);

	int file;

	snprintf(name, 4000, "%s/aio", directory);
	use_others();
	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	for (size_t k = 0; k < 50000; k++)
		bytes[k] = (char)mix(k);
	memset(block, 0, sizeof(*block));
	block->aio_fildes = file;
	block->aio_buf = bytes;
	block->aio_nbytes = 50000;
	use_others();
	must(aio_write(block) == 0);
	use_others();
	while (aio_error(block) == EINPROGRESS)
		usleep(1000);
	must(aio_return(block) == 50000);
	char *back = place();
	use_others();
	must(syscall(SYS_pread64, file, back, 50000, 0) == 50000 && memcmp(back, bytes, 50000) == 0);
	must(close(file) == 0);
	use_others();
	must(unlink(name) == 0);
}

/* What must not change: a reader of a pipe is content with what there is, a datagram stays whole, memory without access
 * beside a structure is not looked at, and addresses of nothing are errors. */
static void edges(void)
{
	enum { PIECES = 100, PIPE = 1 << 20 };
	int ends[2];
	struct iovec parts[PIECES];
	char *bytes = place(), *whole = area + (pieces / 2) * PIECE;

	must(pipe(ends) == 0);
	int room = fcntl(ends[1], F_SETPIPE_SZ, PIPE);
	must(room > 0 || errno == EPERM);
	if (room < 0)
		room = fcntl(ends[1], F_GETPIPE_SZ);
	memset(whole, 9, room);
	use_others();
	must(write(ends[1], whole, room) == room);
	use_others();
	must(read(ends[0], whole, 4 * MEGABYTE) == room);
	for (size_t k = 0; k < PIECES; k++)
		parts[k] = (struct iovec){ whole + k * 3 * PAGE, 10 };
	use_others();
	must(writev(ends[1], parts, 64) == 640);
	use_others();
	must(readv(ends[0], parts, PIECES) == 640);
	must(close(ends[0]) == 0 && close(ends[1]) == 0);
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	use_others();
	must(writev(ends[0], parts, PIECES) == 10 * PIECES);
	use_others();
	must(readv(ends[1], parts, PIECES) == 10 * PIECES);
	must(close(ends[0]) == 0 && close(ends[1]) == 0);

	char *last = bytes - (uintptr_t)bytes % PAGE + PAGE;
	struct timespec *sleep = (struct timespec *)(last - sizeof(*sleep));

	sleep->tv_sec = 0;
	sleep->tv_nsec = 1000;
	use_others();
	must(mprotect(last, PAGE, PROT_NONE) == 0);
	sleep->tv_sec = 0;
	use_others();
	must(nanosleep(sleep, NULL) == 0);
	must(uname((struct utsname *)last) == -1 && errno == EFAULT);
	must(mprotect(last, PAGE, PROT_READ | PROT_WRITE) == 0);
	must(open((const char *)16, O_RDONLY) == -1 && errno == EFAULT);
	must(access((const char *)-4096L, R_OK) == -1 && errno == EFAULT);
	parts[0] = (struct iovec){ whole, 100 };
	use_others();
	must(pipe(ends) == 0 && syscall(SYS_writev, ends[1], parts, 1) == 100);
	must(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* More than a call may have resident at a time. */
static void large(const char *directory, size_t megabytes)
{
	uint64_t *from = malloc(megabytes * MEGABYTE), *to = malloc(megabytes * MEGABYTE);
	size_t words = megabytes * MEGABYTE / 8;
	char name[4096];
	int file;

	must(from && to);
	fill(from, words, 1, 0);
	snprintf(name, sizeof(name), "%s/large", directory);
	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	must(write(file, from, words * 8) == (ssize_t)(words * 8));
	must(pread(file, to, words * 8, 0) == (ssize_t)(words * 8));
	check(to, words, 1, 0, "after pread");
	memset(to, 0, words * 8);
	must(lseek(file, 0, SEEK_SET) == 0);
	struct iovec parts[40];
	for (size_t k = 0; k < 40; k++)
		parts[k] = (struct iovec){ (char *)to + words / 40 * 8 * k, words / 40 * 8 };
	must(readv(file, parts, 40) == (ssize_t)(words / 40 * 40 * 8));
	check(to, words / 40 * 40, 1, 0, "after readv");
	must(close(file) == 0 && unlink(name) == 0);
	free(from);
	free(to);
}

int main(int argc, char **argv)
{
	const char *directory = argc > 2 ? argv[2] : ".";

	setvbuf(stdout, NULL, _IONBF, 0);
	make_area(argc, argv);
	locks();
	signals();
	streams(directory);
	programs();
	structures(directory);
	edges();
	large(directory, pieces);
	printf("all was lent\n");
	return 0;
}
