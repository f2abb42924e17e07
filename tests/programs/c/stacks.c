/* Threads in numbers, with stacks of many sizes, stacks of the program's own, threads that are detached, cancelled or
 * leave by pthread_exit from deep down, and a fork with threads made in the child. Prints a checksum. */
#include "common.h"
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

static _Atomic uint64_t sum;
static sem_t ended;

__attribute__((noinline)) static uint64_t deep(size_t bytes, uint64_t seed)
{
	volatile uint64_t frame[2048];

	for (size_t i = 0; i < 2048; i += 64)
		frame[i] = mix(seed + i);
	if (bytes > 2 * sizeof frame)
		seed += deep(bytes - sizeof frame, seed + 1);
	for (size_t i = 0; i < 2048; i += 64)
		seed += frame[i];
	return seed;
}

static void *shallow(void *number)
{
	sum += mix((uint64_t)number);
	return number;
}

static void *deeper(void *number)
{
	sum += deep((uint64_t)number, 7);
	pthread_exit(number);
}

static void *detached(void *number)
{
	sum += mix((uint64_t)number + 99);
	sem_post(&ended);
	return NULL;
}

static void cleanup(void *number)
{
	sum += mix((uint64_t)number + 1234);
}

static void *cancelled(void *number)
{
	pthread_cleanup_push(cleanup, number);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return NULL;
}

static void run(void *(*what)(void *), pthread_attr_t *attributes, uint64_t number)
{
	pthread_t thread;
	void *result;

	must(pthread_create(&thread, attributes, what, (void *)number) == 0);
	must(pthread_join(thread, &result) == 0);
	must((uint64_t)result == number);
}

static void many(void)
{
	static const size_t sizes[] = {16 << 10, 64 << 10, 1 << 20, 2 << 20, 4 << 20, 5 << 20, 16 << 20, 100 << 20};
	pthread_t threads[40];
	pthread_attr_t attributes;

	must(pthread_attr_init(&attributes) == 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t size = sizes[i] < (size_t)PTHREAD_STACK_MIN ? (size_t)PTHREAD_STACK_MIN : sizes[i];

		must(pthread_attr_setstacksize(&attributes, size) == 0);
		run(shallow, &attributes, i);
		if (size >= 1 << 20)
			run(deeper, &attributes, size * 3 / 4);
	}
	must(pthread_attr_setguardsize(&attributes, 1 << 20) == 0);
	run(deeper, &attributes, 20 << 20);
	for (size_t round = 0; round < 10; round++) {
		for (size_t i = 0; i < 40; i++)
			must(pthread_create(&threads[i], NULL, shallow, (void *)(round * 40 + i)) == 0);
		for (size_t i = 0; i < 40; i++)
			must(pthread_join(threads[i], NULL) == 0);
	}
}

int main(void)
{
	pthread_t thread;
	pthread_attr_t attributes;
	size_t bytes = 8 << 20;
	int status;
	pid_t child;
	char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(own != MAP_FAILED && sem_init(&ended, 0, 0) == 0);
	many();
	must(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, own, bytes) == 0);
	run(deeper, &attributes, 6 << 20);
	/* The last page below the stack is the program's own business. */
	must(own[0] == 0);
	must(pthread_attr_init(&attributes) == 0);
	must(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	for (uint64_t i = 0; i < 100; i++)
		must(pthread_create(&thread, &attributes, detached, (void *)i) == 0);
	for (int i = 0; i < 100; i++)
		must(sem_wait(&ended) == 0);
	must(pthread_create(&thread, NULL, cancelled, (void *)5) == 0);
	must(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
	must(pthread_attr_setstacksize(&attributes, 1UL << 46) == 0);
	must(pthread_create(&thread, &attributes, shallow, NULL) != 0);
	sum += deep(7 << 20, 3);
	fflush(stdout);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		many();
		printf("child %016lx\n", sum);
		fflush(stdout);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	many();
	printf("parent %016lx\n", sum);
	return 0;
}
