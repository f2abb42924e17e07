/* Every function of ream.h, with its figures and its errors, in a session with a budget of 64 MiB (argument "session"), or
 * without one ("alone"). */
#include "abi.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define BYTES (96 * MEGABYTE)

static int is(int result, int expected, const char *what)
{
	if (result != expected)
		fail("%s: %d (%s), should be %d", what, result, ream_error(result), expected);
	return 1;
}
#define gives(call, expected) is(call, expected, #call)

static void status(struct ream_status *to)
{
	*to = (struct ream_status){.size = sizeof(*to)};
	must(ream_status(to) == 0 && to->size == sizeof(*to));
}

static void bad_arguments(int session)
{
	struct ream_status short_status = {.size = 4};
	struct ream_hints odd = {.size = sizeof(odd), .flags = 64};
	struct ream_region regions[2];
	char *closed = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char area[8 * PAGE];

	errno = 4711;

	gives(ream_status(NULL), -EFAULT);
	gives(ream_status((void *)16), -EFAULT);
	gives(ream_status((void *)closed), -EFAULT);
	gives(ream_status(&short_status), -EINVAL);
	gives(ream_enable(2, 0, 0), -EINVAL);
	gives(ream_enable(1, 10, 5), -EINVAL);
	gives((int)ream_regions(NULL, 1, sizeof(regions[0])), -EFAULT);
	gives((int)ream_regions(regions, 1, 3), -EINVAL);
	gives((int)ream_regions(regions, SIZE_MAX / 2, 64), -EINVAL);
	gives(ream_each_region(NULL, NULL), -EINVAL);
	gives(ream_free((void *)64), -EINVAL);
	gives(ream_free(area), -EINVAL);
	gives(ream_free(NULL), 0);
	gives(ream_advise(NULL, 10, REAM_COLD), -EINVAL);
	gives(ream_advise(regions, 0, REAM_COLD), -EINVAL);
	gives(ream_advise(regions, SIZE_MAX, REAM_COLD), -EINVAL);
	gives(ream_advise(regions, 8, 77), -EINVAL);
	gives(ream_advise((void *)PAGE, 8, REAM_WILLNEED), -ENOMEM);
	gives(ream_advise(area, sizeof(area), REAM_DROP), -EPERM);
	gives(ream_pin((void *)PAGE, 8), -ENOMEM);
	gives(ream_unpin(NULL, 8), -EINVAL);
	gives(ream_phase((char *)16), -EFAULT);
	gives(ream_phase(""), -EINVAL);
	gives(ream_phase("a name of more than thirty-one bytes"), -EINVAL);
	gives(ream_phase("a\"b"), -EINVAL);
	must(errno == 4711);
	must(!ream_alloc(0, NULL) && errno == EINVAL);
	must(!ream_alloc(SIZE_MAX, NULL) && errno == ENOMEM);
	must(!ream_alloc(100, &odd) && errno == EINVAL);
	odd = (struct ream_hints){.size = sizeof(odd), .page_size = 12345};
	must(!ream_alloc(100, &odd) && errno == EOPNOTSUPP);
	odd = (struct ream_hints){.size = sizeof(odd), .name = (char *)8};
	must(!ream_alloc(100, &odd) && errno == EFAULT);
	odd = (struct ream_hints){.size = sizeof(odd), .store = "/nowhere"};
	must(!ream_alloc(100, &odd) && errno == (session ? ENOENT : EOPNOTSUPP));
	must(!ream_alloc(100, (void *)8) && errno == EFAULT);
	for (int code = -200; code < 200; code++)
		must(ream_error(code)[0]);
	must(munmap(closed, 4 * PAGE) == 0);
}

/* A block by itself: made, named, found, counted, given back. */
static void one_block(void)
{
	struct ream_hints hints = {.size = sizeof(hints), .name = "one"};
	struct ream_status before, after;
	struct ream_region region;

	status(&before);
	char *block = ream_alloc(10 * MEGABYTE + 5, &hints);
	must(block && (uintptr_t)block % (2 * MEGABYTE) == 0);
	fill((uint64_t *)block, 10 * MEGABYTE / 8, 0, 0);
	status(&after);
	must(after.resident >= before.resident + 8 * MEGABYTE || after.paging);
	must(after.session == 0 || after.managed >= before.managed + 10 * MEGABYTE);
	must(find("one", &region) && region.address == (void *)block && region.kind == REAM_REGION_ALLOC);
	must(region.size == sizeof(region) && region.length == 10 * MEGABYTE + PAGE);
	must(region.resident + region.staged + region.stored >= 10 * MEGABYTE || !after.paging);
	gives(ream_free(block + PAGE), -EINVAL);
	check((uint64_t *)block, 10 * MEGABYTE / 8, 0, 0, "one");
	gives(ream_free(block), 0);
	gives(ream_free(block), -EINVAL);
	must(!find("one", &region));
}

