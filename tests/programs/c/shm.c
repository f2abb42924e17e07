// Shared memory of one kind: filled, shared with a forked child and with a second process that attaches it by its name,
// then looked at. Says how many KiB of it lie on large pages, and on a pool's.
// Usage: shm KIND KIB [work|keep MIB], KIND is anon, memfd, shm_open, sysv or key. With MIB of memory of its own it works or,
// with "keep", stays as it is. "attach KIND NAME KIB" is the second process.
#include "common.h"
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

static size_t bytes;

/* KiB of the mapping at this place with large pages: transparent ones, and those of a pool. */
static void large(const void *place, long *transparent, long *pool)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end, at = (unsigned long)place;
	char line[512];
	int inside = 0;
	long kib;

	must(file);
	*transparent = *pool = 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start <= at && at < end;
		else if (inside && sscanf(line, "ShmemPmdMapped: %ld", &kib) == 1)
			*transparent += kib;
		else if (inside && (sscanf(line, "Private_Hugetlb: %ld", &kib) == 1 ||
				    sscanf(line, "Shared_Hugetlb: %ld", &kib) == 1))
			*pool += kib;
	}
	fclose(file);
}

static void tell(const char *who, const void *place)
{
	long transparent, pool;

	large(place, &transparent, &pool);
	printf("%s %ld %ld\n", who, transparent, pool);
	fflush(stdout);
}

static uint64_t *open_named(const char *kind, const char *name)
{
	void *place;

	if (!strcmp(kind, "shm_open")) {
		int fd = shm_open(name, O_RDWR, 0);

		must(fd >= 0);
		place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	} else {
		int id = shmget((key_t)strtoul(name, NULL, 0), bytes, 0);

		must(id >= 0);
		place = shmat(id, NULL, 0);
	}
	must(place != MAP_FAILED);
	return place;
}

/* Half of the words, as the other process left them, are changed. */
static int attach(const char *kind, const char *name)
{
	uint64_t *words = open_named(kind, name);
	size_t count = bytes / 8;

	check(words, count, 0, 1, "attached");
	fill(words, count / 2, 0, 2);
	tell("attached", words);
	return 0;
}

