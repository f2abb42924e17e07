/* Memory that may lie on pages of a pool, of which the program does not know: it protects blocks of it, and forks. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE_SIZE = 4096, BLOCK = 2 << 20, BYTES = 16 << 20 };

static char data[BYTES];

/* What a child may do with a block of sevens is what its parent may. */
static void child(char *area, int ends[2])
{
	char *closed = area, *read_only = area + BLOCK, *open = area + 2 * BLOCK;

	must(write(ends[1], closed, 1) == -1 && errno == EFAULT);
	must(write(ends[1], open, 1) == 1);
	must(read(ends[0], read_only, 1) == -1 && errno == EFAULT);
	must(write(ends[1], read_only, 1) == 1 && read_only[BLOCK - 1] == 7);
	must(mprotect(area, 2 * BLOCK, PROT_READ | PROT_WRITE) == 0);
	for (size_t k = 0; k < 3 * BLOCK; k++)
		must(area[k] == 7);
	memset(area, 9, 3 * BLOCK);
	_exit(3);
}

int main(void)
{
	char *heap = aligned_alloc(PAGE_SIZE, BYTES), *areas[2];
	int ends[2], status;

	must(heap != NULL && pipe(ends) == 0);
	areas[0] = heap + (-(uintptr_t)heap & (BLOCK - 1));
	areas[1] = data + (-(uintptr_t)data & (BLOCK - 1));
	for (int k = 0; k < 2; k++) {
		memset(areas[k], 7, BYTES - BLOCK);
		must(mprotect(areas[k], BLOCK, PROT_NONE) == 0);
		must(mprotect(areas[k] + BLOCK, BLOCK, PROT_READ) == 0);
		fflush(stdout);
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0)
			child(areas[k], ends);
		must(waitpid(pid, &status, 0) == pid);
		printf("child: %#x\n", status);
		must(mprotect(areas[k], 2 * BLOCK, PROT_READ | PROT_WRITE) == 0);
		printf("then: %d %d %d\n", areas[k][0], areas[k][BLOCK], areas[k][2 * BLOCK]);
		/* Another mapping takes the place of a block, and another block goes: neither is copied as it was. */
		must(mmap(areas[k] + BLOCK, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		     areas[k] + BLOCK);
		areas[k][BLOCK] = 4;
		if (k == 1)
			must(munmap(areas[k] + 2 * BLOCK, BLOCK) == 0);
		fflush(stdout);
		must((pid = fork()) >= 0);
		if (pid == 0)
			_exit(areas[k][BLOCK]);
		must(waitpid(pid, &status, 0) == pid);
		printf("child: %#x\n", status);
	}
	return 0;
}
