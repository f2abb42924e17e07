/* Unmaps parts of its memory without libc, then forks: parent and child verify the rest, which does not fit 64 MiB. Argument:
 * MiB. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static uint64_t *data;
static size_t bytes;
static struct { size_t from, bytes; } holes[] = { { 3 * PAGE, PAGE }, { 9 * PAGE, 2 * PAGE }, { 30 << 20, 10 << 20 }, { 60 << 20, PAGE } };
enum { HOLES = sizeof holes / sizeof *holes };

static long unmap(void *address, size_t length)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_munmap), "D"(address), "S"(length) : "rcx", "r11", "memory");
	return result;
#else
	return syscall(SYS_munmap, address, length);
#endif
}

static int wrong(void)
{
	int found = 0;

	for (size_t at = 0; at < bytes; at += PAGE) {
		int hole = 0;

		for (int i = 0; i < HOLES; i++)
			hole |= at >= holes[i].from && at < holes[i].from + holes[i].bytes;
		found += !hole && data[at / sizeof *data] != at + 1;
	}
	return found;
}

int main(int count, char **arguments)
{
	int status = -1;
	pid_t child;

	bytes = (count > 1 ? strtoull(arguments[1], NULL, 10) : 192) << 20;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return 2;
	for (size_t at = 0; at < bytes; at += PAGE)
		data[at / sizeof *data] = at + 1;
	for (int i = 0; i < HOLES; i++)
		if (unmap((char *)data + holes[i].from, holes[i].bytes) != 0)
			return 2;
	child = fork();
	if (child == 0)
		_exit(wrong() != 0);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 2;
	printf("%d %d\n", status, wrong());
	return 0;
}