/* Switching it off and on again: blocks of both kinds are freed and grow as ever. */
static void switching(int session)
{
	struct ream_status now;
	struct ream_region region;

	gives(ream_enable(0, 0, 0), 0);
	status(&now);
	must(now.enabled == 0);
	char *off = malloc(20 * MEGABYTE);
	must(off);
	fill((uint64_t *)off, 20 * MEGABYTE / 8, 1, 0);
	must(!region_at(off, &region));
	gives(ream_enable(1, 8 * MEGABYTE, 30 * MEGABYTE), 0);
	status(&now);
	must(now.enabled == 1 && now.min == 8 * MEGABYTE && now.max == 30 * MEGABYTE);
	char *on = malloc(20 * MEGABYTE), *small = malloc(6 * MEGABYTE), *huge = malloc(40 * MEGABYTE);
	must(on && small && huge);
	fill((uint64_t *)on, 20 * MEGABYTE / 8, 2, 0);
	must(region_at(on, &region) && region.kind == REAM_REGION_BLOCK);
	must(!session == !(region.flags & REAM_REGION_MANAGED));
	must(!region_at(small, &region) && !region_at(huge, &region));
	gives(ream_enable(0, 0, 0), 0);
	off = realloc(off, 50 * MEGABYTE);
	on = realloc(on, 50 * MEGABYTE);
	must(off && on && region_at(on, &region) && !region_at(off, &region));
	check((uint64_t *)off, 20 * MEGABYTE / 8, 1, 0, "made while off");
	check((uint64_t *)on, 20 * MEGABYTE / 8, 2, 0, "made while on");
	free(on);
	free(off);
	free(small);
	free(huge);
	gives(ream_enable(1, 0, 0), 0);
}

int main(int argc, char **argv)
{
	int session = argc > 1 && !strcmp(argv[1], "session");
	struct ream_status now;

	status(&now);
	must(now.session == (uint32_t)session && now.enabled == (uint32_t)session);
	must(!session || (now.support & REAM_SUPPORTS_BUDGET && now.budget == 64 * MEGABYTE && now.engine[0]));
	bad_arguments(session);
	one_block();
	switching(session);
	gives(ream_phase("work"), 0);
	gives(ream_budget(64 * MEGABYTE), session ? 0 : -ENOTCONN);
	gives(ream_budget(1), session ? -ERANGE : -ENOTCONN);
	gives(ream_budget(UINT64_MAX), session ? -ERANGE : -ENOTCONN);
	char *data = ream_alloc(BYTES, NULL);
	must(data);
	fill((uint64_t *)data, BYTES / 8, 9, 1);
	one_block();
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		/* In the child as in the parent. */
		check((uint64_t *)data, BYTES / 8, 9, 1, "the child's");
		gives(ream_phase("child"), 0);
		one_block();
		switching(session);
		gives(ream_pin(data, 4 * MEGABYTE), 0);
		gives(ream_advise(data, BYTES, REAM_COLD), 0);
		gives(ream_unpin(data, 4 * MEGABYTE), 0);
		gives(ream_free(data), 0);
		_exit(0);
	}
	int ended;
	must(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
	check((uint64_t *)data, BYTES / 8, 9, 1, "the parent's");
	gives(ream_advise(data + PAGE + 1, 3 * PAGE, REAM_DROP), 0);
	for (size_t byte = 0; byte < 2 * PAGE; byte++)
		must(data[2 * PAGE + byte] == 0);
	check((uint64_t *)data, PAGE / 4, 9, 1, "before what was dropped");
	check((uint64_t *)(data + 4 * PAGE), 100, 9 + PAGE / 2, 1, "behind what was dropped");
	gives(ream_free(data), 0);
	gives(ream_phase(NULL), 0);
	bad_arguments(session);
	puts("all as it should be");
	return 0;
}
