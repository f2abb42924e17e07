/* Forks with as many files open as the limit allows: two generations verify data that do not fit 64 MiB. Argument: MiB. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *data, words;

static int wrong(void)
{
	for (uint64_t i = 0; i < words; i += 512)
		if (data[i] != i)
			return 1;
	return 0;
}

static int forked(int generations)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0)
		_exit(wrong() || (generations > 1 && forked(generations - 1)));
	return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(int count, char **arguments)
{
	struct rlimit limit;

	words = (count > 1 ? strtoull(arguments[1], NULL, 10) : 192) << 17;
	data = malloc(words * sizeof *data);
	if (!data || getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 2;
	for (uint64_t i = 0; i < words; i += 512)
		data[i] = i;
	limit.rlim_cur = 64;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 2;
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	printf("%d %d\n", forked(2), wrong());
	return getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur != 64;
}
