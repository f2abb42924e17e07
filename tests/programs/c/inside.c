/* Loads Ream into a running process, in ways that its first argument names; the second is the library's path. What was
 * allocated before, with it, while it is off and by others, is used and freed in every combination. */
#include "common.h"
#include "../../../include/ream.h"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct {
	int (*status)(struct ream_status *);
	int (*enable)(int, size_t, size_t);
	long (*regions)(struct ream_region *, size_t, size_t);
	int (*start)(uint64_t, const char *);
	int (*budget)(uint64_t);
} ream;

/* Addresses that were taken before. */
static void (*freed_by)(void *) = free;
static void (*set_later)(void *);

static void *named(void *library, const char *name)
{
	void *found = dlsym(library, name);

	must(found);
	return found;
}

static void load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		fail("%s", dlerror());
	*(void **)&ream.status = named(library, "ream_status");
	*(void **)&ream.enable = named(library, "ream_enable");
	*(void **)&ream.regions = named(library, "ream_regions");
	*(void **)&ream.start = named(library, "ream_start");
	*(void **)&ream.budget = named(library, "ream_budget");
	must(dlsym(library, "malloc") != named(library, "ream_alloc"));
}

static int is_ours(const void *block)
{
	struct ream_region list[64];
	long count = ream.regions(list, 64, sizeof(list[0]));

	must(count >= 0 && count <= 64);
	for (long i = 0; i < count; i++)
		if (list[i].address == block)
			return 1;
	return 0;
}

static uint64_t *filled(void *block, size_t bytes, uint64_t seed)
{
	must(block);
	fill(block, bytes / 8, seed, 0);
	return block;
}

static void all_kinds(void)
{
	const size_t big = 8 * MEGABYTE;
	uint64_t *before = filled(malloc(big), big, 1), *small = filled(malloc(1000), 1000, 2);
	uint64_t *a, *b, *c, *d, *e;
	void *aligned = NULL;

	set_later = free;
	must(ream.enable(1, MEGABYTE, 16 * MEGABYTE) == 0);
	must(!is_ours(before));
	a = filled(malloc(big), big, 3);
	must(is_ours(a) && malloc_usable_size(a) >= big && (uintptr_t)a % (2 * MEGABYTE) == 0);
	b = calloc(3, MEGABYTE);
	must(b && is_ours(b));
	for (size_t i = 0; i < 3 * MEGABYTE / 8; i++)
		must(b[i] == 0);
	must(posix_memalign(&aligned, 4096, 2 * MEGABYTE) == 0 && is_ours(aligned));
	must(posix_memalign(&aligned, 3, 2 * MEGABYTE) == EINVAL);
	c = aligned;
	d = malloc(20 * MEGABYTE);
	e = malloc(1000);
	must(d && e && !is_ours(d) && !is_ours(e));
	free(e);
	/* From theirs to ours, and back, and within. */
	before = realloc(before, 2 * big);
	must(before && is_ours(before));
	check(before, big / 8, 1, 0, "grown");
	small = realloc(small, 2 * MEGABYTE);
	must(small && is_ours(small));
	check(small, 1000 / 8, 2, 0, "grown much");
	small = realloc(small, 1000);
	must(small && !is_ours(small));
	check(small, 1000 / 8, 2, 0, "shrunk");
	a = realloc(a, big + MEGABYTE);
	must(a && is_ours(a));
	a = realloc(a, 40 * MEGABYTE);
	must(a && !is_ours(a));
	check(a, big / 8, 3, 0, "grown beyond the upper bound");
	freed_by(b);
	set_later(c);
	free(a);
	free(d);
	/* Off. */
	must(ream.enable(0, 0, 0) == 0 && is_ours(before));
	b = filled(malloc(big), big, 5);
	must(!is_ours(b));
	before = realloc(before, 3 * big);
	must(before && !is_ours(before));
	check(before, big / 8, 1, 0, "grown when off");
	free(before);
	free(b);
	free(small);
	must(ream.regions(NULL, 0, sizeof(struct ream_region)) == 0);
	must(ream.enable(2, 0, 0) == -EINVAL && ream.enable(1, 2, 1) == -EINVAL);
}

/* libc itself resizes the line that it is given. */
static void by_libc(const char *file)
{
	size_t room = 2 * MEGABYTE;
	char *line;
	ssize_t length;
	FILE *lines = fopen(file, "r");

	must(lines && ream.enable(1, MEGABYTE, 0) == 0);
	line = malloc(room);
	must(is_ours(line));
	length = getline(&line, &room, lines);
	must(length == 5 * (ssize_t)MEGABYTE && line[length - 1] == 'a' && room > 5 * MEGABYTE);
	free(line);
	fclose(lines);
}

