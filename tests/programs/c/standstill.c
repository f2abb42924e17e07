/* standstill MIB THREADS: threads go over memory of their own and of others, compute in between, and wait for one another;
 * one of them blocks all signals it can, one sleeps, SIGURG is the program's own, and a child of fork goes on with it all.
 * Whoever stops threads must neither change a result, nor hang, nor keep signals of the program from their handler. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t *data;
static size_t pages, threads;
static pthread_barrier_t barrier;
static atomic_int urgent, done;

static void note(int number)
{
	(void)number;
	atomic_fetch_add(&urgent, 1);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15u;
	return x ^ x >> 29;
}

static void *walk(void *argument)
{
	size_t own = (size_t)argument;
	uint64_t sum = 0;

	if (own == 1) {
		sigset_t all;

		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	}
	for (int round = 0; round < 2; round++) {
		for (size_t page = own; page < pages; page += threads)
			for (size_t i = 0; i < 8; i++)
				data[page * 512 + i * 64] += mix(page + i);
		if (own == 0)
			pthread_kill(pthread_self(), SIGURG);
		pthread_barrier_wait(&barrier);
		/* What another thread has written, and some computing. */
		for (size_t page = (own + 1) % threads; page < pages; page += threads)
			sum = mix(sum + data[page * 512 + 64]);
		pthread_barrier_wait(&barrier);
	}
	return (void *)sum;
}

/* Its calls may end early, as with any signal. */
static void *sleeper(void *argument)
{
	(void)argument;
	while (!atomic_load(&done)) {
		struct timespec time = {0, 20000000};

		if (nanosleep(&time, NULL) && errno != EINTR)
			exit(121);
	}
	return NULL;
}

static uint64_t all(void)
{
	pthread_t ids[64], rest;
	uint64_t sum = 0;

	atomic_store(&done, 0);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	if (pthread_create(&rest, NULL, sleeper, NULL))
		exit(124);
	for (size_t i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, walk, (void *)i))
			exit(124);
	for (size_t i = 0; i < threads; i++) {
		void *part;

		pthread_join(ids[i], &part);
		sum = mix(sum + (uint64_t)part);
	}
	atomic_store(&done, 1);
	pthread_join(rest, NULL);
	return sum;
}

int main(int argc, char **argv)
{
	struct sigaction action;
	uint64_t sum;
	int status;
	pid_t child;

	if (argc != 3)
		return 125;
	pages = strtoul(argv[1], NULL, 10) << 8;
	threads = strtoul(argv[2], NULL, 10);
	if (!pages || !threads || threads > 64)
		return 125;
	memset(&action, 0, sizeof(action));
	action.sa_handler = note;
	sigaction(SIGURG, &action, NULL);
	data = malloc(pages << 12);
	if (!data)
		return 124;
	memset(data, 1, pages << 12);
	sum = all();
	child = fork();
	if (child < 0)
		return 123;
	atomic_store(&urgent, 0);
	if (!child) {
		sum = mix(sum + all());
		printf("child %016llx urgent %d\n", (unsigned long long)sum, atomic_load(&urgent) > 0);
		fflush(stdout);
		_exit(0);
	}
	sum = mix(sum + all());
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
		return 122;
	for (size_t i = 0; i < pages * 512; i += 8)
		sum = mix(sum + data[i]);
	printf("parent %016llx urgent %d\n", (unsigned long long)sum, atomic_load(&urgent) > 0);
	return 0;
}
