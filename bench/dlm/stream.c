/* STREAM's four loops over three arrays of `side` numbers, as J. McCalpin defined them; checked against the same done with
 * three numbers. */
#include "dlm.h"

#include <math.h>
#include <stdlib.h>

#define SCALAR 0.4

struct outcome stream(const struct job *job)
{
	size_t n = job->side;
	struct outcome outcome = {.allowed = 1e-12};
	double *a = array(n), *b = array(n), *c = array(n);
	double x = 1, y = 2, z = 0, error = 0, sum = 0, begun;

#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < n; i++) {
		a[i] = x;
		b[i] = y;
		c[i] = z;
	}
	begun = now();
	for (int round = 0; round < job->rounds; round++) {
#pragma omp parallel for schedule(static)
		for (size_t i = 0; i < n; i++)
			c[i] = a[i];
#pragma omp parallel for schedule(static)
		for (size_t i = 0; i < n; i++)
			b[i] = SCALAR * c[i];
#pragma omp parallel for schedule(static)
		for (size_t i = 0; i < n; i++)
			c[i] = a[i] + b[i];
#pragma omp parallel for schedule(static)
		for (size_t i = 0; i < n; i++)
			a[i] = b[i] + SCALAR * c[i];
		z = x;
		y = SCALAR * z;
		z = x + y;
		x = y + SCALAR * z;
	}
	outcome.seconds = now() - begun;
	if (job->corrupt)
		b[n / 2] *= 1 + 1e-9;
	for (size_t i = 0; i < n; i++) {
		error = worse(fabs(a[i] / x - 1), error);
		error = worse(fabs(b[i] / y - 1), error);
		error = worse(fabs(c[i] / z - 1), error);
		sum += a[i] + b[i] + c[i];
	}
	outcome.checksum = sum;
	outcome.error = error;
	free(a);
	free(b);
	free(c);
	return outcome;
}
