/* What a program says about children's memory: MADV_DONTFORK taken back by MADV_DOFORK, MADV_WIPEONFORK and
 * MADV_KEEPONFORK, each before and after memory was written, and two forks deep. Argument: MiB. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

static uint64_t *words;
static size_t count;

/* Of eight parts the child finds zeros in the first two; the third was wiped once, and is not any more. */
static void child(int depth)
{
	pid_t pid = fork();
	int status;

	must(pid >= 0);
	if (pid > 0) {
		must(waitpid(pid, &status, 0) == pid);
		must(status == 0);
		return;
	}
	for (size_t i = 0; i < count / 4; i++)
		if (words[i])
			fail("word %zu of what is wiped is %016lx at depth %d", i, words[i], depth);
	check(words + count / 4, count / 4 * 3, count / 4, 0, "in a child");
	if (depth > 1) {
		fill(words, count / 4, 0, 7);
		check(words + count / 4, count / 4 * 3, count / 4, 0, "in a child that wrote");
		child(depth - 1);
		check(words, count / 4, 0, 7, "what a child wrote");
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 96) * MEGABYTE, part = bytes / 8;
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(start != MAP_FAILED);
	words = (uint64_t *)start;
	count = bytes / 8;
	must(madvise(start, part, MADV_WIPEONFORK) == 0);
	must(madvise(start + 3 * part, part, MADV_DONTFORK) == 0);
	fill(words, count, 0, 0);
	must(madvise(start + part, 2 * part, MADV_WIPEONFORK) == 0);
	must(madvise(start + 2 * part, part, MADV_KEEPONFORK) == 0);
	must(madvise(start + 4 * part, part, MADV_DONTFORK) == 0);
	must(madvise(start + 3 * part, 2 * part, MADV_DOFORK) == 0);
	child(2);
	check(words, count, 0, 0, "in the parent");
	/* Where something was wiped, and is unmapped, something else is not. */
	must(munmap(start, 2 * part) == 0);
	must(mmap(start, 2 * part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start);
	fill(words, count / 4, 0, 3);
	check(words + count / 4, count / 4 * 3, count / 4, 0, "behind what is new");
	pid_t pid = fork();
	int status;

	must(pid >= 0);
	if (pid == 0) {
		check(words, count / 4, 0, 3, "new in a child");
		check(words + count / 4, count / 4 * 3, count / 4, 0, "old in a child");
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	must(status == 0);
	puts("right");
	return 0;
}
