/* A job of one rank that takes a place and keeps it. Arguments: directory, name. Writes DIRECTORY/NAME.pid with its number and
 * its session when it begins, NAME.in when it has a place, and computes until there is a NAME.go.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *path(char **words, const char *end)
{
	static char text[4096];

	snprintf(text, sizeof(text), "%s/%s.%s", words[1], words[2], end);
	return text;
}

static void write_file(const char *name)
{
	FILE *file = fopen(name, "w");

	fprintf(file, "%d %s\n", (int)getpid(), getenv("REAM_SESSION"));
	fclose(file);
}

int main(int count, char **words)
{
	write_file(path(words, "pid"));
	MPI_Init(&count, &words);
	write_file(path(words, "in"));
	while (access(path(words, "go"), F_OK) != 0)
		;
	MPI_Finalize();
	write_file(path(words, "done"));
	return 0;
}
