/* Built with -DLIBRARY: a library for LD_PRELOAD that stands before some of libc's functions and passes their calls on, holds paged
 * memory of its own from its constructor on, and tells at its end what it saw. Else a program that calls such functions. */
#include "common.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>

#ifdef LIBRARY
#define WORDS (64 * MEGABYTE / 8)

static uint64_t *held;
static size_t reads, writes, opens;

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	must(found);
	return found;
}

ssize_t read(int file, void *to, size_t bytes)
{
	ssize_t (*function)(int, void *, size_t) = next("read");

	reads++;
	return function(file, to, bytes);
}

ssize_t write(int file, const void *from, size_t bytes)
{
	ssize_t (*function)(int, const void *, size_t) = next("write");

	writes++;
	return function(file, from, bytes);
}

int open(const char *path, int flags, ...)
{
	int (*function)(const char *, int) = next("open");

	opens++;
	return function(path, flags);
}

/* What the program sees of the clock is this library's. */
time_t time(time_t *place)
{
	if (place)
		*place = 4711;
	return 4711;
}

__attribute__((constructor)) static void begin(void)
{
	must((held = malloc(WORDS * 8)));
	fill(held, WORDS, 77, 0);
}

__attribute__((destructor)) static void end(void)
{
	char line[100];
	int length;

	check(held, WORDS, 77, 0, "the library's own");
	must((held = realloc(held, WORDS * 12)));
	check(held, WORDS, 77, 0, "the library's own, larger");
	length = snprintf(line, sizeof line, "%zu reads, %zu writes, %zu opens\n", reads, writes, opens);
	must(((ssize_t(*)(int, const void *, size_t))next("write"))(1, line, (size_t)length) == length);
	free(held);
}
#else
int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 128) * MEGABYTE / 8;
	uint64_t *block = malloc(words * 8);
	int file = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_WRONLY);
	char begin[4];

	must(block && file >= 0 && null >= 0 && read(file, begin, 4) == 4 && memcmp(begin, "\177ELF", 4) == 0);
	fill(block, words, 3, 0);
	for (size_t at = 0; at < words; at += words / 16)
		must(write(null, block + at, words / 16 * 8) == (ssize_t)(words / 16 * 8));
	for (size_t at = 0; at < words; at += words / 16)
		must(lseek(file, 0, SEEK_SET) == 0 && read(file, block + at, 8) == 8);
	for (size_t at = 0; at < words; at += words / 16) {
		must(memcmp(block + at, "\177ELF", 4) == 0);
		check(block + at + 1, words / 16 - 1, 3 + at + 1, 0, "between what was read");
	}
	printf("time %ld\n", (long)time(NULL));
	fflush(stdout);
	return 0;
}
#endif
