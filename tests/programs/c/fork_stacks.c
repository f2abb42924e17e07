/* Forks on stacks that are paged memory: of contexts and of threads, fresh ones, whose pages below the frame of fork() nobody
 * has touched yet, each a little higher than the last, so that the end of a page comes to lie everywhere among the frames of
 * the fork; and one between two pages that cannot be read. Argument: MiB that another thread keeps the pager busy with. */
#include "common.h"
#include <alloca.h>
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>

#define STACK (4 * MEGABYTE)
#define NARROW (16 * PAGE)

static size_t offset, forks;
static ucontext_t outside, inside;

static void *busy(void *memory)
{
	size_t pages = *(size_t *)memory / PAGE;
	uint64_t random = 1;

	for (;;)
		((volatile char *)memory)[(1 + next_random(&random) % (pages - 1)) * PAGE]++;
	return NULL;
}

static void forks_here(void)
{
	volatile char *kept = alloca(offset + 1);

	kept[0] = 1;
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t child = fork();

		must(child >= 0);
		if (child == 0) {
			kept[0]++;
			_exit(kept[0] == 2 + i ? 7 : 1);
		}
		must(waitpid(child, &status, 0) == child);
		must(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		kept[0]++;
		forks++;
	}
}

static void *of_thread(void *unused)
{
	(void)unused;
	forks_here();
	return NULL;
}

static void *mapped(size_t length)
{
	void *place = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(place != MAP_FAILED);
	return place;
}

static void as_context(void *stack, size_t length)
{
	must(getcontext(&inside) == 0);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = length;
	inside.uc_link = &outside;
	makecontext(&inside, forks_here, 0);
	must(swapcontext(&outside, &inside) == 0);
}

static void as_thread(void *stack, size_t length)
{
	pthread_attr_t attributes;
	pthread_t thread;

	must(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, length) == 0);
	must(pthread_create(&thread, &attributes, of_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 160) * MEGABYTE;
	char *memory = malloc(bytes), *guarded;
	pthread_t thread;

	must(memory);
	fill((uint64_t *)memory, bytes / sizeof(uint64_t), 0, 0);
	*(size_t *)memory = bytes;
	must(pthread_create(&thread, NULL, busy, memory) == 0);
	for (offset = 0; offset < PAGE; offset += 340) {
		as_context(mapped(STACK), STACK);
		as_thread(mapped(STACK), STACK);
	}
	guarded = mapped(NARROW + 2 * PAGE);
	must(mprotect(guarded, PAGE, PROT_NONE) == 0 && mprotect(guarded + PAGE + NARROW, PAGE, PROT_NONE) == 0);
	offset = 0;
	as_context(guarded + PAGE, NARROW);
	as_thread(guarded + PAGE, NARROW);
	dprintf(STDOUT_FILENO, "%zu forks\n", forks);
	_exit(0);
}
