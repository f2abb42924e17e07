/* Preloaded into the ranks of an MPI job: tells libream.so when a rank is in a call of MPI, and lets it sleep there
 * instead of spinning. Built once for each implementation, since their types differ.
 *
 * Calls are passed on as they are: a barrier stays the barrier that the implementation makes of it, so results are those
 * of a plain run. What every call that waits has in common is that the implementation polls, and calls a function of
 * another library whenever it has found nothing: sched_yield() in Open MPI (with mpi_yield_when_idle), and
 * ucp_worker_progress() in MPICH over UCX. These are the places where a rank gives its place up and sleeps. An
 * implementation that polls in another way loses its place to ranks that wait for one, and spins meanwhile.
 *
 * Nothing here is linked with an MPI library: in a process without one the file does nothing. The functions that stand
 * for those of MPI are made by generate.sh from calls.txt and the site's own mpi.h.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "turns.h"

#define EXPORT __attribute__((visibility("default")))

/* Polls without looking at the clock, and how many lie between two looks. */
#define FIRST_POLLS 64
#define POLLS 16
/* How long a rank polls before it sleeps, in nanoseconds; the second where there are more ranks than processors. */
#define SPIN 50000
#define SPIN_CROWDED 10000
/* POLLS polls that found nothing never take as long, in nanoseconds. */
#define BUSY 5000
/* How often it is looked whether threads compute while others wait in MPI, in nanoseconds, and times that they must. */
#define LOOK 50000000
#define TIMES 3

static struct ream_rank rank;
/* There are turns, and this process is a rank. */
static int joined;
/* Several threads may be in MPI at a time. */
static int multiple;
static int crowded;
/* Messages are to be counted. */
static int counting;

/* With MPI_THREAD_MULTIPLE: the threads that have used MPI, and those that are in it. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_end;
static int known, inside;
static atomic_int napping;
static struct thread {
	struct thread *next;
	clockid_t clock;
	/* What it had computed when that was last looked at. */
	uint64_t busy;
	int outside;
} *known_threads;

static __thread struct {
	/* Calls of MPI, one in another; and how many of them are a tool's, which calls MPI for the program. */
	int depth, tools;
	int known;
	struct thread thread;
	/* In the present call. */
	unsigned polls, naps;
	uint64_t since, last;
	int found_nothing;
	/* Of tests that failed, one after the other. */
	unsigned fails, deferred;
	uint64_t failed, left;
	enum { WORKS, SPINS, PAUSES } between;
	/* Since the last look at what the process does: those of them; when that was, and what it had done by then. */
	unsigned asked;
	uint64_t looked, busy, faults;
	unsigned answered;
} self __attribute__((tls_model("initial-exec")));

