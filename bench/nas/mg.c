/* MG: the Poisson equation on a periodic cube by V-cycles of multigrid; sums over 27 neighbours on ever coarser grids. */
#include "nas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 314159265ULL
#define LEVELS 10
#define CHARGES 10
#define ERROR 1e-8

static const struct {
	int log_side, iterations;
	double norm; /* the published norm of the residual */
} sizes[CLASSES] = {
	[S] = {5, 4, 0.5307707005734e-04},
	[W] = {7, 4, 0.6467329375339e-05},
	[A] = {8, 4, 0.2433365309069e-05},
	[B] = {8, 20, 0.1800564401355e-05},
};

/* Weights of a point itself, its 6, 12 and 8 neighbours. The operator with its sign turned, and two smoothers. */
static const double operator[4] = {8.0 / 3, 0, -1.0 / 6, -1.0 / 12};
static const double smoother[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};
static const double smoother_b[4] = {-3.0 / 17, 1.0 / 33, -1.0 / 61, 0};

/* A grid of n points a side has a layer around it that repeats the other side: side n + 2. */
static size_t at(int n, int z, int y)
{
	return ((size_t)z * (n + 2) + y) * (n + 2);
}

static size_t points(int n)
{
	return (size_t)(n + 2) * (n + 2) * (n + 2);
}

static void wrap(int n, double *grid)
{
#pragma omp parallel for schedule(static)
	for (int z = 1; z <= n; z++) {
		for (int y = 1; y <= n; y++) {
			double *row = grid + at(n, z, y);

			row[0] = row[n];
			row[n + 1] = row[1];
		}
		memcpy(grid + at(n, z, 0), grid + at(n, z, n), (size_t)(n + 2) * sizeof(*grid));
		memcpy(grid + at(n, z, n + 1), grid + at(n, z, 1), (size_t)(n + 2) * sizeof(*grid));
	}
	memcpy(grid + at(n, 0, 0), grid + at(n, n, 0), (size_t)(n + 2) * (n + 2) * sizeof(*grid));
	memcpy(grid + at(n, n + 1, 0), grid + at(n, 1, 0), (size_t)(n + 2) * (n + 2) * sizeof(*grid));
}

/* Sums of the four rows beside a row, and of the four across. */
static void beside(int n, const double *grid, int z, int y, double *four, double *across)
{
	const double *north = grid + at(n, z, y - 1), *south = grid + at(n, z, y + 1);
	const double *up = grid + at(n, z - 1, y), *down = grid + at(n, z + 1, y);
	const double *a = grid + at(n, z - 1, y - 1), *b = grid + at(n, z - 1, y + 1);
	const double *c = grid + at(n, z + 1, y - 1), *d = grid + at(n, z + 1, y + 1);

	for (int x = 0; x < n + 2; x++) {
		four[x] = north[x] + south[x] + up[x] + down[x];
		across[x] = a[x] + b[x] + c[x] + d[x];
	}
}

/* out := base + the weighted sums over in; out may be base. */
static void add_weighted(int n, double *out, const double *base, const double *in, const double *weight)
{
#pragma omp parallel
	{
		double *four = array(2 * (size_t)(n + 2), sizeof(*four)), *across = four + n + 2;

#pragma omp for schedule(static)
		for (int z = 1; z <= n; z++) {
			for (int y = 1; y <= n; y++) {
				const double *row = in + at(n, z, y), *from = base + at(n, z, y);
				double *to = out + at(n, z, y);

				beside(n, in, z, y, four, across);
				for (int x = 1; x <= n; x++)
					to[x] = from[x] + weight[0] * row[x] +
						weight[1] * (row[x - 1] + row[x + 1] + four[x]) +
						weight[2] * (across[x] + four[x - 1] + four[x + 1]) +
						weight[3] * (across[x - 1] + across[x + 1]);
			}
		}
		free(four);
	}
	wrap(n, out);
}

/* The residual on the grid of half the side: coarse point c is fine point 2c. */
static void restrict_to(int n, double *coarse, const double *fine)
{
	int half = n / 2;

#pragma omp parallel
	{
		double *four = array(2 * (size_t)(n + 2), sizeof(*four)), *across = four + n + 2;

#pragma omp for schedule(static)
		for (int z = 1; z <= half; z++) {
			for (int y = 1; y <= half; y++) {
				const double *row = fine + at(n, 2 * z, 2 * y);
				double *to = coarse + at(half, z, y);

				beside(n, fine, 2 * z, 2 * y, four, across);
				for (int c = 1; c <= half; c++) {
					int x = 2 * c;

					to[c] = 0.5 * row[x] + 0.25 * (row[x - 1] + row[x + 1] + four[x]) +
						0.125 * (across[x] + four[x - 1] + four[x + 1]) +
						0.0625 * (across[x - 1] + across[x + 1]);
				}
			}
		}
		free(four);
	}
	wrap(half, coarse);
}

