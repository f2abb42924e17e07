/* MEGABYTES of which single pages are read at random by four threads, many times over, and then read and now and then changed,
 * while children look at what nobody changes; at last parts are discarded and moved. All is verified, always. */
#include "common.h"
#include <pthread.h>
#include <sys/wait.h>

#define THREADS 4

static uint64_t *memory;
static uint8_t *generations;
static size_t pages, touches;
static int changes;

/* The last quarter is never changed. */
static size_t still(void)
{
	return pages - pages / 4;
}

static void look(const uint64_t *at, size_t page)
{
	size_t word = page % 64 * 8;

	if (at[word] != mix(page * PAGE_WORDS + word) + generations[page])
		fail("page %zu has %016lx (generation %d)", page, at[word], generations[page]);
}

static void *work(void *argument_)
{
	uint64_t thread = (uint64_t)argument_, random = thread + 17 * changes;

	for (size_t touch = 0; touch < touches; touch++) {
		size_t page = next_random(&random) % pages;

		if (changes && page < still()) {
			/* What is changed is one thread's each. */
			page = page - page % THREADS + thread;
			if (next_random(&random) % 8 == 0)
				fill(memory + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, ++generations[page]);
		}
		look(memory + page * PAGE_WORDS, page);
	}
	return NULL;
}

static void child(uint64_t random)
{
	for (size_t touch = 0; touch < touches / 8; touch++) {
		size_t page = still() + next_random(&random) % (pages - still());

		look(memory + page * PAGE_WORDS, page);
	}
	_exit(0);
}

static void all(int forks)
{
	pthread_t threads[THREADS];
	int status;

	for (size_t t = 0; t < THREADS; t++)
		must(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
	for (int f = 0; f < forks; f++) {
		int id = fork();

		if (id == 0)
			child(f);
		must(id > 0 && waitpid(id, &status, 0) == id);
		must(status == 0);
	}
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_join(threads[t], NULL) == 0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 128) * MEGABYTE, part = 4 * MEGABYTE;
	uint64_t *moved;

	pages = bytes / PAGE;
	touches = pages / 2 * argument(argc, argv, 2, 3);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	generations = calloc(pages, 1);
	must(memory != MAP_FAILED && generations);
	fill(memory, bytes / 8, 0, 0);
	all(1);
	changes = 1;
	all(3);
	for (size_t page = 0; page < pages; page++)
		check(memory + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, generations[page], "a page");
	changes = 0;
	all(0);
	must(madvise(memory, part, MADV_DONTNEED) == 0);
	for (size_t word = 0; word < part / 8; word++)
		must(memory[word] == 0);
	moved = mremap((char *)memory + bytes - part, part, 2 * part, MREMAP_MAYMOVE);
	must(moved != MAP_FAILED);
	check(moved, part / 8, (bytes - part) / 8, 0, "what was moved");
	printf("random reads %016lx\n", checksum(memory, (bytes - part) / 8, checksum(moved, part / 8, 1)));
	return 0;
}
