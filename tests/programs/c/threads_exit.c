/* Threads that come and go while memory is paged: many short ones, joined and detached, and main leaving by
 * pthread_exit while the last threads finish and print the result. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 200
#define LAST 3

static uint64_t *block;
static size_t pages;
static atomic_int detached, last;

static void *short_lived(void *argument_)
{
	uint64_t random = (uint64_t)argument_;

	for (int k = 0; k < 100; k++) {
		size_t page = next_random(&random) % pages;

		check(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0, "a short-lived thread's page");
	}
	if ((uint64_t)argument_ % 2)
		atomic_fetch_add(&detached, 1);
	return argument_;
}

static void *long_lived(void *argument_)
{
	size_t part = pages / LAST, first = (size_t)argument_ * part;

	usleep(50000); /* main has left by now */
	check(block + first * PAGE_WORDS, part * PAGE_WORDS, first * PAGE_WORDS, 0, "a last thread's part");
	if (atomic_fetch_add(&last, 1) + 1 == LAST)
		printf("last thread %016lx\n", checksum(block, pages * PAGE_WORDS, 1));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *result;
	int expected = 0;

	pages = argument(argc, argv, 1, 256) * MEGABYTE / PAGE;
	block = malloc(pages * PAGE);
	must(block);
	fill(block, pages * PAGE_WORDS, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (size_t k = 0; k < ROUNDS; k++) {
		if (k % 2) {
			must(pthread_create(&thread, &attributes, short_lived, (void *)k) == 0);
			expected++;
		} else {
			must(pthread_create(&thread, NULL, short_lived, (void *)k) == 0);
			must(pthread_join(thread, &result) == 0 && result == (void *)k);
		}
	}
	while (atomic_load(&detached) < expected)
		usleep(1000);
	for (size_t k = 0; k < LAST; k++)
		must(pthread_create(&thread, &attributes, long_lived, (void *)k) == 0);
	pthread_exit(NULL);
}
