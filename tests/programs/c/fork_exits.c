/* Children fork in their turn, and a signal comes meanwhile whose handler ends the process: it must end. Argument: MiB of data. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 40

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int count, char **words)
{
	size_t bytes = (size_t)(count > 1 ? atoi(words[1]) : 96) << 20;
	char *data = malloc(bytes);
	size_t lost = 0;
	int bad = 0;

	for (size_t at = 0; at < bytes; at += 4096)
		memset(data + at, (int)(at >> 12) | 1, 64);
	alarm(100);
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			struct itimerval soon = { .it_value = { .tv_usec = 100 + i * 50 } };

			signal(SIGALRM, end);
			setitimer(ITIMER_REAL, &soon, NULL);
			/* The kernel keeps the signal back while the fork is prepared. */
			if (fork() == 0)
				_exit(0);
			for (;;)
				pause();
		}
		bad += child < 0 || waitpid(child, &status, 0) != child || status != 0;
	}
	for (size_t at = 0; at < bytes; at += 4096)
		lost += (unsigned char)data[at] != (((at >> 12) | 1) & 0xff);
	printf("%d children did not end well, %zu pages are lost\n", bad, lost);
	return bad != 0 || lost != 0;
}
