/* FT: a diffusion equation in three dimensions by Fourier transforms, with checksums after each step of time. */
#include "nas.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 314159265ULL
#define ALPHA 1e-6
#define SAMPLES 1024
#define MOST_STEPS 20
#define ERROR 1e-12
/* Lines that are transformed side by side. */
#define LINES 16

typedef double complex number;

/* Published checksums, real and imaginary parts, after each step. */
static const double sums_s[][2] = {
	{5.546087004964e2, 4.845363331978e2}, {5.546385409189e2, 4.865304269511e2}, {5.546148406171e2, 4.883910722336e2},
	{5.545423607415e2, 4.901273169046e2}, {5.544255039624e2, 4.917475857993e2}, {5.542683411902e2, 4.932597244941e2},
};
static const double sums_w[][2] = {
	{5.673612178944e2, 5.293246849175e2}, {5.631436885271e2, 5.282149986629e2}, {5.594024089970e2, 5.270996558037e2},
	{5.560698047020e2, 5.260027904925e2}, {5.530898991250e2, 5.249400845633e2}, {5.504159734538e2, 5.239212247086e2},
};
static const double sums_a[][2] = {
	{5.046735008193e2, 5.114047905510e2}, {5.059412319734e2, 5.098809666433e2}, {5.069376896287e2, 5.098144042213e2},
	{5.077892868474e2, 5.101336130759e2}, {5.085233095391e2, 5.104914655194e2}, {5.091487099959e2, 5.107917842803e2},
};
static const double sums_b[][2] = {
	{5.177643571579e2, 5.077803458597e2}, {5.154521291263e2, 5.088249431599e2}, {5.146409228649e2, 5.096208912659e2},
	{5.142378756213e2, 5.101023387619e2}, {5.139626667737e2, 5.103976610617e2}, {5.137423460082e2, 5.105948019802e2},
	{5.135547056878e2, 5.107404165783e2}, {5.133910925466e2, 5.108576573661e2}, {5.132470705390e2, 5.109577278523e2},
	{5.131197729984e2, 5.110460304483e2}, {5.130070319283e2, 5.111252433800e2}, {5.129070537032e2, 5.111968077718e2},
	{5.128182883502e2, 5.112616233064e2}, {5.127393733383e2, 5.113203605551e2}, {5.126691062020e2, 5.113735928093e2},
	{5.126064276004e2, 5.114218460548e2}, {5.125504076570e2, 5.114656139760e2}, {5.125002331720e2, 5.115053595966e2},
	{5.124551951846e2, 5.115415130407e2}, {5.124146770029e2, 5.115744692211e2},
};

static const struct {
	int x, y, z, steps;
	const double (*sums)[2];
} sizes[CLASSES] = {
	[S] = {64, 64, 64, 6, sums_s},
	[W] = {128, 128, 32, 6, sums_w},
	[A] = {256, 256, 128, 6, sums_a},
	[B] = {512, 256, 256, 20, sums_b},
};

/* LINES transforms of length n at once (Stockham's, radix 2); the result is in one of the two buffers, which is returned. */
static number *transform(int n, number *from, number *to, const number *roots, int sign)
{
	int length = 1;

	for (int half = n / 2; half >= 1; half /= 2, length *= 2) {
		for (int block = 0; block < half; block++) {
			number root = sign > 0 ? roots[block * length] : conj(roots[block * length]);
			double re = creal(root), im = cimag(root);

			for (int i = 0; i < length; i++) {
				const number *a = from + (size_t)(block * length + i) * LINES;
				const number *b = a + (size_t)half * length * LINES;
				number *c = to + (size_t)(2 * block * length + i) * LINES;
				number *d = c + (size_t)length * LINES;

				for (int line = 0; line < LINES; line++) {
					number difference = a[line] - b[line];

					c[line] = a[line] + b[line];
					d[line] = CMPLX(re * creal(difference) - im * cimag(difference),
							re * cimag(difference) + im * creal(difference));
				}
			}
		}
		number *other = from;

		from = to;
		to = other;
	}
	return from;
}

