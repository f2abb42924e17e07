/* Phases of a job, as the closing summary shows them.
 *
 *     cc -O2 phases.c -o phases $(pkg-config --cflags --libs ream)
 *     ream run --memory 64M -- ./phases */
#include <ream.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	size_t words = ((argc > 1 ? strtoul(argv[1], NULL, 10) : 128) << 20) / sizeof(uint64_t);
	uint64_t *data = malloc(words * sizeof(uint64_t));
	uint64_t sum = 0;

	if (!data) {
		perror("malloc");
		return 1;
	}
	ream_phase("load");
	for (size_t word = 0; word < words; word++)
		data[word] = word * 0x9e3779b97f4a7c15u;
	for (int step = 0; step < 3; step++) {
		ream_phase("step");
		for (size_t word = 0; word < words; word++)
			sum += data[word] >> 7;
	}
	ream_phase(NULL);
	printf("sum %llu\n", (unsigned long long)sum);
	free(data);
	return 0;
}
