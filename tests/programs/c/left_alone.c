/* A program with memory that large pages waste, most of which is given back while it runs; then it says itself what
 * children inherit ("dontfork"), or gives up root's rights ("setuid"): from then on nothing of it is touched by others.
 * Argument: which. */
#include "common.h"
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BYTES (96 * MEGABYTE)
#define STEP (64 * PAGE)

/* Touches a page here and there. */
static char *sparse(void)
{
	char *area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(area != MAP_FAILED);
	for (size_t at = 0; at < BYTES; at += STEP)
		area[at] = 1 + at / STEP % 100;
	return area;
}

static void sparse_check(const char *area)
{
	for (size_t at = 0; at < BYTES; at += STEP)
		must(area[at] == (char)(1 + at / STEP % 100) && area[at + PAGE] == 0);
}

static size_t resident(const char *area)
{
	return in_core(area, BYTES) * PAGE;
}

/* Fails if a thread runs as somebody else. */
static void all_are(uid_t user)
{
	DIR *directory = opendir("/proc/self/task");
	struct dirent *entry;

	must(directory);
	while ((entry = readdir(directory))) {
		char path[300], line[256];
		FILE *file;

		snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (file && fgets(line, sizeof line, file)) {
			unsigned real, effective, saved;

			if (sscanf(line, "Uid: %u %u %u", &real, &effective, &saved) == 3 &&
			    (real != user || effective != user || saved != user))
				fail("thread %s is %u %u %u", entry->d_name, real, effective, saved);
		}
		if (file)
			fclose(file);
	}
	closedir(directory);
}

int main(int argc, char **argv)
{
	char *before = sparse(), *after;
	int tries = 0, status;
	pid_t pid;

	/* It is at work. */
	while (resident(before) > BYTES / 4 && tries++ < 6000)
		usleep(10000);
	must(tries < 6000);
	if (argc > 1 && !strcmp(argv[1], "setuid")) {
		must(setgid(65534) == 0 && setuid(65534) == 0);
		all_are(65534);
		after = sparse();
		usleep(300000);
		all_are(65534);
	} else {
		after = sparse();
		must(madvise(after, BYTES, MADV_DONTFORK) == 0);
		usleep(300000);
		must((pid = fork()) >= 0);
		if (pid == 0) {
			sparse_check(before);
			/* Not there: SIGSEGV. */
			sparse_check(after);
			_exit(7);
		}
		must(waitpid(pid, &status, 0) == pid);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
			fail("the child ended with wait status %#x", status);
	}
	sparse_check(before);
	sparse_check(after);
	printf("left alone\n");
	return 0;
}
