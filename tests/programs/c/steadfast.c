/* Writes to and checks every byte of an array for as long as it is let, by two threads, and says how long it had to wait
 * for a page: SIZE MiB, a FILE for the waits (a line each: when it ended and how long it was, in milliseconds), and how many
 * milliseconds lie between FORKS whose children check a part (0: none). SIGTERM ends it after all was checked once more.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, RUN = 64, THREADS = 2, LONG_MS = 20 };

static uint64_t *array;
static uint32_t *generation;
static size_t pages;
static int waits;
static volatile sig_atomic_t ending, resting;
static uint64_t checked[THREADS];

static void end(int signal)
{
	(void)signal;
	ending = 1;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t word(size_t page, size_t i)
{
	return mix(page * 0x1000193u + ((uint64_t)generation[page] << 40)) + i * 0x9e3779b97f4a7c15u;
}

static void check(size_t page)
{
	volatile uint64_t *at = array + page * WORDS;
	double begun = now_ms(), waited;
	uint64_t first = at[0];
	size_t i;
	char line[64];

	waited = now_ms() - begun;
	if (waited > LONG_MS) {
		int length = snprintf(line, sizeof line, "%.0f %.0f\n", begun + waited, waited);

		if (write(waits, line, length) != length)
			_exit(4);
	}
	for (i = 0; i < WORDS; i++) {
		if ((i ? at[i] : first) != word(page, i)) {
			printf("page %zu, word %zu is wrong\n", page, i);
			fflush(stdout);
			_exit(3);
		}
	}
}

static void fill(size_t page)
{
	uint64_t *at = array + page * WORDS;
	size_t i;

	generation[page]++;
	for (i = 0; i < WORDS; i++)
		at[i] = word(page, i);
}

static void *work(void *argument)
{
	size_t me = (size_t)argument, share = pages / THREADS, base = me * share;
	uint64_t state = mix(me + getpid()), in_order = 0;

	while (!ending && !resting) {
		size_t start, page, length;

		state = mix(state);
		length = state % 4 ? RUN : 1 + state / 4 % 8;
		/* Half of it in order, half anywhere. */
		start = state >> 20 & 1 ? (state >> 24) % (share - length) : (in_order += length) % (share - length);
		for (page = base + start; page < base + start + length; page++) {
			check(page);
			if (state >> 21 & 1)
				fill(page);
		}
		checked[me] += length;
	}
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	struct sigaction action = { .sa_handler = end };
	size_t page, i;
	long between;
	uint64_t all = 0;
	int forks = 0;

	if (count < 4)
		return 2;
	pages = strtoul(arguments[1], NULL, 10) << 8;
	between = strtol(arguments[3], NULL, 10);
	waits = open(arguments[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
	array = malloc(pages * PAGE);
	generation = calloc(pages, sizeof *generation);
	if (waits < 0 || !array || !generation)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	for (page = 0; page < pages; page++)
		fill(page);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 2;
	while (!ending) {
		struct timespec pause = { (between ? between : 100) / 1000, (between ? between : 100) % 1000 * 1000000 };
		pid_t child;
		int status;

		nanosleep(&pause, NULL);
		if (!between || ending)
			continue;
		/* The threads stop writing, so that what a child sees is whole. */
		resting = 1;
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		child = fork();
		if (child == 0) {
			signal(SIGTERM, SIG_IGN);
			for (page = forks % 4; page < pages; page += 4)
				check(page);
			_exit(0);
		}
		resting = 0;
		for (i = 0; i < THREADS; i++)
			if (pthread_create(&threads[i], NULL, work, (void *)i))
				return 2;
		while (waitpid(child, &status, 0) < 0)
			;
		if (status != 0) {
			printf("a child ended with status %x\n", status);
			fflush(stdout);
			_exit(5);
		}
		forks++;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (page = 0; page < pages; page++)
		check(page);
	for (i = 0; i < THREADS; i++)
		all += checked[i];
	printf("%llu pages checked, %d forks, all right\n", (unsigned long long)all, forks);
	return 0;
}
