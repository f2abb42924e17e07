/* Touches every kind of memory a program has and prints, a line for each: its name; how many whole aligned blocks of
 * 2 MiB lie in it, and how many of those on a large page; how many KiB of it are in RAM, and how many of those on
 * large pages. Exits with 77 where the kernel does not tell. */
#include "look.h"
#include <pthread.h>
#include <sys/mman.h>

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

	begin_to_look();
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
