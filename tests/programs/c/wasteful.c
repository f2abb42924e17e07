// Threads allocate blocks of all kinds, use a page here and there, grow, free and clear them, discard parts, move mappings and
// fork, and check every word that they have written, and that the rest is zeros where it must be.
// Usage: wasteful SECONDS THREADS
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 24
#define PAGE 4096

struct block {
	unsigned char *start;
	size_t bytes;
	uint64_t salt;
	size_t step;
	int mapped;
};

static time_t end;
static uint64_t unused[(size_t)24 << 17];

static void fail(const char *what, const struct block *block, size_t at)
{
	printf("%s: block of %zu bytes, step %zu, mapped %d: wrong at %zu\n", what, block->bytes, block->step,
	       block->mapped, at);
	fflush(stdout);
	_exit(1);
}

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static uint64_t value(const struct block *block, size_t at)
{
	return (at + 1) * 0x9e3779b97f4a7c15u ^ block->salt;
}

static void write_all(struct block *block)
{
	for (size_t at = 0; at + 8 <= block->bytes; at += block->step)
		memcpy(block->start + at, &(uint64_t){ value(block, at) }, 8);
}

static void check(const struct block *block, const char *what)
{
	for (size_t at = 0; at + 8 <= block->bytes; at += block->step) {
		uint64_t found;

		memcpy(&found, block->start + at, 8);
		if (found != value(block, at))
			fail(what, block, at);
	}
}

/* Everything between the words written. */
static void check_zeros(const struct block *block, const char *what)
{
	for (size_t at = 0; at + PAGE <= block->bytes; at += PAGE)
		for (size_t word = at % block->step == 0 ? 8 : 0; word < PAGE; word += 512)
			if (block->start[at + word])
				fail(what, block, at + word);
}

static void get(struct block *block, uint64_t *seed)
{
	block->bytes = (next(seed) % 24 + 1) << 20;
	block->step = (size_t)PAGE << next(seed) % 8;
	block->salt = next(seed);
	block->mapped = next(seed) % 3;
	if (block->mapped) {
		block->start = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (block->start == MAP_FAILED)
			fail("mmap", block, 0);
	} else {
		block->start = calloc(1, block->bytes);
		if (!block->start)
			fail("calloc", block, 0);
	}
	write_all(block);
}

static void change(struct block *block, uint64_t *seed)
{
	check(block, "before");
	switch (next(seed) % 7) {
	case 0:
		check_zeros(block, "zeros");
		if (block->mapped)
			munmap(block->start, block->bytes);
		else
			free(block->start);
		get(block, seed);
		break;
	case 1: {
		size_t bytes = block->bytes + ((next(seed) % 8) << 20);

		block->start = block->mapped ? mremap(block->start, block->bytes, bytes, MREMAP_MAYMOVE) :
					       realloc(block->start, bytes);
		if (!block->start || block->start == MAP_FAILED)
			fail("growing", block, 0);
		if (!block->mapped)
			memset(block->start + block->bytes, 0, bytes - block->bytes);
		check(block, "grown, the first part");
		block->bytes = bytes;
		write_all(block);
		break;
	}
	case 2:
		/* Discarded, and written at once. */
		if (block->mapped && madvise(block->start, block->bytes, MADV_DONTNEED) != 0)
			fail("madvise", block, 0);
		if (!block->mapped)
			memset(block->start, 0, block->bytes);
		block->salt++;
		if (block->mapped)
			for (size_t at = 0; at < block->bytes; at += PAGE)
				if (block->start[at])
					fail("discarded", block, at);
		write_all(block);
		break;
	default:
		block->salt++;
		write_all(block);
	}
	check(block, "after");
}

static void *work(void *argument)
{
	uint64_t seed = (uintptr_t)argument * 77 + 1;
	static __thread struct block blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		get(&blocks[i], &seed);
	while (time(NULL) < end) {
		change(&blocks[next(&seed) % BLOCKS], &seed);
		if ((uintptr_t)argument == 0 && next(&seed) % 64 == 0) {
			pid_t child = fork();

			if (child == 0) {
				for (int i = 0; i < BLOCKS; i++) {
					check(&blocks[i], "child");
					blocks[i].salt++;
					write_all(&blocks[i]);
					check(&blocks[i], "child, changed");
				}
				_exit(0);
			}
			int status;

			if (child < 0 || waitpid(child, &status, 0) != child || status) {
				printf("child: status %x\n", status);
				fflush(stdout);
				_exit(1);
			}
		}
		/* Time to grow old. */
		usleep(next(&seed) % 4000);
	}
	for (int i = 0; i < BLOCKS; i++)
		check(&blocks[i], "at the end");
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 2;
	pthread_t handles[16];

	end = time(NULL) + (argc > 1 ? atol(argv[1]) : 5);
	for (size_t i = 0; i < sizeof(unused) / 8; i += 8192)
		unused[i] = i + 1;
	for (int i = 0; i < threads && i < 16; i++)
		if (pthread_create(&handles[i], NULL, work, (void *)(uintptr_t)i))
			return 2;
	for (int i = 0; i < threads && i < 16; i++)
		pthread_join(handles[i], NULL);
	for (size_t i = 0; i < sizeof(unused) / 8; i++)
		if (unused[i] != (i % 8192 ? 0 : i + 1))
			return 3;
	printf("right\n");
	return 0;
}