/* All lines along one dimension: n numbers that lie `stride` apart; lines begin at i * inner_step + j * outer_step. */
static void along(number *data, int n, size_t stride, int inner, size_t inner_step, int outer, size_t outer_step, int sign)
{
	number *roots = array(n, sizeof(*roots));

	for (int i = 0; i < n; i++)
		roots[i] = CMPLX(cos(2 * M_PI * i / n), sin(2 * M_PI * i / n));
#pragma omp parallel
	{
		number *one = array((size_t)n * LINES, sizeof(*one)), *other = array((size_t)n * LINES, sizeof(*other));

#pragma omp for collapse(2) schedule(static)
		for (int j = 0; j < outer; j++)
			for (int i = 0; i < inner; i += LINES) {
				number *start = data + (size_t)j * outer_step + (size_t)i * inner_step, *result;

				for (int k = 0; k < n; k++)
					for (int line = 0; line < LINES; line++)
						one[k * LINES + line] = start[(size_t)k * stride + (size_t)line * inner_step];
				result = transform(n, one, other, roots, sign);
				for (int k = 0; k < n; k++)
					for (int line = 0; line < LINES; line++)
						start[(size_t)k * stride + (size_t)line * inner_step] = result[k * LINES + line];
			}
		free(one);
		free(other);
	}
	free(roots);
}

static void transform_all(enum class class, number *data, int sign)
{
	int x = sizes[class].x, y = sizes[class].y, z = sizes[class].z;
	size_t row = (size_t)x, plane = row * y;

	along(data, x, 1, y, row, z, plane, sign);
	along(data, y, row, x, 1, z, plane, sign);
	along(data, z, plane, x, 1, y, row, sign);
}

/* What each wave of this length loses in a step of time. */
static double *decay(int n)
{
	double *factor = array(n, sizeof(*factor));

	for (int i = 0; i < n; i++) {
		double wave = i < n / 2 ? i : i - n;

		factor[i] = exp(-4 * ALPHA * M_PI * M_PI * wave * wave);
	}
	return factor;
}

static number checksum(enum class class, const number *data)
{
	int x = sizes[class].x, y = sizes[class].y, z = sizes[class].z;
	number sum = 0;

	for (int j = 1; j <= SAMPLES; j++)
		sum += data[((size_t)(5 * j % z) * y + 3 * j % y) * x + j % x];
	return sum / ((double)x * y * z);
}

struct outcome ft(enum class class)
{
	int x = sizes[class].x, y = sizes[class].y, z = sizes[class].z;
	size_t plane = (size_t)x * y, all = plane * z;
	number *waves = array(all, sizeof(*waves)), *field = array(all, sizeof(*field)), sums[MOST_STEPS];
	double *decay_x = decay(x), *decay_y = decay(y), *decay_z = decay(z), begun;
	struct outcome outcome = {.verified = 1};

#pragma omp parallel for schedule(static)
	for (int k = 0; k < z; k++) {
		uint64_t seed = SEED * power(FIFTH_OF_13, 2 * plane * (uint64_t)k) & MODULUS_MASK;

		for (size_t i = 0; i < plane; i++) {
			double re = draw(&seed, FIFTH_OF_13), im = draw(&seed, FIFTH_OF_13);

			waves[plane * k + i] = CMPLX(re, im);
		}
	}
	if (corrupt)
		waves[all / 2] += 1e-3;
	begun = now();
	transform_all(class, waves, 1);
	for (int step = 0; step < sizes[class].steps; step++) {
#pragma omp parallel for collapse(2) schedule(static)
		for (int k = 0; k < z; k++)
			for (int j = 0; j < y; j++) {
				double factor = decay_z[k] * decay_y[j];
				size_t at = plane * k + (size_t)x * j;

				for (int i = 0; i < x; i++) {
					waves[at + i] *= factor * decay_x[i];
					field[at + i] = waves[at + i];
				}
			}
		transform_all(class, field, -1);
		sums[step] = checksum(class, field);
	}
	outcome.seconds = now() - begun;
	for (int step = 0; step < sizes[class].steps && outcome.verified; step++) {
		number right = CMPLX(sizes[class].sums[step][0], sizes[class].sums[step][1]);

		outcome.verified = cabs(sums[step] - right) <= ERROR * cabs(right);
		outcome.result = creal(sums[step]);
		outcome.expected = creal(right);
	}
	free(waves);
	free(field);
	free(decay_x);
	free(decay_y);
	free(decay_z);
	return outcome;
}
