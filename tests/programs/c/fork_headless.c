/* Large pages whose first page is gone, and that were shared with a child which has been killed: the kernel takes them for
 * shared for ever. They leave RAM all the same, and forks go on. Arguments: MiB of such blocks, and of other memory. */
#include "common.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BLOCK (2 * MEGABYTE)

static char *area(size_t bytes)
{
	char *place = mmap(NULL, bytes + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(place != MAP_FAILED);
	return place + (BLOCK - (uintptr_t)place % BLOCK) % BLOCK;
}

/* They are colder than anything else; on a busy machine they may be unshared too late for the first time round. */
static void must_leave(char *data, size_t bytes, uint64_t *other, size_t words, int round)
{
	size_t count = 0;

	for (int times = 0; times < 20; times++) {
		fill(other, words, 1000, round);
		count = in_core(data, bytes);
		if (count <= bytes / PAGE * 3 / 4)
			return;
	}
	fail("%zu pages of %zu are still in RAM", count, bytes / PAGE);
}

static void verify(char *data, size_t bytes)
{
	for (size_t block = 0; block < bytes; block += BLOCK) {
		uint64_t *words = (uint64_t *)(void *)(data + block);

		must(words[0] == 0 && words[PAGE_WORDS - 1] == 0);
		check(words + PAGE_WORDS, (BLOCK - PAGE) / 8, block / 8 + PAGE_WORDS, 0, "the rest of a block");
	}
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 50) * MEGABYTE, more = argument(argc, argv, 2, 256) * MEGABYTE;
	char *data = area(bytes), *other;
	int ready[2];
	char byte = 0;
	pid_t pid;

	fill((uint64_t *)(void *)data, bytes / 8, 0, 0);
	for (int round = 0; round < 3; round++) {
		must(pipe(ready) == 0 && (pid = fork()) >= 0);
		if (pid == 0) {
			must(write(ready[1], &byte, 1) == 1);
			pause();
			_exit(1);
		}
		must(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
		for (size_t block = 0; block < bytes; block += BLOCK)
			must(madvise(data + block, PAGE, MADV_DONTNEED) == 0);
		must(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
		other = area(more);
		must_leave(data, bytes, (uint64_t *)(void *)other, more / 8, round);
		verify(data, bytes);
		check((uint64_t *)(void *)other, more / 8, 1000, round, "the other memory");
		must(munmap(other, more) == 0);
	}
	printf("headless\n");
	return 0;
}
