/* Opens two libraries of opened.c (its arguments), waits for a signal, and then has a thread ask each for its array and fill it,
 * both at the same moment. */
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

static pthread_barrier_t together;

static void woken(int signal)
{
	(void)signal;
}

static void *fill_one(void *handle)
{
	char *(*memory)(size_t *);
	uint64_t *words;
	size_t bytes;

	pthread_barrier_wait(&together);
	*(void **)&memory = dlsym(handle, "opened_memory");
	must(memory);
	words = (uint64_t *)memory(&bytes);
	must(bytes && ((char *)words)[bytes - 1] == 77);
	fill(words, bytes / 8, (uint64_t)(uintptr_t)handle, 0);
	check(words, bytes / 8, (uint64_t)(uintptr_t)handle, 0, "filled");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *handles[2];
	sigset_t others;

	must(argc == 3);
	for (int i = 0; i < 2; i++) {
		handles[i] = dlopen(argv[i + 1], RTLD_NOW | RTLD_LOCAL);
		if (!handles[i])
			fail("%s", dlerror());
	}
	must(pthread_barrier_init(&together, NULL, 2) == 0);
	/* The other thread blocks it: the kernel may give the process's signal to whichever does not. */
	sigemptyset(&others);
	sigaddset(&others, SIGUSR1);
	signal(SIGUSR1, woken);
	must(pthread_sigmask(SIG_BLOCK, &others, NULL) == 0);
	must(pthread_create(&thread, NULL, fill_one, handles[1]) == 0);
	must(pthread_sigmask(SIG_UNBLOCK, &others, NULL) == 0);
	pause();
	fill_one(handles[0]);
	must(pthread_join(thread, NULL) == 0);
	puts("well");
	return 0;
}
