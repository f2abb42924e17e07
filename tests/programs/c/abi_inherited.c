/* A child that gives back what its parent has taken out of the budget for itself leaves that as it is. */
#include "abi.h"
#include <sys/wait.h>

/* The largest block, in MiB, that can be had for good. */
static size_t most(const struct ream_hints *hints)
{
	size_t low = 0, high = 1024;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		void *block = ream_alloc(middle * MEGABYTE, hints);

		must(block || errno == ENOMEM);
		must(ream_free(block) == 0);
		*(block ? &low : &high) = middle;
	}
	return low;
}

int main(void)
{
	struct ream_hints hints = {.size = sizeof(hints), .flags = REAM_RESIDENT};
	uint64_t *block = ream_alloc(16 * MEGABYTE, &hints);
	int status;
	pid_t pid;

	must(block);
	fill(block, 2 * MEGABYTE, 0, 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		size_t before;

		check(block, 2 * MEGABYTE, 0, 0, "in the child");
		must(ream_alloc(16 * MEGABYTE, &hints));
		before = most(&hints);
		must(before > 0 && ream_free(block) == 0);
		if (most(&hints) != before)
			fail("%zu MiB could be had, and %zu with the parent's", before, most(&hints));
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && status == 0);
	check(block, 2 * MEGABYTE, 0, 0, "in the parent");
	must(ream_free(block) == 0);
	puts("right");
	return 0;
}
