/* What the kernel answers at the edges of its calls on memory, with data that do not fit 64 MiB. Prints a line for each that is
 * not as it should be.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define PAGE 4096ul

static char *map(size_t bytes)
{
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		exit(2);
	return start;
}

static void fill(char *start, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += PAGE)
		*(size_t *)(start + at) = at + 1;
}

static size_t unlike(const char *start, size_t bytes, size_t step)
{
	size_t wrong = 0;

	for (size_t at = 0; at < bytes; at += PAGE)
		wrong += *(const size_t *)(start + at) != (step ? at + 1 : 0);
	return wrong;
}

static void check(int right, const char *what)
{
	if (!right)
		printf("%s: not so (%s)\n", what, strerror(errno));
}

static size_t resident(void)
{
	size_t all = 0, here = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%zu %zu", &all, &here) != 2)
		exit(2);
	fclose(file);
	return here * PAGE;
}

/* A child has no locks of its parent's: what it discards is zeros. */
static void locked_in_the_parent(void)
{
	char *data = map(96 * MIB);
	int status = -1;
	pid_t child;

	fill(data, 0, 96 * MIB);
	check(mlock(data, PAGE) == 0, "a page is locked");
	child = fork();
	if (child == 0)
		_exit(madvise(data, 96 * MIB, MADV_DONTNEED) != 0 || unlike(data, 96 * MIB, 0) != 0);
	check(waitpid(child, &status, 0) == child && status == 0, "a child discards");
	check(unlike(data, 96 * MIB, 1) == 0, "its parent keeps");
	munmap(data, 96 * MIB);
}

static void grown_from_little(void)
{
	size_t bytes = MIB / 2;
	char *data = map(bytes);

	fill(data, 0, bytes);
	while (bytes < 256 * MIB) {
		data = mremap(data, bytes, bytes * 2, MREMAP_MAYMOVE);
		if (data == MAP_FAILED)
			exit(2);
		fill(data, bytes, bytes * 2);
		bytes *= 2;
	}
	check(unlike(data, bytes, 1) == 0, "what has grown holds its data");
	munmap(data, bytes);
}

/* Allocators give memory back so. */
static void discarded_and_closed(void)
{
	char *data = map(256 * MIB);

	fill(data, 0, 256 * MIB);
	check(madvise(data, 256 * MIB, MADV_DONTNEED) == 0, "all is discarded");
	check(mprotect(data, 256 * MIB, PROT_NONE) == 0, "all is closed");
	check(resident() < 128 * MIB, "nothing is brought back");
	check(mprotect(data, 256 * MIB, PROT_READ) == 0, "all is opened to read");
	check(unlike(data, 8 * MIB, 0) == 0, "zeros are there");
	check(mprotect(data, 256 * MIB, PROT_READ | PROT_WRITE) == 0, "all is opened");
	fill(data, 0, 256 * MIB);
	check(mprotect(data + 64 * MIB, 8 * MIB, PROT_READ) == 0, "a part is closed");
	check(unlike(data, 256 * MIB, 1) == 0, "data are there");
	munmap(data, 256 * MIB);
}

static void with_a_hole(void)
{
	char *data = map(128 * MIB), *moved;

	fill(data, 0, 128 * MIB);
	munmap(data + 64 * MIB, PAGE);
	errno = 0;
	moved = mremap(data, 128 * MIB, 256 * MIB, MREMAP_MAYMOVE);
	check(moved == MAP_FAILED && errno == EFAULT, "a range with a hole does not grow");
	check(unlike(data, 64 * MIB, 1) == 0, "and stays");
	munmap(data, 128 * MIB);
}

static void not_replaced(void)
{
	char *data = map(128 * MIB), *other;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE;

	fill(data, 0, 128 * MIB);
	errno = 0;
	other = mmap(data, 64 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
	check(other == MAP_FAILED && errno == EEXIST, "what is there is not replaced");
	check(unlike(data, 128 * MIB, 1) == 0, "and stays");
	munmap(data, 128 * MIB);
}

/* execvp has a shell run a script that names no interpreter. */
static void nameless_script(const char *beside)
{
	char path[4096];
	int status = -1, file;
	pid_t child;

	snprintf(path, sizeof path, "%s-%d.script", beside, (int)getpid());
	file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
	if (file < 0 || write(file, "exit 42\n", 8) != 8 || close(file) != 0)
		exit(2);
	child = fork();
	if (child == 0) {
		execvp(path, (char *[]){ path, NULL });
		_exit(126);
	}
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42, "a script is run");
	unlink(path);
}

int main(int count, char **words)
{
	(void)count;
	locked_in_the_parent();
	grown_from_little();
	discarded_and_closed();
	with_a_hole();
	not_replaced();
	nameless_script(words[0]);
	puts("done");
	return 0;
}
