/* A 7-point stencil over a cube of `side` points a side, plain and with temporal blocking: `rounds` steps of time of the heat
 * equation with cold walls. It begins with a product of sines, which each step multiplies by one known number: so every
 * point of the result is known. */
#include "dlm.h"

#include <math.h>
#include <stdlib.h>

/* Planes that are brought through several steps of time before the next ones are looked at, and how many steps. */
#define SLAB 8
#define STEPS 8
#define RATE 0.1

/* One plane, one step further. Planes 0 and n + 1, and the points around each plane, are walls. */
static void plane(size_t n, size_t z, const double *from, double *to)
{
	size_t row = n + 2, layer = row * row;

	for (size_t y = 1; y <= n; y++) {
		const double *old = from + z * layer + y * row;
		double *new = to + z * layer + y * row;

		for (size_t x = 1; x <= n; x++)
			new[x] = old[x] + RATE * (old[x - 1] + old[x + 1] + old[x - row] + old[x + row] + old[x - layer] +
						  old[x + layer] - 6 * old[x]);
	}
}

/* All planes one step, then all the next. */
static void plain(size_t n, int rounds, double **cube)
{
	for (int round = 0; round < rounds; round++) {
#pragma omp parallel for schedule(static)
		for (size_t z = 1; z <= n; z++)
			plane(n, z, cube[round % 2], cube[(round + 1) % 2]);
	}
}

/* Slabs of planes, each STEPS steps; a slab moves one plane down at each, so that what it needs is there. */
static void temporal(size_t n, int rounds, double **cube)
{
	for (int done = 0; done < rounds; done += STEPS) {
		int steps = rounds - done < STEPS ? rounds - done : STEPS;

		for (long slab = 1; slab < (long)n + steps; slab += SLAB) {
			for (int step = 0; step < steps; step++) {
				long first = slab - step, last = first + SLAB - 1;

				first = first < 1 ? 1 : first;
				last = last > (long)n ? (long)n : last;
#pragma omp parallel for schedule(static)
				for (long z = first; z <= last; z++)
					plane(n, (size_t)z, cube[(done + step) % 2], cube[(done + step + 1) % 2]);
			}
		}
	}
}

static struct outcome run(const struct job *job, void (*go)(size_t, int, double **))
{
	size_t n = job->side, row = n + 2, layer = row * row;
	struct outcome outcome = {.allowed = 1e-10};
	double *cube[2] = {array(layer * row), array(layer * row)}, *wave = array(row);
	double lambda, factor, error = 0, sum = 0, begun;

	for (size_t i = 0; i < row; i++)
		wave[i] = i == 0 || i == n + 1 ? 0 : sin(M_PI * (double)i / (double)(n + 1));
	/* The two are laid down plane by plane, so that both are touched in order. */
	for (size_t z = 0; z < row; z++)
		for (size_t y = 0; y < row; y++)
			for (size_t x = 0; x < row; x++) {
				cube[0][z * layer + y * row + x] = wave[z] * wave[y] * wave[x];
				cube[1][z * layer + y * row + x] = 0;
			}
	begun = now();
	go(n, job->rounds, cube);
	outcome.seconds = now() - begun;
	if (job->corrupt)
		cube[job->rounds % 2][(n + 1) / 2 * (layer + row + 1)] *= 1 + 1e-8;
	lambda = 1 + RATE * 6 * (cos(M_PI / (double)(n + 1)) - 1);
	factor = pow(lambda, job->rounds);
	for (size_t z = 1; z <= n; z++)
		for (size_t y = 1; y <= n; y++)
			for (size_t x = 1; x <= n; x++) {
				double value = cube[job->rounds % 2][z * layer + y * row + x];

				error = worse(fabs(value - factor * wave[z] * wave[y] * wave[x]), error);
				sum += value;
			}
	outcome.checksum = sum;
	outcome.error = error;
	free(cube[0]);
	free(cube[1]);
	free(wave);
	return outcome;
}

struct outcome stencil(const struct job *job)
{
	return run(job, plain);
}

struct outcome blocked(const struct job *job)
{
	return run(job, temporal);
}
