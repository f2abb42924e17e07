// Memory of every kind that pages of a pool can back, changed, grown, freed and forked, with both sides writing.
// Says how much lies on them, and checks every byte. Usage: pool CHILDREN
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BSS (12 * MIB)
#define SMALL 6000
#define SMALL_BYTES 1000
#define LARGE (20 * MIB)

static uint64_t bss[BSS / 8];
static uint64_t data[4 * MIB / 8] = { 7 };
static unsigned char *small[SMALL];
static uint64_t *large;

static uint64_t value(size_t index, uint64_t salt)
{
	return (index + 1) * 0x9e3779b97f4a7c15u ^ salt;
}

static void fill(uint64_t salt)
{
	for (size_t i = 0; i < BSS / 8; i++)
		bss[i] = value(i, salt);
	for (size_t i = 0; i < 4 * MIB / 8; i++)
		data[i] = value(i, salt + 1);
	for (size_t i = 0; i < LARGE / 8; i++)
		large[i] = value(i, salt + 2);
	for (size_t i = 0; i < SMALL; i++)
		memset(small[i], (int)(value(i, salt) >> 7 & 0xff), SMALL_BYTES);
}

static void check(uint64_t salt, const char *who)
{
	int wrong = 0;

	for (size_t i = 0; i < BSS / 8; i++)
		wrong |= bss[i] != value(i, salt);
	for (size_t i = 0; i < 4 * MIB / 8; i++)
		wrong |= data[i] != value(i, salt + 1);
	for (size_t i = 0; i < LARGE / 8; i++)
		wrong |= large[i] != value(i, salt + 2);
	for (size_t i = 0; i < SMALL; i++)
		for (size_t j = 0; j < SMALL_BYTES; j++)
			wrong |= small[i][j] != (value(i, salt) >> 7 & 0xff);
	if (wrong) {
		printf("%s: wrong bytes\n", who);
		exit(1);
	}
}

/* KiB of this process on pages of a pool. */
static long pooled(void)
{
	char line[256];
	long total = 0, kib;
	FILE *file = fopen("/proc/self/smaps", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Private_Hugetlb: %ld", &kib) == 1 || sscanf(line, "Shared_Hugetlb: %ld", &kib) == 1)
			total += kib;
	if (file)
		fclose(file);
	return total;
}

int main(int argc, char **argv)
{
	int children = argc > 1 ? atoi(argv[1]) : 0;
	long before;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < BSS / 8; i++)
		if (bss[i])
			return 2;
	if (data[0] != 7 || data[1])
		return 3;
	large = malloc(LARGE);
	for (size_t i = 0; i < SMALL; i++)
		small[i] = malloc(SMALL_BYTES);
	if (!large || !small[SMALL - 1])
		return 4;
	fill(1);
	before = pooled();
	fprintf(stderr, "pooled %ld KiB\n", before);

	if (!children) {
		/* Grows and shrinks; a block that has moved may leave pages of the pool free, which children must not find. */
		large = realloc(large, LARGE * 2);
		if (!large)
			return 5;
		memset((char *)large + LARGE, 1, LARGE);
		large = realloc(large, LARGE);
		check(1, "after realloc");
		free(malloc(8 * MIB));
	}
	fprintf(stderr, "afterwards %ld KiB\n", pooled());

	for (int child = 0; child < children; child++) {
		pid_t pid = fork();

		if (pid < 0)
			return 6;
		if (pid == 0) {
			check(child + 1, "child");
			fill(100 + child);
			check(100 + child, "child");
			/* A grandchild sees what its parent wrote. */
			pid = fork();
			if (pid == 0) {
				check(100 + child, "grandchild");
				fill(200 + child);
				check(200 + child, "grandchild");
				_exit(0);
			}
			int status;

			if (waitpid(pid, &status, 0) != pid || status)
				_exit(9);
			check(100 + child, "child");
			_exit(0);
		}
		/* At once, while the child begins: a word of every page, from the end. */
		for (size_t i = LARGE / 8; i > 0; i -= 512)
			large[i - 512]++;
		for (size_t i = BSS / 8; i > 0; i -= 512)
			bss[i - 512]++;
		fill(child + 2);
		check(child + 2, "parent");
		int status;

		if (waitpid(pid, &status, 0) != pid)
			return 7;
		if (status) {
			printf("child: status %x\n", status);
			return 8;
		}
	}
	check(children + 1, "at the end");
	for (size_t i = 0; i < SMALL; i++)
		free(small[i]);
	free(large);
	printf("right\n");
	return 0;
}
