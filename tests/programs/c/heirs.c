/* Writes an array of SIZE MiB, forks CHILDREN, and waits for them. Each waits until FILE is there, writes OWN MiB of its own,
 * and checks both; with another file, END, it waits for that, too, and checks all again. Then the parent checks its array.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t word(uint64_t who, size_t i)
{
	uint64_t x = who << 48 | i;

	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	return x * 0x94d049bb133111ebu;
}

static void wait_for(const char *file)
{
	while (access(file, F_OK) != 0)
		usleep(10000);
}

static uint64_t *write_all(uint64_t who, size_t mebibytes)
{
	size_t words = mebibytes << 17, i;
	uint64_t *array = malloc(words * sizeof *array);

	if (!array)
		_exit(5);
	for (i = 0; i < words; i++)
		array[i] = word(who, i);
	return array;
}

static void check_all(uint64_t who, const uint64_t *array, size_t mebibytes)
{
	size_t words = mebibytes << 17, i;

	for (i = 0; i < words; i++) {
		if (array[i] != word(who, i)) {
			printf("page %zu of %d is wrong\n", i / WORDS, (int)who);
			fflush(stdout);
			_exit(3);
		}
	}
}

int main(int count, char **arguments)
{
	size_t size, own;
	uint64_t *array;
	int children, i, status, failed = 0;

	if (count < 5)
		return 2;
	size = strtoul(arguments[1], NULL, 10);
	children = atoi(arguments[2]);
	own = strtoul(arguments[3], NULL, 10);
	array = write_all(0, size);
	for (i = 1; i <= children; i++) {
		pid_t child = fork();

		if (child < 0)
			return 4;
		if (child == 0) {
			uint64_t *mine;

			wait_for(arguments[4]);
			mine = write_all(i, own);
			check_all(0, array, size);
			check_all(i, mine, own);
			if (count > 5) {
				wait_for(arguments[5]);
				check_all(i, mine, own);
				check_all(0, array, size);
			}
			_exit(0);
		}
	}
	for (i = 0; i < children; i++) {
		if (wait(&status) < 0 || status != 0)
			failed++;
	}
	check_all(0, array, size);
	printf("%d of %d children failed\n", failed, children);
	return failed != 0;
}
