/* Memory that children do not have (MADV_DONTFORK), marked before and after it was paged: a child's touch is SIGSEGV, mincore says
 * that nothing is mapped, and the parent keeps what is there. Two forks deep; taken back, unmapped and moved. Argument: MiB. */
#include "common.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

static char *start, *moved;
static uint64_t *again;
static size_t part, words;
static sigjmp_buf back;
static volatile sig_atomic_t expected;

static void caught(int signal)
{
	(void)signal;
	if (!expected)
		_exit(98);
	siglongjmp(back, 1);
}

static int readable(const char *place)
{
	int read = 0;

	expected = 1;
	if (!sigsetjmp(back, 1)) {
		(void)*(const volatile char *)place;
		read = 1;
	}
	expected = 0;
	return read;
}

static void absent(const char *what, char *from, size_t bytes)
{
	for (size_t offset = 0; offset < bytes; offset += MEGABYTE / 4) {
		unsigned char seen;

		if (mincore(from + offset, PAGE, &seen) == 0 || errno != ENOMEM)
			fail("%s: mincore at %zu KiB says that something is mapped", what, offset >> 10);
		if (readable(from + offset))
			fail("%s: readable at %zu KiB", what, offset >> 10);
	}
	must(!readable(from + bytes - 1));
}

static void present(const char *what, int number)
{
	check((uint64_t *)(start + number * part), words, number * words, 0, what);
}

static void children(int depth)
{
	int status;
	pid_t pid = fork();

	must(pid >= 0);
	if (pid > 0) {
		must(waitpid(pid, &status, 0) == pid);
		must(status == 0);
		return;
	}
	absent("marked while it was empty", start, part);
	absent("marked when it was paged", start + 2 * part, part);
	absent("moved", moved, part);
	present("never marked, in a child", 1);
	present("marked and taken back, in a child", 3);
	present("taken back when it was paged, in a child", 4);
	present("put where something marked was, in a child", 5);
	present("last, in a child", 7);
	check(again, words, 0, 2, "where a block that was marked has been freed, in a child");
	if (depth > 1)
		children(depth - 1);
	/* What comes to lie there is an ordinary mapping, and is paged. */
	must(mmap(start, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start);
	fill((uint64_t *)start, words, 0, 9);
	uint64_t *more = malloc(8 * part);

	must(more);
	fill(more, 8 * words, 0, 5);
	check((uint64_t *)start, words, 0, 9, "a child's own");
	check(more, 8 * words, 0, 5, "more of a child's own");
	present("never marked, in a child that has more", 1);
	_exit(0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 96) * MEGABYTE, spare = 1024 * MEGABYTE;
	/* What others map at any time comes to lie here, and not where something is absent: the kernel takes the highest gap. */
	char *gap = mmap(NULL, spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	part = bytes / 8;
	words = part / 8;
	start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(gap != MAP_FAILED && gap > start && start != MAP_FAILED && moved != MAP_FAILED && signal(SIGSEGV, caught) != SIG_ERR);
	/* Marks do not outlive a large block. */
	again = aligned_alloc(PAGE, part);
	must(again && madvise(again, part, MADV_DONTFORK) == 0);
	fill(again, words, 0, 1);
	free(again);
	again = aligned_alloc(PAGE, part);
	must(again);
	fill(again, words, 0, 2);
	must(madvise(start, part, MADV_DONTFORK) == 0);
	must(madvise(start + 3 * part, part, MADV_DONTFORK) == 0);
	must(madvise(start + 3 * part, part, MADV_DOFORK) == 0);
	must(madvise(start + 4 * part, part, MADV_DONTFORK) == 0);
	fill((uint64_t *)start, bytes / 8, 0, 0);
	must(madvise(start + 2 * part, part, MADV_DONTFORK) == 0);
	must(madvise(start + 4 * part, part, MADV_DOFORK) == 0);
	must(madvise(start + 5 * part, 2 * part, MADV_DONTFORK) == 0);
	must(munmap(start + 5 * part, part) == 0);
	must(mmap(start + 5 * part, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	     start + 5 * part);
	fill((uint64_t *)(start + 5 * part), words, 5 * words, 0);
	must(mremap(start + 6 * part, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
	must(munmap(gap, spare) == 0);
	children(2);
	for (int number = 0; number < 8; number++)
		if (number != 6)
			present("in the parent", number);
	check((uint64_t *)moved, words, 6 * words, 0, "moved, in the parent");
	/* Taken back at last. */
	must(madvise(start, part, MADV_DOFORK) == 0);
	pid_t pid = fork();
	int status;

	must(pid >= 0);
	if (pid == 0) {
		present("taken back at last, in a child", 0);
		absent("marked still", start + 2 * part, part);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	must(status == 0);
	puts("right");
	return 0;
}
