/* The program's own io_uring, by raw system calls: reads into ordinary and into registered (pinned) buffers of memory
 * that is paged, while another thread presses it out. Argument 2 is a directory for a file. */
#include "common.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BUFFER (64 * 1024UL)
#define BUFFERS 16

static char *area;
static size_t pages;
static atomic_int done;

static struct {
	int descriptor;
	uint32_t *head, *tail, *mask, *array, *done_head, *done_tail, *done_mask;
	struct io_uring_sqe *entries;
	struct io_uring_cqe *results;
} ring;

static int open_ring(void)
{
	struct io_uring_params parameters = { 0 };
	char *submissions, *completions;

	ring.descriptor = syscall(SYS_io_uring_setup, BUFFERS, &parameters);
	if (ring.descriptor < 0)
		return 0;
	submissions = mmap(NULL, parameters.sq_off.array + parameters.sq_entries * 4, PROT_READ | PROT_WRITE,
			   MAP_SHARED, ring.descriptor, IORING_OFF_SQ_RING);
	completions = mmap(NULL, parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe),
			   PROT_READ | PROT_WRITE, MAP_SHARED, ring.descriptor, IORING_OFF_CQ_RING);
	ring.entries = mmap(NULL, parameters.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			    MAP_SHARED, ring.descriptor, IORING_OFF_SQES);
	must(submissions != MAP_FAILED && completions != MAP_FAILED && ring.entries != MAP_FAILED);
	ring.head = (uint32_t *)(submissions + parameters.sq_off.head);
	ring.tail = (uint32_t *)(submissions + parameters.sq_off.tail);
	ring.mask = (uint32_t *)(submissions + parameters.sq_off.ring_mask);
	ring.array = (uint32_t *)(submissions + parameters.sq_off.array);
	ring.done_head = (uint32_t *)(completions + parameters.cq_off.head);
	ring.done_tail = (uint32_t *)(completions + parameters.cq_off.tail);
	ring.done_mask = (uint32_t *)(completions + parameters.cq_off.ring_mask);
	ring.results = (struct io_uring_cqe *)(completions + parameters.cq_off.cqes);
	return 1;
}

static void queue(int opcode, int file, void *address, uint64_t offset, int buffer)
{
	uint32_t tail = *ring.tail, place = tail & *ring.mask;
	struct io_uring_sqe *entry = &ring.entries[place];

	memset(entry, 0, sizeof(*entry));
	entry->opcode = opcode;
	entry->fd = file;
	entry->addr = (uint64_t)address;
	entry->len = BUFFER;
	entry->off = offset;
	entry->buf_index = buffer;
	ring.array[place] = place;
	__atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit(unsigned count)
{
	while (syscall(SYS_io_uring_enter, ring.descriptor, count, count, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		must(errno == EINTR);
	for (unsigned k = 0; k < count; k++) {
		uint32_t head = *ring.done_head;

		while (__atomic_load_n(ring.done_tail, __ATOMIC_ACQUIRE) == head)
			syscall(SYS_io_uring_enter, ring.descriptor, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
		if (ring.results[head & *ring.done_mask].res != (int)BUFFER)
			fail("a transfer gave %d", ring.results[head & *ring.done_mask].res);
		__atomic_store_n(ring.done_head, head + 1, __ATOMIC_RELEASE);
	}
}

static void *press(void *unused)
{
	volatile char *bytes = area;

	while (!atomic_load(&done))
		for (size_t page = 0; page < pages; page++)
			(void)bytes[page * PAGE];
	return unused;
}

int main(int argc, char **argv)
{
	const char *directory = argc > 2 ? argv[2] : ".";
	char name[4096], *buffers[BUFFERS];
	struct iovec vectors[BUFFERS];
	pthread_t thread;
	int file, registered = 0;

	pages = argument(argc, argv, 1, 256) * MEGABYTE / PAGE;
	area = aligned_alloc(PAGE, pages * PAGE);
	must(area);
	fill((uint64_t *)area, pages * PAGE_WORDS, 1UL << 45, 0);
	if (!open_ring()) {
		printf("transfers agree\n");
		return 0; /* no io_uring here, nor in the plain run */
	}
	snprintf(name, sizeof(name), "%s/uring", directory);
	file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (file < 0)
		must((file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	for (size_t k = 0; k < BUFFERS; k++) {
		buffers[k] = area + (k * 7 % BUFFERS) * (pages / BUFFERS) * PAGE;
		fill((uint64_t *)buffers[k], BUFFER / 8, k * BUFFER / 8, 0);
		vectors[k] = (struct iovec){ buffers[k], BUFFER };
	}
	must(pthread_create(&thread, NULL, press, NULL) == 0);
	for (size_t k = 0; k < BUFFERS; k++)
		queue(IORING_OP_WRITE, file, buffers[k], k * BUFFER, 0);
	submit(BUFFERS);
	for (int round = 0; round < 60; round++) {
		if (round == 30)
			registered = syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, vectors,
					     BUFFERS) == 0;
		for (size_t k = 0; k < BUFFERS; k++) {
			int fixed = round >= 30 && registered;

			memset(buffers[k], 0, BUFFER);
			queue(fixed ? IORING_OP_READ_FIXED : IORING_OP_READ, file, buffers[k],
			      (k + round) % BUFFERS * BUFFER, k);
		}
		submit(BUFFERS);
		for (size_t k = 0; k < BUFFERS; k++)
			check((uint64_t *)buffers[k], BUFFER / 8, (k + round) % BUFFERS * BUFFER / 8, 0, "a transfer");
	}
	atomic_store(&done, 1);
	must(pthread_join(thread, NULL) == 0);
	close(ring.descriptor);
	must(unlink(name) == 0);
	for (size_t page = 0; page < pages; page++) {
		int in_buffer = 0;

		for (size_t k = 0; k < BUFFERS; k++)
			in_buffer |= page - (buffers[k] - area) / PAGE < BUFFER / PAGE;
		if (!in_buffer)
			check((uint64_t *)area + page * PAGE_WORDS, PAGE_WORDS, (1UL << 45) + page * PAGE_WORDS, 0, "beside");
	}
	printf("transfers agree\n");
	return 0;
}
