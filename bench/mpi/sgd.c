/* Matrix factorisation by stochastic gradient descent: each rank has the ratings of its own users, row by row, and the users'
 * factors; the items' factors go round. A rank goes over the ratings of the items that it has some times before it passes
 * them on. */
#include "bench.h"

#include <stdlib.h>

#define FACTORS 16
#define PASSES 3

struct rating {
	uint32_t user, item;
	float value;
};

static struct rating made(size_t r, size_t each, size_t users, size_t items, uint64_t *random)
{
	struct rating rating = { .user = (uint32_t)((double)(r % each) / (double)each * (double)users) };

	rating.item = (uint32_t)(next(random) % items);
	rating.value = (float)(next(random) % 5 + 1);
	return rating;
}

/* The square of what the factors of this rank's items and users do not explain. */
static double unexplained(float (*user)[FACTORS], float (*item)[FACTORS], const struct rating *rating, size_t each)
{
	double sum = 0;

	for (size_t r = 0; r < each; r++) {
		float error = rating[r].value;

		for (int f = 0; f < FACTORS; f++)
			error -= user[rating[r].user][f] * item[rating[r].item][f];
		sum += (double)(error * error);
	}
	return sum;
}

static void learn(float *user, float *item, float value)
{
	float error = value;

	for (int f = 0; f < FACTORS; f++)
		error -= user[f] * item[f];
	error *= 0.01f;
	for (int f = 0; f < FACTORS; f++) {
		float before = user[f];

		user[f] += error * item[f];
		item[f] += error * before;
	}
}

uint64_t sgd(size_t bytes, int rounds)
{
	size_t users = bytes / 2 / sizeof(float[FACTORS]), items = users / 16 + 1;
	size_t each = bytes / 2 / sizeof(struct rating) / (size_t)ranks, count = each * (size_t)ranks;
	float(*user)[FACTORS] = memory(users, sizeof(*user)), (*item)[FACTORS] = memory(items, sizeof(*item));
	struct rating *rating = memory(count, sizeof(*rating));
	uint64_t random = 99 + (uint64_t)rank;

	for (size_t r = 0; r < count; r++)
		rating[r] = made(r, each, users, items, &random);
	for (size_t u = 0; u < users; u++)
		for (int f = 0; f < FACTORS; f++)
			user[u][f] = (float)unit(&random) * 0.5f;
	for (size_t i = 0; i < items; i++)
		for (int f = 0; f < FACTORS; f++)
			item[i][f] = (float)unit(&random) * 0.5f;
	double before = unexplained(user, item, rating + (size_t)rank * each, each);

	begin();
	if (corrupt && rank == ranks - 1)
		rating[count / 2].value += 1;
	for (int round = 0; round < rounds; round++)
		for (int step = 0; step < ranks; step++) {
			/* Whose items these are. */
			int whose = (rank + step) % ranks;
			struct rating *here = rating + (size_t)whose * each;

			for (int pass = 0; pass < PASSES; pass++)
				for (size_t r = 0; r < each; r++)
					learn(user[here[r].user], item[here[r].item], here[r].value);
			MPI_Sendrecv_replace(item, (int)(items * FACTORS), MPI_FLOAT, (rank + ranks - 1) % ranks, 0,
					     (rank + 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
	end();
	/* The items of this rank are home again. */
	if (!(unexplained(user, item, rating + (size_t)rank * each, each) < before))
		wrong("the factors explain no more than they did");
	random = 99 + (uint64_t)rank;
	for (size_t r = 0; r < count; r++) {
		struct rating was = made(r, each, users, items, &random);

		if (rating[r].user != was.user || rating[r].item != was.item || rating[r].value != was.value)
			wrong("a rating is not what it was");
	}
	uint64_t result = digest(digest(0, item, items * sizeof(*item)), user, users * sizeof(*user));

	free(user);
	free(item);
	free(rating);
	return result;
}