/* A memfd and a file below /dev/shm stay files: written, read, of any length, sealed, mapped in parts. */
static void stays_a_file(int fd, int seals)
{
	uint64_t page[PAGE_WORDS], back[PAGE_WORDS];
	struct stat about;
	uint64_t *part;

	fill(page, PAGE_WORDS, 7, 7);
	must(pwrite(fd, page, PAGE, 5 * PAGE) == PAGE && pread(fd, back, PAGE, 5 * PAGE) == PAGE);
	check(back, PAGE_WORDS, 7, 7, "read back");
	must(!ftruncate(fd, bytes + 12345) && !fstat(fd, &about) && about.st_size == (off_t)bytes + 12345);
	must(!ftruncate(fd, bytes) && !fstat(fd, &about) && about.st_size == (off_t)bytes);
	/* A window that begins in the middle of a block. */
	part = mmap(NULL, bytes - 3 * PAGE, PROT_READ, MAP_SHARED, fd, 3 * PAGE);
	must(part != MAP_FAILED);
	check(part + 2 * PAGE_WORDS, PAGE_WORDS, 7, 7, "mapped");
	must(!munmap(part, bytes - 3 * PAGE));
	if (seals) {
		must(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
		must(ftruncate(fd, PAGE) == -1 && errno == EPERM);
	}
}

/* What may be done with a mapping by its own length and in pieces. */
static void changed(uint64_t *words)
{
	char *start = (char *)words;
	size_t whole = (bytes + PAGE - 1) & -PAGE;

	must(!mprotect(words, whole, PROT_READ));
	check(words, bytes / 8, 0, 3, "read only");
	must(!mprotect(words, whole, PROT_READ | PROT_WRITE));
	must(!madvise(words, whole, MADV_HUGEPAGE) && !madvise(words, 3 * PAGE, MADV_DONTNEED));
	must(!madvise(words, whole, MADV_DONTFORK) && !madvise(words, whole, MADV_DOFORK));
	check(words, bytes / 8, 0, 3, "after advice");
	/* A private page in its middle, at a fixed place, is possible on the edge of a block. */
	must(!munmap(start + 3 * MEGABYTE, MEGABYTE) && !munmap(start + 2 * MEGABYTE, MEGABYTE));
	must(mmap(start + 2 * MEGABYTE, 2 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		  -1, 0) == start + 2 * MEGABYTE);
	must(start[2 * MEGABYTE] == 0);
	must(!munmap(start + 2 * MEGABYTE, 2 * MEGABYTE));
	check(words, MEGABYTE / 4, 0, 3, "beside");
	/* Something else takes the place of the end, which may lie within a page of a pool. */
	must(mmap(start + 4 * MEGABYTE, whole - 4 * MEGABYTE, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start + 4 * MEGABYTE);
	must(start[4 * MEGABYTE] == 0 && start[whole - 1] == 0);
}

/* Made smaller, moved to a place with nothing behind it, and unmapped in its new length. */
static void moved(void)
{
	size_t whole = 6 * MEGABYTE + PAGE, less = 4 * MEGABYTE + 3 * PAGE;
	char *room = mmap(NULL, 16 * MEGABYTE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *to = (char *)(((uintptr_t)room + 4 * MEGABYTE - 1) & -(2 * MEGABYTE));

	must(room != MAP_FAILED && start != MAP_FAILED);
	fill((uint64_t *)start, whole / 8, 5, 5);
	must(mremap(start, whole, less, 0) == start);
	must(mremap(start, less, less, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	check((uint64_t *)to, less / 8, 5, 5, "moved");
	must(!munmap(to, less) && !munmap(room, 16 * MEGABYTE));
}

/* Nothing is mapped any more where the mapping was. */
static void gone(const void *place, size_t length)
{
	unsigned long start, end, at = (unsigned long)place;
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && start < at + length && at < end && strchr(line, 's') &&
		    strstr(line, "(deleted)"))
			fail("still there: %s", line);
	fclose(file);
}

int main(int argc, char **argv)
{
	const char *kind = argv[1];
	char name[64];
	uint64_t *words, *mine;
	int fd = -1, id = -1, status;
	size_t count, own;
	pid_t child;

	if (argc == 5 && !strcmp(kind, "attach")) {
		bytes = strtoull(argv[4], NULL, 10) << 10;
		return attach(argv[2], argv[3]);
	}
	bytes = argument(argc, argv, 2, 0) << 10;
	count = bytes / 8;
	snprintf(name, sizeof(name), "/ream-test-%d", (int)getpid());
	if (!strcmp(kind, "anon")) {
		words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} else if (!strcmp(kind, "memfd") || !strcmp(kind, "shm_open")) {
		int memfd = *kind == 'm';

		fd = memfd ? memfd_create("ream-test", MFD_ALLOW_SEALING) : shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		must(fd >= 0 && !ftruncate(fd, bytes));
		words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	} else {
		key_t key = *kind == 'k' ? 0x52000000 + getpid() : IPC_PRIVATE;
		struct shmid_ds about;

		snprintf(name, sizeof(name), "%#x", (unsigned)key);
		id = shmget(key, bytes, IPC_CREAT | IPC_EXCL | 0600);
		must(id >= 0);
		if (key != IPC_PRIVATE) {
			must(shmget(key, bytes, IPC_CREAT | IPC_EXCL | 0600) == -1 && errno == EEXIST);
			must(shmget(key, bytes, IPC_CREAT | 0600) == id && shmget(key, 0, 0) == id);
			must(shmget(key, bytes + PAGE, IPC_CREAT | 0600) == -1 && errno == EINVAL);
		}
		words = shmat(id, NULL, 0);
		must(!shmctl(id, IPC_STAT, &about) && about.shm_segsz == bytes && about.shm_nattch == 1);
	}
	if (words == MAP_FAILED) {
		printf("refused %d\n", errno);
		return 3;
	}
	must(words[0] == 0 && words[count - 1] == 0);
	fill(words, count, 0, 1);
	tell("filled", words);
	if (argc > 4) {
		own = argument(argc, argv, 4, 0) * MEGABYTE / 8;
		mine = malloc(own * 8);
		must(mine);
		for (uint64_t generation = 1; generation <= 3; generation++) {
			if (generation > 1)
				check(mine, own, 99, generation - 1, "of its own");
			fill(mine, own, 99, generation);
			check(words, count, 0, 1, "shared, while paging goes on");
		}
		if (!strcmp(argv[3], "keep")) {
			/* Nothing is to be left when it is killed. */
			must(id < 0 || !shmctl(id, IPC_RMID, NULL));
			pause();
			return 0;
		}
	}

	if (!strcmp(kind, "shm_open") || !strcmp(kind, "key")) {
		char kib[24];

		snprintf(kib, sizeof(kib), "%zu", bytes >> 10);
		child = fork();
		if (child == 0) {
			execl("/proc/self/exe", "shm", "attach", kind, name, kib, (char *)NULL);
			_exit(98);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
		check(words, count / 2, 0, 2, "changed by who attached");
		check(words + count / 2, count - count / 2, count / 2, 1, "left by who attached");
		fill(words, count, 0, 1);
	}
	/* A child made by fork shares it, both ways. */
	child = fork();
	if (child == 0) {
		check(words, count, 0, 1, "child");
		fill(words, count, 0, 3);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	check(words, count, 0, 3, "changed by the child");
	if (fd >= 0) {
		stays_a_file(fd, !strcmp(kind, "memfd"));
		fill(words, count, 0, 3);
	}
	if (id < 0 && bytes >= 5 * MEGABYTE)
		changed(words);
	if (id >= 0)
		must(!shmdt(words) && !shmctl(id, IPC_RMID, NULL));
	else
		must(!munmap(words, bytes));
	gone(words, bytes);
	if (!strcmp(kind, "anon"))
		moved();
	shm_unlink(name);
	printf("right\n");
	return 0;
}
