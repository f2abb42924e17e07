/* System calls into and out of paged-out memory: files, pipes, sockets, direct I/O, vmsplice and zero-copy sends,
 * stat, getdents, getrandom. Argument 2 is a directory for files; with a third one, only vmsplice and zero-copy sends. */
#include "common.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define CHUNK (64 * 1024UL)
#define CHUNK_WORDS (CHUNK / 8)

static char *area;
static size_t chunks;
static uint64_t random_state = 6;

/* The next chunk to use; the walk visits all of them, so that each is paged out when its turn comes. */
static char *next_chunk(void)
{
	static size_t turn;

	return area + turn++ * 7919 % chunks * CHUNK;
}

static uint64_t index_of(const char *chunk)
{
	return (uint64_t)(chunk - area) / 8;
}

/* A chunk whose content is still what it was filled with. */
static char *full_chunk(void)
{
	char *chunk = next_chunk();

	fill((uint64_t *)chunk, CHUNK_WORDS, index_of(chunk), 0);
	return chunk;
}

/* Evicts by use: goes through a quarter of the area, reading. */
static void use_others(void)
{
	volatile char *bytes = area;
	size_t start = next_random(&random_state) % chunks;

	for (size_t k = 0; k < chunks / 2; k++)
		for (size_t page = 0; page < CHUNK / PAGE; page++)
			(void)bytes[(start + k) % chunks * CHUNK + page * PAGE];
}

static void all(ssize_t done, size_t wanted, const char *what)
{
	if (done < 0 || (size_t)done != wanted)
		fail("%s gave %zd of %zu (errno %d)", what, done, wanted, errno);
}

static void files(const char *directory)
{
	char name[4096], *from = full_chunk(), *to = next_chunk();
	int file;

	snprintf(name, sizeof(name), "%s/file", directory);
	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	use_others();
	all(write(file, from, CHUNK), CHUNK, "write");
	all(pwrite(file, from, CHUNK, CHUNK), CHUNK, "pwrite");
	must(lseek(file, 0, SEEK_SET) == 0);
	use_others();
	all(read(file, to, CHUNK), CHUNK, "read");
	check((uint64_t *)to, CHUNK_WORDS, index_of(from), 0, "after read");
	use_others();
	to = next_chunk();
	all(pread(file, to, CHUNK, CHUNK), CHUNK, "pread");
	check((uint64_t *)to, CHUNK_WORDS, index_of(from), 0, "after pread");
	struct iovec parts[3] = { { next_chunk(), 4096 }, { next_chunk() + 100, 20000 }, { next_chunk() + 1, CHUNK - 24096 } };

	use_others();
	all(preadv(file, parts, 3, 0), CHUNK, "preadv");
	for (size_t k = 0, offset = 0; k < 3; offset += parts[k++].iov_len)
		must(memcmp(parts[k].iov_base, from + offset, parts[k].iov_len) == 0);
	must(unlink(name) == 0);

	/* A structure and a path that lie in paged-out memory. */
	struct stat *status = (struct stat *)(next_chunk() + PAGE - 40);
	char *path = next_chunk() + PAGE - 3;

	strcpy(path, directory);
	use_others();
	must(stat(path, status) == 0 && S_ISDIR(status->st_mode));
	close(file);
	must((file = open(directory, O_RDONLY | O_DIRECTORY)) >= 0);
	to = next_chunk();
	use_others();
	must(syscall(SYS_getdents64, file, to, CHUNK) > 0);
	close(file);
	to = next_chunk();
	memset(to, 0, 256);
	use_others();
	all(getrandom(to, 256, 0), 256, "getrandom");
	must(((uint64_t *)to)[0] || ((uint64_t *)to)[31]);
}

struct transfer {
	int descriptor;
	char *from;
};

static void *send_all(void *argument_)
{
	struct transfer *transfer = argument_;

	for (size_t done = 0; done < CHUNK;) {
		ssize_t sent = write(transfer->descriptor, transfer->from + done, CHUNK - done);

		must(sent > 0);
		done += sent;
	}
	return NULL;
}

static void through(int in, int out, const char *what)
{
	struct transfer transfer = { out, full_chunk() };
	char *to = next_chunk();
	pthread_t thread;

	use_others();
	must(pthread_create(&thread, NULL, send_all, &transfer) == 0);
	for (size_t done = 0; done < CHUNK;) {
		ssize_t got = read(in, to + done, CHUNK - done > 10000 ? 10000 : CHUNK - done);

		must(got > 0);
		done += got;
	}
	must(pthread_join(thread, NULL) == 0);
	check((uint64_t *)to, CHUNK_WORDS, index_of(transfer.from), 0, what);
}

