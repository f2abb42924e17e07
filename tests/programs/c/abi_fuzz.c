/* Random arguments to every function of ream.h; then, and between, memory is what it should be. What a program may rightly
 * lose by an argument (a block that is freed, a range that is dropped) is counted out. Arguments: seed, calls. */
#include "abi.h"

#define BLOCKS 6
#define BLOCK_BYTES (6 * MEGABYTE)

static uint64_t state;
static uint64_t *blocks[BLOCKS];
static int lost[BLOCKS];
static char *reserved;

static uint64_t some(uint64_t below)
{
	return next_random(&state) % below;
}

/* Addresses: null, low, high, in the kernel, unmapped, code, constants, stack, heap, inside and at the ends of blocks. */
static void *address(void)
{
	static const char constant[] = "a constant";
	char *block = (char *)blocks[some(BLOCKS)];

	switch (some(12)) {
	case 0:
		return NULL;
	case 1:
		return (void *)(uintptr_t)some(PAGE * 4);
	case 2:
		return (void *)(uintptr_t)next_random(&state);
	case 3:
		return (void *)(UINTPTR_MAX - some(PAGE * 4));
	case 4:
		return reserved + some(16 * PAGE);
	case 5:
		return (void *)(uintptr_t)(0x7fffffffe000UL + some(PAGE * 4));
	case 6:
		return (void *)((uintptr_t)constant + some(4));
	case 7:
		return (void *)((uintptr_t)&ream_alloc + some(64));
	case 8:
		return block + BLOCK_BYTES - some(3) * 8;
	default:
		return block + some(BLOCK_BYTES);
	}
}

static size_t size(void)
{
	switch (some(6)) {
	case 0:
		return 0;
	case 1:
		return some(100);
	case 2:
		return some(BLOCK_BYTES);
	case 3:
		return SIZE_MAX - some(2 * PAGE);
	case 4:
		return (size_t)1 << some(64);
	default:
		return some(4) * PAGE;
	}
}

static void lose(const char *from, size_t bytes)
{
	for (int which = 0; which < BLOCKS; which++) {
		const char *start = (const char *)blocks[which];

		if (bytes > 0 && from < start + BLOCK_BYTES && start < from + bytes)
			lost[which] = 1;
	}
}

static void renew(int which)
{
	fill(blocks[which], BLOCK_BYTES / 8, (uint64_t)which, 1);
	lost[which] = 0;
}

static void one_call(void)
{
	/* Written to when it was a good address: only here is there room. */
	static struct ream_region regions[3];
	static struct ream_status status;
	struct ream_hints hints = {.size = some(3) ? sizeof(hints) : some(64), .flags = (uint32_t)(some(3) ? some(4) : some(1UL << 32))};
	size_t bytes = size();
	void *at = address();

	switch (some(10)) {
	case 0:
		status.size = some(3) ? sizeof(status) : size();
		if (status.size <= sizeof(status))
			ream_status(&status);
		ream_status(some(2) ? NULL : (void *)reserved);
		break;
	case 1:
		ream_enable((int)some(4) - 1, size(), some(2) ? 0 : size());
		break;
	case 2:
		if (bytes > sizeof(regions[0]) || bytes % 8)
			bytes = sizeof(regions[0]);
		ream_regions(regions, some(4), bytes);
		ream_regions(some(2) ? NULL : (void *)reserved, size(), size());
		break;
	case 3: {
		hints.page_size = some(2) ? 0 : some(2) ? 4096 : next_random(&state);
		hints.name = some(2) ? NULL : some(2) ? "fuzz" : address();
		hints.store = some(3) ? NULL : address();
		char *block = ream_alloc(bytes < 64 * MEGABYTE ? bytes : size(), some(4) ? &hints : at);
		if (block) {
			must(block[0] == 0);
			if (!some(8))
				block[0] = 1;
			must(ream_free(block) == 0);
		}
		break;
	}
	case 4:
		/* Our own blocks are of malloc: none of them is freed by this. */
		ream_free(at);
		break;
	case 5: {
		int advice = (int)some(10) - 1;
		uintptr_t first = (uintptr_t)at;

		if (ream_advise(at, bytes, advice) == 0 && advice == REAM_DROP)
			lose((char *)first, bytes);
		break;
	}
	case 6:
		ream_pin(at, bytes);
		break;
	case 7:
		ream_unpin(at, bytes);
		break;
	case 8:
		ream_phase(some(4) ? at : "fuzz");
		break;
	default:
		ream_budget(some(2) ? next_random(&state) : 32 * MEGABYTE + some(64) * MEGABYTE);
		break;
	}
}

int main(int argc, char **argv)
{
	size_t calls = argument(argc, argv, 2, 3000);

	state = argument(argc, argv, 1, 1);
	reserved = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(reserved != MAP_FAILED);
	for (int which = 0; which < BLOCKS; which++) {
		blocks[which] = malloc(BLOCK_BYTES);
		must(blocks[which]);
		renew(which);
	}
	uint64_t *pressure = malloc(96 * MEGABYTE);
	must(pressure);
	fill(pressure, 96 * MEGABYTE / 8, 77, 0);
	for (size_t call = 0; call < calls; call++) {
		one_call();
		if (call % 500 == 499)
			for (int which = 0; which < BLOCKS; which++) {
				if (!lost[which])
					check(blocks[which], BLOCK_BYTES / 8, (uint64_t)which, 1, "a block");
				renew(which);
			}
	}
	ream_budget(64 * MEGABYTE);
	for (int which = 0; which < BLOCKS; which++) {
		must(ream_unpin(blocks[which], BLOCK_BYTES) == 0);
		renew(which);
		check(blocks[which], BLOCK_BYTES / 8, (uint64_t)which, 1, "a block at the end");
		free(blocks[which]);
	}
	check(pressure, 96 * MEGABYTE / 8, 77, 0, "pressure");
	puts("survived");
	return 0;
}
