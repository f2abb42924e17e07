// A heap of the program's own on sbrk and brk: their promises, many small steps, giving back and taking again, threads, and
// forked children that change it and go on growing it. Usage: own_break MIB
#include "common.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>

void *__sbrk(intptr_t by);

// Allocators that are linked into a program have one that counts, above libc's other name for it.
void *sbrk(intptr_t by)
{
	return __sbrk(by);
}

static char *heap;
static size_t filled;

static uint64_t of(size_t word, uint64_t generation)
{
	return mix(word) + generation;
}

// Words from the heap's `from` on are zero, and get their content.
static void put(size_t from, size_t to, uint64_t generation)
{
	uint64_t *words = (uint64_t *)heap;

	for (size_t i = from / 8; i < to / 8; i += 32) {
		must(words[i] == 0);
		words[i] = of(i, generation);
	}
}

// More of it. What libc takes for itself may lie between.
static void add(size_t bytes, uint64_t generation)
{
	char *more = sbrk(bytes);

	must(more != (char *)-1 && more >= heap + filled);
	put((more - heap + 255) / 256 * 256, more - heap + bytes, generation);
}

static void renew(size_t from, size_t to, uint64_t before, uint64_t now)
{
	uint64_t *words = (uint64_t *)heap;

	for (size_t i = from / 8; i < to / 8; i += 32) {
		must(words[i] == of(i, before));
		words[i] = of(i, now);
	}
}

static void compare(size_t from, size_t to, uint64_t generation)
{
	renew(from, to, generation, generation);
}

static void promises(void)
{
	char *start = sbrk(0);

	must(start != (char *)-1 && sbrk(0) == start);
	must(sbrk(10) == start && sbrk(0) == start + 10);
	memset(start, 7, 10);
	// Within a page nothing is given back.
	must(sbrk(-5) == start + 10 && start[9] == 7);
	must(brk(start + 5 * PAGE + 1) == 0 && sbrk(0) == start + 5 * PAGE + 1);
	must(start[9] == 7 && start[5 * PAGE] == 0);
	memset(start, 9, 5 * PAGE + 1);
	must(brk(start + 1) == 0 && brk(start + 3 * PAGE) == 0);
	must(start[0] == 9 && start[PAGE - 1] == 9);
	for (size_t i = PAGE; i < 3 * PAGE; i++)
		must(start[i] == 0);
	// libc says nothing of it, and the kernel does nothing.
	must(brk((char *)PAGE) == 0 && sbrk(0) == start + 3 * PAGE);
	errno = 0;
	must(sbrk(INTPTR_MAX) == (void *)-1 && errno == ENOMEM && sbrk(0) == start + 3 * PAGE);
	errno = 0;
	must(sbrk(INTPTR_MIN) == (void *)-1 && errno == ENOMEM && sbrk(0) == start + 3 * PAGE);
	must(brk(start) == 0 && sbrk(0) == start);
}

static void *pass(void *number)
{
	size_t part = filled / 4 / PAGE * PAGE, from = (size_t)number * part;

	renew(from, from + part, 1, 2);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t all = strtoul(argc > 1 ? argv[1] : "64", NULL, 10) << 20;
	pthread_t threads[4];
	int status;

	promises();
	// To a page's start, where kernel and program need not agree.
	must(sbrk(-(intptr_t)sbrk(0) & (PAGE - 1)) != (void *)-1);
	heap = sbrk(0);
	for (uint64_t i = 0; filled < all; i++) {
		size_t step = i % 7 == 0 ? mix(i) % (3 << 20) : 8 + mix(i) % 9000;
		size_t before = filled;

		step = step / 256 * 256;
		must(sbrk(step) == heap + before);
		filled += step;
		put(before, filled, 1);
	}
	// A third is given back in steps, and taken again.
	size_t kept = filled - filled / 3 / 256 * 256;
	for (size_t now = filled; now > kept; now -= now - kept < 1000448 ? now - kept : 1000448)
		must(brk(heap + now) == 0);
	must(brk(heap + kept) == 0);
	compare(0, kept, 1);
	must(sbrk(filled - kept) == heap + kept);
	memset(heap + kept, 0, -(uintptr_t)(heap + kept) & (PAGE - 1));
	put(kept, filled, 1);
	for (size_t i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, pass, (void *)i) == 0);
	for (size_t i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);
	size_t passed = filled / 4 / PAGE * PAGE * 4;
	fflush(stdout);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		renew(0, passed, 2, 3);
		add(5 << 20, 3);
		compare(0, passed, 3);
		must(write(1, "child right\n", 12) == 12);
		_exit(brk(heap + PAGE));
	}
	compare(0, passed, 2);
	add(3 << 20, 2);
	must(waitpid(child, &status, 0) == child && status == 0);
	compare(0, passed, 2);
	printf("right\n");
	return 0;
}