static uint64_t read_clock(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

/* A function behind this library. */
static void *behind(const char *name, const char *const *libraries)
{
	void *found = dlsym(RTLD_NEXT, name);

	/* Loaded later, and for itself, as by an interpreter. */
	for (; !found && *libraries; libraries++) {
		void *library = dlopen(*libraries, RTLD_LAZY | RTLD_NOLOAD);

		if (library)
			found = dlsym(library, name);
	}
	return found;
}

#ifdef OPEN_MPI
static const char *const mpi_libraries[] = { "libmpi.so.40", NULL };
static const char *const poll_libraries[] = { "libopen-pal.so.40", "libopen-pal.so.80", NULL };
#else
static const char *const mpi_libraries[] = { "libmpich.so.12", "libmpi.so.12", NULL };
static const char *const poll_libraries[] = { "libucp.so.0", NULL };
#endif

static void *real(const char *name)
{
	void *found = behind(name, mpi_libraries);

	if (!found) {
		fprintf(stderr, "ream: %s: not to be found in the MPI library of this program, which is another than Ream was built for\n",
			name);
		_exit(125);
	}
	return found;
}

/* What another tool has put before the function of MPI; NULL where there is none. */
static void *tool(const char *name, void *profiled)
{
	void *found = behind(name, mpi_libraries);
	Dl_info one, other;

	if (!found || found == profiled || !dladdr(found, &one) || !dladdr(profiled, &other))
		return NULL;
	return one.dli_fbase == other.dli_fbase ? NULL : found;
}

/* With the lock, if there may be others. */
static void get_to_know_thread(void)
{
	struct thread *own = &self.thread;

	self.known = 1;
	if (pthread_getcpuclockid(pthread_self(), &own->clock))
		own->clock = CLOCK_THREAD_CPUTIME_ID;
	own->next = known_threads;
	known_threads = own;
	known++;
	pthread_setspecific(thread_end, own);
}

static void forget_thread(void *thread)
{
	struct thread **place = &known_threads;

	pthread_mutex_lock(&threads);
	while (*place && *place != thread)
		place = &(*place)->next;
	if (*place)
		*place = (*place)->next;
	known--;
	if (inside > 0 && inside == known)
		rank.enter();
	pthread_mutex_unlock(&threads);
}

static void enter_one_of_many(void)
{
	int rouse;

	pthread_mutex_lock(&threads);
	if (!self.known)
		get_to_know_thread();
	self.thread.outside = 0;
	inside++;
	if (inside == known)
		rank.enter();
	rouse = inside > 1 && atomic_load(&napping);
	pthread_mutex_unlock(&threads);
	/* It may hold a lock of MPI's while it sleeps. */
	if (rouse)
		rank.rouse();
}

/* Whether a call that begins is not one that MPI itself makes in another, for its own ends. */
static int is_of_program(void)
{
	return self.depth == self.tools;
}

static void enter(void)
{
	if (joined && is_of_program()) {
		self.polls = self.naps = 0;
		self.since = 0;
	}
	if (self.depth++ || !joined)
		return;
	if (multiple)
		enter_one_of_many();
	else
		rank.enter();
}

static void leave(void)
{
	if (--self.depth || !joined)
		return;
	if (multiple) {
		pthread_mutex_lock(&threads);
		inside--;
		self.thread.outside = 1;
		pthread_mutex_unlock(&threads);
	}
	rank.leave();
}

/* A tool is called in place of MPI. It may come back, by the profiled function, or find MPI's by itself. */
static void enter_tool(void)
{
	enter();
	self.tools++;
}

static void leave_tool(void)
{
	self.tools--;
	leave();
}

/* Something was done: what comes next may come soon. */
static void progressed(void)
{
	self.polls = self.naps = 0;
	self.since = 0;
}

/* Whether threads that are not in MPI, but use it, have computed for some time, or would if their pages were there; with the lock. */
static int others_work(void)
{
	static uint64_t looked, faults;
	static int times;
	uint64_t time = now(), passed = time - looked, spent = 0, faulted = rank.faults() - faults;

	if (passed < LOOK)
		return times >= TIMES;
	for (struct thread *thread = known_threads; thread; thread = thread->next) {
		uint64_t busy = read_clock(thread->clock);

		if (thread->outside)
			spent += busy - thread->busy;
		thread->busy = busy;
	}
	looked = time;
	faults += faulted;
	times = spent > passed / (faulted ? 50 : 10) ? times + 1 : 0;
	return times >= TIMES;
}

static void nap(void)
{
	int how = 0;

	if (multiple) {
		pthread_mutex_lock(&threads);
		how = inside < known ? REAM_HASTY | REAM_OTHERS : REAM_HASTY;
		if (inside < known && others_work())
			how |= REAM_WORK;
		pthread_mutex_unlock(&threads);
	}
	atomic_fetch_add(&napping, 1);
	rank.idle(self.naps++, how);
	atomic_fetch_sub(&napping, 1);
	self.polls = FIRST_POLLS;
	self.last = 0;
	/* This is no pause between tests. */
	self.between = WORKS;
	self.looked = 0;
}

/* The implementation has found nothing to do. Returns whether the processor was left to others. */
static int found_nothing(void)
{
	uint64_t time;

	self.found_nothing = 1;
	if (!rank.idle)
		return 0;
	/* Where each poll leaves the processor to others, the first may take as long as all. */
	if ((++self.polls < FIRST_POLLS || self.polls % POLLS) && !(crowded && !self.naps))
		return 0;
	time = now();
	if (self.last && time - self.last > BUSY && self.polls > FIRST_POLLS + 2 * POLLS) {
		/* It was not always nothing. */
		self.since = time;
		self.naps = 0;
	}
	self.last = time;
	if (!self.since)
		self.since = time;
	if (time - self.since < (crowded ? SPIN_CROWDED : SPIN) && !self.naps)
		return 0;
	nap();
	return 1;
}

#ifdef OPEN_MPI

EXPORT int sched_yield(void)
{
	if (self.depth && found_nothing())
		return 0;
	/* In a plain run it yields where there are more ranks than processors. Not between two naps: beside others that
	 * compute, a yield lasts as long as their slices. */
	if (self.depth && rank.idle && (!crowded || self.naps))
		return 0;
	return (int)syscall(SYS_sched_yield);
}

EXPORT void opal_progress(void);
EXPORT void opal_progress(void)
{
	static void (*_Atomic next)(void);
	void (*function)(void) = next;

	if (!function) {
		*(void **)&function = behind("opal_progress", poll_libraries);
		if (!function)
			return;
		next = function;
	}
	self.found_nothing = 0;
	function();
	if (!self.found_nothing && self.depth)
		progressed();
}

#else

EXPORT unsigned ucp_worker_progress(void *worker);
EXPORT unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*_Atomic next)(void *);
	unsigned (*function)(void *) = next;
	unsigned done;

	if (!function) {
		*(void **)&function = behind("ucp_worker_progress", poll_libraries);
		if (!function)
			return 0;
		next = function;
	}
	done = function(worker);
	if (!self.depth)
		return done;
	if (done)
		progressed();
	else
		found_nothing();
	return done;
}

