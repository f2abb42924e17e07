/* Opens libraries (its arguments) whose static arrays are larger than the budget, changes them in threads and in a forked
 * child, closes and opens them again. Built with -DLIBRARY it is such a library. */
#include "common.h"
#include <dlfcn.h>

#ifdef LIBRARY
#ifndef BYTES
#define BYTES (96 * MEGABYTE)
#endif

char *opened_memory(size_t *bytes);

static char memory[BYTES];
static uint64_t seen;

/* What a constructor has left is kept. */
__attribute__((constructor)) static void begin(void)
{
	memory[BYTES - 1] = 77;
	seen++;
}

char *opened_memory(size_t *bytes)
{
	*bytes = seen == 1 ? BYTES : 0;
	return memory;
}
#else
#include <pthread.h>
#include <sys/wait.h>

#define MOST 4

static struct library {
	const char *file;
	uint64_t seed;
	void *handle;
	uint64_t *words;
	size_t count;
} libraries[MOST];

static void *open_one(void *argument)
{
	struct library *library = argument;
	char *(*memory)(size_t *);
	size_t bytes;

	library->handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
	if (!library->handle)
		fail("%s", dlerror());
	*(void **)&memory = dlsym(library->handle, "opened_memory");
	must(memory && !dlsym(library->handle, "nothing_of_this_name"));
	library->words = (uint64_t *)memory(&bytes);
	must(bytes && ((char *)library->words)[bytes - 1] == 77);
	library->count = bytes / 8;
	for (int generation = 0; generation < 3; generation++) {
		fill(library->words, library->count, library->seed, generation);
		check(library->words, library->count, library->seed, generation, "opened");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	int count = argc - 1, end;
	pid_t pid;

	must(count > 0 && count <= MOST);
	/* Counted from who calls. */
	must(dlsym(RTLD_NEXT, "malloc") == (void *)malloc);
	for (int i = 0; i < count; i++) {
		libraries[i] = (struct library){.file = argv[i + 1], .seed = (uint64_t)(i + 1) << 32};
		must(pthread_create(&threads[i], NULL, open_one, &libraries[i]) == 0);
	}
	for (int i = 0; i < count; i++)
		must(pthread_join(threads[i], NULL) == 0);
	pid = fork();
	must(pid >= 0);
	for (int i = 0; i < count; i++) {
		struct library *library = &libraries[i];

		check(library->words, library->count, library->seed, 2, "after the fork");
		fill(library->words, library->count, library->seed, pid ? 3 : 4);
		check(library->words, library->count, library->seed, pid ? 3 : 4, "written since");
	}
	if (pid == 0)
		_exit(0);
	must(waitpid(pid, &end, 0) == pid && end == 0);
	for (int i = 0; i < count; i++)
		must(dlclose(libraries[i].handle) == 0);
	puts("well");
	return 0;
}
#endif
