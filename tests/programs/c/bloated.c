// Touches one page in 64 of an array, and waits until no more than so many KiB are in RAM: what large pages waste there
// is given back. Meanwhile the touched words are changed and checked. Usage: bloated MIB MOST_KIB SECONDS; prints "right", and
// to standard error what was in RAM.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STEP ((size_t)64 << 12)

static long resident_kib(void)
{
	long resident = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");

	if (!file || fscanf(file, "%*[^\n] Rss: %ld", &resident) != 1)
		exit(3);
	fclose(file);
	return resident;
}

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) << 20;
	long most = argc > 2 ? atol(argv[2]) : 0, highest = 0, last = 0;
	time_t end = time(NULL) + (argc > 3 ? atol(argv[3]) : 20);
	unsigned char *array = malloc(bytes);
	uint64_t round = 0;

	if (!array)
		return 2;
	for (size_t at = 0; at < bytes; at += STEP)
		*(uint64_t *)(array + at) = at;
	do {
		for (size_t at = 0; at < bytes; at += STEP) {
			uint64_t *word = (uint64_t *)(array + at);

			if (*word != at + round) {
				printf("wrong at %zu\n", at);
				return 1;
			}
			*word = at + round + 1;
		}
		round++;
		last = resident_kib();
		if (last > highest)
			highest = last;
		usleep(5000);
	} while (last > most && time(NULL) < end);
	for (size_t at = 0; at < bytes; at += 4096) {
		uint64_t *word = (uint64_t *)(array + at);

		if (*word != (at % STEP ? 0 : at + round)) {
			printf("wrong at %zu\n", at);
			return 1;
		}
	}
	fprintf(stderr, "highest %ld KiB, last %ld KiB\n", highest, last);
	printf("right\n");
	return last > most;
}
