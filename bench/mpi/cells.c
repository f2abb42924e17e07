/* What a switch costs: two ranks go over their data in turns, and tell each other when they have. */
#include "bench.h"

#include <stdlib.h>

enum how { READ = 1, WRITE = 2 };

static uint64_t start(size_t i)
{
	return i * 2654435761u + (uint64_t)rank;
}

/* What the words or their sum must be is known. */
static void check(const uint64_t *word, size_t words, int rounds, enum how how, uint64_t sum)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t is = start(i);

		if (how == READ)
			sum -= is * (uint64_t)rounds;
		else if (how == WRITE)
			is = i * 2654435761u + (uint64_t)rounds - 1;
		else
			for (int round = 0; round < rounds; round++)
				is += i ^ (uint64_t)round;
		if (word[i] != is)
			wrong("a word is not what it must be");
	}
	if (how == READ && sum)
		wrong("the sum of what was read is another one");
}

static uint64_t cells(size_t bytes, int rounds, enum how how)
{
	size_t words = bytes / sizeof(uint64_t);
	uint64_t *word = memory(words, sizeof(*word)), sum = 0;
	int token = 0;

	for (size_t i = 0; i < words; i++)
		word[i] = start(i);
	begin();
	if (corrupt && rank == ranks - 1 && how != WRITE)
		word[words / 2] ^= 1;
	for (int round = 0; round < rounds; round++) {
		if (rank > 0 || round > 0)
			MPI_Recv(&token, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < words; i++) {
			if (how == WRITE)
				word[i] = i * 2654435761u + (uint64_t)round;
			else if (how == READ)
				sum += word[i];
			else
				word[i] += i ^ (uint64_t)round;
		}
		if (rank < ranks - 1 || round < rounds - 1)
			MPI_Send(&token, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
	}
	if (corrupt && rank == ranks - 1 && how == WRITE)
		word[words / 2] ^= 1;
	end();
	check(word, words, rounds, how, sum);
	if (how != READ)
		sum = digest(0, word, bytes / 64);
	free(word);
	return sum;
}

uint64_t cells_read(size_t bytes, int rounds)
{
	return cells(bytes, rounds, READ);
}

uint64_t cells_write(size_t bytes, int rounds)
{
	return cells(bytes, rounds, WRITE);
}

uint64_t cells_both(size_t bytes, int rounds)
{
	return cells(bytes, rounds, READ | WRITE);
}
