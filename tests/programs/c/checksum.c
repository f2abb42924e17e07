/* Threads and forked children write to and check the same large array: SIZE MiB, ROUNDS, THREADS, FORKS as arguments. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *data;
static size_t words;
static int rounds, threads, forks;

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 29;
	return x;
}

/* What a word holds after so many rounds. */
static uint64_t expected(size_t i, int round)
{
	return mix(i * 0x9e3779b97f4a7c15ULL + (uint64_t)round);
}

struct part {
	size_t from, to;
	int round;
	uint64_t wrong;
};

static void *work(void *argument)
{
	struct part *part = argument;
	size_t i;

	for (i = part->from; i < part->to; i++) {
		if (part->round > 0 && data[i] != expected(i, part->round - 1))
			part->wrong++;
		data[i] = expected(i, part->round);
	}
	return NULL;
}

static uint64_t pass(int round)
{
	struct part part[64];
	pthread_t thread[64];
	uint64_t wrong = 0;
	int t;

	for (t = 0; t < threads; t++) {
		part[t] = (struct part){ words / threads * t, t + 1 == threads ? words : words / threads * (t + 1), round, 0 };
		if (pthread_create(&thread[t], NULL, work, &part[t]))
			exit(3);
	}
	for (t = 0; t < threads; t++) {
		pthread_join(thread[t], NULL);
		wrong += part[t].wrong;
	}
	return wrong;
}

/* Looks at all of it, in jumps. */
static uint64_t check(int round)
{
	uint64_t wrong = 0;
	size_t i, at = 12345 % words;

	for (i = 0; i < words / 1024; i++) {
		wrong += data[at] != expected(at, round);
		at = (at + 7919 * 64 + 1) % words;
	}
	for (i = 0; i < words; i += 8)
		wrong += data[i] != expected(i, round);
	return wrong;
}

int main(int argc, char **argv)
{
	uint64_t wrong = 0, sum = 0;
	size_t i;
	int round, f;

	if (argc != 5)
		return 2;
	words = strtoull(argv[1], NULL, 10) * (1 << 20) / sizeof(*data);
	rounds = atoi(argv[2]);
	threads = atoi(argv[3]);
	forks = atoi(argv[4]);
	data = malloc(words * sizeof(*data));
	if (!data || threads < 1 || threads > 64)
		return 2;
	for (round = 0; round < rounds; round++) {
		wrong += pass(round);
		for (f = 0; f < forks; f++) {
			pid_t child = fork();

			if (child < 0)
				return 4;
			if (!child) {
				/* Sees what its parent saw, whatever that writes meanwhile; writes for itself. */
				uint64_t bad = check(round);

				for (i = f; i < words; i += 512)
					data[i] = i;
				for (i = f; i < words; i += 512)
					bad += data[i] != i;
				_exit(bad ? 9 : 0);
			}
		}
		if (forks && round + 1 < rounds)
			wrong += pass(++round);
		for (f = 0; f < forks; f++) {
			int status;

			if (wait(&status) < 0 || status)
				wrong++;
		}
	}
	wrong += check(round - 1);
	for (i = 0; i < words; i++)
		sum = mix(sum ^ data[i]);
	printf("%016llx wrong %llu\n", (unsigned long long)sum, (unsigned long long)wrong);
	return wrong != 0;
}
