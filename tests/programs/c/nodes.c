/* Two threads, each kept on a processor of another NUMA node, fill and change data of their own, of which memory holds a
 * part. Prints of each how many in a thousand of its pages that are in memory lie on its node. Arguments: MiB of each
 * thread, the two processors, the two nodes. */
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

static size_t pages;
static uint64_t *data[2];
static int processor[2], node[2];
static pthread_barrier_t barrier;

static void stay_on(int which)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor[which], &set);
	must(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void *work(void *argument_)
{
	size_t me = (size_t)argument_;

	stay_on((int)me);
	for (int round = 0; round < 3; round++) {
		for (size_t k = 0; k < pages; k++) {
			/* In order, then here and there. */
			size_t page = round < 2 ? k : k * 7919 % pages;
			uint64_t *words = data[me] + page * PAGE_WORDS;

			if (round > 0) {
				check(words, PAGE_WORDS, page * PAGE_WORDS, (uint64_t)round - 1, "before a change");
				for (size_t i = 0; i < PAGE_WORDS; i++)
					words[i] += 1;
			} else {
				fill(words, PAGE_WORDS, page * PAGE_WORDS, 0);
			}
		}
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void count(int which)
{
	size_t here = 0, elsewhere = 0;

	for (size_t k = 0; k < pages; k++) {
		void *page = data[which] + k * PAGE_WORDS;
		int found = -1;

		must(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &found, 0) == 0);
		here += found == node[which];
		elsewhere += found >= 0 && found != node[which];
	}
	must(here + elsewhere > 0);
	printf("%zu\n", here * 1000 / (here + elsewhere));
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	pages = argument(argc, argv, 1, 128) * MEGABYTE / PAGE;
	while (pages % 7919 == 0)
		pages--;
	for (int i = 0; i < 2; i++) {
		processor[i] = (int)argument(argc, argv, 2 + i, 0);
		node[i] = (int)argument(argc, argv, 4 + i, 0);
		must((data[i] = malloc(pages * PAGE)));
	}
	must(pthread_barrier_init(&barrier, NULL, 2) == 0);
	for (size_t i = 0; i < 2; i++)
		must(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		must(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < 2; i++)
		count(i);
	return 0;
}
