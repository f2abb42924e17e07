/* Process 1 of its namespace waits for any child, as a container's program may: it finds its own, and then none. The argument
 * says how many MiB it fills. */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t signals;

static void count(int number)
{
	(void)number;
	signals++;
}

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 64) << 20;
	char *block = malloc(bytes);
	int status, children = 0;
	pid_t child;

	must(block != NULL && signal(SIGCHLD, count) != SIG_ERR);
	memset(block, 3, bytes);
	must(getpid() == 1);
	must(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
	must((child = fork()) >= 0);
	if (child == 0)
		_exit(block[bytes / 2]);
	for (;;) {
		pid_t ended = wait(&status);

		if (ended == -1 && errno == EINTR)
			continue;
		if (ended == -1)
			break;
		must(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
		children++;
	}
	must(errno == ECHILD);
	printf("%d children, %d signals\n", children, (int)signals);
	return 0;
}
