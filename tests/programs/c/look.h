/* How a program looks at its own pages: for a region a line with its name; how many whole aligned blocks of 2 MiB lie in
 * it, and how many of those on a large page; how many KiB of it are in RAM, and how many of those on large pages. For C
 * and C++. Exits with 77 where the kernel does not tell. */
#ifndef REAM_TEST_LOOK_H
#define REAM_TEST_LOOK_H

#include "common.h"
#include <fcntl.h>
#include <sys/ioctl.h>

#define BLOCK (2 * MEGABYTE)
#define PRESENT (1UL << 3)
#define HUGE_PAGE (1UL << 6)

struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any_of, wanted;
};

struct found {
	uint64_t start, end, categories;
};

struct sum {
	uint64_t present, huge, blocks, huge_blocks;
};

static int pagemap;

__attribute__((unused)) static void begin_to_look(void)
{
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	must(pagemap >= 0);
}

/* Bytes of a range of whole pages that are in RAM, and on large pages. */
__attribute__((unused)) static void look(uintptr_t start, uintptr_t end, uint64_t *present, uint64_t *huge)
{
	struct found found[256];
	struct scan scan = {sizeof scan, 0, start, end, 0, (uintptr_t)found, 256, 0, 0, PRESENT, 0, PRESENT | HUGE_PAGE};

	while (scan.start < end) {
		int count = ioctl(pagemap, _IOWR('f', 16, struct scan), &scan);

		if (count < 0 && errno == ENOTTY) {
			fprintf(stderr, "this kernel has no PAGEMAP_SCAN\n");
			exit(77);
		}
		must(count >= 0);
		for (int i = 0; i < count; i++) {
			*present += found[i].end - found[i].start;
			if (found[i].categories & HUGE_PAGE)
				*huge += found[i].end - found[i].start;
		}
		must(scan.walk_end > scan.start);
		scan.start = scan.walk_end;
	}
}

__attribute__((unused)) static void add(struct sum *sum, const void *memory, size_t bytes)
{
	uintptr_t start = (uintptr_t)memory / PAGE * PAGE, end = ((uintptr_t)memory + bytes + PAGE - 1) / PAGE * PAGE;

	look(start, end, &sum->present, &sum->huge);
	for (uintptr_t block = (start + BLOCK - 1) / BLOCK * BLOCK; block + BLOCK <= end; block += BLOCK) {
		uint64_t present = 0, huge = 0;

		look(block, block + BLOCK, &present, &huge);
		sum->blocks++;
		sum->huge_blocks += huge == BLOCK;
	}
}

__attribute__((unused)) static void say(const char *name, const struct sum *sum)
{
	printf("%s %lu %lu %lu %lu\n", name, sum->blocks, sum->huge_blocks, sum->present >> 10, sum->huge >> 10);
}

__attribute__((unused)) static void one(const char *name, void *memory, size_t bytes)
{
	struct sum sum = {0, 0, 0, 0};

	memset(memory, 1, bytes);
	add(&sum, memory, bytes);
	say(name, &sum);
}

/* Blocks of about `size` bytes, `all` in sum, that stay until the end. */
__attribute__((unused)) static void heap(const char *name, size_t size, size_t all)
{
	size_t count = all / size;
	char **blocks = (char **)malloc(count * sizeof *blocks);
	struct sum sum = {0, 0, 0, 0};

	must(blocks);
	for (size_t i = 0; i < count; i++) {
		blocks[i] = (char *)malloc(size - i % 7);
		must(blocks[i]);
		memset(blocks[i], 1, size - 7);
	}
	for (size_t i = 0; i < count; i++)
		add(&sum, blocks[i], size - 7);
	say(name, &sum);
}

/* Uses so much of the stack, by frames of 64 KiB, and looks at it from below. */
__attribute__((noinline, unused)) static void deep(const char *name, size_t bytes, uintptr_t top)
{
	volatile char frame[64 << 10];

	for (size_t i = 0; i < sizeof frame; i += 256)
		frame[i] = 1;
	if (bytes > 2 * sizeof frame) {
		deep(name, bytes - sizeof frame, top);
	} else {
		struct sum sum = {0, 0, 0, 0};

		add(&sum, (const void *)frame, top - (uintptr_t)frame);
		say(name, &sum);
	}
	frame[0] = 2;
}

#endif
