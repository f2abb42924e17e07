/* Calls with much memory that others can tell from several: records of threads that append to one file, or share its position,
 * messages, what a stream is waited for. Arguments: MiB of data, directory for files. */
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define RECORD ((ssize_t)(3 * MEGABYTE))
#define WORDS (RECORD / 8)
#define ROUNDS 6
#define WRITERS 2

static uint64_t *data;
static size_t words;
static char name[4096];

/* Reads half of everything, so that what was used before is paged out. */
static void use_others(void)
{
	static size_t start;

	for (size_t k = 0; k < words / 2; k += PAGE_WORDS)
		(void)((volatile uint64_t *)data)[(start + k) % words];
	start += words / 2;
}

enum way { WRITE, WRITEV, STREAM, SYSTEM, WAYS };

struct writer {
	enum way way;
	int file, number;
};

static void *write_records(void *argument_)
{
	const struct writer *writer = argument_;
	uint64_t *record = malloc(RECORD);
	FILE *stream = NULL;

	must(record);
	if (writer->way == STREAM) {
		must((stream = fdopen(dup(writer->file), "a")));
		setbuf(stream, NULL);
	}
	for (size_t k = 0; k < ROUNDS; k++) {
		fill(record, WORDS, (writer->number * ROUNDS + k) * WORDS, 0);
		if (writer->way == WRITE) {
			must(write(writer->file, record, RECORD) == RECORD);
		} else if (writer->way == SYSTEM) {
			must(syscall(SYS_write, writer->file, record, RECORD) == RECORD);
		} else if (stream) {
			must(fwrite(record, RECORD, 1, stream) == 1);
		} else {
			struct iovec parts[3] = { { record, 100 }, { record, 0 }, { (char *)record + 100, RECORD - 100 } };

			must(writev(writer->file, parts, 3) == RECORD);
		}
	}
	if (stream)
		fclose(stream);
	free(record);
	return NULL;
}

/* Which record it is, all of it. */
static size_t whole(const uint64_t *record)
{
	for (size_t k = 0; k < WRITERS * ROUNDS; k++)
		if (record[0] == mix(k * WORDS)) {
			check(record, WORDS, k * WORDS, 0, "a record");
			return k;
		}
	fail("a record begins in the middle");
}

static size_t seen[WRITERS * ROUNDS];

static void *read_records(void *file)
{
	uint64_t *record = malloc(RECORD);
	ssize_t got;

	must(record);
	while ((got = read((int)(intptr_t)file, record, RECORD)) == RECORD)
		__atomic_fetch_add(&seen[whole(record)], 1, __ATOMIC_SEQ_CST);
	must(got == 0);
	free(record);
	return NULL;
}

/* Two threads write, each by a descriptor of its own, or share one; two read what they share. */
static void records(enum way way, int flags, int shared)
{
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	int file;

	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600)) >= 0);
	for (int k = 0; k < WRITERS; k++) {
		writers[k] = (struct writer){ way, shared ? file : open(name, O_WRONLY | flags), k };
		must(writers[k].file >= 0);
	}
	use_others();
	for (int k = 0; k < WRITERS; k++)
		must(pthread_create(&threads[k], NULL, write_records, &writers[k]) == 0);
	for (int k = 0; k < WRITERS; k++)
		must(pthread_join(threads[k], NULL) == 0 && (shared || close(writers[k].file) == 0));
	must(!shared || lseek(file, 0, SEEK_CUR) == WRITERS * ROUNDS * RECORD);
	must(lseek(file, 0, SEEK_END) == WRITERS * ROUNDS * RECORD);
	must(lseek(file, 0, SEEK_SET) == 0);
	memset(seen, 0, sizeof(seen));
	for (int k = 0; k < WRITERS; k++)
		must(pthread_create(&threads[k], NULL, read_records, (void *)(intptr_t)file) == 0);
	for (int k = 0; k < WRITERS; k++)
		must(pthread_join(threads[k], NULL) == 0);
	for (size_t k = 0; k < WRITERS * ROUNDS; k++)
		if (seen[k] != 1)
			fail("record %zu was read %zu times", k, seen[k]);
	must(close(file) == 0 && unlink(name) == 0);
}

extern ssize_t __read_chk(int file, void *to, size_t bytes, size_t room);

