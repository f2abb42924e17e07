/* A child that reads what its parent has stored, when that is gone. The parent writes without end. The child waits until the
   file of the third argument is there, and says there how many words were wrong. */
#include "common.h"

static void until(const char *file)
{
	while (access(file, F_OK) != 0)
		usleep(10000);
}

int main(int argc, char **argv)
{
	size_t words = argument(argc, argv, 1, 64) * MEGABYTE / 8;
	uint64_t *data = malloc(words * 8);
	char name[4096];

	must(data && argc == 4);
	fill(data, words, 5, 0);
	/* What is stored by now. */
	until(argv[2]);
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0) {
		uint64_t wrong = 0;

		must(setsid() > 0);
		snprintf(name, sizeof name, "%s.forked", argv[2]);
		FILE *file = fopen(name, "w");

		must(file && fclose(file) == 0);
		until(argv[3]);
		for (size_t i = 0; i < words; i++)
			wrong += data[i] != mix(5 + i);
		snprintf(name, sizeof name, "%s.read", argv[3]);
		file = fopen(name, "w");
		must(file && fprintf(file, "%lu wrong", (unsigned long)wrong) > 0 && fclose(file) == 0);
		return 0;
	}
	/* Something new, so that it writes more than it reads. */
	uint64_t *more = malloc(4 * words * 8);

	must(more);
	for (uint64_t round = 1;; round++) {
		fill(more, 4 * words, 6, round);
		__asm__ volatile("" ::: "memory");
	}
}
