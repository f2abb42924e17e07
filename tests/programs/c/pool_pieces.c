/* Parts of static data on pages of a pool are protected, unmapped and replaced: refused, and nothing is lost. */
#include "common.h"
#include <sys/mman.h>

enum { PAGE_SIZE = 4096, BLOCK = 2 << 20 };

static char data[3 * BLOCK];

int main(void)
{
	char *block = data + (-(uintptr_t)data & (BLOCK - 1));

	memset(data, 7, sizeof(data));
	must(mprotect(block + PAGE_SIZE, PAGE_SIZE, PROT_READ) == -1 && errno == EINVAL);
	must(mprotect(block, PAGE_SIZE, PROT_READ) == -1 && errno == EINVAL);
	must(munmap(block + PAGE_SIZE, PAGE_SIZE) == -1 && errno == EINVAL);
	must(mmap(block + PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		     MAP_FAILED && errno == EINVAL);
	for (size_t k = 0; k < sizeof(data); k++)
		must(data[k] == 7);
	return 0;
}
