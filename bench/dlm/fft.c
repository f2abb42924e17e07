/* A Fourier transform in three dimensions by FFTW, of a cube of `side` complex numbers a side, there and back; checked
 * against what it began with, and by Parseval's theorem in between. */
#ifdef WITH_FFTW
#include "dlm.h"

#include <fftw3.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double energy(size_t count, fftw_complex *data)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += data[i][0] * data[i][0] + data[i][1] * data[i][1];
	return sum;
}

struct outcome fft(const struct job *job)
{
	int n = (int)job->side;
	size_t count = job->side * job->side * job->side;
	struct outcome outcome = {.allowed = 1e-10};
	fftw_complex *data = (fftw_complex *)array(2 * count);
	fftw_plan there, back;
	double before, after = 0, error = 0, begun, scale = 1 / (double)count;

	fftw_init_threads();
	fftw_plan_with_nthreads(job->threads);
	there = fftw_plan_dft_3d(n, n, n, data, data, FFTW_FORWARD, FFTW_ESTIMATE);
	back = fftw_plan_dft_3d(n, n, n, data, data, FFTW_BACKWARD, FFTW_ESTIMATE);
	if (!there || !back) {
		fprintf(stderr, "ream-bench-dlm: FFTW has no plan for a cube of %d\n", n);
		exit(1);
	}
	for (size_t i = 0; i < count; i++) {
		data[i][0] = noise(2 * i) - 0.5;
		data[i][1] = noise(2 * i + 1) - 0.5;
	}
	before = energy(count, data);
	for (int round = 0; round < job->rounds; round++) {
		begun = now();
		fftw_execute(there);
		outcome.seconds += now() - begun;
		if (round == 0) {
			after = energy(count, data) * scale;
			error = worse(fabs(after / before - 1), error);
		}
		begun = now();
		fftw_execute(back);
#pragma omp parallel for schedule(static)
		for (size_t i = 0; i < count; i++) {
			data[i][0] *= scale;
			data[i][1] *= scale;
		}
		outcome.seconds += now() - begun;
	}
	if (job->corrupt)
		data[count / 2][0] += 1e-6;
	for (size_t i = 0; i < count; i++) {
		error = worse(fabs(data[i][0] - noise(2 * i) + 0.5), error);
		error = worse(fabs(data[i][1] - noise(2 * i + 1) + 0.5), error);
	}
	/* Threads divide the work elsewhere, and round otherwise: as many digits as all agree on. */
	outcome.checksum = round(before * 1e3) / 1e3;
	outcome.error = error;
	fftw_destroy_plan(there);
	fftw_destroy_plan(back);
	free(data);
	return outcome;
}
#else
typedef int not_built;
#endif
