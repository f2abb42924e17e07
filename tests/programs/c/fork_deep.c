/* Ten generations of forks: each verifies what all its ancestors wrote, changes its own copy of a part, and finds
 * its view untouched after its descendants have gone. */
#include "common.h"
#include <sys/wait.h>

#define DEPTH 10

static uint64_t *blocks[DEPTH];
static size_t words;

/* What generation `viewer` must see in page `page` of the block that generation `owner` made: each generation
 * rewrites the pages whose number is its own modulo 16. */
static uint64_t expected(int owner, int viewer, size_t page)
{
	int writer = page % 16;

	return writer > owner && writer <= viewer ? 1000 * writer : 0;
}

static void verify(int viewer, const char *when)
{
	for (int owner = 0; owner <= viewer; owner++)
		for (size_t page = 0; page < words / PAGE_WORDS; page++)
			check(blocks[owner] + page * PAGE_WORDS, PAGE_WORDS,
			      ((uint64_t)owner << 40) + page * PAGE_WORDS, expected(owner, viewer, page), when);
}

static void generation(int me)
{
	uint64_t sum = me;
	int status;
	pid_t pid;

	blocks[me] = malloc(words * 8);
	must(blocks[me]);
	fill(blocks[me], words, (uint64_t)me << 40, 0);
	for (int owner = 0; owner < me; owner++)
		for (size_t page = me; page < words / PAGE_WORDS; page += 16)
			fill(blocks[owner] + page * PAGE_WORDS, PAGE_WORDS, ((uint64_t)owner << 40) + page * PAGE_WORDS,
			     1000 * me);
	verify(me, "before the fork");
	if (me + 1 < DEPTH) {
		fflush(stdout);
		must((pid = fork()) >= 0);
		if (pid == 0) {
			generation(me + 1);
			exit(0);
		}
		must(waitpid(pid, &status, 0) == pid);
		if (status != 0)
			fail("generation %d ended with wait status %x", me + 1, status);
	}
	verify(me, "after the descendants ended");
	for (int owner = 0; owner <= me; owner++)
		sum = checksum(blocks[owner], words, sum);
	printf("generation %d %016lx\n", me, sum);
}

int main(int argc, char **argv)
{
	words = argument(argc, argv, 1, 160) * MEGABYTE / DEPTH / 8 / PAGE_WORDS * PAGE_WORDS;
	generation(0);
	return 0;
}
