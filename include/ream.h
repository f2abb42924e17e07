/* ream.h: the C interface of Ream, which runs programs on large pages and with more memory than the machine has: status,
 * regions, blocks with hints, advice, pins, phases, budget.
 *
 * A program needs none of this to run under `ream run`; with it, it can look at what it has, say what is going to
 * happen, and have blocks of its own.
 *
 * Where it works
 *   In a session (a program started with `ream run`, and all that it starts) everything works. In a program that is
 *   linked with -lream and started without, large pages work (ream_enable, ream_alloc), the rest answers as each
 *   function says, and nothing is paged until it begins a session (ream_start). Programs that may run without the library
 *   link none: they define REAM_WEAK before this header, and test a function's address before they call it.
 *   A process that runs already loads libream_inside.so, with dlopen(3), and finds the functions with dlsym(3). It takes
 *   over nothing until ream_enable(1, ...) or ream_start: see there. Where libream.so is in the process (`ream run`), its
 *   functions are to be used, which dlsym(RTLD_DEFAULT, "ream_status") finds.
 *
 * Units
 *   Sizes and addresses are bytes. A page is 4096 bytes, a large page is ream_status.large_page bytes.
 *
 * Errors
 *   Functions return 0, or a negative number: the errno of what went wrong (-EINVAL), and leave errno alone. Only
 *   ream_alloc returns NULL and sets errno. ream_error() has a text for each code. Bad arguments, also addresses where
 *   nothing is, are errors, and nothing was changed then. Two exceptions: the function given to ream_each_region is
 *   called as it is; and where the kernel forbids process_vm_readv(2) (a sandbox; not by default anywhere known),
 *   pointers to structures and strings must be good, as for any function of libc.
 *
 * Threads, signals, fork
 *   Every function may be called from any thread at any time, and, but for ream_enable and ream_each_region, from signal
 *   handlers. In a child of fork() everything works as in the parent: blocks, pins and the switch are inherited, a phase
 *   is not. A child of vfork() calls none.
 *
 * Versions
 *   Structures begin with their size, which the caller sets (ream_region's is set by the library). Fields will only be
 *   added, at the end; values not known to the library are refused, fields not known to it are not looked at.
 *
 * Licensed under MIT or Apache 2.0.
 */
#ifndef REAM_H
#define REAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef REAM_WEAK
#define REAM_FUNCTION __attribute__((weak))
#else
#define REAM_FUNCTION
#endif

/* ---- What there is ---------------------------------------------------------------------------------------------- */

/* Bits of ream_status.support. */
#define REAM_SUPPORTS_LARGE_PAGES 1u /* the kernel makes large pages on request */
#define REAM_SUPPORTS_BUDGET      2u /* there is a session, which has a budget */
#define REAM_SUPPORTS_PAGING      4u /* what does not fit the budget goes to a store */

struct ream_status {
	size_t size;         /* set by the caller: sizeof(struct ream_status) */
	uint32_t support;    /* REAM_SUPPORTS_... */
	uint32_t enabled;    /* 1: new blocks between min and max go on large pages; see ream_enable */
	uint32_t session;    /* 1: started with `ream run`, or after ream_start */
	uint32_t paging;     /* 1: pages of this process come and go; it begins when the budget is nearly used */
	uint64_t min;        /* smallest and largest block of which that is so; max 0: no limit */
	uint64_t max;
	uint64_t large_page; /* bytes; 0: none to be had */
	uint64_t budget;     /* RAM for all processes of the session; 0: no session */
	uint64_t managed;    /* memory of this process that may be paged, in RAM or not; 0 without a session */
	uint64_t resident;   /* of that, and of ream_alloc's blocks, in RAM and mapped now */
	char engine[16];     /* how paging is done, as in `ream run --engine`; empty without a session */
};

/*
 * Fills in the status. Reads /proc/self/pagemap for `resident`, which takes about a millisecond for each 10 GiB.
 * Errors: -EFAULT; -EINVAL when status->size is less than the size of that field.
 */
