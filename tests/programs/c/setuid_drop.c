/* Starts as root, pages, becomes an ordinary user for good in all threads, and goes on paging. */
#include "common.h"
#include <grp.h>
#include <pthread.h>

#define NOBODY 65534

static uint64_t *block;
static size_t words;

static void *verify(void *unused)
{
	check(block, words, 0, 0, "another thread's view");
	must(geteuid() == NOBODY);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	block = malloc(words * 8);
	must(block);
	fill(block, words, 0, 0);
	must(setgroups(0, NULL) == 0);
	must(setgid(NOBODY) == 0);
	must(setuid(NOBODY) == 0);
	must(setuid(0) != 0);
	must(pthread_create(&thread, NULL, verify, NULL) == 0);
	check(block, words, 0, 0, "the ordinary user's view");
	must(pthread_join(thread, NULL) == 0);
	block = realloc(block, words * 12);
	must(block);
	fill(block + words, words / 2, words, 0);
	check(block, words + words / 2, 0, 0, "after growing");
	printf("as user %d %016lx\n", (int)getuid(), checksum(block, words, 1));
	return 0;
}
