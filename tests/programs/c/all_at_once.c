/* Many threads that begin at once, each of which fills a block of its own, made before there were any, and reads it from end to
 * end. Arguments: how many, MiB of each, and how often it is read. */
#include "common.h"
#include <pthread.h>

static size_t words, rounds;
static pthread_barrier_t barrier;

/* Cheap to make, so that memory is what takes the time. */
static uint64_t value(uint64_t *block, size_t i)
{
	return (uint64_t)(uintptr_t)block + i * 0x9e3779b97f4a7c15UL;
}

static void *work(void *block_)
{
	uint64_t *block = block_;

	pthread_barrier_wait(&barrier);
	for (size_t i = 0; i < words; i++)
		block[i] = value(block, i);
	for (size_t round = 0; round < rounds; round++)
		for (size_t i = 0; i < words; i++)
			if (block[i] != value(block, i))
				fail("word %zu of %p is %016lx", i, block_, block[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t count = argument(argc, argv, 1, 8);
	pthread_t *threads = calloc(count, sizeof(pthread_t));
	uint64_t **blocks = calloc(count, sizeof(uint64_t *));

	words = argument(argc, argv, 2, 64) * MEGABYTE / 8;
	rounds = argument(argc, argv, 3, 1);
	must(threads && blocks && pthread_barrier_init(&barrier, NULL, count) == 0);
	for (size_t i = 0; i < count; i++)
		must((blocks[i] = malloc(words * 8)) != NULL);
	for (size_t i = 0; i < count; i++)
		must(pthread_create(&threads[i], NULL, work, blocks[i]) == 0);
	for (size_t i = 0; i < count; i++)
		must(pthread_join(threads[i], NULL) == 0);
	puts("OK");
	return 0;
}
