/* libdlm.a: dlm.h over ream.h. Ream is looked for in the process, and opened where DLM_MEMORY asks for a session; without
 * it there is ordinary memory, so that a program needs no Ream to start. */
#define _GNU_SOURCE
#define REAM_WEAK
#include <dlm.h>
#include <ream.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The exit status of a program whose arrays cannot be had: that of `ream run` for its own failures. */
#define FAILED 125

/* Where an installation puts the library that is opened by processes that are running. */
#define INSIDE "libream_inside.so"

static struct {
	int (*status)(struct ream_status *);
	int (*start)(uint64_t, const char *);
	void *(*alloc)(size_t, const struct ream_hints *);
	int (*free)(void *);
	int (*advise)(void *, size_t, int);
	const char *(*error)(int);
} ream;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int began; /* what dlm_startup returns */
static int session; /* there is one */
static _Atomic int stopped; /* dlm_shutdown was called */

#define PAGE  ((size_t)4096)
#define LARGE ((size_t)2 << 20)

/* What was given out without Ream. */
struct block {
	struct block *next;
	char *start;
	size_t length;
};

static struct block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Takes Ream's functions from a library, or from all that the process has. */
static int take(void *library)
{
	*(void **)&ream.status = dlsym(library, "ream_status");
	*(void **)&ream.start = dlsym(library, "ream_start");
	*(void **)&ream.alloc = dlsym(library, "ream_alloc");
	*(void **)&ream.free = dlsym(library, "ream_free");
	*(void **)&ream.advise = dlsym(library, "ream_advise");
	*(void **)&ream.error = dlsym(library, "ream_error");
	if (ream.status && ream.alloc && ream.free && ream.advise && ream.error)
		return 1;
	memset(&ream, 0, sizeof(ream));
	return 0;
}

/* Opens the library: of REAM_HOME, else where the program was linked to look (its rpath), else where it usually is. */
static int open_library(void)
{
	static const char *const usual[] = {INSIDE, "/usr/local/lib/ream/" INSIDE, "/usr/lib/ream/" INSIDE};
	const char *home = secure_getenv("REAM_HOME");
	char path[PATH_MAX];
	void *library = NULL;

	if (home && *home) {
		if ((size_t)snprintf(path, sizeof(path), "%s/lib/ream/" INSIDE, home) < sizeof(path))
			library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	} else {
		for (size_t i = 0; !library && i < sizeof(usual) / sizeof(*usual); i++)
			library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
	}
	return library && take(library);
}

/* A size as `ream run --memory` reads it: digits, and K, M, G or T (of 1024; KiB and KB are the same). 0: no size. */
static uint64_t size_of(const char *text)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t size;
	char *end;

	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	size = strtoull(text, &end, 10);
	if (errno)
		return 0;
	/* A space becomes the end of the list. */
	unit = strchr(units, *end & ~0x20);
	if (unit && *unit) {
		int shift = 10 * (int)(unit - units + 1);

		if (size > UINT64_MAX >> shift)
			return 0;
		size <<= shift;
		end++;
		if ((*end & ~0x20) == 'I')
			end++;
	}
	if ((*end & ~0x20) == 'B')
		end++;
	return *end ? 0 : size;
}

static void begin(void)
{
	const char *memory = getenv("DLM_MEMORY");
	struct ream_status status = {.size = sizeof(status)};
	int inside = take(RTLD_DEFAULT);
	uint64_t budget;

	session = inside && ream.status(&status) == 0 && status.session;
	if (session)
		return;
	if (!memory || !*memory)
		return;
	budget = size_of(memory);
	if (!budget) {
		fprintf(stderr, "dlm: DLM_MEMORY=%s is no size; one is 4G, or 512M\n", memory);
		began = -EINVAL;
		return;
	}
	if ((!inside || !ream.start) && !(open_library() && ream.start)) {
		memset(&ream, 0, sizeof(ream));
		fprintf(stderr, "dlm: DLM_MEMORY is set, and %s is not found; REAM_HOME says where Ream is installed\n",
			INSIDE);
		began = -ENOENT;
		return;
	}
	began = ream.start(budget, NULL);
	if (began == -EALREADY)
		began = 0;
	session = !began;
	/* Of these it has said why itself. */
	if (began && began != -EINVAL && began != -EPERM)
		fprintf(stderr, "dlm: DLM_MEMORY=%s: %s\n", memory, ream.error(began));
}

int dlm_startup(int *argc, char ***argv)
{
	int error = errno;

	(void)argc;
	(void)argv;
	pthread_once(&once, begin);
	errno = error;
	return began;
}

/* Without Ream: a mapping, remembered so that what is no block is an error and no crash. */
static void *plain_alloc(size_t size)
{
	size_t align = size >= LARGE ? LARGE : PAGE, length = (size + PAGE - 1) & ~(PAGE - 1), before;
	struct block *block;
	char *map;

	if (size > SIZE_MAX / 2) {
		errno = ENOMEM;
		return NULL;
	}
	block = malloc(sizeof(*block));
	if (!block)
		return NULL;
	map = mmap(NULL, length + align - PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		free(block);
		errno = ENOMEM;
		return NULL;
	}
	before = -(uintptr_t)map & (align - 1);
	if (before)
		munmap(map, before);
	if (align - PAGE - before)
		munmap(map + before + length, align - PAGE - before);
	block->start = map + before;
	block->length = length;
	pthread_mutex_lock(&lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&lock);
	return block->start;
}

static int plain_free(void *start)
{
	struct block **place, *block;

	pthread_mutex_lock(&lock);
	for (place = &blocks; *place && (*place)->start != start;)
		place = &(*place)->next;
	block = *place;
	if (block)
		*place = block->next;
	pthread_mutex_unlock(&lock);
	if (!block)
		return -EINVAL;
	munmap(block->start, block->length);
	free(block);
	return 0;
}

static void *allocate(size_t size, const char *name)
{
	struct ream_hints hints = {.size = sizeof(hints), .name = name};

	if (stopped || !size) {
		errno = EINVAL;
		return NULL;
	}
	if (dlm_startup(NULL, NULL)) {
		errno = -began;
		return NULL;
	}
	return ream.alloc ? ream.alloc(size, &hints) : plain_alloc(size);
}

void *dlm_alloc(size_t size)
{
	return allocate(size, NULL);
}

int dlm_free(void *block)
{
	if (!block)
		return 0;
	dlm_startup(NULL, NULL);
	return ream.free ? ream.free(block) : plain_free(block);
}

int dlm_shutdown(void)
{
	stopped = 1;
	return 0;
}

static int advise(void *address, size_t size, int advice)
{
	if (!address || !size || (uintptr_t)address + size < (uintptr_t)address)
		return -EINVAL;
	dlm_startup(NULL, NULL);
	return ream.advise ? ream.advise(address, size, advice) : 0;
}

int dlm_get(void *address, size_t size)
{
	return advise(address, size, REAM_WILLNEED);
}

int dlm_put(void *address, size_t size)
{
	return advise(address, size, REAM_COLD);
}

void *dlm_array_begin(size_t size, const char *name)
{
	char hint[32];
	void *array;

	/* A region's name has 31 bytes at most, and is ASCII here: a longer one is cut. */
	snprintf(hint, sizeof(hint), "%s", name);
	array = allocate(size, hint);
	if (!array) {
		if (!began)
			fprintf(stderr, "dlm: no memory for %s, %zu bytes: %s%s\n", name, size, strerror(errno),
				session ? "" : "; start it with ream run --memory SIZE, or set DLM_MEMORY=SIZE");
		_exit(FAILED);
	}
	return array;
}
