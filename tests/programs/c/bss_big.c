/* A static array of MEGABYTES (a macro): four times the budget in .bss, and a part of it in .data, filled, verified
 * and changed by two threads. */
#include "common.h"
#include <pthread.h>

#ifndef MEGABYTES
#define MEGABYTES 256
#endif
#define WORDS (MEGABYTES * MEGABYTE / 8)
#define DATA_WORDS (4 * MEGABYTE / 8)

static uint64_t array[WORDS];
static uint64_t with_content[DATA_WORDS] = { [0] = 11, [DATA_WORDS / 2] = 12, [DATA_WORDS - 1] = 13 };

static void *work(void *argument_)
{
	size_t half = WORDS / 2, first = (size_t)argument_ * half;

	for (size_t i = 0; i < half; i++)
		if (array[first + i])
			fail("word %zu of .bss is not zero", first + i);
	fill(array + first, half, first, 0);
	check(array + first, half, first, 0, "a half of the array");
	for (size_t i = 0; i < half; i += 100)
		array[first + i] += 1;
	return NULL;
}

int main(void)
{
	pthread_t threads[2];

	for (size_t t = 0; t < 2; t++)
		must(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
	for (size_t t = 0; t < 2; t++)
		must(pthread_join(threads[t], NULL) == 0);
	must(with_content[0] == 11 && with_content[DATA_WORDS / 2] == 12 && with_content[DATA_WORDS - 1] == 13);
	printf("static %016lx %016lx\n", checksum(array, WORDS, 1), checksum(with_content, DATA_WORDS, 1));
	return 0;
}
