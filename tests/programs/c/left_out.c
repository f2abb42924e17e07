/* Memory that children do not have (MADV_DONTFORK), MEGABYTES of it above everything else, and a child that needs much memory
 * of its own: whatever comes to lie where it was must not be taken for it. */
#include "common.h"
#include <sys/wait.h>

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 64) * MEGABYTE, grown = argument(argc, argv, 2, 96) * MEGABYTE;
	uint64_t *kept, *left_out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	must(left_out != MAP_FAILED && madvise(left_out, bytes, MADV_DONTFORK) == 0);
	kept = mmap(NULL, bytes / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(kept != MAP_FAILED);
	fill(kept, bytes / 32, 0, 0);
	fill(left_out, bytes / 32, 0, 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		uint64_t *own = malloc(grown);

		must(own);
		fill(own, grown / 8, 0, 3);
		check(own, grown / 8, 0, 3, "what a child has grown to");
		check(kept, bytes / 32, 0, 0, "what it has inherited");
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	must(status == 0);
	check(left_out, bytes / 32, 0, 0, "what its parent has kept");
	puts("right");
	return 0;
}
