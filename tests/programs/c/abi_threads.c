/* Threads that call all of ream.h at once, on blocks of their own and on all regions, and forks between; the data of each
 * thread are checked. Arguments: threads, rounds. */
#include "abi.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define BYTES (8 * MEGABYTE)

static size_t rounds;
static const int advice[] = {REAM_NORMAL, REAM_WILLNEED, REAM_COLD, REAM_SEQUENTIAL, REAM_RANDOM, REAM_KEEP};
static atomic_ulong checked;

static int count(const struct ream_region *region, void *argument)
{
	*(uint64_t *)argument += region->length;
	return 0;
}

static void *work(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument, state = number;
	struct ream_status status = {.size = sizeof(status)};
	struct ream_region regions[8];
	char name[16];

	snprintf(name, sizeof(name), "thread %lu", number);
	struct ream_hints hints = {.size = sizeof(hints), .name = name};
	uint64_t *block = ream_alloc(BYTES, &hints);

	must(block && ream_status(&status) == 0);
	fill(block, BYTES / 8, number, 0);
	for (size_t round = 0; round < rounds; round++) {
		uint64_t total = 0, what = next_random(&state) % 12;
		uint64_t *other;

		switch (what) {
		case 0:
			must(ream_status(&status) == 0);
			break;
		case 1:
			must(ream_regions(regions, 8, sizeof(regions[0])) >= 1);
			break;
		case 2:
			must(ream_each_region(count, &total) == 0 && total >= BYTES);
			break;
		case 3:
			must(ream_enable((int)(round % 2), round % 3 ? 0 : 6 * MEGABYTE, 0) == 0);
			break;
		case 4:
			/* Others may have pinned what there is to pin. */
			if (ream_pin(block, BYTES / 2) == 0)
				must(ream_unpin(block, BYTES / 2) == 0);
			break;
		case 5:
			must(ream_phase(round % 3 ? name : NULL) == 0);
			break;
		case 6:
			must(ream_budget((48 + next_random(&state) % 32) * MEGABYTE) == (status.session ? 0 : -ENOTCONN));
			break;
		case 7:
			must(ream_free(block) == 0);
			block = ream_alloc(BYTES, &hints);
			must(block);
			fill(block, BYTES / 8, number, 0);
			break;
		case 8:
			other = malloc(5 * MEGABYTE + round % 7 * MEGABYTE);
			must(other);
			fill(other, 5 * MEGABYTE / 8, number, round);
			other = realloc(other, 9 * MEGABYTE);
			must(other);
			check(other, 5 * MEGABYTE / 8, number, round, "a block of malloc");
			free(other);
			break;
		case 9:
			must(ream_advise(block, BYTES / 2, REAM_DROP) == 0);
			for (size_t word = 0; word < BYTES / 16; word++)
				must(block[word] == 0);
			fill(block, BYTES / 16, number, 0);
			break;
		default:
			must(ream_advise(block, BYTES, advice[next_random(&state) % 6]) == 0);
			break;
		}
		check(block, BYTES / 8, number, 0, name);
		atomic_fetch_add(&checked, 1);
	}
	must(ream_free(block) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t threads = argument(argc, argv, 1, 4);
	pthread_t thread[32];

	rounds = argument(argc, argv, 2, 60);
	must(threads <= 32);
	for (size_t which = 0; which < threads; which++)
		must(pthread_create(&thread[which], NULL, work, (void *)(uintptr_t)(which + 1)) == 0);
	for (int forks = 0; forks < 3; forks++) {
		size_t before = atomic_load(&checked);
		pid_t child = fork();

		must(child >= 0);
		if (child == 0) {
			struct ream_status status = {.size = sizeof(status)};
			uint64_t *own = ream_alloc(BYTES, NULL);

			/* No lock of another thread is left behind. */
			must(ream_status(&status) == 0 && own && ream_phase("child") == 0);
			fill(own, BYTES / 8, 5, 5);
			must(ream_advise(own, BYTES, REAM_COLD) == 0);
			check(own, BYTES / 8, 5, 5, "the child's");
			must(ream_enable(1, 0, 0) == 0 && ream_pin(own, MEGABYTE) == 0 && ream_free(own) == 0);
			_exit(0);
		}
		int ended;
		must(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
		while (atomic_load(&checked) < before + threads && atomic_load(&checked) < threads * rounds)
			sched_yield();
	}
	for (size_t which = 0; which < threads; which++)
		must(pthread_join(thread[which], NULL) == 0);
	printf("%lu checks\n", atomic_load(&checked));
	return 0;
}
