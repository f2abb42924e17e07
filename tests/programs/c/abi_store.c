/* Blocks with a store of their own, under a budget of 32 MiB: their pages are in files of that directory, a child's in files
 * of its own, and other memory is not. Arguments: five directories on a disk, of which one more is named than can be had. */
#include "abi.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* More than the 64 MiB in which a file grows. */
#define BYTES (96 * MEGABYTE)

/* Bytes of this process's files without a name: in the directory, or elsewhere. */
static size_t in_files(const char *directory, int elsewhere)
{
	static char tasks[] = "/proc/self/task";
	char path[600], name[600];
	ino_t seen[64];
	size_t bytes = 0, known = 0;
	DIR *all = opendir(tasks), *files;
	struct dirent *task, *file;
	struct stat stat_of;

	must(all);
	while ((task = readdir(all))) {
		snprintf(path, sizeof(path), "%s/%s/fd", tasks, task->d_name);
		if (task->d_name[0] == '.' || !(files = opendir(path)))
			continue;
		while ((file = readdir(files))) {
			size_t index = 0;
			ssize_t length;
			int inside;

			snprintf(path, sizeof(path), "%s/%s/fd/%s", tasks, task->d_name, file->d_name);
			length = readlink(path, name, sizeof(name) - 1);
			if (length < 10 || strncmp(name + length - 10, " (deleted)", 10) || stat(path, &stat_of))
				continue;
			name[length] = 0;
			inside = !strncmp(name, directory, strlen(directory)) && name[strlen(directory)] == '/';
			while (index < known && seen[index] != stat_of.st_ino)
				index++;
			if (inside == elsewhere || name[1] == 'm' || index < known)
				continue;
			must(known < 64);
			seen[known++] = stat_of.st_ino;
			bytes += (size_t)stat_of.st_blocks * 512;
		}
		closedir(files);
	}
	closedir(all);
	return bytes;
}

static void *block(const char *store, const char *name)
{
	struct ream_hints hints = {.size = sizeof(hints), .store = store, .name = name};

	return ream_alloc(BYTES, &hints);
}

/* Out of RAM with it, until so many bytes are in the files of a directory. */
static void cold(void *memory, const char *directory, int elsewhere, size_t least)
{
	size_t bytes = 0;

	for (int tries = 0; tries < 600; tries++) {
		must(ream_advise(memory, BYTES, REAM_COLD) == 0);
		bytes = in_files(directory, elsewhere);
		if (bytes >= least)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	fail("%zu bytes are %s %s, not %zu", bytes, elsewhere ? "outside" : "in", directory, least);
}

int main(int argc, char **argv)
{
	uint64_t *mine, *usual, *again;
	int status;
	pid_t child;

	must(argc == 6);
	must(!block("/nowhere/at/all", NULL) && errno == ENOENT);
	must(!block("/proc/self/exe", NULL) && errno == ENOTDIR);
	must(!block("/proc", NULL));
	must(!block("/dev/shm", NULL) && errno == EOPNOTSUPP);
	must(!block("", NULL) && errno == ENOENT);

	mine = block(argv[1], "mine");
	usual = block(NULL, "usual");
	must(mine && usual && (uintptr_t)mine % (2 * MEGABYTE) == 0);
	fill(mine, BYTES / 8, 1, 1);
	cold(mine, argv[1], 0, BYTES);
	if (in_files(argv[1], 1) >= BYTES)
		fail("%zu bytes are in the session's store", in_files(argv[1], 1));
	fill(usual, BYTES / 8, 2, 1);
	cold(usual, argv[1], 1, BYTES);
	check(mine, BYTES / 8, 1, 1, "own store");
	check(usual, BYTES / 8, 2, 1, "the session's store");

	/* The same directory by another name, from another place; then others, as many as there may be. */
	must(chdir(argv[1]) == 0);
	again = block(".", "again");
	must(again);
	must(chdir("/") == 0);
	fill(again, BYTES / 8, 3, 1);
	cold(again, argv[1], 0, 2 * BYTES);
	must(ream_free(again) == 0);
	for (int which = 2; which < 4; which++)
		must(ream_free(block(argv[which], NULL)) == 0);
	must(!block(argv[4], NULL) && errno == ENOSPC);
	must(in_files(argv[4], 0) == 0 && in_files(argv[5], 0) == 0);

	/* Both read what was stored before the fork, and write to files of their own. */
	child = fork();
	must(child >= 0);
	check(mine, BYTES / 16, 1, 1, "after the fork");
	fill(mine, BYTES / 16, 1, child ? 2 : 3);
	cold(mine, argv[1], 0, BYTES / 2);
	check(mine, BYTES / 16, 1, child ? 2 : 3, "written after the fork");
	check(mine + BYTES / 16, BYTES / 16, 1 + BYTES / 16, 1, "not written after the fork");
	check(usual, BYTES / 8, 2, 1, "usual after the fork");
	if (child == 0)
		_exit(0);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

	/* What is freed leaves room, and its addresses are anybody's. */
	must(ream_free(mine) == 0);
	mine = block(argv[2], "mine");
	must(mine);
	fill(mine, BYTES / 8, 4, 1);
	cold(mine, argv[2], 0, BYTES);
	check(mine, BYTES / 8, 4, 1, "another store");
	must(ream_free(mine) == 0 && ream_free(usual) == 0);
	return 0;
}