static void pipes_and_sockets(void)
{
	int ends[2];

	must(pipe(ends) == 0);
	through(ends[0], ends[1], "through a pipe");
	close(ends[0]);
	close(ends[1]);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	through(ends[0], ends[1], "through a socket");
	close(ends[0]);
	close(ends[1]);
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	char *from = full_chunk(), *to = next_chunk();

	use_others();
	all(send(ends[0], from, 8192, 0), 8192, "send");
	use_others();
	struct iovec parts[2] = { { to, 5000 }, { next_chunk(), 3192 } };
	struct msghdr *message = (struct msghdr *)next_chunk();

	memset(message, 0, sizeof(*message));
	message->msg_iov = parts;
	message->msg_iovlen = 2;
	use_others();
	all(recvmsg(ends[1], message, 0), 8192, "recvmsg");
	must(memcmp(to, from, 5000) == 0 && memcmp(parts[1].iov_base, from + 5000, 3192) == 0);
	close(ends[0]);
	close(ends[1]);
}

/* What the kernel refers to without pinning it. */
static void splice_pages(void)
{
	int ends[2];

	must(pipe(ends) == 0);
	char *from = full_chunk(), *to = next_chunk();
	struct iovec part = { from, 8 * PAGE };

	/* The pipe holds references to the pages while they are evicted, and while the program changes them later. */
	use_others();
	all(vmsplice(ends[1], &part, 1, 0), 8 * PAGE, "vmsplice");
	use_others();
	use_others();
	for (size_t done = 0; done < 8 * PAGE;) {
		ssize_t got = read(ends[0], to + done, 8 * PAGE - done);

		must(got > 0);
		done += got;
	}
	check((uint64_t *)to, 8 * PAGE_WORDS, index_of(from), 0, "through vmsplice");
	close(ends[0]);
	close(ends[1]);
}

static void zero_copy(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0), in, one = 1;
	char *from = full_chunk(), *to = next_chunk();

	must(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0);
	must(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	must(connect(out, (struct sockaddr *)&address, length) == 0);
	must((in = accept(listener, NULL, NULL)) >= 0);
	if (setsockopt(out, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) == 0) {
		use_others();
		all(send(out, from, 8 * PAGE, MSG_ZEROCOPY), 8 * PAGE, "send with MSG_ZEROCOPY");
		use_others();
		use_others();
		for (size_t done = 0; done < 8 * PAGE;) {
			ssize_t got = recv(in, to + done, 8 * PAGE - done, 0);

			must(got > 0);
			done += got;
		}
		check((uint64_t *)to, 8 * PAGE_WORDS, index_of(from), 0, "through MSG_ZEROCOPY");
	}
	close(in);
	close(out);
	close(listener);
}

/* The program's own direct I/O: the device writes into pages while others force them out. */
static volatile int busy;

static void *press(void *unused)
{
	while (busy)
		use_others();
	return unused;
}

static void direct(const char *directory)
{
	char name[4096], *from = full_chunk();
	pthread_t thread;
	int file;

	snprintf(name, sizeof(name), "%s/direct", directory);
	file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (file < 0 && errno == EINVAL)
		return; /* the file system has no direct I/O; the same in the plain run */
	must(file >= 0);
	use_others();
	all(write(file, from, CHUNK), CHUNK, "direct write");
	busy = 1;
	must(pthread_create(&thread, NULL, press, NULL) == 0);
	for (int k = 0; k < 200; k++) {
		char *to = next_chunk();

		if (to == from)
			continue;
		all(pread(file, to, CHUNK, 0), CHUNK, "direct read");
		check((uint64_t *)to, CHUNK_WORDS, index_of(from), 0, "after a direct read");
	}
	busy = 0;
	must(pthread_join(thread, NULL) == 0);
	must(unlink(name) == 0);
	close(file);
}

static void waiting(void)
{
	int *status = (int *)next_chunk();
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0)
		_exit(42);
	use_others();
	must(waitpid(pid, status, 0) == pid && WEXITSTATUS(*status) == 42);
}

int main(int argc, char **argv)
{
	const char *directory = argc > 2 ? argv[2] : ".";

	chunks = argument(argc, argv, 1, 256) * MEGABYTE / CHUNK;
	area = aligned_alloc(PAGE, chunks * CHUNK);
	must(area);
	fill((uint64_t *)area, chunks * CHUNK_WORDS, 0, 0);
	for (int round = 0; round < 2; round++) {
		if (argc > 3) { /* "references": only these */
			splice_pages();
			zero_copy();
			continue;
		}
		files(directory);
		pipes_and_sockets();
		direct(directory);
		waiting();
	}
	printf("system calls agree\n");
	return 0;
}
