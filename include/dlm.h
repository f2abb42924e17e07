/* dlm.h: the interface of DLM, distributed large memory (Seikei University), over Ream: blocks larger than the RAM that
 * the program may use.
 *
 * Programs written for DLM compile with `dlmc`, or with `cc program.c $(pkg-config --cflags --libs dlm)`. What the
 * ancestors' header said exactly is not public: names and arguments are those of their slides, and dlm_get and dlm_put
 * are ours where those leave room.
 *
 * Where memory goes
 *   Under `ream run` the session's budget and store are used. Without it the variable DLM_MEMORY, a size such as 4G, has
 *   dlm_startup begin a session of that budget in the process. With neither, memory is ordinary memory.
 *
 * Errors are negative errno numbers, as in ream.h; dlm_alloc returns NULL and sets errno. All functions may be called
 * from any thread; in signal handlers none.
 *
 * Licensed under MIT or Apache 2.0.
 */
#ifndef DLM_H
#define DLM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Begins. The arguments of main are left as they are, and may be NULL. To call it again does nothing. What cannot be
 * done is said in one line on standard error. Errors: -EINVAL when DLM_MEMORY is no size, those of ream_start, and
 * -ENOENT when DLM_MEMORY is set and Ream's library is not found.
 */
int dlm_startup(int *argc, char ***argv);

/*
 * Memory of `size` bytes that reads as zeros, aligned to a page (from 2 MiB on: to 2 MiB). Begins, if that was not done.
 * NULL with errno set: EINVAL for size 0 and after dlm_shutdown, ENOMEM, and what dlm_startup failed with.
 */
void *dlm_alloc(size_t size);

/* Gives a block of dlm_alloc back; NULL is fine. Errors: -EINVAL when no such block begins there. */
int dlm_free(void *block);

/*
 * Ends: from now on dlm_alloc gives nothing. Blocks stay until they are freed or the process ends: other threads and
 * exit handlers may still use them. Always 0.
 */
int dlm_shutdown(void);

/*
 * Get: begins to bring a range into RAM, in bulk, so that the computation does not fault on it page by page. Put: writes a
 * range back in bulk, and lets its RAM go. Neither changes what the memory holds. They are ream_advise's REAM_WILLNEED and
 * REAM_COLD; 0 without a session. Errors: -EINVAL (NULL, size 0, overflow), -ENOMEM when part of it is not mapped.
 */
int dlm_get(void *address, size_t size);
int dlm_put(void *address, size_t size);

/* For what dlmc writes: the memory of a `dlm` array, or the end of the process with a line. */
void *dlm_array_begin(size_t size, const char *name);

#ifdef __cplusplus
}
#endif

#endif /* DLM_H */
