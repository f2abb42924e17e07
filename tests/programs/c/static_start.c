/* Begins as a program that was never traced: no child that it did not make, no signal, no open file, no tracer. Prints what
 * it found; with an argument, has the shell run that. Its large data make the time before it begins longer. */
#include "common.h"
#include <dirent.h>
#include <sys/wait.h>

static volatile char data[48 * MEGABYTE] = {1, 2, 3};

static void show(const char *path, const char *const *starts)
{
	char line[512];
	FILE *file = fopen(path, "r");

	must(file);
	while (fgets(line, sizeof line, file))
		for (int i = 0; starts[i]; i++)
			if (strncmp(line, starts[i], strlen(starts[i])) == 0)
				fputs(line, stdout);
	fclose(file);
}

int main(int count, char **arguments)
{
	static const char *const interesting[] = {"Name:", "SigPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "ShdPnd:", "TracerPid:", "Threads:", "State:", NULL};
	int status, files = 0;
	DIR *directory;
	pid_t child;

	must(wait(&status) == -1 && errno == ECHILD);
	show("/proc/self/status", interesting);
	directory = opendir("/proc/self/fd");
	must(directory);
	while (readdir(directory))
		files++;
	printf("%d files, %s\n", files, arguments[0] ? "named" : "nameless");
	for (size_t i = 3; i < sizeof data; i++)
		must(data[i] == 0);
	must(data[0] == 1 && data[1] == 2 && data[2] == 3);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(7);
	must(wait(&status) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	must(wait(&status) == -1 && errno == ECHILD);
	if (count > 1)
		return system(arguments[1]) == 0 ? 42 : 1;
	return 42;
}
