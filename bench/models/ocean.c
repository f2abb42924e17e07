/* The barotropic step of an ocean model, the costly part of POP: the surface's height by conjugate gradients, preconditioned by
 * the diagonal, for a five-point operator whose coefficients are the water's depth, on a grid of which a third is land. The right
 * hand side is made of a known height, which must come out. Sums are over rows first, in order, so that every run does the same. */
#include "models.h"

#include <math.h>
#include <stdlib.h>

#define MOST 400		/* iterations */
#define RESIDUE 1e-11		/* of the right hand side, at which it ends */
#define ERROR 1e-7		/* of the height that is allowed */

static size_t nx, ny;
static double *east, *north, *centre, *sums;

/* Depth in kilometres; land where it is not above zero. */
static double depth(size_t i, size_t j)
{
	double x = (double)i / (double)nx * 2 * M_PI, y = (double)j / (double)ny * 2 * M_PI;

	if (!i || !j || i == nx - 1 || j == ny - 1)
		return 0;
	return 1.2 + 2 * sin(2 * x + 1) * sin(3 * y) + sin(5 * x) * cos(2 * y + 1);
}

static double total(void)
{
	double sum = 0;

	for (size_t j = 0; j < ny; j++)
		sum += sums[j];
	return sum;
}

/* q = A p; returns p q. */
static double apply(const double *p, double *q)
{
#pragma omp parallel for
	for (size_t j = 1; j < ny - 1; j++) {
		double sum = 0;

		for (size_t i = 1; i < nx - 1; i++) {
			size_t k = j * nx + i;

			q[k] = centre[k] * p[k] - east[k] * p[k + 1] - east[k - 1] * p[k - 1] - north[k] * p[k + nx] -
			       north[k - nx] * p[k - nx];
			sum += p[k] * q[k];
		}
		sums[j] = sum;
	}
	return total();
}

/* The residue over the diagonal, squared; where `p` is given, p = r / diagonal + beta p. */
static double precondition(const double *r, double *p, double beta)
{
#pragma omp parallel for
	for (size_t j = 1; j < ny - 1; j++) {
		double sum = 0;

		for (size_t i = 1; i < nx - 1; i++) {
			size_t k = j * nx + i;

			if (p)
				p[k] = r[k] / centre[k] + beta * p[k];
			sum += r[k] * r[k] / centre[k];
		}
		sums[j] = sum;
	}
	return total();
}

struct outcome ocean(size_t size)
{
	struct outcome outcome = {0};
	double *x, *r, *p, *q, begun, first, last, worst = 0;
	size_t cells, iterations = 0, wet = 0;

	nx = size;
	ny = size * 3 / 4;
	cells = nx * ny;
	east = array(cells, sizeof(*east));
	north = array(cells, sizeof(*north));
	centre = array(cells, sizeof(*centre));
	sums = array(ny, sizeof(*sums));
	x = array(cells, sizeof(*x));
	r = array(cells, sizeof(*r));
	p = array(cells, sizeof(*p));
	q = array(cells, sizeof(*q));
#pragma omp parallel for reduction(+ : wet)
	for (size_t j = 0; j < ny - 1; j++)
		for (size_t i = 0; i < nx - 1; i++) {
			double here = depth(i, j), right = depth(i + 1, j), above = depth(i, j + 1);
			size_t k = j * nx + i;

			/* Water flows between cells that are both wet. */
			east[k] = here > 0 && right > 0 ? (here + right) / 2 : 0;
			north[k] = here > 0 && above > 0 ? (here + above) / 2 : 0;
			wet += here > 0;
		}
#pragma omp parallel for
	for (size_t j = 1; j < ny - 1; j++)
		for (size_t i = 1; i < nx - 1; i++) {
			size_t k = j * nx + i;

			/* The time step's own term keeps land, where nothing flows, solvable, too. */
			centre[k] = east[k] + east[k - 1] + north[k] + north[k - nx] + 0.3;
			p[k] = depth(i, j) > 0 ? sin(0.01 * (double)i) * cos(0.013 * (double)j) : 0;
		}
	if (wet < cells / 3 || wet > cells * 9 / 10) {
		outcome.wrong = "no ocean";
		return outcome;
	}
	apply(p, r);
	if (corrupt)
		r[cells / 2 + nx / 2] += 1e-3;

	begun = now();
	/* The guess is zero, so the residue is the right hand side. */
#pragma omp parallel for
	for (size_t k = 0; k < cells; k++)
		p[k] = 0;
	first = last = precondition(r, p, 0);
	while (iterations < MOST && last > RESIDUE * RESIDUE * first) {
		double alpha = last / apply(p, q), next;

#pragma omp parallel for
		for (size_t k = 0; k < cells; k++) {
			x[k] += alpha * p[k];
			r[k] -= alpha * q[k];
		}
		next = precondition(r, NULL, 0);
		precondition(r, p, next / last);
		last = next;
		iterations++;
	}
	outcome.figure = now() - begun;

	if (!(last <= RESIDUE * RESIDUE * first))
		outcome.wrong = "it does not converge";
	for (size_t j = 1; j < ny - 1; j++)
		for (size_t i = 1; i < nx - 1; i++) {
			double height = depth(i, j) > 0 ? sin(0.01 * (double)i) * cos(0.013 * (double)j) : 0;
			double error = fabs(x[j * nx + i] - height);

			if (!(error <= worst))
				worst = error < INFINITY ? error : INFINITY;
		}
	if (!outcome.wrong && !(worst <= ERROR))
		outcome.wrong = "another height";
	outcome.sum = iterations;
	return outcome;
}