REAM_FUNCTION int ream_status(struct ream_status *status);

/* Kinds of a region. */
#define REAM_REGION_ALLOC   1u /* a block of ream_alloc */
#define REAM_REGION_BLOCK   2u /* a large block of malloc: 4 MiB and more, unless ream_enable said less */
#define REAM_REGION_SMALL   3u /* where malloc's other blocks are */
#define REAM_REGION_MAPPING 4u /* an anonymous private mapping of the program */
#define REAM_REGION_STATIC  5u /* static data */

/* Bits of ream_region.flags. */
#define REAM_REGION_MANAGED 1u /* may be paged */
#define REAM_REGION_PINNED  2u /* its first page is kept in RAM by ream_pin */

struct ream_region {
	size_t size;       /* bytes of this structure that were filled in */
	uint64_t id;       /* the same for as long as the region is there; may come again after that */
	void *address;
	uint64_t length;
	uint64_t resident; /* in RAM and mapped; shared pages of zeros do not count */
	uint64_t large;    /* of that, on large pages; 0 before Linux 6.7, which does not tell */
	uint64_t staged;   /* in RAM, on the way to the store or from it */
	uint64_t stored;   /* in the store alone */
	uint32_t kind;     /* REAM_REGION_... */
	uint32_t flags;
	char name[32];     /* as given to ream_alloc; else empty */
};

/*
 * Fills in regions, in order of address: `count` structures that lie `each` bytes apart (sizeof(struct ream_region)).
 * Returns how many regions there are, which may be more than `count`; with count 0 nothing is written. Without a session
 * there are blocks of ream_alloc, and malloc's blocks that ream_enable put on large pages. Other threads may make and
 * free regions meanwhile: each is right for a moment of the call.
 * Errors: -EINVAL when `each` is less than a size_t, or no multiple of it, or count times each overflows; -EFAULT.
 */
REAM_FUNCTION long ream_regions(struct ream_region *regions, size_t count, size_t each);

/*
 * Calls `tell` with each region and `argument`, until it returns something other than 0; returns that, else 0. The
 * function may do anything, also allocate and free; it gets the regions that are there when it asks for the next.
 * Errors: -EINVAL when tell is NULL. In a signal handler only as far as `tell` may run there.
 */
REAM_FUNCTION int ream_each_region(int (*tell)(const struct ream_region *region, void *argument), void *argument);

/* ---- What is done with new memory ------------------------------------------------------------------------------- */

/*
 * Which blocks that malloc (and in a session, mmap) gives out from now on lie on large pages and, in a session, are
 * managed: those of `min` to `max` bytes (max 0: no limit), or none (on = 0). What was given out stays what it is, and is
 * freed as always. At the start it is on for everything in a session, and off without one.
 *   Malloc's blocks below 4 MiB share memory in a session, which is managed whatever is said here. Without a session
 * each block has whole large pages; those below 64 KiB have none.
 *   In libream_inside.so the first call with on = 1 takes over malloc and its relatives, mmap and its own, and dlopen, in
 * all objects of the process and those loaded later: the words through which they call these functions lead to the library
 * from then on. Blocks between min and max (64 KiB at least) are the library's then, all others come from the allocator
 * that the process has; both are freed and resized by the same functions, also when it is off again. An address of free
 * or realloc that a program took before, and keeps in memory of the heap, is not found: such a program must not free
 * a block with it that it got later.
 *   Memory that is not managed is outside the budget.
 * Errors: -EINVAL when on is not 0 or 1, or max is less than min; -EBUSY in libream_inside.so when libream.so is in the
 * process, too.
 */
REAM_FUNCTION int ream_enable(int on, size_t min, size_t max);

/* Bits of ream_hints.flags. */
#define REAM_RESIDENT 1u /* never paged; taken out of the session's budget, of which a quarter must be left */
#define REAM_PINNED   2u /* as ream_pin would, until ream_unpin */

