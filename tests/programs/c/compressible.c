/* Pages of which some compress well, some a little, some not at all, and which change from one kind to another; read and
 * written at random, in runs and in order, by this process and by children. Arguments: MiB, rounds, children, and percent of
 * pages that do not compress. */
#include "common.h"
#include <sys/wait.h>

static size_t pages, percent;
static uint64_t *block, state = 1;
static uint32_t *generation;

static void make(uint64_t *page, size_t number, uint64_t generation)
{
	uint64_t kind = mix(number * 31 + generation), noise = kind % 100 < percent ? PAGE_WORDS : kind % 200;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		page[i] = i < noise ? mix(number * PAGE_WORDS + i + generation * 77) : number + (generation << 32);
}

static void write_page(size_t number)
{
	make(block + number * PAGE_WORDS, number, ++generation[number]);
}

static void check_page(size_t number)
{
	uint64_t page[PAGE_WORDS];

	make(page, number, generation[number]);
	if (memcmp(page, block + number * PAGE_WORDS, PAGE) != 0)
		fail("page %zu is not what was written last (%u times)", number, generation[number]);
}

static void live(size_t rounds)
{
	for (size_t round = 0; round < rounds; round++) {
		size_t first = next_random(&state) % pages, run = 1 + next_random(&state) % 200, some = pages / 64;

		for (size_t i = 0; i < pages / 16; i++)
			(next_random(&state) & 1 ? write_page : check_page)(next_random(&state) % pages);
		for (size_t i = first; i < first + run && i < pages; i++)
			write_page(i);
		/* A few that are used all the time. */
		for (size_t i = 0; i < 4 * some; i++)
			check_page(next_random(&state) % some);
		for (size_t i = 0; round % 8 == 7 && i < pages; i++)
			check_page(i);
	}
	for (size_t i = 0; i < pages; i++)
		check_page(i);
}

int main(int argc, char **argv)
{
	size_t rounds = argument(argc, argv, 2, 32), children = argument(argc, argv, 3, 0);

	pages = argument(argc, argv, 1, 64) * MEGABYTE / PAGE;
	percent = argument(argc, argv, 4, 25);
	block = malloc(pages * PAGE);
	generation = calloc(pages, sizeof(*generation));
	must(block && generation);
	for (size_t i = 0; i < pages; i++)
		write_page(i);
	live(rounds);
	for (size_t child = 0; child < children; child++) {
		pid_t pid = fork();
		int status;

		must(pid >= 0);
		state += child;
		if (pid == 0) {
			live(rounds / 2);
			/* And one that reads its parent's and its grandparent's. */
			pid = fork();
			must(pid >= 0);
			live(rounds / 4);
			if (pid == 0)
				_exit(0);
			must(waitpid(pid, &status, 0) == pid && status == 0);
			_exit(0);
		}
		live(rounds / 2);
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	live(rounds / 4);
	printf("right\n");
	return 0;
}
