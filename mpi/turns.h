/* What libream.so offers to the libraries in this directory; crates/runtime/src/turns.rs says what each does. */
#ifndef REAM_TURNS_H
#define REAM_TURNS_H

#include <stddef.h>
#include <stdint.h>

struct ream_rank {
	int (*join)(unsigned number);
	void (*enter)(void);
	void (*leave)(void);
	void (*idle)(unsigned naps, int how);
	void (*rouse)(void);
	void (*defer)(unsigned naps);
	void (*pauses)(void);
	uint64_t (*faults)(void);
	int (*counts)(void);
	void (*sent)(unsigned number);
	int (*drops)(void);
	int (*paged)(void);
	void (*overwritten)(const void *data, size_t bytes);
	void (*end)(void);
};

/* For idle(). */
#define REAM_HASTY 1
#define REAM_OTHERS 2
#define REAM_WORK 4

#endif
