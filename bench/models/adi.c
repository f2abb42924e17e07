/* ADI: heat in a cube, by implicit steps along one direction after the other, each a tridiagonal system for every line: the
 * pattern of NAS SP and BT. The product of three sines, zero on all sides, is an eigenfunction of every such step, so the result
 * is known exactly; and it must be near the heat equation's own solution. */
#include "models.h"

#include <math.h>
#include <stdlib.h>

#define STEPS 4
/* Relative errors that are allowed: of rounding, a hundred times what it is, since the steps smooth a wrong value away, the more the
 * finer the cube; and of the steps in space and time. */
#define ROUNDING 1e-11
#define STEPPING 0.05

/* Solves (1 + 2c, -c) x = u for `lanes` lines at once, whose points are `stride` apart; lanes are neighbours in memory. */
static void solve(double *u, size_t n, size_t stride, size_t lanes, const double *upper, double c)
{
	for (size_t l = 0; l < lanes; l++)
		u[l] /= 1 + 2 * c;
	for (size_t i = 1; i < n; i++) {
		double *line = u + i * stride, scale = 1 / (1 + 2 * c + c * upper[i - 1]);

		for (size_t l = 0; l < lanes; l++)
			line[l] = (line[l] + c * line[(ptrdiff_t)l - (ptrdiff_t)stride]) * scale;
	}
	for (size_t i = n - 1; i-- > 0;) {
		double *line = u + i * stride;

		for (size_t l = 0; l < lanes; l++)
			line[l] -= upper[i] * line[l + stride];
	}
}

struct outcome adi(size_t n)
{
	const double h = 1.0 / (double)(n + 1), step = h * 0.1, c = step / (h * h);
	double *u = array(n * n * n, sizeof(*u)), *sine = array(n, sizeof(*sine)), *upper = array(n, sizeof(*upper));
	double begun, wave, factor, exact, worst = 0, time = step * STEPS;
	struct outcome outcome = {0};

	for (size_t i = 0; i < n; i++) {
		sine[i] = sin(M_PI * h * (double)(i + 1));
		upper[i] = -c / (1 + 2 * c + (i ? c * upper[i - 1] : 0));
	}
#pragma omp parallel for
	for (size_t k = 0; k < n; k++)
		for (size_t j = 0; j < n; j++)
			for (size_t i = 0; i < n; i++)
				u[(k * n + j) * n + i] = sine[i] * sine[j] * sine[k];
	if (corrupt)
		u[n * n * n / 2] += 1e-3;

	begun = now();
	for (int s = 0; s < STEPS; s++) {
#pragma omp parallel for
		for (size_t line = 0; line < n * n; line++)
			solve(u + line * n, n, 1, 1, upper, c);
#pragma omp parallel for
		for (size_t k = 0; k < n; k++)
			solve(u + k * n * n, n, n, n, upper, c);
#pragma omp parallel for
		for (size_t j = 0; j < n; j++)
			solve(u + j * n, n, n * n, n, upper, c);
	}
	outcome.figure = now() - begun;

	wave = 4 * pow(sin(M_PI * h / 2), 2) / (h * h);
	factor = pow(1 / (1 + step * wave), 3 * STEPS);
	exact = exp(-3 * M_PI * M_PI * time);
#pragma omp parallel for reduction(max : worst)
	for (size_t k = 0; k < n; k++)
		for (size_t j = 0; j < n; j++)
			for (size_t i = 0; i < n; i++) {
				double error = fabs(u[(k * n + j) * n + i] - factor * sine[i] * sine[j] * sine[k]);

				/* What is no number is as wrong as can be. */
				if (!(error <= worst))
					worst = error < INFINITY ? error : INFINITY;
			}
	if (!(worst <= ROUNDING))
		outcome.wrong = "not the steps' own solution";
	else if (!(fabs(factor / exact - 1) <= STEPPING))
		outcome.wrong = "not near the heat equation's solution";
	outcome.sum = n;
	return outcome;
}
