/* munmap, mmap, mremap, mprotect and madvise of parts, in random order, against a model that knows what every page
 * must hold and how it must be protected. */
#include "common.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#define REGIONS 8
#define MOST 32768 /* pages of a region */

enum { HOLE, NONE, READ, WRITE };

struct page {
	uint64_t generation; /* 0: zeros */
	unsigned char access, lazy; /* lazy: MADV_FREE was said, may have become zeros */
};

static struct region {
	char *address;
	size_t pages;
	struct page *model;
} regions[REGIONS];

static size_t limit, total, operations;
static uint64_t random_state = 4, next_generation = 1;
static sigjmp_buf landing;

static size_t below(size_t n)
{
	return next_random(&random_state) % n;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	siglongjmp(landing, 1);
}

static int faults(volatile char *address, int write)
{
	if (sigsetjmp(landing, 1))
		return 1;
	if (write)
		*address = *address;
	else
		(void)*address;
	return 0;
}


static int zeros(const uint64_t *words)
{
	for (size_t i = 0; i < PAGE_WORDS; i++)
		if (words[i])
			return 0;
	return 1;
}

static void verify(struct region *region, size_t page)
{
	struct page *model = &region->model[page];
	uint64_t *words = (uint64_t *)(region->address + page * PAGE);

	if (model->access < READ)
		return;
	if (model->lazy && zeros(words))
		model->generation = 0;
	if (model->generation == 0) {
		if (!zeros(words))
			fail("region %zu page %zu should be zeros, holds %016lx", region - regions, page, words[0]);
		return;
	}
	/* The number of the page is part of its generation, so that pages may move. */
	check(words, PAGE_WORDS, model->generation << 20, model->generation, "a page");
}

static void map(struct region *region, size_t pages)
{
	if (total + pages > limit)
		return;
	region->address = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(region->address != MAP_FAILED);
	region->pages = pages;
	region->model = calloc(MOST, sizeof(*region->model));
	must(region->model);
	for (size_t page = 0; page < pages; page++)
		region->model[page].access = WRITE;
	total += pages;
}

static void unmap_all(struct region *region)
{
	/* Holes may belong to somebody else by now: unmap what is ours only. */
	for (size_t page = 0; page < region->pages; page++) {
		size_t end = page;

		verify(region, page);
		while (end < region->pages && region->model[end].access != HOLE)
			end++;
		if (end > page) {
			for (size_t k = page; k < end; k++)
				verify(region, k);
			must(munmap(region->address + page * PAGE, (end - page) * PAGE) == 0);
			page = end;
		}
	}
	total -= region->pages;
	free(region->model);
	memset(region, 0, sizeof(*region));
}

static int any_hole(const struct region *region, size_t first, size_t pages)
{
	for (size_t page = first; page < first + pages; page++)
		if (region->model[page].access == HOLE)
			return 1;
	return 0;
}

static void one_operation(struct region *region)
{
	size_t first, pages;
	char *start;
	int kind = below(20);

	if (region->pages == 0) {
		map(region, 1 + below(MOST / 2));
		return;
	}
	first = below(region->pages);
	pages = 1 + below(kind % 2 ? 40 : 2000);
	if (pages > region->pages - first)
		pages = region->pages - first;
	start = region->address + first * PAGE;
	operations++;
	if (kind <= 6) { /* write */
		for (size_t page = first; page < first + pages; page++) {
			struct page *model = &region->model[page];

			if (model->access != WRITE)
				continue;
			verify(region, page);
			model->generation = next_generation++;
			model->lazy = 0;
			fill((uint64_t *)(region->address + page * PAGE), PAGE_WORDS, model->generation << 20,
			     model->generation);
		}
		return;
	}
	if (kind <= 10) { /* read */
		for (size_t page = first; page < first + pages; page++)
			verify(region, page);
		return;
	}
	if (kind == 11) { /* unmap a part */
		if (any_hole(region, first, pages))
			return;
		must(munmap(start, pages * PAGE) == 0);
		for (size_t page = first; page < first + pages; page++)
			region->model[page].access = HOLE;
		return;
	}
	if (kind == 12) { /* map over, where it is ours */
		if (any_hole(region, first, pages))
			return;
		must(mmap(start, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		     start);
		for (size_t page = first; page < first + pages; page++)
			region->model[page] = (struct page){ 0, WRITE, 0 };
		return;
	}
	if (kind == 13) { /* fill holes, where nobody else has taken them */
		for (size_t page = first; page < first + pages; page++) {
			if (region->model[page].access != HOLE)
				continue;
			void *hole = region->address + page * PAGE;
			void *got = mmap(hole, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

			if (got == hole)
				region->model[page] = (struct page){ 0, WRITE, 0 };
			else if (got != MAP_FAILED)
				munmap(got, PAGE);
		}
		return;
	}
	if (any_hole(region, first, pages))
		return;
	if (kind == 14 || kind == 15) { /* discard */
		int advice = kind == 14 ? MADV_DONTNEED : MADV_FREE;

		must(madvise(start, pages * PAGE, advice) == 0);
		for (size_t page = first; page < first + pages; page++)
			if (kind == 14)
				region->model[page].generation = 0;
			else
				region->model[page].lazy = 1;
	} else if (kind == 16) { /* protect and see that it is */
		int access = NONE + below(2);
		size_t probe = first + below(pages);
		char *address = region->address + probe * PAGE;

		must(mprotect(start, pages * PAGE, access == NONE ? PROT_NONE : PROT_READ) == 0);
		for (size_t page = first; page < first + pages; page++)
			region->model[page].access = access;
		if (!faults(address, 1))
			fail("a write to a protected page went through");
		if (faults(address, 0) != (access == NONE))
			fail("a read of a protected page, access %d", access);
	} else if (kind == 17) { /* and back */
		must(mprotect(start, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
		for (size_t page = first; page < first + pages; page++)
			region->model[page].access = WRITE;
	} else { /* grow, shrink, move the whole */
		size_t want = kind == 18 ? region->pages + below(2000) : 1 + below(region->pages);
		void *moved;

		/* mremap wants one mapping, so one protection. */
		if (any_hole(region, 0, region->pages) || want > MOST || total - region->pages + want > limit)
			return;
		must(mprotect(region->address, region->pages * PAGE, PROT_READ | PROT_WRITE) == 0);
		for (size_t page = 0; page < region->pages; page++)
			region->model[page].access = WRITE;
		moved = mremap(region->address, region->pages * PAGE, want * PAGE, MREMAP_MAYMOVE);
		if (moved == MAP_FAILED && errno == EFAULT)
			return; /* parts were mapped one by one and did not merge */
		must(moved != MAP_FAILED);
		for (size_t page = region->pages; page < want; page++)
			region->model[page] = (struct page){ 0, WRITE, 0 };
		for (size_t page = want; page < region->pages; page++)
			region->model[page].generation = 0;
		total = total - region->pages + want;
		region->address = moved;
		region->pages = want;
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	size_t rounds;

	limit = argument(argc, argv, 1, 256) * MEGABYTE / PAGE;
	rounds = argument(argc, argv, 2, 6000);
	random_state = argument(argc, argv, 3, 4);
	must(sigaction(SIGSEGV, &action, NULL) == 0);
	for (size_t k = 0; k < rounds; k++) {
		struct region *region = &regions[below(REGIONS)];

		if (below(400) == 0 && region->pages)
			unmap_all(region);
		else
			one_operation(region);
	}
	for (size_t k = 0; k < REGIONS; k++)
		unmap_all(&regions[k]);
	printf("mappings agree with the model after %zu operations\n", rounds);
	return 0;
}
