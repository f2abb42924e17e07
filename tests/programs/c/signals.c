/* Timer signals at 1 kHz whose handler, on an alternate stack, reads and writes paged memory, while two threads fault
 * all the time; a helper process stops and continues the program meanwhile. */
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t *block, *handled;
static uint32_t *generations;
static size_t pages, handled_pages;
static volatile uint64_t signals;
static uint64_t handler_random = 21;
static atomic_int done;

static void on_timer(int number, siginfo_t *info, void *context)
{
	int before = errno;
	size_t page = next_random(&handler_random) % handled_pages;
	uint64_t *words = handled + page * PAGE_WORDS;

	(void)number, (void)info, (void)context;
	check(words, PAGE_WORDS, page * PAGE_WORDS, generations[page], "the handler's page");
	generations[page]++;
	for (size_t i = 0; i < PAGE_WORDS; i++)
		words[i]++;
	signals++;
	errno = before;
}

static void *other_thread(void *unused)
{
	uint64_t random = 77;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while (!atomic_load(&done)) {
		size_t page = next_random(&random) % pages;

		check(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0, "the other thread's page");
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 0 };
	struct itimerspec interval = { { 0, 1000000 }, { 0, 1000000 } };
	stack_t stack = { .ss_size = 256 * 1024 };
	uint64_t random = 8;
	pthread_t thread;
	timer_t timer;
	pid_t helper;
	int status;

	pages = argument(argc, argv, 1, 256) * MEGABYTE / PAGE / 2;
	handled_pages = pages;
	/* The helper is made before there is anything to page. */
	must((helper = fork()) >= 0);
	if (helper == 0) {
		pid_t parent = getppid();

		for (int k = 0; k < 40; k++) {
			usleep(40000);
			if (kill(parent, SIGSTOP) != 0)
				break;
			usleep(4000);
			kill(parent, SIGCONT);
		}
		_exit(0);
	}
	block = malloc(pages * PAGE);
	handled = malloc(handled_pages * PAGE);
	generations = calloc(handled_pages, sizeof(*generations));
	stack.ss_sp = malloc(stack.ss_size);
	must(block && handled && generations && stack.ss_sp);
	fill(block, pages * PAGE_WORDS, 0, 0);
	fill(handled, handled_pages * PAGE_WORDS, 0, 0);
	must(sigaltstack(&stack, NULL) == 0);
	must(sigaction(SIGRTMIN, &action, NULL) == 0);
	must(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	event.sigev_signo = SIGRTMIN;
	must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	must(timer_settime(timer, 0, &interval, NULL) == 0);
	while (signals < 1000) {
		for (int k = 0; k < 100; k++) {
			size_t page = next_random(&random) % pages;

			check(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0, "the main thread's page");
		}
	}
	must(timer_delete(timer) == 0);
	atomic_store(&done, 1);
	must(pthread_join(thread, NULL) == 0);
	while (waitpid(helper, &status, 0) < 0)
		must(errno == EINTR);
	for (size_t page = 0; page < handled_pages; page++)
		check(handled + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, generations[page], "at the end");
	printf("signals handled\n");
	return 0;
}
