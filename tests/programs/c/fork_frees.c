/* A thread fills large blocks and frees them, while another one forks again and again. What a child gets from calloc where such a
 * block lay must be zeros, and what was written before is there afterwards. Argument: forks.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (24ul << 20)
#define PIECE (5ul << 20)
#define PIECES 200

static void *free_blocks(void *nothing)
{
	for (;;) {
		volatile char *block[3];

		for (int i = 0; i < 3; i++) {
			block[i] = malloc(BLOCK + (size_t)i * 65536);
			for (size_t at = 0; at < BLOCK; at += 4096)
				block[i][at] = 0x5a;
		}
		for (int i = 0; i < 3; i++)
			free((void *)block[i]);
	}
	return nothing;
}

static int others(void)
{
	size_t wrong = 0;

	for (int i = 0; i < PIECES; i++) {
		volatile char *piece = calloc(1, PIECE);

		if (!piece)
			return 2;
		for (size_t at = 0; at < PIECE; at += 128 * 1024)
			wrong += piece[at] != 0;
	}
	if (wrong)
		fprintf(stderr, "%zu pages from calloc are not zeros\n", wrong);
	return wrong != 0;
}

int main(int count, char **words)
{
	int forks = count > 1 ? atoi(words[1]) : 20, bad = 0;
	size_t bytes = 40ul << 20;
	char *data = malloc(bytes);
	pthread_t thread;

	memset(data, 1, bytes);
	pthread_create(&thread, NULL, free_blocks, NULL);
	for (int i = 0; i < forks; i++) {
		int status;

		usleep(2000 + rand() % 30000);
		pid_t child = fork();

		if (child == 0)
			_exit(others());
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
			bad++;
	}
	for (size_t at = 0; at < bytes; at++)
		bad += data[at] != 1;
	printf("%d of %d children found something wrong\n", bad, forks);
	fflush(stdout);
	_exit(bad != 0);
}
