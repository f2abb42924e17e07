/* Gives up root's rights while its memory is paged, and forks after that, generation after generation, two children each
 * time. All threads of every process must have given them up, also those that no library knows; all data must be there.
 * Arguments: MiB, generations, how, and for "chroot" an empty directory. */
#include "common.h"
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NOBODY 65534

static uint64_t *block;
static size_t words;
static int last;

/* The lines of a thread's status that say what it may do. */
static void rights_of(const char *thread, char *text, size_t room)
{
	char path[300], line[4096];
	size_t length = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	text[0] = 0;
	file = fopen(path, "r");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Gid:", 4) || !strncmp(line, "Groups:", 7) ||
		    !strncmp(line, "CapEff:", 7) || !strncmp(line, "CapPrm:", 7))
			length += snprintf(text + length, room - length, "%s", line);
	fclose(file);
}

/* Fails unless all threads may do what this one may. */
static void equal_rights(const char *when)
{
	char mine[4096], theirs[4096], name[32];
	struct dirent *entry;
	DIR *directory = opendir("/proc/self/task");

	if (!directory)
		return;
	snprintf(name, sizeof(name), "%d", (int)gettid());
	rights_of(name, mine, sizeof(mine));
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		rights_of(entry->d_name, theirs, sizeof(theirs));
		if (theirs[0] && strcmp(mine, theirs))
			fail("%s: thread %s may do\n%s and %s\n%s", when, name, mine, entry->d_name, theirs);
	}
	closedir(directory);
}

/* Whether a process has ended and is only waited for. */
static int zombie(int pid)
{
	char path[64], state = 'Z';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return 1;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	fclose(file);
	return state == 'Z' || state == 'X';
}

/* Page `page` belongs to generation page % 8: those up to `viewer` have rewritten theirs. */
static void verify(int viewer, const char *when)
{
	for (size_t page = 0; page < words / PAGE_WORDS; page++) {
		int writer = page % 8;

		check(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS,
		      writer > 0 && writer <= viewer ? 1000 * writer : 0, when);
	}
}

static void generation(int me)
{
	pid_t children[2];
	int status;

	equal_rights("in a generation");
	for (size_t page = me; me > 0 && page < words / PAGE_WORDS; page += 8)
		fill(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 1000 * me);
	verify(me, "before the fork");
	for (int child = 0; child < 2 && me < last; child++) {
		must((children[child] = fork()) >= 0);
		if (children[child] == 0) {
			/* The second ends the line. */
			if (child == 0)
				generation(me + 1);
			else
				verify(me, "the second child's view");
			_exit(0);
		}
	}
	for (int child = 0; child < 2 && me < last; child++) {
		must(waitpid(children[child], &status, 0) == children[child]);
		if (status != 0)
			fail("child %d of generation %d ended with wait status %x", child, me, status);
	}
	verify(me, "after the descendants ended");
	equal_rights("after the descendants ended");
}

/* Ends the session's agent, and then forks as an ordinary user. */
static void orphan(void)
{
	int agent = 0, status;
	pid_t pid;

	must(sscanf(getenv("REAM_SESSION"), "/proc/%d/", &agent) == 1 && kill(agent, SIGKILL) == 0);
	while (kill(agent, 0) == 0 && !zombie(agent))
		usleep(1000);
	must(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	must((pid = fork()) >= 0);
	if (pid == 0)
		_exit(0);
	must(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	printf("child ended with %d\n", WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	const gid_t some[] = { 1, 2, 3 };
	const char *how = argc > 3 ? argv[3] : "users";

	words = argument(argc, argv, 1, 256) * MEGABYTE / 8;
	last = argument(argc, argv, 2, 3);
	block = malloc(words * 8);
	must(block);
	/* "early": before there is a pager. */
	if (!strcmp(how, "early"))
		must(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	fill(block, words, 0, 0);
	equal_rights("at first");
	if (!strcmp(how, "chroot"))
		must(argc > 4 && chroot(argv[4]) == 0 && chdir("/") == 0);
	if (!strcmp(how, "back")) {
		must(setgroups(3, some) == 0 && setegid(NOBODY) == 0 && seteuid(NOBODY) == 0);
		equal_rights("for a while");
		generation(0);
		must(seteuid(0) == 0 && setegid(0) == 0 && setgroups(0, NULL) == 0);
		equal_rights("root again");
		for (size_t page = 0; page < words / PAGE_WORDS; page++)
			fill(block + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, 0);
		generation(0);
	}
	if (!strcmp(how, "orphaned"))
		orphan();
	else if (strcmp(how, "early")) {
		must(setgroups(3, some) == 0);
		must(setgroups(0, NULL) == 0);
		must(setgid(NOBODY) == 0);
		must(setuid(NOBODY) == 0);
	}
	must(setuid(0) != 0);
	must(prctl(PR_GET_DUMPABLE) != 1);
	generation(0);
	must(prctl(PR_GET_DUMPABLE) != 1);
	if (!strcmp(how, "dumpable")) {
		must(prctl(PR_SET_DUMPABLE, 1) == 0);
		must(setuid(NOBODY) == 0);
		must(prctl(PR_GET_DUMPABLE) == 1);
	}
	printf("as user %d %016lx\n", (int)getuid(), checksum(block, words, 1));
	return 0;
}