/* What is loaded later frees and resizes our blocks, and loads another from beside itself. */
static void later(const char *path)
{
	uint64_t *block;
	void *library, *other, *(*grow)(void *, size_t);
	void (*drop)(void *);
	int (*inner)(void);

	must(ream.enable(1, MEGABYTE, 0) == 0);
	library = dlopen(path, RTLD_LAZY);
	if (!library)
		fail("%s", dlerror());
	*(void **)&grow = named(library, "late_grow");
	*(void **)&drop = named(library, "late_drop");
	*(void **)&inner = named(library, "late_inner");
	block = filled(malloc(2 * MEGABYTE), 2 * MEGABYTE, 9);
	must(is_ours(block));
	block = grow(block, 6 * MEGABYTE);
	must(block && is_ours(block));
	check(block, 2 * MEGABYTE / 8, 9, 0, "grown by another");
	drop(block);
	must(inner() == 42);
	/* What has a namespace of its own has its own libc, and is left alone. */
	other = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	if (!other)
		fail("%s", dlerror());
	*(void **)&inner = named(other, "late_inner");
	must(inner() == 42);
	must(dlopen("libsurely-not-there.so", RTLD_NOW) == NULL && strstr(dlerror(), "libsurely-not-there.so"));
	must(dlclose(library) == 0);
	library = dlopen(path, RTLD_NOW);
	must(library);
	*(void **)&drop = named(library, "late_drop");
	drop(malloc(2 * MEGABYTE));
}

static int stop;

static void *busy(void *seed)
{
	uint64_t random = (uintptr_t)seed;
	uint64_t *blocks[16] = {NULL};
	size_t words[16] = {0};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t i = next_random(&random) % 16, bytes = 8 + next_random(&random) % (4 * MEGABYTE) / 8 * 8;

		if (blocks[i])
			must(blocks[i][0] == mix(i) && blocks[i][words[i] - 1] == i);
		if (next_random(&random) % 2) {
			free(blocks[i]);
			blocks[i] = malloc(bytes);
		} else {
			blocks[i] = realloc(blocks[i], bytes);
		}
		must(blocks[i]);
		words[i] = bytes / 8;
		blocks[i][words[i] - 1] = i;
		blocks[i][0] = mix(i);
		if (words[i] == 1)
			free(blocks[i]), blocks[i] = NULL;
	}
	for (size_t i = 0; i < 16; i++)
		free(blocks[i]);
	return NULL;
}

static void toggled(void)
{
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, busy, (void *)(i + 1)) == 0);
	for (int i = 0; i < 1000; i++) {
		must(ream.enable(i % 2, MEGABYTE / 2, 0) == 0);
		usleep(500);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);
	must(ream.regions(NULL, 0, sizeof(struct ream_region)) == 0);
}

