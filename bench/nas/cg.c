/* CG: the smallest eigenvalue of a sparse symmetric matrix by inverse iteration, each step of it 25 steps of conjugate
 * gradients. The matrix is read in order, the vector it is multiplied with at random. */
#include "nas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 314159265ULL
#define STEPS 25
#define CONDITION 0.1
#define ERROR 1e-10

static const struct {
	int rows, nonzeros, iterations;
	double shift, zeta; /* the published eigenvalue */
} sizes[CLASSES] = {
	[S] = {1400, 7, 15, 10, 8.5971775078648},
	[W] = {7000, 8, 15, 12, 10.362595087124},
	[A] = {14000, 11, 15, 20, 17.130235054029},
	[B] = {75000, 13, 75, 60, 22.712745482631},
};

struct element {
	int column;
	double value;
};

struct matrix {
	int rows;
	long *start;  /* of each row's elements */
	int *column;
	double *value;
};

static int by_column(const void *one, const void *other)
{
	return ((const struct element *)one)->column - ((const struct element *)other)->column;
}

/* A vector of `nonzeros` elements at random places, and one of 0.5 at `own`; returns how many it has. */
static int sparse_vector(int rows, int nonzeros, int own, struct element *vector, uint64_t *seed)
{
	int count = 0, own_at = -1, range = 2;

	while (range < rows)
		range *= 2;
	while (count < nonzeros) {
		double value = draw(seed, FIFTH_OF_13);
		int column = (int)(range * draw(seed, FIFTH_OF_13));
		int known = column >= rows;

		for (int i = 0; i < count && !known; i++)
			known = vector[i].column == column;
		if (!known)
			vector[count++] = (struct element){column, value};
	}
	for (int i = 0; i < count; i++)
		if (vector[i].column == own)
			own_at = i;
	if (own_at < 0)
		own_at = count++;
	vector[own_at] = (struct element){own, 0.5};
	return count;
}

/* The sum of the outer products of sparse vectors, ever lighter, and a diagonal. */
static struct matrix make(int rows, int nonzeros, double shift)
{
	struct matrix matrix = {.rows = rows};
	struct element *vectors = array((size_t)rows * (nonzeros + 1), sizeof(*vectors)), *all;
	int *counts = array(rows, sizeof(*counts));
	long *place = array((size_t)rows + 1, sizeof(*place));
	double weight = 1, ratio = pow(CONDITION, 1.0 / rows);
	uint64_t seed = SEED;
	long end = 0;

	draw(&seed, FIFTH_OF_13);
	for (int i = 0; i < rows; i++) {
		struct element *vector = vectors + (size_t)i * (nonzeros + 1);

		counts[i] = sparse_vector(rows, nonzeros, i, vector, &seed);
		for (int j = 0; j < counts[i]; j++)
			place[vector[j].column + 1] += counts[i];
	}
	for (int i = 0; i < rows; i++)
		place[i + 1] += place[i];
	all = array(place[rows], sizeof(*all));
	for (int i = 0; i < rows; i++, weight *= ratio) {
		struct element *vector = vectors + (size_t)i * (nonzeros + 1);

		for (int j = 0; j < counts[i]; j++) {
			int row = vector[j].column;

			for (int k = 0; k < counts[i]; k++) {
				double value = vector[k].value * vector[j].value * weight;

				if (j == k && row == i)
					value += CONDITION - shift;
				all[place[row]++] = (struct element){vector[k].column, value};
			}
		}
	}
	/* Each place is now where the next row's was. Elements of one column become one. */
	matrix.start = array((size_t)rows + 1, sizeof(*matrix.start));
	matrix.column = array(place[rows - 1], sizeof(*matrix.column));
	matrix.value = array(place[rows - 1], sizeof(*matrix.value));
	for (int row = 0; row < rows; row++) {
		long from = row ? place[row - 1] : 0;

		matrix.start[row] = end;
		qsort(all + from, (size_t)(place[row] - from), sizeof(*all), by_column);
		for (long i = from; i < place[row]; i++) {
			if (end > matrix.start[row] && matrix.column[end - 1] == all[i].column) {
				matrix.value[end - 1] += all[i].value;
			} else {
				matrix.column[end] = all[i].column;
				matrix.value[end++] = all[i].value;
			}
		}
	}
	matrix.start[rows] = end;
	free(all);
	free(place);
	free(counts);
	free(vectors);
	return matrix;
}

static double product(int n, const double *a, const double *b)
{
	double sum = 0;

#pragma omp parallel for reduction(+ : sum) schedule(static)
	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* z := about the solution of matrix z = x; r, p, q are scratch. */
static void solve(const struct matrix *matrix, const double *x, double *z, double *r, double *p, double *q)
{
	int n = matrix->rows;
	double rho;

	memset(z, 0, (size_t)n * sizeof(*z));
	memcpy(r, x, (size_t)n * sizeof(*r));
	memcpy(p, x, (size_t)n * sizeof(*p));
	rho = product(n, r, r);
	for (int step = 0; step < STEPS; step++) {
		double alpha, before = rho;

#pragma omp parallel for schedule(static)
		for (int row = 0; row < n; row++) {
			double sum = 0;

			for (long i = matrix->start[row]; i < matrix->start[row + 1]; i++)
				sum += matrix->value[i] * p[matrix->column[i]];
			q[row] = sum;
		}
		alpha = rho / product(n, p, q);
#pragma omp parallel for schedule(static)
		for (int i = 0; i < n; i++) {
			z[i] += alpha * p[i];
			r[i] -= alpha * q[i];
		}
		rho = product(n, r, r);
#pragma omp parallel for schedule(static)
		for (int i = 0; i < n; i++)
			p[i] = r[i] + rho / before * p[i];
	}
}

struct outcome cg(enum class class)
{
	int n = sizes[class].rows;
	struct matrix matrix = make(n, sizes[class].nonzeros, sizes[class].shift);
	double *vectors[5], *x, *z, begun, zeta = 0;
	struct outcome outcome = {0};

	for (int i = 0; i < 5; i++)
		vectors[i] = array(n, sizeof(double));
	x = vectors[0];
	z = vectors[1];
	for (int i = 0; i < n; i++)
		x[i] = 1;
	if (corrupt)
		matrix.value[matrix.start[n / 2]] += 1e-3;
	begun = now();
	for (int iteration = 0; iteration < sizes[class].iterations; iteration++) {
		double length;

		solve(&matrix, x, z, vectors[2], vectors[3], vectors[4]);
		zeta = sizes[class].shift + 1 / product(n, x, z);
		length = 1 / sqrt(product(n, z, z));
#pragma omp parallel for schedule(static)
		for (int i = 0; i < n; i++)
			x[i] = length * z[i];
	}
	outcome.seconds = now() - begun;
	outcome.verified = close_to(zeta, sizes[class].zeta, ERROR);
	outcome.result = zeta;
	outcome.expected = sizes[class].zeta;
	return outcome;
}
