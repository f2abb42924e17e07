/* Starts a program as somebody who gets in the way of tracing: "traced" traces it, as a debugger does; "adopting" is the
 * program's own process, which adopts every orphan below it; "small" is it, and has switched large pages off; "first" is process 1 of a process namespace (root only). Ends
 * as the program does. */
#include "common.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int count, char **arguments)
{
	int status;
	pid_t child;

	must(count > 2);
	if (strcmp(arguments[1], "adopting") == 0) {
		must(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
		execvp(arguments[2], arguments + 2);
		return 99;
	}
	if (strcmp(arguments[1], "small") == 0) {
		must(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
		execvp(arguments[2], arguments + 2);
		return 99;
	}
	if (strcmp(arguments[1], "first") == 0 && unshare(CLONE_NEWPID) != 0)
		return 77;
	child = fork();
	if (child == 0) {
		if (strcmp(arguments[1], "traced") == 0)
			must(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		execvp(arguments[2], arguments + 2);
		_exit(99);
	}
	for (;;) {
		must(waitpid(child, &status, 0) == child);
		if (!WIFSTOPPED(status))
			break;
		must(ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status)) == 0);
	}
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}