struct ream_hints {
	size_t size;        /* set by the caller: sizeof(struct ream_hints) */
	uint64_t page_size; /* 0: as `ream run --pages` says, large ones without a session; 4096; or 2097152 */
	uint32_t flags;     /* REAM_RESIDENT, REAM_PINNED, or 0: paged like other memory */
	uint32_t reserved;  /* 0 */
	const char *store;  /* NULL: the session's; or a directory on another disk, say, where the block's pages go instead */
	const char *name;   /* NULL; or up to 31 bytes of UTF-8 without quotes, backslashes and control characters */
};

/*
 * Memory of `size` bytes, rounded up to whole pages, that reads as zeros; from 2 MiB on it begins at a multiple of 2 MiB.
 * `hints` may be NULL. Freed by ream_free only, not by free().
 *   A block with a store of its own has its pages in a file without a name in that directory, one a process; a forked child
 * has its own there. At most three directories beside the session's are in use in a process, of 1 TiB each, and 4096 blocks
 * at a time. Of a file system 10 % or 10 GiB are left free, whichever is more; what has no room there, or cannot be written,
 * goes to the session's store. Only a session whose store is plain files has others: not with memory servers, --encrypt
 * or zip:.
 *   Returns NULL with errno set: EINVAL (size 0, flags, name), ENOMEM (none left, or more than may be kept in RAM), EFAULT,
 * EOPNOTSUPP (page size; a store that cannot be had, or is in memory), ENOSPC (a fourth directory); with a store those of
 * open(2); without a session and with REAM_PINNED also the errors of mlock(2).
 */
REAM_FUNCTION void *ream_alloc(size_t size, const struct ream_hints *hints);

/* Gives a block of ream_alloc back; NULL is fine. Errors: -EINVAL when no such block begins there. */
REAM_FUNCTION int ream_free(void *block);

/*
 * For programs that take the functions of an allocator with a context in front, as numpy does (NEP 49, PyDataMemAllocator):
 * blocks of `min` bytes and more are as if from ream_alloc with `hints`, smaller ones come from the functions that the
 * program used before, which also free and resize what is not the former. The functions below are such ones, with a
 * structure of this kind as their context. It stays, with its hints, for as long as there are blocks, and must be good.
 */
struct ream_allocator {
	size_t size; /* set by the caller: sizeof(struct ream_allocator) */
	size_t min;
	const struct ream_hints *hints;
	void *context; /* of the functions that were used before, none of which may be NULL */
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t each);
	void *(*realloc)(void *context, void *block, size_t size);
	void (*free)(void *context, void *block, size_t size);
};

REAM_FUNCTION void *ream_allocator_malloc(const struct ream_allocator *allocator, size_t size);
REAM_FUNCTION void *ream_allocator_calloc(const struct ream_allocator *allocator, size_t count, size_t each);
REAM_FUNCTION void *ream_allocator_realloc(const struct ream_allocator *allocator, void *block, size_t size);
REAM_FUNCTION void ream_allocator_free(const struct ream_allocator *allocator, void *block, size_t size);

/* ---- What is going to happen with memory that is there ------------------------------------------------------------ */

/* Advice. The first three are done now; the others hold until other advice is given for the range. */
#define REAM_NORMAL     0 /* as the history of touches suggests */
#define REAM_WILLNEED   1 /* begin to bring it back from the store, as far as the budget allows; does not wait */
#define REAM_COLD       2 /* move it out of RAM first of all; returns when it is on its way to the store */
#define REAM_DROP       3 /* its content is not needed: whole pages of it read as zeros from now on, and take no room */
#define REAM_SEQUENTIAL 4 /* used in order: faults bring 512 KiB at least */
#define REAM_RANDOM     5 /* used here and there: faults bring what is touched and nothing else */
#define REAM_KEEP       6 /* used again and again: other memory is moved out first */

