/* What the test programs share: distinct, incompressible data that can be computed again, and a way to fail.
 * Every word of a page is mix(seed + index) + generation, so a lost, stale or misplaced page shows at once. */
#ifndef REAM_TEST_COMMON_H
#define REAM_TEST_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGE_WORDS 512UL
#define MEGABYTE (1UL << 20)

/* A bijection on 64-bit numbers whose output looks random. */
static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15UL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9UL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebUL;
	return x ^ (x >> 31);
}

/* Prints why on stderr and ends the process with status 99, without running anything else. */
__attribute__((noreturn, format(printf, 1, 2), unused)) static void fail(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "FAILED (pid %d): ", (int)getpid());
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(99);
}

#define must(condition)                                                                                               \
	do {                                                                                                          \
		if (!(condition))                                                                                     \
			fail("%s:%d: %s (errno %d, %s)", __FILE__, __LINE__, #condition, errno, strerror(errno));     \
	} while (0)

/* The number in argument `which`, or `otherwise`. */
__attribute__((unused)) static size_t argument(int argc, char **argv, int which, size_t otherwise)
{
	return argc > which ? strtoull(argv[which], NULL, 10) : otherwise;
}

/* Writes `words` words of generation `generation`, the first with number `index`. */
__attribute__((unused)) static void fill(uint64_t *to, size_t words, uint64_t index, uint64_t generation)
{
	for (size_t i = 0; i < words; i++)
		to[i] = mix(index + i) + generation;
}

/* Fails unless `words` words are those that fill() wrote. */
__attribute__((unused)) static void check(const uint64_t *from, size_t words, uint64_t index, uint64_t generation,
					  const char *what)
{
	for (size_t i = 0; i < words; i++)
		if (from[i] != mix(index + i) + generation)
			fail("%s: word %zu at %p is %016lx, should be %016lx (generation %lu, is %ld off)", what, i,
			     (const void *)(from + i), from[i], mix(index + i) + generation, generation,
			     (long)(from[i] - mix(index + i) - generation));
}

/* Folds words into a checksum that depends on their order. */
__attribute__((unused)) static uint64_t checksum(const uint64_t *from, size_t words, uint64_t sum)
{
	for (size_t i = 0; i < words; i++)
		sum = (sum ^ from[i]) * 0x100000001b3UL + (sum >> 47);
	return sum;
}

/* Pages of a range that are in RAM. */
__attribute__((unused)) static size_t in_core(const void *memory, size_t bytes)
{
	size_t pages = bytes / PAGE, count = 0;
	unsigned char *seen = (unsigned char *)malloc(pages);

	must(seen && mincore((void *)(uintptr_t)memory, bytes, seen) == 0);
	for (size_t page = 0; page < pages; page++)
		count += seen[page] & 1;
	free(seen);
	return count;
}

/* The next number of a stream that depends on its seed only. */
__attribute__((unused)) static uint64_t next_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15UL;
	return mix(*state);
}

/* KiB that a process has in RAM and has written, and shares with nobody. */
__attribute__((unused)) static long own_kib(int pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "r");
	must(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Private_Dirty: %ld", &kib) == 1)
			break;
	fclose(file);
	must(kib >= 0);
	return kib;
}

#endif
