/* Executes the program that argument 2 names, with what follows as its arguments, in the way that argument 1 says. Prints nothing of
 * its own where that works, so that the output is the program's. */
#include "common.h"
#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static pid_t by_vfork(const char *name, char **words)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execve(name, words, environ);
		_exit(99);
	}
	return pid;
}

int main(int argc, char **argv)
{
	const char *way = argc > 2 ? argv[1] : "";
	char *name = argv[2], **words = argv + 2;
	int end, error;
	pid_t pid;

	if (!strcmp(way, "execve"))
		execve(name, words, environ);
	else if (!strcmp(way, "execv"))
		execv(name, words);
	else if (!strcmp(way, "execvp"))
		execvp(name, words);
	else if (!strcmp(way, "bare"))
		execve(name, words, (char *[]){NULL});
	else if (!strcmp(way, "vfork")) {
		pid = by_vfork(name, words);
		must(pid > 0 && waitpid(pid, &end, 0) == pid && WIFEXITED(end));
		/* No other child than the one that it has made. */
		must(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
		return WEXITSTATUS(end);
	} else if (!strncmp(way, "spawn", 5)) {
		error = strcmp(way, "spawnp") ? posix_spawn(&pid, name, NULL, NULL, words, environ)
					      : posix_spawnp(&pid, name, NULL, NULL, words, environ);
		if (error) {
			fprintf(stderr, "%s\n", strerror(error));
			return 98;
		}
		must(waitpid(pid, &end, 0) == pid && WIFEXITED(end));
		must(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
		return WEXITSTATUS(end);
	}
	fprintf(stderr, "%s\n", strerror(errno));
	return 98;
}
