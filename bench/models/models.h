/* What the models share: memory, time, the parallel sum whose order is always the same, and how they report. */
#ifndef MODELS_H
#define MODELS_H

#include <stddef.h>
#include <stdint.h>

/* What a model returns. */
struct outcome {
	double figure;		/* seconds of the timed part, or what else it measures */
	const char *wrong;	/* what its own check found, or NULL */
	uint64_t sum;		/* of its result: the same in every run */
};

/* Each takes its size: see usage() in main.c. */
struct outcome adi(size_t n);
struct outcome ocean(size_t n);
struct outcome table_read(size_t mebibytes);
struct outcome table_write(size_t mebibytes);
struct outcome table_change(size_t mebibytes);
struct outcome stream(size_t mebibytes);

/* Set by --corrupt: each model then spoils one value of its data, and must find that out. */
extern int corrupt;

/* Seconds since some moment. */
double now(void);

/* Zeroed memory for so many things of a size: malloc's as any program has it, or with --file DIR a mapping of an unnamed file
 * there. Ends the program when there is none. */
void *array(size_t count, size_t size);

#endif