/*
 * Advice for the pages that hold a range; for REAM_DROP, for those that lie in it entirely. What of the range is not
 * managed, or all of it before paging begins or without a session, is left as it is, but for REAM_DROP. At most 64 ranges
 * are remembered for SEQUENTIAL, RANDOM and KEEP; then the oldest is forgotten.
 *   REAM_DROP is done in blocks of ream_alloc, in managed large blocks of malloc and in managed mappings only: elsewhere
 * pages have other users, too. Memory that is locked (mlock) keeps its content.
 * Errors: -EINVAL (advice, NULL, size 0, overflow), -ENOMEM when part of the range is not mapped, -EPERM for a REAM_DROP
 * elsewhere; those of madvise(2).
 */
REAM_FUNCTION int ream_advise(void *address, size_t size, int advice);

/*
 * Brings the pages that hold a range into RAM, and keeps them there until ream_unpin or until they are unmapped. It does
 * not count how often. In a session half of the budget can be pinned; without one this is mlock(2).
 * Errors: -EINVAL (NULL, size 0, overflow), -ENOMEM when part of the range is not mapped or too much would be pinned;
 * without a session those of mlock(2) and munlock(2).
 */
REAM_FUNCTION int ream_pin(void *address, size_t size);
REAM_FUNCTION int ream_unpin(void *address, size_t size);

/* ---- The session ------------------------------------------------------------------------------------------------ */

/*
 * A part of the program's work begins, and the last one ends; with NULL none begins. The session's closing summary has a
 * line for each name, and an entry in `phases` of its JSON: how often, how long, what was read, written and waited for.
 * Processes that use the same name share it; a process is in one phase at a time, whichever thread says so. Names are as
 * in ream_hints, 32 of them in a session. Of a process that is killed the last phase is not counted. Without a session
 * nothing happens.
 * Errors: -EINVAL when it is not a name, -EFAULT, -ENOSPC.
 */
REAM_FUNCTION int ream_phase(const char *name);

/*
 * Begins a session in a process that has none: from now on large blocks of malloc (1 MiB and more in libream_inside.so, or
 * as ream_enable said) and large mappings are managed, in libream.so small blocks, too. `budget` bytes of RAM hold them;
 * the rest is in a file without a name in the directory `store` (NULL: where `ream run` would have it). Options that the
 * environment and the configuration file give to `ream run` hold. What the process has already stays plain memory,
 * outside the budget;
 * forked children belong to the session, programs that it executes do not. The session ends with its last process.
 *   The `ream` command makes the session: it is looked for beside the library, in ../../bin from there, and in PATH.
 *   Where the kernel serves its own accesses to absent memory to root alone (see `ream doctor`), libc's functions must be led
 * here: libream_inside.so does that, with libream_calls.so from beside it; a program that is linked with -lream is linked
 * with -lream_calls behind it.
 * Errors: -EALREADY when there is a session (ream_budget changes its budget), -ERANGE below 16 MiB, -ENOENT without the
 * command or libream_calls.so, -EPERM when this process cannot page here, -ENOSYS when it could with another libc, -EINVAL
 * when the command refuses, -EFAULT, and those of posix_spawn(3). All but the first two and -EFAULT are explained on
 * standard error, but for a missing command.
 */
REAM_FUNCTION int ream_start(uint64_t budget, const char *store);

/*
 * Changes the budget of the whole session. A smaller one takes effect as pages leave, in this process at once, in others
 * that page already within a tenth of a second, and in those that do not when they allocate next.
 * Errors: -ENOTCONN without a session (start the program with `ream run`); -ERANGE below 16 MiB, or above four times
 * what the session began with; -EBUSY when too much of it is REAM_RESIDENT.
 */
REAM_FUNCTION int ream_budget(uint64_t bytes);

/* What a code means, in English; also for 0 and unknown ones. The text stays. */
REAM_FUNCTION const char *ream_error(int code);

#ifdef __cplusplus
}
#endif

#endif /* REAM_H */
