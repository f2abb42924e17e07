/* Counts its page faults in the parts of memory that --prefault concerns, each touched for the first time, and what it has
 * of the pool before. Arguments: MiB of the block (0: none), and anything, to wait for SIGUSR1 first. */
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STATIC (8 * MEGABYTE)
#define DEEP (5 * MEGABYTE)

static uint64_t bss[STATIC / 8];

static long faults(void)
{
	struct rusage usage;

	must(getrusage(RUSAGE_THREAD, &usage) == 0);
	return usage.ru_minflt + usage.ru_majflt;
}

static long reserved(const char *what)
{
	char line[256], format[64];
	long pages = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	must(file);
	snprintf(format, sizeof(format), "%s: %%ld", what);
	while (fgets(line, sizeof(line), file))
		sscanf(line, format, &pages);
	fclose(file);
	return pages;
}

static void touch(const char *name, volatile uint64_t *memory, size_t bytes)
{
	long before = faults();

	for (size_t i = 0; i < bytes / 8; i += PAGE_WORDS)
		memory[i] = mix(i);
	before = faults() - before;
	fprintf(stderr, "%s %ld\n", name, before);
	for (size_t i = 0; i < bytes / 8; i += PAGE_WORDS)
		must(memory[i] == mix(i));
}

static void __attribute__((noinline)) deep(const char *name)
{
	volatile uint64_t stack[DEEP / 8];

	touch(name, stack, DEEP);
}

static void *thread(void *unused)
{
	deep("thread");
	return unused;
}

static void go_on(int signal)
{
	(void)signal;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 32) * MEGABYTE;
	uint64_t *block, *map;
	pthread_t other;
	int status;
	pid_t child;

	fprintf(stderr, "free %ld\nreserved %ld\n", reserved("HugePages_Free"), reserved("HugePages_Rsvd"));
	if (argc > 2) {
		signal(SIGUSR1, go_on);
		pause();
	}
	touch("bss", bss, STATIC);
	deep("stack");
	must(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
	map = mmap(NULL, 4 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(map != MAP_FAILED);
	touch("shared", map, 4 * MEGABYTE);
	map = mmap(NULL, 4 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(map != MAP_FAILED);
	touch("mapped", map, 4 * MEGABYTE);
	if (bytes) {
		block = calloc(bytes, 1);
		must(block);
		for (size_t i = 0; i < bytes / 8; i++)
			must(block[i] == 0);
		free(block);
		block = malloc(bytes);
		must(block);
		touch("block", block, bytes);
		/* A child has no claim on what is reserved; both write. */
		child = fork();
		must(child >= 0);
		if (child == 0) {
			for (size_t i = 0; i < bytes / 8; i += PAGE_WORDS)
				must(block[i] == mix(i));
			memset(block, 1, bytes);
			block = malloc(bytes);
			must(block);
			memset(block, 2, bytes);
			_exit(0);
		}
		for (size_t i = 0; i < bytes / 8; i += PAGE_WORDS)
			block[i] = mix(i + 1);
		must(waitpid(child, &status, 0) == child && status == 0);
		for (size_t i = 0; i < bytes / 8; i += PAGE_WORDS)
			must(block[i] == mix(i + 1));
		free(block);
		fprintf(stderr, "again %ld\n", reserved("HugePages_Rsvd"));
		/* Freed blocks may have come in any order, and are used for others. */
		block = malloc(bytes / 2);
		map = malloc(bytes / 2);
		must(block && map);
		fill(block, bytes / 16, 1, 1);
		fill(map, bytes / 16, 2, 1);
		check(block, bytes / 16, 1, 1, "block");
		check(map, bytes / 16, 2, 1, "map");
		free(block);
		free(map);
	}
	printf("right\n");
	return 0;
}
