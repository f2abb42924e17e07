/* Touches every kind of memory a program has and prints, a line for each: its name; how many whole aligned blocks of
 * 2 MiB lie in it, and how many of those on a large page; how many KiB of it are in RAM, and how many of those on
 * large pages. Exits with 77 where the kernel does not tell. */
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

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

/* Bytes of a range of whole pages that are in RAM, and on large pages. */
static void look(uintptr_t start, uintptr_t end, uint64_t *present, uint64_t *huge)
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

static void add(struct sum *sum, const void *memory, size_t bytes)
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

static void say(const char *name, const struct sum *sum)
{
	printf("%s %lu %lu %lu %lu\n", name, sum->blocks, sum->huge_blocks, sum->present >> 10, sum->huge >> 10);
}

static void one(const char *name, void *memory, size_t bytes)
{
	struct sum sum = {0};

	memset(memory, 1, bytes);
	add(&sum, memory, bytes);
	say(name, &sum);
}

/* Blocks of about `size` bytes, `all` in sum, that stay until the end. */
static void heap(const char *name, size_t size, size_t all)
{
	size_t count = all / size;
	char **blocks = malloc(count * sizeof *blocks);
	struct sum sum = {0};

	must(blocks);
	for (size_t i = 0; i < count; i++) {
		blocks[i] = malloc(size - i % 7);
		must(blocks[i]);
		memset(blocks[i], 1, size - 7);
	}
	for (size_t i = 0; i < count; i++)
		add(&sum, blocks[i], size - 7);
	say(name, &sum);
}

/* Maps memory piece by piece, as Python does, and touches each piece before the next is mapped. */
static void pieces(const char *name, size_t size, size_t count)
{
	struct sum sum = {0};
	char **all = malloc(count * sizeof *all);

	must(all);
	for (size_t i = 0; i < count; i++) {
		all[i] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(all[i] != MAP_FAILED);
		for (size_t page = 0; page < size; page += PAGE) {
			must(all[i][page] == 0);
			memset(all[i] + page, 1, PAGE);
		}
	}
	for (size_t i = 0; i < count; i++)
		add(&sum, all[i], size);
	say(name, &sum);
}

/* Uses so much of the stack, by frames of 64 KiB, and looks at it from below. */
__attribute__((noinline)) static void deep(const char *name, size_t bytes, uintptr_t top)
{
	volatile char frame[64 << 10];

	for (size_t i = 0; i < sizeof frame; i += 256)
		frame[i] = 1;
	if (bytes > 2 * sizeof frame) {
		deep(name, bytes - sizeof frame, top);
	} else {
		struct sum sum = {0};

		add(&sum, (const void *)frame, top - (uintptr_t)frame);
		say(name, &sum);
	}
	frame[0] = 2;
}

static void *worker(void *only_stack)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (only_stack) {
		deep("stack_large_worker", 48 * MEGABYTE, here);
		return NULL;
	}
	heap("heap_worker_small", 600, 48 * MEGABYTE);
	heap("heap_worker_128k", 200 << 10, 48 * MEGABYTE);
	heap("heap_worker_1m", 1500 << 10, 48 * MEGABYTE);
	deep("stack_worker", 7 * MEGABYTE, here);
	return NULL;
}

static char bss_4m[4 * MEGABYTE];
static char bss_64m[64 * MEGABYTE];
static char data_16m[16 * MEGABYTE] = {1};

int main(void)
{
	pthread_t thread;
	pthread_attr_t attributes;

	pagemap = open("/proc/self/pagemap", O_RDONLY);
	must(pagemap >= 0);
	one("bss_4m", bss_4m, sizeof bss_4m);
	one("bss_64m", bss_64m, sizeof bss_64m);
	one("data_16m", data_16m, sizeof data_16m);
	heap("heap_main_small", 600, 48 * MEGABYTE);
	heap("heap_main_128k", 200 << 10, 48 * MEGABYTE);
	heap("heap_main_1m", 1500 << 10, 48 * MEGABYTE);
	heap("heap_main_large", 40 * MEGABYTE, 80 * MEGABYTE);
	pieces("heap_mapped_pieces", MEGABYTE, 160);
	deep("stack_main", 7 * MEGABYTE, (uintptr_t)__builtin_frame_address(0));
	must(pthread_create(&thread, NULL, worker, NULL) == 0);
	must(pthread_join(thread, NULL) == 0);
	must(pthread_attr_init(&attributes) == 0);
	must(pthread_attr_setstacksize(&attributes, 64 * MEGABYTE) == 0);
	must(pthread_create(&thread, &attributes, worker, bss_4m) == 0);
	must(pthread_join(thread, NULL) == 0);
	return 0;
}
