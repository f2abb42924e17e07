/* Touches page by page: every thread has a part of the data and goes over it in order, one number of each page is read,
 * checked and changed. Nothing is computed, so what is measured is how fast pages come and go. `side` is the number of MiB. */
#include "dlm.h"

#include <math.h>
#include <stdlib.h>

#define PAGE (4096 / sizeof(double))

struct outcome micro(const struct job *job)
{
	size_t pages = job->side << 8;
	struct outcome outcome = {0};
	double *data = array(pages * PAGE), wrong = 0, sum = 0, begun;

#pragma omp parallel for schedule(static)
	for (size_t page = 0; page < pages; page++)
		for (size_t i = 0; i < PAGE; i++)
			data[page * PAGE + i] = (double)page;
	begun = now();
	for (int round = 0; round < job->rounds; round++) {
#pragma omp parallel for schedule(static) reduction(+ : wrong)
		for (size_t page = 0; page < pages; page++) {
			double *place = data + page * PAGE + (size_t)round % PAGE;

			wrong += fabs(*place - (double)page - (double)((size_t)round / PAGE));
			*place += 1;
		}
		if (job->corrupt && round == 0)
			data[pages / 2 * PAGE + PAGE - 1] += 1;
	}
	outcome.seconds = now() - begun;
	for (size_t page = 0; page < pages; page++) {
		for (size_t i = 0; i < PAGE; i++) {
			size_t changes = (size_t)job->rounds / PAGE + (i < (size_t)job->rounds % PAGE);

			wrong += fabs(data[page * PAGE + i] - (double)page - (double)changes);
			sum += data[page * PAGE + i];
		}
	}
	outcome.checksum = sum;
	outcome.error = wrong;
	free(data);
	return outcome;
}