/* Where the position is after a call that could do less than was asked for, and calls at places of their own. */
static void positions(void)
{
	char *from = malloc(RECORD), *to = malloc(4 * RECORD);
	int file;

	must(from && to);
	fill((uint64_t *)from, WORDS, 0, 0);
	must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	use_others();
	must(write(file, from, RECORD) == RECORD && lseek(file, 0, SEEK_CUR) == RECORD);
	must(lseek(file, 8, SEEK_SET) == 8);
	use_others();
	must(read(file, to, 4 * RECORD) == RECORD - 8 && lseek(file, 0, SEEK_CUR) == RECORD);
	check((uint64_t *)to, WORDS - 1, 1, 0, "after a read beyond the end");
	must(read(file, to, 4 * RECORD) == 0 && lseek(file, 0, SEEK_CUR) == RECORD);
	must(read(-1, to, RECORD) == -1 && errno == EBADF);
	must(lseek(file, 0, SEEK_SET) == 0);
	memset(to, 0, RECORD);
	use_others();
	must(__read_chk(file, to, 2 * RECORD, 4 * RECORD) == RECORD);
	check((uint64_t *)to, WORDS, 0, 0, "after a checked read");

	struct iovec parts[2] = { { to, RECORD - 24 }, { to + RECORD, 2 * RECORD } };

	use_others();
	must(preadv2(file, parts, 2, 16, 0) == RECORD - 16 && lseek(file, 0, SEEK_CUR) == RECORD);
	check((uint64_t *)to, WORDS - 3, 2, 0, "after preadv2");
	must(*(uint64_t *)(to + RECORD) == mix(WORDS - 1));
	must(lseek(file, 0, SEEK_SET) == 0);
	use_others();
	must(syscall(SYS_preadv2, file, parts, 2, -1L, -1L, 0) == RECORD && lseek(file, 0, SEEK_CUR) == RECORD);
	check((uint64_t *)to, WORDS - 3, 0, 0, "after preadv2 at the position");
	parts[0] = (struct iovec){ from, RECORD };
	use_others();
	must(pwritev2(file, parts, 1, -1, RWF_APPEND) == RECORD && lseek(file, 0, SEEK_END) == 2 * RECORD);
	use_others();
	must(pread(file, to, RECORD, RECORD) == RECORD);
	check((uint64_t *)to, WORDS, 0, 0, "after an appending write");
	must(close(file) == 0 && unlink(name) == 0);
	must((file = open("/dev/zero", O_RDWR)) >= 0);
	use_others();
	must(write(file, from, RECORD) == RECORD && read(file, to, 4 * RECORD) == 4 * RECORD);
	for (size_t k = 0; k < 4 * RECORD; k++)
		must(to[k] == 0);
	must(close(file) == 0);
	use_others();
	must(getrandom(to, 4 * RECORD, 0) == 4 * RECORD);
	for (size_t k = 0; k < 4 * RECORD; k += 4096) {
		uint64_t any = 0;

		for (size_t i = 0; i < 4096 / 8; i++)
			any |= ((uint64_t *)(to + k))[i];
		must(any);
	}
	free(from);
	free(to);
}

/* As large as the system lets them be: large ones are root's. */
static void messages(int type)
{
	int ends[2], room = 16 * MEGABYTE;
	uint64_t *from = malloc(RECORD), *to = malloc(2 * RECORD);

	must(from && to && socketpair(AF_UNIX, type, 0, ends) == 0);
	setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	fill(from, WORDS, 3, 0);
	for (int k = 0; k < 3; k++) {
		struct iovec part = { from, RECORD };

		use_others();
		ssize_t sent = k == 0 ? write(ends[0], from, RECORD) : k == 1 ? send(ends[0], from, RECORD, 0) :
			       writev(ends[0], &part, 1);

		if (sent < 0) {
			must(errno == EMSGSIZE || errno == ENOBUFS || errno == ENOMEM);
			must(send(ends[0], from, 1000, 0) == 1000);
		} else {
			must(sent == RECORD);
		}
		use_others();
		ssize_t got = k == 0 ? read(ends[1], to, 2 * RECORD) : recv(ends[1], to, 2 * RECORD, 0);

		must(got == (sent < 0 ? 1000 : RECORD));
		check(to, got / 8, 3, 0, "a message");
		must(recv(ends[1], to, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
	must(close(ends[0]) == 0 && close(ends[1]) == 0);
	free(from);
	free(to);
}

static void *send_all(void *socket_)
{
	uint64_t *from = malloc(3 * RECORD);

	must(from);
	fill(from, 3 * WORDS, 7, 0);
	must(send((int)(intptr_t)socket_, from, 3 * RECORD, MSG_NOSIGNAL) == 3 * RECORD);
	must(sendto((int)(intptr_t)socket_, from, 3 * RECORD, 0, NULL, 0) == 3 * RECORD);

	struct iovec parts[2] = { { from, 100 }, { (char *)from + 100, 3 * RECORD - 100 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	must(sendmsg((int)(intptr_t)socket_, &message, 0) == 3 * RECORD);
	free(from);
	return NULL;
}

static void streams(void)
{
	uint64_t *to = malloc(3 * RECORD);
	pthread_t thread;
	int ends[2];

	must(to && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	use_others();
	must(pthread_create(&thread, NULL, send_all, (void *)(intptr_t)ends[0]) == 0);
	must(recv(ends[1], to, 3 * RECORD, MSG_WAITALL) == 3 * RECORD);
	check(to, 3 * WORDS, 7, 0, "all of a stream");
	memset(to, 0, 3 * RECORD);
	use_others();
	for (size_t done = 0; done < 3 * RECORD;) {
		ssize_t got = recvfrom(ends[1], (char *)to + done, 3 * RECORD - done, 0, NULL, NULL);

		must(got > 0);
		done += got;
	}
	check(to, 3 * WORDS, 7, 0, "a stream as it comes");

	struct iovec parts[2] = { { to, RECORD }, { (char *)to + RECORD, 2 * RECORD } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_flags = -1 };

	memset(to, 0, 3 * RECORD);
	use_others();
	must(recvmsg(ends[1], &message, MSG_WAITALL) == 3 * RECORD && message.msg_flags == 0);
	check(to, 3 * WORDS, 7, 0, "a stream in a message");
	must(pthread_join(thread, NULL) == 0 && close(ends[0]) == 0);
	must(recv(ends[1], to, 3 * RECORD, MSG_WAITALL) == 0 && close(ends[1]) == 0);
	free(to);
}

int main(int argc, char **argv)
{
	words = argument(argc, argv, 1, 160) * MEGABYTE / 8;
	must(argc > 2 && (data = malloc(words * 8)));
	fill(data, words, 5, 0);
	snprintf(name, sizeof(name), "%s/records", argv[2]);
	for (enum way way = 0; way < WAYS; way++)
		records(way, O_APPEND, 0);
	records(WRITE, 0, 1);
	records(WRITEV, 0, 1);
	positions();
	messages(SOCK_SEQPACKET);
	messages(SOCK_DGRAM);
	streams();
	check(data, words, 5, 0, "after all");
	printf("whole\n");
	return 0;
}