#endif

#include "asks.h"

static unsigned number_of_rank(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = getenv(names[i]);

		if (text)
			return (unsigned)strtoul(text, NULL, 10);
	}
	return 0;
}

static int ranks_here(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = getenv(names[i]);

		if (text)
			return atoi(text);
	}
	return 1;
}

/* Finds libream.so's functions. */
static void look_for_turns(void)
{
	struct ream_rank found;
	cpu_set_t processors;

	if (rank.join)
		return;
#define FIND(name) *(void **)&found.name = dlsym(RTLD_DEFAULT, "ream_rank_" #name)
	FIND(join);
	FIND(enter);
	FIND(leave);
	FIND(idle);
	FIND(rouse);
	FIND(defer);
	FIND(pauses);
	FIND(faults);
	FIND(counts);
	FIND(sent);
	FIND(drops);
	FIND(paged);
	FIND(overwritten);
	FIND(end);
#undef FIND
	if (!found.join || !found.enter || !found.leave || !found.idle || !found.rouse || !found.defer || !found.pauses ||
	    !found.faults || !found.counts || !found.sent || !found.drops || !found.paged || !found.overwritten || !found.end)
		return;
	if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
		crowded = ranks_here() > CPU_COUNT(&processors);
	rank = found;
}

/* MPI is there: from now on this process takes part. */
static void begun(void)
{
	int (*level)(int *) = NULL;
	int provided = MPI_THREAD_SINGLE;

	if (joined || !rank.join)
		return;
	*(void **)&level = real("PMPI_Query_thread");
	level(&provided);
	if (rank.join(number_of_rank()) != 0)
		return;
	counting = rank.counts();
	if (provided == MPI_THREAD_MULTIPLE && pthread_key_create(&thread_end, forget_thread) == 0) {
		multiple = 1;
		get_to_know_thread();
	}
	joined = 1;
}

#include "handles.h"
#include "counts.h"

/* The end of the process; _exit and signals leave it to the others to see that it has gone. */
__attribute__((destructor)) static void end(void)
{
	if (joined)
		rank.end();
}

