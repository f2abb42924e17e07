/* Leaves by exit(7) with unflushed output; handlers of atexit and a destructor that run late still read and write
 * paged memory, and what they print arrives. */
#include "common.h"

static uint64_t *block;
static size_t words;

static void verify(const char *who)
{
	check(block, words, 0, 0, who);
	for (size_t page = 0; page < words / PAGE_WORDS; page += 3)
		fill(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0);
	printf("%s %016lx\n", who, checksum(block, words, 1));
}

static void at_exit(void)
{
	verify("atexit");
}

__attribute__((destructor)) static void at_end(void)
{
	verify("destructor");
}

int main(int argc, char **argv)
{
	static char buffer[1 << 16];

	words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	block = malloc(words * 8);
	must(block);
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	fill(block, words, 0, 0);
	atexit(at_exit);
	printf("not flushed, no newline");
	exit(7);
}
