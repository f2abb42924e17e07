/* The product of two matrices of `side` rows and columns, in tiles or by OpenBLAS, which is loaded if it is there; checked by Freivalds' method: C x against A (B x), with
 * whole numbers, so that nothing is rounded. */
#include "dlm.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILE ((size_t)128)

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void multiply(size_t n, const double *a, const double *b, double *c)
{
#pragma omp parallel for schedule(static)
	for (size_t rows = 0; rows < n; rows += TILE) {
		size_t last = least(rows + TILE, n);

		for (size_t inner = 0; inner < n; inner += TILE) {
			size_t end = least(inner + TILE, n);

			for (size_t i = rows; i < last; i++) {
				double *restrict row = c + i * n;

				/* Four rows at a time, so that sums are loaded and stored less often. */
				size_t k = inner;

				for (; k + 4 <= end; k += 4) {
					const double *other = b + k * n, *factors = a + i * n + k;

					for (size_t j = 0; j < n; j++)
						row[j] += factors[0] * other[j] + factors[1] * other[j + n] +
							  factors[2] * other[j + 2 * n] + factors[3] * other[j + 3 * n];
				}
				for (; k < end; k++)
					for (size_t j = 0; j < n; j++)
						row[j] += a[i * n + k] * b[k * n + j];
			}
		}
	}
}

/* The product of matrices as BLAS has it since 1990: C = alpha A B + beta C, by columns. */
typedef void dgemm(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha, const double *a,
		   const int *lda, const double *b, const int *ldb, const double *beta, double *c, const int *ldc);

static dgemm *product;

static void by_library(size_t n, const double *a, const double *b, double *c)
{
	const int side = (int)n;
	const double one = 1;

	/* By columns, ours are the transposed matrices, and so is their product. */
	product("N", "N", &side, &side, &side, &one, b, &side, a, &side, &one, c, &side);
}

/* y = M x */
static void apply(size_t n, const double *m, const double *x, double *y)
{
	for (size_t i = 0; i < n; i++) {
		double sum = 0;

		for (size_t j = 0; j < n; j++)
			sum += m[i * n + j] * x[j];
		y[i] = sum;
	}
}

static struct outcome run(const struct job *job, void (*multiply)(size_t, const double *, const double *, double *))
{
	size_t n = job->side;
	struct outcome outcome = {0};
	double *a = array(n * n), *b = array(n * n), *c = array(n * n);
	double *x = array(n), *y = array(n), *z = array(n), begun, error = 0, sum = 0;

	for (size_t i = 0; i < n * n; i++) {
		a[i] = floor(noise(i) * 16);
		b[i] = floor(noise(i + n * n) * 16);
	}
	begun = now();
	for (int round = 0; round < job->rounds; round++) {
		memset(c, 0, n * n * sizeof(*c));
		multiply(n, a, b, c);
	}
	outcome.seconds = now() - begun;
	if (job->corrupt)
		c[n * n / 2] += 1;
	for (size_t i = 0; i < n; i++)
		x[i] = 1 + floor(noise(~i) * 16);
	apply(n, b, x, y);
	apply(n, a, y, z);
	apply(n, c, x, y);
	for (size_t i = 0; i < n; i++) {
		error = worse(fabs(y[i] - z[i]), error);
		sum += y[i];
	}
	outcome.checksum = sum;
	outcome.error = error;
	free(a);
	free(b);
	free(c);
	free(x);
	free(y);
	free(z);
	return outcome;
}

struct outcome matmul(const struct job *job)
{
	return run(job, multiply);
}

struct outcome blas(const struct job *job)
{
	struct outcome none = {0};
	void *library = dlopen("libopenblas.so.0", RTLD_NOW);
	void (*threads)(int) = library ? (void (*)(int))dlsym(library, "openblas_set_num_threads") : NULL;

	product = threads ? (dgemm *)dlsym(library, "dgemm_") : NULL;
	if (!product) {
		none.missing = "no OpenBLAS: libopenblas.so.0 is not there (Debian: libopenblas0)";
		return none;
	}
	threads(job->threads);
	return run(job, by_library);
}
