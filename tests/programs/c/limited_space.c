/* Under a limit on address space allocates until there is no more, as malloc and mmap say, gives all back and has it again.
 * Prints how many MiB there were. */
#include "common.h"
#include <sys/resource.h>

#define EACH (16 * MEGABYTE)
#define MOST 512
#define WORDS (EACH / 8)

static uint64_t *blocks[MOST];

/* Fills blocks until no more can be had. */
static size_t all_there_is(uint64_t seed)
{
	size_t count = 0;

	for (; count < MOST; count++) {
		errno = 0;
		blocks[count] = malloc(EACH);
		if (!blocks[count])
			break;
		fill(blocks[count], WORDS, seed + count * WORDS, 0);
	}
	must(count > 0 && count < MOST && errno == ENOMEM);
	return count;
}

static void none_left(void)
{
	void *mapped = mmap(NULL, 2 * EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *first = blocks[0];

	must(mapped == MAP_FAILED && errno == ENOMEM);
	errno = 0;
	must(!realloc(first, 4 * EACH) && errno == ENOMEM);
	errno = 0;
	must(!calloc(4, EACH) && errno == ENOMEM);
	must(posix_memalign((void **)&first, 4096, 4 * EACH) == ENOMEM && first == blocks[0]);
}

static void give_back(size_t count, uint64_t seed)
{
	for (size_t i = 0; i < count; i++) {
		check(blocks[i], WORDS, seed + i * WORDS, 0, "a block under the limit");
		free(blocks[i]);
	}
}

/* Small blocks end as well, and those that there are stay as they were. */
static size_t small_ones(void)
{
	void **last = NULL, **block;
	size_t count = 0;

	while ((block = malloc(40000))) {
		memset(block, 7, 40000);
		block[0] = last;
		last = block;
		must(++count < MOST * EACH / 40000);
	}
	must(errno == ENOMEM);
	for (block = last; block; block = last) {
		must(((char *)block)[39999] == 7);
		last = block[0];
		free(block);
	}
	return count * 40000;
}

int main(void)
{
	struct rlimit limit;
	size_t count, small, again;

	must(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
	count = all_there_is(5);
	none_left();
	give_back(count, 5);
	small = small_ones();
	/* Of what small blocks had only whole pieces can be had. */
	again = all_there_is(9);
	must(again * 4 >= count);
	give_back(again, 9);
	printf("%zu %zu\n", count * EACH / MEGABYTE, small / MEGABYTE);
	return 0;
}
