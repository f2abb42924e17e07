/* Memory of every kind that --lock concerns: used, grown, shrunk, moved, discarded, forked and freed, beside memory that
 * may not fit. Checks every byte, and says how much is locked at each step. Arguments: MiB of the block that is locked,
 * MiB beside it that are used in rounds (0: none). */
#include "common.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STATIC (8 * MEGABYTE)
#define DEEP (5 * MEGABYTE)

static uint64_t bss[STATIC / 8];

static long locked(void)
{
	char line[256];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");

	must(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "VmLck: %ld", &kib);
	fclose(file);
	return kib;
}

static size_t absent(void *memory, size_t bytes)
{
	static unsigned char seen[1 << 16];
	uintptr_t start = ((uintptr_t)memory + PAGE - 1) & ~(PAGE - 1);
	size_t pages = ((uintptr_t)memory + bytes - start) / PAGE, count = 0;

	must(pages <= sizeof(seen) && mincore((void *)start, pages * PAGE, seen) == 0);
	for (size_t page = 0; page < pages; page++)
		count += !(seen[page] & 1);
	return count;
}

static void *deep(void *unused)
{
	volatile uint64_t stack[DEEP / 8];

	for (size_t i = 0; i < DEEP / 8; i += PAGE_WORDS)
		stack[i] = i;
	for (size_t i = 0; i < DEEP / 8; i += PAGE_WORDS)
		must(stack[i] == i);
	fprintf(stderr, "thread %ld\n", locked());
	return unused;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 16) * MEGABYTE, beside = argument(argc, argv, 2, 0) * MEGABYTE;
	uint64_t *block = malloc(bytes), *other = NULL, *map, *device;
	pthread_t thread;
	long locked_before;
	pid_t child;
	int status;

	must(block);
	fill(block, bytes / 8, 0, 1);
	fill(bss, STATIC / 8, 5, 1);
	locked_before = locked();
	fprintf(stderr, "begin %ld\n", locked_before);
	if (beside) {
		other = malloc(beside);
		must(other);
		for (int round = 0; round < 2; round++) {
			fill(other, beside / 8, 9, (uint64_t)round);
			check(other, beside / 8, 9, (uint64_t)round, "beside");
		}
		fprintf(stderr, "absent %zu of locked, %zu beside\n", absent(block, bytes) + absent(bss, STATIC),
			absent(other, beside));
		check(block, bytes / 8, 0, 1, "block");
		check(bss, STATIC / 8, 5, 1, "bss");
	}
	must(pthread_create(&thread, NULL, deep, NULL) == 0 && pthread_join(thread, NULL) == 0);

	/* Resized: in place or by a move, and back. */
	block = realloc(block, bytes + 8 * MEGABYTE);
	must(block && block[bytes / 8 - 1]);
	fill(block + bytes / 8, 8 * MEGABYTE / 8, bytes / 8, 1);
	check(block, (bytes + 8 * MEGABYTE) / 8, 0, 1, "grown");
	fprintf(stderr, "grown %ld\n", locked());
	block = realloc(block, bytes);
	check(block, bytes / 8, 0, 1, "shrunk");
	fprintf(stderr, "shrunk %ld\n", locked());

	/* A mapping of the program's own. It does not know that this is locked. */
	map = mmap(NULL, 4 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(map != MAP_FAILED);
	fill(map, 4 * MEGABYTE / 8, 3, 1);
	fprintf(stderr, "mapped %ld\n", locked());
	map = mremap(map, 4 * MEGABYTE, 6 * MEGABYTE, MREMAP_MAYMOVE);
	must(map != MAP_FAILED);
	check(map, 4 * MEGABYTE / 8, 3, 1, "moved");
	fprintf(stderr, "moved %ld\n", locked());
	must(munlock(map, MEGABYTE) == 0);
	fprintf(stderr, "unlocked %ld\n", locked());
	must(madvise(map, MEGABYTE, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < MEGABYTE / 8; i++)
		must(map[i] == 0);
	check(map + MEGABYTE / 8, 3 * MEGABYTE / 8, 3 + MEGABYTE / 8, 1, "kept");
	fill(map, 6 * MEGABYTE / 8, 4, 2);
	/* As for a device: children get neither. */
	device = mmap(NULL, 8 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(device != MAP_FAILED && madvise(device, MEGABYTE, MADV_DONTFORK) == 0);
	fill(device, MEGABYTE, 8, 1);

	for (int round = 0; round < 3; round++) {
		child = fork();
		must(child >= 0);
		if (child == 0) {
			fprintf(stderr, "child %ld\n", locked());
			check(block, bytes / 8, 0, 1 + (uint64_t)round, "block in the child");
			check(bss, STATIC / 8, 5, 1 + (uint64_t)round, "bss in the child");
			check(map, 6 * MEGABYTE / 8, 4, 2, "map in the child");
			/* Ream passes on what it pages, whatever was said: beside so much more not all of it is locked. */
			must(locked_before <= 0 || beside || msync(device, MEGABYTE, MS_ASYNC) < 0);
			check(device + MEGABYTE / 8, 7 * MEGABYTE / 8, 8 + MEGABYTE / 8, 1, "device in the child");
			fill(block, bytes / 8, 1, 77);
			fill(bss, STATIC / 8, 1, 77);
			block = realloc(block, 2 * bytes);
			must(block);
			check(block, bytes / 8, 1, 77, "grown in the child");
			check(bss, STATIC / 8, 1, 77, "bss in the child");
			must(munmap(map, 6 * MEGABYTE) == 0);
			free(block);
			fprintf(stderr, "child %ld\n", locked());
			_exit(0);
		}
		/* At once, while the child begins. */
		fill(block, bytes / 8, 0, 2 + (uint64_t)round);
		fill(bss, STATIC / 8, 5, 2 + (uint64_t)round);
		must(waitpid(child, &status, 0) == child && status == 0);
		check(block, bytes / 8, 0, 2 + (uint64_t)round, "block after a fork");
		check(bss, STATIC / 8, 5, 2 + (uint64_t)round, "bss after a fork");
	}
	if (other)
		check(other, beside / 8, 9, 1, "beside");
	fprintf(stderr, "forked %ld\n", locked());
	must(munmap(map, 6 * MEGABYTE) == 0);
	check(device, MEGABYTE, 8, 1, "device");
	must(munmap(device, 8 * MEGABYTE) == 0);
	/* What is freed is kept for a while when it is small. */
	free(block);
	free(other);
	block = malloc(2 * bytes + 64 * MEGABYTE);
	free(block);
	fprintf(stderr, "end %ld\n", locked());
	printf("right\n");
	return 0;
}
