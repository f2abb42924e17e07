/* Built with -DLIBRARY -Wl,-z,initfirst: a library whose destructor runs after all others, also after those of libraries that
 * are initialised before it, and still finds, changes and gives back paged memory. Else a program that uses it. */
#include "common.h"

struct book {
	uint64_t *words;
	size_t count;
};

struct book *book(size_t megabytes);

#ifdef LIBRARY
static struct book only;

struct book *book(size_t megabytes)
{
	only.count = megabytes * MEGABYTE / 8;
	must((only.words = malloc(only.count * 8)));
	fill(only.words, only.count, 5, 0);
	return &only;
}

__attribute__((destructor)) static void end(void)
{
	uint64_t *more;

	if (!only.words)
		return;
	check(only.words, only.count, 5, 1, "in the last destructor");
	must((more = malloc(only.count * 8)));
	memcpy(more, only.words, only.count * 8);
	must((only.words = realloc(only.words, only.count * 10)));
	check(only.words, only.count, 5, 1, "grown in the last destructor");
	printf("last %016lx\n", checksum(more, only.count, 1));
	free(more);
	free(only.words);
	fflush(stdout);
}
#else
static struct book *kept;

static void at_exit(void)
{
	for (size_t i = 0; i < kept->count; i++)
		kept->words[i]++;
}

int main(int argc, char **argv)
{
	kept = book(argument(argc, argv, 1, 128));
	must(atexit(at_exit) == 0);
	check(kept->words, kept->count, 5, 0, "in main");
	printf("main ends\n");
	return 5;
}
#endif