static void session(const char *store)
{
	enum { BLOCKS = 8 };
	const size_t bytes = 32 * MEGABYTE, words = bytes / 8;
	struct ream_status status = {.size = sizeof(status)};
	uint64_t *before = filled(malloc(bytes), bytes, 100), *block[BLOCKS], *mapping;
	pid_t pid;
	int end;

	must(ream.start(MEGABYTE, store) == -ERANGE);
	must(ream.start(64 * MEGABYTE, "/dev/null") == -EINVAL);
	must(ream.start(64 * MEGABYTE, (char *)8) == -EFAULT);
	must(ream.status(&status) == 0 && status.session == 0);
	/* The kernel reaps our helper then, before we could. */
	must(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	must(ream.start(64 * MEGABYTE, store) == 0);
	must(ream.start(64 * MEGABYTE, store) == -EALREADY);
	must(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
	must(ream.status(&status) == 0 && status.session == 1 && status.budget == 64 * MEGABYTE);
	mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(mapping != MAP_FAILED);
	filled(mapping, bytes, 200);
	for (size_t i = 0; i < BLOCKS; i++)
		block[i] = filled(malloc(bytes), bytes, i);
	must(ream.status(&status) == 0 && status.paging == 1 && status.managed >= (BLOCKS + 1) * bytes);
	pid = fork();
	must(pid >= 0);
	for (size_t i = 0; i < BLOCKS; i++) {
		check(block[i], words, i, 0, pid ? "in the parent" : "in the child");
		fill(block[i], words, i, pid ? 1 : 2);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		check(block[i], words, i, pid ? 1 : 2, pid ? "parent's" : "child's");
	check(mapping, words, 200, 0, "mapping");
	check(before, words, 100, 0, "from before");
	if (pid == 0)
		_exit(0);
	must(waitpid(pid, &end, 0) == pid && end == 0);
	must(ream.budget(96 * MEGABYTE) == 0);
	/* Off: what is stored stays usable. */
	must(ream.enable(0, 0, 0) == 0);
	must(ream.status(&status) == 0 && status.managed >= (BLOCKS + 1) * bytes);
	for (size_t i = 0; i < BLOCKS; i++) {
		check(block[i], words, i, 1, "switched off");
		free(block[i]);
	}
	must(munmap(mapping, bytes) == 0);
	free(before);
}

/* Functions of libc that are found by name serve absent memory as those that are called do. */
static void asked(void)
{
	const size_t bytes = 256 * MEGABYTE;
	ssize_t (*read_)(int, void *, size_t), (*write_)(int, const void *, size_t), (*next)(int, void *, size_t);
	char *data;
	int ends[2];

	must(ream.start(64 * MEGABYTE, NULL) == 0);
	*(void **)&read_ = named(RTLD_DEFAULT, "read");
	*(void **)&write_ = named(dlopen(NULL, RTLD_NOW), "write");
	*(void **)&next = named(RTLD_NEXT, "read");
	must(read_ == next && dlsym(RTLD_DEFAULT, "no_such_function") == NULL && dlerror());
	must(named(RTLD_DEFAULT, "strlen") == (void *)strlen);
	data = (char *)filled(malloc(bytes), bytes, 7);
	must(pipe(ends) == 0);
	for (size_t at = 0; at < bytes; at += MEGABYTE) {
		must(write_(ends[1], data + at, 4096) == 4096);
		must(read_(ends[0], data + at, 4096) == 4096);
	}
	check((uint64_t *)data, bytes / 8, 7, 0, "asked");
	free(data);
}

/* Loads a library of its own again and again, which gets blocks of ours at once. */
static void *loading(void *name)
{
	void *(*grow)(void *, size_t);
	void (*drop)(void *);

	for (int i = 0; i < 100; i++) {
		void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

		if (!library)
			fail("%s", dlerror());
		*(void **)&grow = named(library, "plugin_grow");
		*(void **)&drop = named(library, "plugin_drop");
		drop(grow(malloc(MEGABYTE), 2 * MEGABYTE));
		must(dlclose(library) == 0);
	}
	return NULL;
}

/* While others of its threads load libraries a program is taken over, and each time one is there its slots are led. */
static void together(const char *plugin)
{
	enum { THREADS = 4 };
	static char names[THREADS][4096];
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++) {
		snprintf(names[i], sizeof(names[i]), "%s-%zu", plugin, i);
		must(pthread_create(&threads[i], NULL, loading, names[i]) == 0);
	}
	usleep(20000);
	must(ream.enable(1, MEGABYTE / 2, 0) == 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();
		int end;

		must(pid >= 0);
		if (pid == 0) {
			/* Whatever the others were at. */
			alarm(60);
			must(ream.enable(1, MEGABYTE / 2, 0) == 0);
			_exit(0);
		}
		must(waitpid(pid, &end, 0) == pid);
		if (end != 0)
			fail("a child ended with %x", end);
	}
	for (size_t i = 0; i < THREADS; i++)
		must(pthread_join(threads[i], NULL) == 0);
	must(ream.regions(NULL, 0, sizeof(struct ream_region)) == 0);
}

int main(int argc, char **argv)
{
	must(argc > 2);
	if (strcmp(argv[1], "linked") != 0)
		load(argv[2]);
	if (strcmp(argv[1], "kinds") == 0)
		all_kinds();
	else if (strcmp(argv[1], "libc") == 0)
		by_libc(argv[3]);
	else if (strcmp(argv[1], "later") == 0)
		later(argv[3]);
	else if (strcmp(argv[1], "toggled") == 0)
		toggled();
	else if (strcmp(argv[1], "together") == 0)
		together(argv[3]);
	else if (strcmp(argv[1], "session") == 0)
		session(argv[3]);
	else if (strcmp(argv[1], "nowhere") == 0)
		must(ream.start(64 * MEGABYTE, NULL) == -ENOENT);
	else if (strcmp(argv[1], "asked") == 0)
		asked();
	else if (strcmp(argv[1], "there") == 0)
		must(ream.enable(1, MEGABYTE, 0) == -EBUSY && ream.start(64 * MEGABYTE, NULL) == -EBUSY);
	else
		fail("no such way: %s", argv[1]);
	puts("well");
	return 0;
}
