/* Four threads write, verify and discard (MADV_DONTNEED, MADV_FREE) parts of a shared area, each its own pages,
 * interleaved with those of the others. */
#include "common.h"
#include <pthread.h>
#include <sys/mman.h>

#define THREADS 4
#define PART 16 /* pages that go together */

static char *area;
static size_t parts;

static int zeros(const uint64_t *words)
{
	for (size_t i = 0; i < PAGE_WORDS; i++)
		if (words[i])
			return 0;
	return 1;
}

static void *work(void *argument_)
{
	size_t me = (size_t)argument_, share = parts / THREADS;
	uint64_t random = me + 50;
	uint32_t *generations = calloc(share, sizeof(*generations));
	unsigned char *lazy = calloc(share, 1);

	must(generations && lazy);
	for (size_t step = 0; step < share * 6; step++) {
		size_t mine = next_random(&random) % share, part = mine * THREADS + me;
		uint64_t *words = (uint64_t *)(area + part * PART * PAGE), index = part * PART * PAGE_WORDS;
		unsigned kind = next_random(&random) % 8;

		for (size_t page = 0; page < PART; page++) {
			uint64_t *at = words + page * PAGE_WORDS;

			if (generations[mine] == 0 || (lazy[mine] && zeros(at)))
				must(zeros(at));
			else
				check(at, PAGE_WORDS, index + page * PAGE_WORDS, generations[mine], "storm");
		}
		if (kind == 0) {
			must(madvise(words, PART * PAGE, MADV_DONTNEED) == 0);
			generations[mine] = 0;
			lazy[mine] = 0;
		} else if (kind == 1) {
			must(madvise(words, PART * PAGE, MADV_FREE) == 0);
			lazy[mine] = 1;
		} else if (kind < 6) {
			generations[mine] = step + 1;
			lazy[mine] = 0;
			fill(words, PART * PAGE_WORDS, index, step + 1);
		}
	}
	free(generations);
	free(lazy);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	size_t bytes = argument(argc, argv, 1, 256) * MEGABYTE;

	parts = bytes / PAGE / PART;
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(area != MAP_FAILED);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_join(threads[t], NULL) == 0);
	printf("storm over\n");
	return 0;
}