/*
 * How calls are passed on. REAL finds the implementation's function once; what a tool has put before it gets the call
 * first. Many tools come back with the profiled one, some find the implementation's by themselves: so the rank is in MPI while
 * the tool is. What is looked up in the arguments waits until it comes back, since handles may be the tool's own.
 */
#define REAL(name) \
	static __typeof__(MPI_##name) *real_##name(void) \
	{ \
		static _Atomic(__typeof__(MPI_##name) *) next; \
		__typeof__(MPI_##name) *function = next; \
		if (!function) { \
			*(void **)&function = real("PMPI_" #name); \
			next = function; \
		} \
		return function; \
	}

#define BOTH(name, params, args, to_tool, from_tool) \
	EXPORT int PMPI_##name params; \
	EXPORT int PMPI_##name params { return pass_##name args; } \
	EXPORT int MPI_##name params \
	{ \
		static _Atomic int looked; \
		static __typeof__(MPI_##name) *_Atomic before; \
		int result; \
		if (!looked) { \
			__typeof__(MPI_##name) *function; \
			*(void **)&function = tool("MPI_" #name, (void *)(uintptr_t)real_##name()); \
			before = function; \
			looked = 1; \
		} \
		if (!before) \
			return pass_##name args; \
		to_tool; \
		result = before args; \
		from_tool; \
		return result; \
	}

#define PASS(name, params, args, first, then) \
	REAL(name) \
	static int pass_##name params \
	{ \
		int result; \
		first; \
		enter(); \
		result = real_##name() args; \
		leave(); \
		then; \
		return result; \
	}

/* Calls that wait; what has been asked is told when the last of nested calls has ended. */
#define ASKED(name, params, args, first, asked, then) \
	PASS(name, params, args, first, asked; then) \
	BOTH(name, params, args, enter_tool(), leave_tool(); asked)

#define WAIT(name, params, args) ASKED(name, params, args, (void)0, (void)0, (void)0)
#define OVER(name, params, args) ASKED(name, params, args, if (worth_dropping()) drop_##name args, (void)0, (void)0)
#define PROBE(name, params, args) \
	ASKED(name, params, args, (void)0, (void)0, if (result == MPI_SUCCESS) probed(comm, message, status))
#define SEEK(name, params, args) \
	ASKED(name, params, args, (void)0, tested(result != MPI_SUCCESS || *flag != 0), \
	      if (result == MPI_SUCCESS && *flag) probed(comm, message, status))
#define ASK(name, params, args, answer) ASKED(name, params, args, (void)0, tested(result != MPI_SUCCESS || *answer != 0), (void)0)
#define SYNC(name, params, args) ASKED(name, params, args, (void)0, answered(), (void)0)
#define SEND(name, params, args) ASKED(name, params, args, if (counts_messages()) sends(comm, dest), (void)0, (void)0)
/* Nothing is entered before there are turns: what is left must have been entered. */
#define BEGIN(name, params, args) \
	PASS(name, params, args, look_for_turns(), if (result == MPI_SUCCESS) begun()) \
	BOTH(name, params, args, look_for_turns(), if (result == MPI_SUCCESS) begun())
/* Do not wait: messages are counted, now or when the request is started. */
#define COUNTED(name, params, args, first, then) \
	REAL(name) \
	static int pass_##name params \
	{ \
		int result; \
		first; \
		result = real_##name() args; \
		then; \
		return result; \
	} \
	BOTH(name, params, args, (void)0, (void)0)

#define POST(name, params, args) COUNTED(name, params, args, if (counts_messages()) sends(comm, dest), (void)0)
#define KEEP(name, params, args) \
	COUNTED(name, params, args, (void)0, \
		if (result == MPI_SUCCESS && counts_messages()) keep(*request, receiver(comm, dest)))
#define START(name, params, args) COUNTED(name, params, args, if (counts_messages()) start_##name args, (void)0)
#define FREE(name, params, args) COUNTED(name, params, args, if (request && counts_messages()) keep(*request, -1), (void)0)

#include "drops.h"
#include "copies.h"
#include "calls.inc"
