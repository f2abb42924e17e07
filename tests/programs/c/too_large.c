/* More memory than there can be: says what the calls answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void say(const char *what, const void *result, const void *failed)
{
	printf("%s: %s, %d\n", what, result == failed ? "refused" : "granted", errno);
	errno = 0;
}

int main(void)
{
	volatile size_t all = SIZE_MAX;
	void *place, *block, *volatile kept;

	for (size_t less = 0; less < 6; less++)
		say("mmap", mmap(NULL, all - less * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
	for (int power = 56; power < 64; power++)
		say("mmap", mmap(NULL, (size_t)1 << power, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
	place = mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("mremap", mremap(place, 1 << 22, all, MREMAP_MAYMOVE), MAP_FAILED);
	say("mmap fixed", mmap(place, all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
	*(char *)place = 1;
	kept = block = malloc(5 << 20);
	say("realloc", realloc(block, all - 100), NULL);
	say("malloc", malloc(all / 2), NULL);
	say("aligned_alloc", aligned_alloc((size_t)1 << 40, all / 4), NULL);
	say("calloc", calloc(all / 16, 32), NULL);
	free(kept);
	return 0;
}
