/* 8 MiB of code, all of it run: 131 072 small functions in a scattered order, and 64 MiB of static data, all touched.
 * Prints the sum of what they return. With argument 1 a number, runs them again and again for so many seconds at most,
 * a line a round. With `pages` prints how many whole blocks of 2 MiB its code holds and how many KiB of it lie on large
 * pages; with `self` the path of the program that runs. */
#include "common.h"
#include <time.h>

#ifndef SALT
#define SALT 0
#endif
#define COUNT 131072UL
#define BYTES 64UL

#if defined(__x86_64__)
#define BODY "lea number(%rdi), %eax\n ret\n"
#elif defined(__aarch64__)
#define BODY "add w0, w0, #(number & 4095)\n ret\n"
#endif

__asm__(".text\n .balign 64\n .globl functions\n functions:\n .set number, 0\n .rept 131072\n .balign 64\n" BODY
	".set number, number + 1\n .endr\n .balign 64\n");

extern const char functions[];

static uint64_t large[64 * MEGABYTE / 8];

static uint64_t round_of_calls(void)
{
	uint64_t sum = SALT;

	for (size_t i = 0; i < COUNT; i++) {
		size_t which = i * 40503 % COUNT;
		uint32_t (*function)(uint32_t) = (uint32_t(*)(uint32_t))(uintptr_t)(functions + which * BYTES);

		sum += function((uint32_t)i);
	}
	return sum;
}

static void pages(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	uintptr_t start, end, at = (uintptr_t)functions;
	char line[4096], permissions[8];
	unsigned long kib;
	int here = 0;

	must(smaps);
	while (fgets(line, sizeof line, smaps)) {
		if (sscanf(line, "%lx-%lx %4s", &start, &end, permissions) == 3 && strchr(permissions, 'p')) {
			here = start <= at && at < end;
			if (here)
				printf("%lu ", end / (2 * MEGABYTE) - (start + 2 * MEGABYTE - 1) / (2 * MEGABYTE));
		} else if (here && sscanf(line, "FilePmdMapped: %lu", &kib) == 1) {
			printf("%lu\n", kib);
		}
	}
	must(fclose(smaps) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	time_t begun = time(NULL), seconds = (time_t)argument(argc, argv, 1, 0);
	char path[4096] = "";

	fill(large, sizeof large / 8, 0, 0);
	do {
		uint64_t sum = round_of_calls();

		check(large, sizeof large / 8, 0, 0, "large");
		printf("%lu\n", sum);
		must(fflush(stdout) == 0);
	} while (time(NULL) < begun + seconds);
	if (strcmp(what, "pages") == 0)
		pages();
	if (strcmp(what, "self") == 0) {
		must(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
		puts(path);
	}
	return 0;
}
