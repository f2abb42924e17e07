/* A library that, like those for linear algebra, has threads from the start and ends them before each fork, in a handler that
 * was registered before Ream's where paging is begun from inside: the threads take a lock that they have not had for long, and
 * look at memory of theirs. */
#include "common.h"
#include <pthread.h>

#define THREADS 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t threads[THREADS];
static int running, stop, forks;

static void *wait_for_work(void *unused)
{
	(void)unused;
	must(pthread_mutex_lock(&lock) == 0);
	while (!stop)
		must(pthread_cond_wait(&changed, &lock) == 0);
	must(pthread_mutex_unlock(&lock) == 0);
	return NULL;
}

static void end_threads(void)
{
	if (!running)
		return;
	must(pthread_mutex_lock(&lock) == 0);
	stop = 1;
	must(pthread_cond_broadcast(&changed) == 0);
	must(pthread_mutex_unlock(&lock) == 0);
	for (size_t t = 0; t < THREADS; t++)
		must(pthread_join(threads[t], NULL) == 0);
	running = stop = 0;
	forks++;
}

/* Starts the threads, where there are none. */
void begin_threads(void)
{
	for (size_t t = 0; t < THREADS && !running; t++)
		must(pthread_create(&threads[t], NULL, wait_for_work, NULL) == 0);
	running = 1;
}

/* Forks that found threads to end. */
int forks_with_threads(void)
{
	return forks;
}

__attribute__((constructor)) static void begin(void)
{
	must(pthread_atfork(end_threads, NULL, NULL) == 0);
	begin_threads();
}
