/* Memory of MEGABYTES that is read before it is written, by two threads, so that it is there already, as zeros that cost
 * nothing, when it is filled; with "fork" a child fills its own before. */
#include "common.h"
#include <pthread.h>
#include <sys/wait.h>

static uint64_t *memory;
static size_t words;

static void *look(void *argument_)
{
	size_t half = words / 2, first = (size_t)argument_ * half;

	for (size_t i = 0; i < half; i += PAGE_WORDS)
		if (memory[first + i])
			fail("word %zu is not zero", first + i);
	return NULL;
}

static void *work(void *argument_)
{
	size_t half = words / 2, first = (size_t)argument_ * half;

	fill(memory + first, half, first, 0);
	check(memory + first, half, first, 0, "a half of the memory");
	return NULL;
}

static void both(void *(*what)(void *))
{
	pthread_t threads[2];

	for (size_t t = 0; t < 2; t++)
		must(pthread_create(&threads[t], NULL, what, (void *)t) == 0);
	for (size_t t = 0; t < 2; t++)
		must(pthread_join(threads[t], NULL) == 0);
}

int main(int argc, char **argv)
{
	size_t bytes = strtoul(argv[1], NULL, 10) * MEGABYTE;

	words = bytes / 8;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory != MAP_FAILED);
	both(look);
	if (argc > 2) {
		int child = fork(), status;

		if (child == 0) {
			both(work);
			_exit(0);
		}
		must(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		both(look);
	}
	both(work);
	printf("read first %016lx\n", checksum(memory, words, 1));
	return 0;
}
