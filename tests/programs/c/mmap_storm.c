/* Four threads map, write, verify, move, shrink and unmap areas of all sizes at once, beside a block that must keep its
 * content; freed addresses are taken again by others at once. */
#include "common.h"
#include <pthread.h>
#include <sys/mman.h>

#define THREADS 4
#define AREAS 12

static size_t most_pages, steps;

struct area {
	uint64_t *words, base;
	size_t pages;
};

static void *work(void *argument_)
{
	size_t me = (size_t)argument_;
	struct area areas[AREAS] = { 0 };
	uint64_t random = me + 90;

	for (size_t step = 0; step < steps; step++) {
		struct area *area = &areas[next_random(&random) % AREAS];
		size_t want = 1 + (next_random(&random) % most_pages >> next_random(&random) % 8);

		if (area->pages == 0) {
			area->words = mmap(NULL, want * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			must(area->words != MAP_FAILED);
			area->pages = want;
			area->base = (me << 56) + (step << 30);
			for (size_t i = 0; i < want * PAGE_WORDS; i += 37)
				must(area->words[i] == 0);
			fill(area->words, want * PAGE_WORDS, area->base, 0);
			continue;
		}
		check(area->words, area->pages * PAGE_WORDS, area->base, 0, "before a change");
		switch (next_random(&random) % 3) {
		case 0:
			must(munmap(area->words, area->pages * PAGE) == 0);
			area->pages = 0;
			break;
		case 1:
			area->words = mremap(area->words, area->pages * PAGE, want * PAGE, MREMAP_MAYMOVE);
			must(area->words != MAP_FAILED);
			if (want > area->pages)
				fill(area->words + area->pages * PAGE_WORDS, (want - area->pages) * PAGE_WORDS,
				     area->base + area->pages * PAGE_WORDS, 0);
			area->pages = want;
			check(area->words, want * PAGE_WORDS, area->base, 0, "after mremap");
			break;
		default: /* lose the first half */
			if (area->pages > 1) {
				size_t half = area->pages / 2;

				must(munmap(area->words, half * PAGE) == 0);
				area->words += half * PAGE_WORDS;
				area->base += half * PAGE_WORDS;
				area->pages -= half;
			}
		}
	}
	for (size_t k = 0; k < AREAS; k++)
		if (areas[k].pages) {
			check(areas[k].words, areas[k].pages * PAGE_WORDS, areas[k].base, 0, "at the end");
			must(munmap(areas[k].words, areas[k].pages * PAGE) == 0);
		}
	return NULL;
}

int main(int argc, char **argv)
{
	size_t megabytes = argument(argc, argv, 1, 256), words = megabytes * MEGABYTE / 16;
	uint64_t *block = malloc(words * 8);
	pthread_t threads[THREADS];

	must(block);
	fill(block, words, 1UL << 60, 0);
	most_pages = megabytes * MEGABYTE / PAGE / THREADS / AREAS * 2;
	steps = argument(argc, argv, 2, 400);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_join(threads[t], NULL) == 0);
	check(block, words, 1UL << 60, 0, "the block beside");
	printf("storm over %016lx\n", checksum(block, words, 1));
	return 0;
}
