/* The main example: eight threads fill, verify and change far more memory than the budget in every order, then the
 * program forks while all of them keep writing; parent and child go on with copies of their own. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define THREADS 8

static uint64_t *disjoint;	 /* thread t owns the t-th eighth */
static uint64_t *interleaved;	 /* thread t owns pages t, t + 8, t + 16, ... */
static uint32_t *generations;	 /* of the pages of `interleaved` */
static size_t pages;		 /* of each of the two blocks */
static atomic_int stop_writing;
static pthread_barrier_t barrier;

enum { SALT = 1UL << 40 };

static uint64_t *page_of(uint64_t *block, size_t page)
{
	return block + page * PAGE_WORDS;
}

/* The k-th page of `count` in one of four orders. */
static size_t in_order(size_t k, size_t count, int order)
{
	size_t rows = count / 16;

	switch (order) {
	case 0:
		return k;
	case 1:
		return count - 1 - k;
	case 2: /* one page every 64 KiB, then the next ones */
		return rows && k < rows * 16 ? k % rows * 16 + k / rows : k;
	default: /* a permutation: an odd multiplier modulo a power of two, the rest in order */
		{
			size_t power = 1;

			while (power * 2 <= count)
				power *= 2;
			return k < power ? (k * 0x9e3779b1UL + 12345) % power : k;
		}
	}
}

static void change(size_t page)
{
	uint64_t *words = page_of(interleaved, page);
	uint32_t generation = generations[page];

	check(words, PAGE_WORDS, SALT + page * PAGE_WORDS, generation, "before a change");
	generations[page] = generation + 1;
	for (size_t i = 0; i < PAGE_WORDS; i++)
		words[i] += 1;
}

static void *work(void *argument_)
{
	size_t me = (size_t)argument_, share = pages / THREADS;
	uint64_t random = me;

	for (size_t k = 0; k < share; k++) {
		size_t page = me * share + in_order(k, share, me % 2);

		fill(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, 0);
	}
	for (size_t k = 0; k < share; k++) {
		size_t page = in_order(k, share, 2) * THREADS + me;

		fill(page_of(interleaved, page), PAGE_WORDS, SALT + page * PAGE_WORDS, 0);
	}
	pthread_barrier_wait(&barrier);
	for (int order = 0; order < 4; order++) {
		size_t other = (me + 1 + order) % THREADS;

		for (size_t k = 0; k < share; k++) {
			size_t page = other * share + in_order(k, share, order);

			check(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, 0, "disjoint");
			page = in_order(k, share, order) * THREADS + other;
			if (order % 2)
				check(page_of(interleaved, page), PAGE_WORDS, SALT + page * PAGE_WORDS, 0,
				      "interleaved");
		}
	}
	pthread_barrier_wait(&barrier);
	for (size_t k = 0; k < share; k++)
		change(next_random(&random) % share * THREADS + me);
	pthread_barrier_wait(&barrier);
	/* The main thread forks somewhere in here; the pauses leave the disk to parent and child. */
	for (unsigned k = 1; !atomic_load(&stop_writing); k++) {
		change(next_random(&random) % share * THREADS + me);
		if (k % 4 == 0)
			usleep(4000);
	}
	return NULL;
}

/* A page copied while its owner was changing it: new words, then old ones, never anything else. */
static void check_torn(size_t page)
{
	uint64_t *words = page_of(interleaved, page), index = SALT + page * PAGE_WORDS;
	uint64_t first = words[0] - mix(index), last = first;

	if (first > UINT32_MAX)
		fail("child: page %zu has generation %lx", page, first);
	for (size_t i = 0; i < PAGE_WORDS; i++) {
		uint64_t now = words[i] - mix(index + i);

		if (now != last && (now != first - 1 || last != first))
			fail("child: page %zu word %zu has generation %ld after %lu", page, i, (long)now, last);
		last = now;
	}
}

static void child(void)
{
	size_t words = pages * PAGE_WORDS;
	uint64_t before, after;

	check(disjoint, words, 0, 0, "child's view of what nobody wrote");
	for (size_t page = 0; page < pages; page++)
		check_torn(page);
	before = checksum(interleaved, words, 1);
	for (size_t page = 0; page < pages; page += 2)
		fill(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, 1000003);
	for (size_t page = 0; page < pages; page++)
		check(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, page % 2 ? 0 : 1000003, "child's copy");
	after = checksum(interleaved, words, 1);
	if (before != after)
		fail("child: its copy changed while the parent wrote");
	printf("child %016lx\n", checksum(disjoint, words, 2));
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 256) * MEGABYTE;
	pthread_t threads[THREADS];
	uint64_t sum = 3;
	pid_t pid;
	int status;

	pages = bytes / 2 / PAGE / (16 * THREADS) * (16 * THREADS);
	disjoint = malloc(pages * PAGE);
	interleaved = malloc(pages * PAGE);
	generations = calloc(pages, sizeof(*generations));
	must(disjoint && interleaved && generations);
	must(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
	for (int phase = 0; phase < 3; phase++)
		pthread_barrier_wait(&barrier);
	usleep(50000);
	must((pid = fork()) >= 0);
	if (pid == 0) {
		child();
		exit(0);
	}
	for (size_t page = 0; page < pages; page++) {
		check(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, 0, "parent after the fork");
		fill(page_of(disjoint, page), PAGE_WORDS, page * PAGE_WORDS, 77);
	}
	must(waitpid(pid, &status, 0) == pid);
	atomic_store(&stop_writing, 1);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_join(threads[t], NULL) == 0);
	if (status != 0)
		fail("the child ended with wait status %x", status);
	check(disjoint, pages * PAGE_WORDS, 0, 77, "parent at the end");
	for (size_t page = 0; page < pages; page++) {
		uint64_t *words = page_of(interleaved, page);

		check(words, PAGE_WORDS, SALT + page * PAGE_WORDS, generations[page], "interleaved at the end");
		sum += words[page % PAGE_WORDS] - generations[page];
	}
	printf("parent %016lx %016lx\n", checksum(disjoint, pages * PAGE_WORDS, 2), sum);
	free(disjoint);
	free(interleaved);
	return 0;
}
