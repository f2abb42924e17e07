/* Many short-lived children, up to four at once, of a process whose threads write all the while; each child checks
 * its snapshot, writes to it, and lets half of them be ended by a signal in the middle. */
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define WRITERS 2
#define CHILDREN 40
#define AT_ONCE 4

static uint64_t *still, *moving;
static uint32_t *generations;
static size_t pages;
static atomic_int stop_writing;

static void *write_on(void *argument_)
{
	size_t me = (size_t)argument_;
	uint64_t random = me;

	while (!atomic_load(&stop_writing)) {
		size_t page = next_random(&random) % (pages / WRITERS) * WRITERS + me;
		uint64_t *words = moving + page * PAGE_WORDS;

		check(words, PAGE_WORDS, page * PAGE_WORDS, generations[page], "a writer's page");
		generations[page]++;
		for (size_t i = 0; i < PAGE_WORDS; i++)
			words[i]++;
	}
	return NULL;
}

static void child(int number)
{
	uint64_t random = 1000 + number;

	for (int k = 0; k < 2000; k++) {
		size_t page = next_random(&random) % pages;
		uint64_t *words = still + page * PAGE_WORDS;
		uint64_t generation = words[0] - mix(page * PAGE_WORDS);

		if (generation != 0 && generation != (uint64_t)number + 1)
			fail("child %d: page %zu has generation %ld", number, page, (long)generation);
		check(words, PAGE_WORDS, page * PAGE_WORDS, generation, "a child's page");
		if (k % 2)
			fill(words, PAGE_WORDS, page * PAGE_WORDS, number + 1);
	}
	_exit(number % 50);
}

static int reap(void)
{
	int status;
	pid_t pid = wait(&status);

	must(pid > 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return 1;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 99)
		fail("a child ended with wait status %x", status);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[WRITERS];
	int alive = 0;

	pages = argument(argc, argv, 1, 256) * MEGABYTE / 2 / PAGE;
	still = malloc(pages * PAGE);
	moving = malloc(pages * PAGE);
	generations = calloc(pages, sizeof(*generations));
	must(still && moving && generations);
	fill(still, pages * PAGE_WORDS, 0, 0);
	fill(moving, pages * PAGE_WORDS, 0, 0);
	for (size_t t = 0; t < WRITERS; t++)
		must(pthread_create(&threads[t], NULL, write_on, (void *)t) == 0);
	for (int number = 0; number < CHILDREN; number++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0)
			child(number);
		alive++;
		if (number % 4 == 1) {
			usleep(2000);
			kill(pid, SIGKILL);
		}
		while (alive >= AT_ONCE) {
			reap();
			alive--;
		}
	}
	while (alive--)
		reap();
	atomic_store(&stop_writing, 1);
	for (size_t t = 0; t < WRITERS; t++)
		must(pthread_join(threads[t], NULL) == 0);
	check(still, pages * PAGE_WORDS, 0, 0, "the parent's still half");
	for (size_t page = 0; page < pages; page++)
		check(moving + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, generations[page],
		      "the parent's moving half");
	printf("storm over %016lx\n", checksum(still, pages * PAGE_WORDS, 1));
	return 0;
}
