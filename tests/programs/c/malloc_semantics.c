/* What programs may rely on of malloc and its family, small and large; prints what is the same everywhere. */
#include "common.h"
#include <limits.h>
#include <malloc.h>

static void *volatile sink;

static int aligned(const void *pointer, size_t to)
{
	return ((uintptr_t)pointer & (to - 1)) == 0;
}

static void one_size(size_t size)
{
	char *p = malloc(size), *q;

	must(p && aligned(p, 16));
	must(malloc_usable_size(p) >= size);
	memset(p, 0x5a, malloc_usable_size(p));
	q = realloc(p, size * 2 + 1);
	must(q && aligned(q, 16) && malloc_usable_size(q) >= size * 2 + 1);
	for (size_t i = 0; i < size; i++)
		must(q[i] == 0x5a);
	q = realloc(q, size / 2 + 1);
	must(q);
	for (size_t i = 0; i < size / 2 + 1 && i < size; i++)
		must(q[i] == 0x5a);
	free(q);
	p = calloc(size + 1, 3);
	must(p && aligned(p, 16));
	for (size_t i = 0; i < 3 * size + 3; i++)
		must(p[i] == 0);
	free(p);
}

static void alignments(void)
{
	for (size_t to = sizeof(void *); to <= 1UL << 22; to *= 2)
		for (size_t size = 1; size <= 1UL << 23; size *= 16) {
			void *p = NULL;

			must(posix_memalign(&p, to, size) == 0 && p && aligned(p, to));
			memset(p, 1, size);
			must(malloc_usable_size(p) >= size);
			free(p);
			p = aligned_alloc(to, (size + to - 1) / to * to);
			must(p && aligned(p, to));
			p = realloc(p, size + 100);
			must(p && aligned(p, 16));
			free(p);
			p = memalign(to, size);
			must(p && aligned(p, to));
			free(p);
		}
	void *p = (void *)1;

	must(posix_memalign(&p, 3, 100) == EINVAL && p == (void *)1);
	must(posix_memalign(&p, 2, 100) == EINVAL);
	p = valloc(100);
	must(p && aligned(p, PAGE));
	free(p);
	p = pvalloc(100);
	must(p && aligned(p, PAGE) && malloc_usable_size(p) >= PAGE);
	free(p);
}

static void refusals(void)
{
	volatile size_t huge = PTRDIFF_MAX, half = SIZE_MAX / 2, most = SIZE_MAX;
	char *p = malloc(100);

	strcpy(p, "kept");
	errno = 0;
	must(malloc(huge) == NULL && errno == ENOMEM);
	errno = 0;
	must(malloc(huge + 1) == NULL && errno == ENOMEM);
	errno = 0;
	must(malloc(most) == NULL && errno == ENOMEM);
	errno = 0;
	must(calloc(half, 3) == NULL && errno == ENOMEM);
	errno = 0;
	must(reallocarray(NULL, half, 4) == NULL && errno == ENOMEM);
	errno = 0;
	must(realloc(p, huge + 1) == NULL && errno == ENOMEM);
	must(strcmp(p, "kept") == 0);
	void *q = (void *)7;

	must(posix_memalign(&q, 64, most - 100) == ENOMEM && q == (void *)7);
	errno = 0;
	must(aligned_alloc(64, (most - 1000) & ~63UL) == NULL && errno == ENOMEM);
	free(p);
}

int main(void)
{
	static const size_t sizes[] = { 1,    7,	8,	 15,	  16,	   17,	    24,	      100,     129,
					511,  4000,	4096,	 4097,	  10000,   65536,   131071,   131072,  200000,
					1 << 20, (1 << 20) + 1, 3 << 20, 4 << 20, (4 << 20) - 16, 9 << 20, 33 << 20 };
	void *p, *q;
	int before;

	p = malloc(0);
	q = malloc(0);
	must(p && q && p != q);
	free(p);
	free(q);
	p = calloc(0, 100);
	must(p);
	free(p);
	must(malloc_usable_size(NULL) == 0);
	free(NULL);
	p = realloc(NULL, 100);
	must(p);
	printf("realloc to 0 gives %s\n", realloc(p, 0) ? "a pointer" : "NULL");
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		one_size(sizes[k]);
	alignments();
	refusals();
	errno = 1234;
	p = malloc(5 << 20);
	sink = p;
	before = errno;
	free(p);
	printf("errno after malloc %d, after free %d\n", before, errno);
	p = malloc(40 << 20);
	sink = p;
	free(p);
	must(errno == 1234);
	for (int k = 0; k < 100000; k++) {
		p = malloc(1 + k % 3000);
		must(p);
		sink = p;
		free(p);
	}
	printf("malloc agrees\n");
	return 0;
}