/* fine += coarse, between its points the mean of the nearest. */
static void prolong(int n, double *fine, const double *coarse)
{
	int half = n / 2;

#pragma omp parallel
	{
		double *line = array((size_t)half + 2, sizeof(*line));

#pragma omp for schedule(static)
		for (int z = 1; z <= n; z++) {
			for (int y = 1; y <= n; y++) {
				const double *a = coarse + at(half, z / 2, y / 2);
				const double *b = coarse + at(half, z / 2, (y + 1) / 2);
				const double *c = coarse + at(half, (z + 1) / 2, y / 2);
				const double *d = coarse + at(half, (z + 1) / 2, (y + 1) / 2);
				double *to = fine + at(n, z, y);

				for (int x = 0; x < half + 2; x++)
					line[x] = 0.25 * (a[x] + b[x] + c[x] + d[x]);
				for (int x = 1; x <= half; x++) {
					to[2 * x] += line[x];
					to[2 * x - 1] += 0.5 * (line[x - 1] + line[x]);
				}
			}
		}
		free(line);
	}
	wrap(n, fine);
}

/* Ten charges of +1 where the random numbers are largest, ten of -1 where they are smallest. */
static void charge(int n, double *grid)
{
	double low[CHARGES + 1], high[CHARGES + 1];
	size_t low_at[CHARGES + 1] = {0}, high_at[CHARGES + 1] = {0};
	uint64_t seed = SEED;

	for (int i = 0; i <= CHARGES; i++) {
		low[i] = 2;
		high[i] = -1;
	}
	for (int z = 1; z <= n; z++)
		for (int y = 1; y <= n; y++)
			for (int x = 1; x <= n; x++) {
				double value = draw(&seed, FIFTH_OF_13);
				size_t here = at(n, z, y) + (size_t)x;
				int i;

				for (i = CHARGES; i > 0 && value < low[i - 1]; i--) {
					low[i] = low[i - 1];
					low_at[i] = low_at[i - 1];
				}
				low[i] = value;
				low_at[i] = here;
				for (i = CHARGES; i > 0 && value > high[i - 1]; i--) {
					high[i] = high[i - 1];
					high_at[i] = high_at[i - 1];
				}
				high[i] = value;
				high_at[i] = here;
			}
	for (int i = 0; i < CHARGES; i++) {
		grid[low_at[i]] = -1;
		grid[high_at[i]] = 1;
	}
	if (corrupt)
		grid[high_at[0]] = 0.99;
	wrap(n, grid);
}

static double norm(int n, const double *grid)
{
	double sum = 0;

#pragma omp parallel for reduction(+ : sum) schedule(static)
	for (int z = 1; z <= n; z++)
		for (int y = 1; y <= n; y++)
			for (int x = 1; x <= n; x++)
				sum += grid[at(n, z, y) + (size_t)x] * grid[at(n, z, y) + (size_t)x];
	return sqrt(sum / ((double)n * n * n));
}

struct outcome mg(enum class class)
{
	int top = sizes[class].log_side, side = 1 << top;
	const double *smooth = class == B ? smoother_b : smoother;
	double *u[LEVELS], *r[LEVELS], *v, begun, result;
	struct outcome outcome = {0};

	for (int level = 1; level <= top; level++) {
		u[level] = array(points(1 << level), sizeof(double));
		r[level] = array(points(1 << level), sizeof(double));
	}
	v = array(points(side), sizeof(double));
	charge(side, v);
	begun = now();
	add_weighted(side, r[top], v, u[top], operator);
	for (int iteration = 0; iteration < sizes[class].iterations; iteration++) {
		for (int level = top; level > 1; level--)
			restrict_to(1 << level, r[level - 1], r[level]);
		for (int level = 1; level <= top; level++) {
			int n = 1 << level;

			if (level < top)
				memset(u[level], 0, points(n) * sizeof(double));
			if (level > 1) {
				prolong(n, u[level], u[level - 1]);
				add_weighted(n, r[level], level < top ? r[level] : v, u[level], operator);
			}
			add_weighted(n, u[level], u[level], r[level], smooth);
		}
		add_weighted(side, r[top], v, u[top], operator);
	}
	result = norm(side, r[top]);
	outcome.seconds = now() - begun;
	outcome.verified = close_to(result, sizes[class].norm, ERROR);
	outcome.result = result;
	outcome.expected = sizes[class].norm;
	return outcome;
}
