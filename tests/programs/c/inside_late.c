/* A library that is loaded when Ream is there already; with INNER it is the one beside it that it loads by its name. */
#include <dlfcn.h>
#include <stdlib.h>

#ifdef INNER
int inner(void)
{
	return 42;
}
#else
/* Taken when it is loaded. */
static void (*kept)(void *);

__attribute__((constructor)) static void take(void)
{
	kept = free;
}

void *late_grow(void *block, size_t bytes)
{
	return realloc(block, bytes);
}

void late_drop(void *block)
{
	kept(block);
}

int late_inner(void)
{
	void *library = dlopen("libinside-inner.so", RTLD_NOW);
	int (*inner)(void) = NULL;

	if (library)
		*(void **)&inner = dlsym(library, "inner");
	return inner ? inner() : -1;
}
#endif
