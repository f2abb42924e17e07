/* A program that lives on its own signals, with paged memory: SIGSEGV where it has protected pages (a write barrier, as collectors
 * have), SIGBUS behind a file's end, and the overflow of a stack, left from an alternate stack by siglongjmp. What handlers
 * are told is checked. */
#include "common.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static char *block;
static size_t bytes, barriers, others;
static void *expected;
static int expected_code;
static sigjmp_buf out;

static void on_fault(int number, siginfo_t *info, void *context)
{
	char *at = info->si_addr;

	(void)context;
	if (expected) {
		if (at != expected || info->si_code != expected_code)
			fail("signal %d, code %d at %p", number, info->si_code, (void *)at);
		others++;
		siglongjmp(out, 1);
	}
	if (at < block || at >= block + bytes || number != SIGSEGV || info->si_code != SEGV_ACCERR)
		fail("signal %d, code %d at %p, where none was to be", number, info->si_code, (void *)at);
	barriers++;
	must(mprotect((void *)((uintptr_t)at & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void raised(int code, volatile char *at, int writes)
{
	expected_code = code;
	expected = (void *)(uintptr_t)at;
	if (sigsetjmp(out, 1) == 0) {
		if (writes)
			*at = 1;
		else
			(void)*at;
		fail("no signal at %p", (void *)(uintptr_t)at);
	}
	expected = NULL;
}

static void barrier(uint64_t generation)
{
	for (size_t at = 0; at < bytes; at += 8 * PAGE)
		must(mprotect(block + at, PAGE, PROT_READ) == 0);
	for (size_t at = 0; at < bytes; at += PAGE) {
		uint64_t *page = (uint64_t *)(block + at);

		check(page, PAGE_WORDS, at / 8, generation, "a page behind the barrier");
		for (size_t i = 0; i < PAGE_WORDS; i++)
			page[i]++;
	}
}

static uintptr_t lowest;
static sigjmp_buf deep_out;

static void on_overflow(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	/* Below the lowest frame, by less than a frame and the guard. */
	if (lowest - (uintptr_t)info->si_addr > 128 << 10)
		fail("the stack ended at %p, lowest frame %lx", info->si_addr, lowest);
	siglongjmp(deep_out, 1);
}

__attribute__((noinline)) static int deeper(int depth)
{
	volatile char frame[4096];

	frame[0] = (char)depth;
	lowest = (uintptr_t)__builtin_frame_address(0);
	return depth < 1 << 30 ? deeper(depth + 1) + frame[0] : 0;
}

static void *overflows(void *unused)
{
	struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
	stack_t stack = {.ss_sp = malloc(128 << 10), .ss_size = 128 << 10}, now;

	must(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	must(sigaction(SIGSEGV, &action, &before) == 0);
	for (int round = 0; round < 20; round++)
		if (sigsetjmp(deep_out, 1) == 0)
			deeper(0);
	must(sigaction(SIGSEGV, &before, NULL) == 0);
	must(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size);
	stack.ss_flags = SS_DISABLE;
	must(sigaltstack(&stack, NULL) == 0);
	free(stack.ss_sp);
	return unused;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	volatile char *file, *nothing;
	pthread_t thread;
	FILE *temporary = tmpfile();

	bytes = argument(argc, argv, 1, 256) * MEGABYTE;
	must(temporary && posix_memalign((void **)&block, PAGE, bytes) == 0);
	must(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
	fill((uint64_t *)block, bytes / 8, 0, 0);
	for (uint64_t generation = 0; generation < 2; generation++)
		barrier(generation);
	must(ftruncate(fileno(temporary), PAGE) == 0);
	file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(temporary), 0);
	must(file != MAP_FAILED);
	raised(BUS_ADRERR, file + PAGE + 8, 0);
	nothing = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	raised(SEGV_ACCERR, nothing + 5, 0);
	must(munmap((void *)(uintptr_t)nothing, PAGE) == 0);
	raised(SEGV_MAPERR, nothing + 5, 1);
	raised(SEGV_ACCERR, (char *)(uintptr_t)"constant", 1);
	must(pthread_create(&thread, NULL, overflows, NULL) == 0 && pthread_join(thread, NULL) == 0);
	overflows(NULL);
	check((uint64_t *)block, bytes / 8, 0, 2, "at the end");
	printf("%zu barriers, %zu others\n", barriers, others);
	return 0;
}
