/* What mprotect and mmap return, what they leave in errno, memory and registers, from threads, a signal handler and
 * children; prints nothing that depends on addresses, so that it is the same however the calls are made. */
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define BLOCK (2 * MEGABYTE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define OPEN (PROT_READ | PROT_WRITE)

static void said(const char *what, long result)
{
	printf("%s: %s, errno %d\n", what, result == -1 ? "-1" : result == 0 ? "0" : "done", errno);
	errno = 0;
}

static char *mapped(const char *what, void *hint, size_t bytes, int access, int kind, int file, off_t offset)
{
	char *memory = mmap(hint, bytes, access, kind, file, offset);

	said(what, (long)memory);
	return memory;
}

/* The registers that the function leaves alone without Ream, too: all but rax, rcx, rdx, r11, and of mmap's r10. */
static long kept(void *function, const long *arguments)
{
	long result, wrong = 0;

	__asm__ volatile("sub $128, %%rsp\n\t"
			 "push %%rbx\n\tpush %%rbp\n\tpush %%r12\n\tpush %%r13\n\tpush %%r14\n\tpush %%r15\n\t"
			 "push %[out]\n\t"
			 "mov %[function], %%rax\n\t"
			 "mov (%[in]), %%rdi\n\tmov 8(%[in]), %%rsi\n\tmov 16(%[in]), %%rdx\n\tmov 24(%[in]), %%rcx\n\t"
			 "mov 32(%[in]), %%r8\n\tmov 40(%[in]), %%r9\n\t"
			 "push %%rdi\n\tpush %%rsi\n\tpush %%rdx\n\tpush %%r8\n\tpush %%r9\n\t"
			 "mov $0x1111, %%rbx\n\tmov $0x2222, %%rbp\n\tmov $0x3333, %%r12\n\tmov $0x4444, %%r13\n\t"
			 "mov $0x5555, %%r14\n\tmov $0x6666, %%r15\n\t"
			 "call *%%rax\n\t"
			 "xor %%ecx, %%ecx\n\t"
			 "pop %%r11\n\txor %%r11, %%r9\n\tor %%r9, %%rcx\n\t"
			 "pop %%r11\n\txor %%r11, %%r8\n\tor %%r8, %%rcx\n\t"
			 "pop %%r11\n\txor %%r11, %%rdx\n\tor %%rdx, %%rcx\n\t"
			 "pop %%r11\n\txor %%r11, %%rsi\n\tor %%rsi, %%rcx\n\t"
			 "pop %%r11\n\txor %%r11, %%rdi\n\tor %%rdi, %%rcx\n\t"
			 "xor $0x1111, %%rbx\n\tor %%rbx, %%rcx\n\txor $0x2222, %%rbp\n\tor %%rbp, %%rcx\n\t"
			 "xor $0x3333, %%r12\n\tor %%r12, %%rcx\n\txor $0x4444, %%r13\n\tor %%r13, %%rcx\n\t"
			 "xor $0x5555, %%r14\n\tor %%r14, %%rcx\n\txor $0x6666, %%r15\n\tor %%r15, %%rcx\n\t"
			 "pop %%r11\n\tmov %%rcx, (%%r11)\n\t"
			 "pop %%r15\n\tpop %%r14\n\tpop %%r13\n\tpop %%r12\n\tpop %%rbp\n\tpop %%rbx\n\t"
			 "add $128, %%rsp\n\t"
			 : "=&a"(result)
			 : [function] "r"(function), [in] "r"(arguments), [out] "r"(&wrong)
			 : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
	must(wrong == 0);
	return result;
}

static void registers(void)
{
	const struct {
		size_t bytes;
		int access, kind;
	} maps[] = {{BLOCK * 3, OPEN, PRIVATE},
		    {MEGABYTE, OPEN, PRIVATE},
		    {64 * MEGABYTE, PROT_NONE, PRIVATE | MAP_NORESERVE},
		    {8 * MEGABYTE, PROT_NONE, PRIVATE | MAP_STACK},
		    {64 << 10, PROT_READ, PRIVATE}};

	for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
		long arguments[] = {0, (long)maps[i].bytes, maps[i].access, maps[i].kind, -1, 0};
		char *memory = (char *)kept((void *)mmap, arguments);

		must(memory != MAP_FAILED);
		/* Page by page, as malloc's heaps grow. */
		for (size_t at = 0; at < maps[i].bytes && at < 3 * BLOCK; at += 64 << 10) {
			long open[] = {(long)memory + (long)at, 64 << 10, OPEN, 0, 7, 9};

			must(kept((void *)mprotect, open) == 0);
			must(memory[at] == 0);
			memory[at] = (char)(at >> 16);
		}
		for (size_t at = 0; at < maps[i].bytes && at < 3 * BLOCK; at += 64 << 10)
			must(memory[at] == (char)(at >> 16) && memory[at + 1] == 0);
		must(munmap(memory, maps[i].bytes) == 0);
	}
}

/* What was not opened stays closed, where a heap of malloc's would have been opened further. */
static void closed(int file)
{
	char *memory = mmap(NULL, 128 * MEGABYTE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0), *start;

	must(memory != MAP_FAILED);
	start = (char *)(((uintptr_t)memory + 64 * MEGABYTE - 1) / (64 * MEGABYTE) * (64 * MEGABYTE));
	for (size_t at = 0; at < BLOCK + (64 << 10); at += 64 << 10) {
		must(mprotect(start + at, 64 << 10, OPEN) == 0);
		start[at] = 1;
	}
	must(pwrite(file, start + BLOCK, PAGE, 0) == PAGE);
	must(pwrite(file, start + BLOCK + (64 << 10), 1, 0) == -1 && errno == EFAULT);
	errno = 0;
	must(munmap(memory, 128 * MEGABYTE) == 0);
}

static void *many(void *unused)
{
	for (int i = 0; i < 60; i++) {
		char *memory = mmap(NULL, 3 * MEGABYTE, PROT_NONE, PRIVATE, -1, 0);

		must(memory != MAP_FAILED);
		for (size_t at = 0; at < 3 * MEGABYTE; at += MEGABYTE) {
			must(mprotect(memory + at, MEGABYTE, OPEN) == 0);
			memory[at] = 1;
		}
		must(memory[0] + memory[MEGABYTE] + memory[2 * MEGABYTE] == 3 && memory[5] == 0);
		must(mprotect(memory + 1, PAGE, OPEN) == -1 && errno == EINVAL);
		must(munmap(memory, 3 * MEGABYTE) == 0);
	}
	return unused;
}

static char *guarded;

static void opens(int number)
{
	(void)number;
	must(mprotect(guarded, BLOCK + PAGE, OPEN) == 0);
}

static void child(const char *what, pid_t pid)
{
	int status;

	must(pid > 0 && waitpid(pid, &status, 0) == pid);
	printf("%s: %x\n", what, status);
}

int main(void)
{
	FILE *unnamed = tmpfile();
	char *memory, *again, two[2];
	int file;
	pthread_t threads[4];
	struct sigaction action = {.sa_handler = opens};
	pid_t pid;

	must(unnamed);
	file = fileno(unnamed);
	must(ftruncate(file, 3 * BLOCK) == 0);
	must(pwrite(file, "x", 1, BLOCK) == 1);
	setvbuf(stdout, NULL, _IOLBF, 0);

	memory = mapped("large", NULL, 3 * BLOCK, OPEN, PRIVATE, -1, 0);
	said("unaligned", mprotect(memory + 1, PAGE, OPEN));
	said("nothing", mprotect(memory, 0, OPEN));
	said("code", mprotect(memory, BLOCK, OPEN | PROT_EXEC));
	said("none", mprotect(memory, 3 * BLOCK, PROT_NONE));
	said("odd length", mprotect(memory, BLOCK + 1, OPEN));
	memory[BLOCK + PAGE - 1] = 5;
	said("unknown bits", mprotect(memory, PAGE, 0x40000000));
	again = mmap(memory, PAGE, OPEN, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
	said("there already", (long)again);
	again = mapped("in its place", memory, BLOCK, OPEN, PRIVATE | MAP_FIXED, -1, 0);
	must(again == memory && memory[0] == 0 && memory[BLOCK + PAGE - 1] == 5);
	said("a hole", munmap(memory + BLOCK, PAGE));
	said("over a hole", mprotect(memory, 2 * BLOCK, OPEN));
	said("to the end of space", mprotect(memory, (size_t)-PAGE, OPEN));
	must(munmap(memory, 3 * BLOCK) == 0);
	said("not mapped", mprotect(memory, PAGE, OPEN));

	mapped("too large", NULL, (size_t)1 << 60, OPEN, PRIVATE, -1, 0);
	mapped("empty", NULL, 0, OPEN, PRIVATE, -1, 0);
	mapped("no kind", NULL, PAGE, OPEN, MAP_ANONYMOUS, -1, 0);
	mapped("no file", NULL, PAGE, OPEN, MAP_PRIVATE, -1, 0);
	mapped("odd offset", NULL, PAGE, OPEN, MAP_PRIVATE, file, 1);
	memory = mapped("a file", NULL, 3 * BLOCK, PROT_READ, MAP_SHARED, file, 0);
	must(memory[BLOCK] == 'x');
	said("a file's", mprotect(memory + PAGE, 2 * BLOCK, OPEN));
	memory[BLOCK + 1] = 'y';
	must(pread(file, two, 2, BLOCK) == 2 && two[1] == 'y' && munmap(memory, 3 * BLOCK) == 0);
	memory = mapped("a copy of a file", NULL, 3 * BLOCK, PROT_READ, MAP_PRIVATE, file, 0);
	said("a copy's", mprotect(memory + PAGE, 2 * BLOCK, OPEN));
	must(memory[BLOCK + 1] == 'y' && munmap(memory, 3 * BLOCK) == 0);
	int only = open("/proc/self/exe", O_RDONLY);
	memory = mapped("one that is only read", NULL, PAGE, PROT_READ, MAP_SHARED, only, 0);
	said("to be written", mprotect(memory, PAGE, OPEN));

	registers();
	closed(file);
	for (int i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, many, NULL) == 0);
	for (int i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);

	guarded = mapped("guarded", NULL, BLOCK + PAGE, PROT_NONE, PRIVATE, -1, 0);
	must(sigaction(SIGSEGV, &action, NULL) == 0);
	guarded[PAGE] = 1;
	said("a handler", guarded[PAGE] - 1);
	pid = fork();
	if (pid == 0) {
		many(NULL);
		_exit(3);
	}
	child("fork", pid);
	pid = vfork();
	if (pid == 0)
		_exit(mprotect(guarded, PAGE, PROT_READ) == 0 && mprotect(guarded, BLOCK + PAGE, OPEN) == 0 ? 4 : 5);
	child("vfork", pid);
	guarded[0] = 1;
	return 0;
}
