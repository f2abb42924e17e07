/* ream-bench-noise MIB SECONDS [--corrupt work|detours]: what a machine takes from a program that asks it for nothing. Fills and
 * checks MIB of memory first, so that whatever manages it has been at work and is idle now; then one thread on each processor
 * repeats a fixed piece of work (fixed work quantum), and looks at the clock without pause for gaps (Selfish detour); then one
 * thread times system calls. Prints all of it as numbers. The exit status is 1 when the work came to another result, the memory
 * holds something else, or gaps that were made on purpose were not seen. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define USAGE 125
#define PAGE 4096
/* Multiplications of a piece of work: about a millisecond. */
#define STEPS 1000000
#define FACTOR 6364136223846793005ULL
/* A gap is a detour from so many times the shortest on. */
#define TIMES 9
/* Detours of one thread whose lengths are kept; the rest is only counted and summed. */
#define KEPT 65536
/* Gaps that are made on purpose, and their nanoseconds. */
#define MADE 8
#define MADE_NS 100000
#define MOST_PROCESSORS 1024

static int blind;	/* --corrupt detours: no gap is long enough */
static int spoilt;	/* --corrupt work */
static unsigned quanta;
static uint64_t look_ns;
static pthread_barrier_t together;

struct thread {
	pthread_t id;
	int processor;
	uint64_t *took;			/* ns of each piece of work */
	uint32_t *lengths;		/* ns of each detour */
	uint64_t shortest, threshold, detours, lost, looked, seen, longest_gap, result;
	uint64_t used;			/* processor time while measuring, ns */
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static void fail(const char *what)
{
	fprintf(stderr, "ream-bench-noise: %s: %s\n", what, strerror(errno));
	exit(USAGE);
}

static void wrong(const char *what)
{
	fprintf(stderr, "ream-bench-noise: WRONG RESULT: %s\n", what);
	exit(1);
}

static void *memory(size_t count, size_t size)
{
	void *result = malloc(count * size);

	if (!result)
		fail("memory");
	/* All of it is there before anything is timed. */
	memset(result, 1, count * size);
	return result;
}

static uint64_t work(uint64_t x)
{
	for (unsigned i = 0; i < STEPS; i++) {
		x *= FACTOR;
		/* The compiler is not to find a shorter way. */
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

/* FACTOR to the n-th: what the work must come to. */
static uint64_t power(uint64_t n)
{
	uint64_t result = 1;

	for (uint64_t a = FACTOR; n; n >>= 1, a *= a)
		if (n & 1)
			result *= a;
	return result;
}

/* Looks at the clock for so long; makes so many gaps itself. */
static void look(struct thread *t, uint64_t ns, int made)
{
	uint64_t begun = now(), last = begun, next = begun, longest = 0;

	t->detours = t->lost = t->seen = 0;
	/* Also once more after the last gap that was made. */
	for (int more = 1; more; more = last - begun < ns || made > 0 || last < next) {
		uint64_t time = now(), gap = time - last;

		if (gap > t->threshold) {
			if (t->detours < KEPT)
				t->lengths[t->detours] = gap > UINT32_MAX ? UINT32_MAX : (uint32_t)gap;
			t->detours++;
			t->lost += gap - t->shortest;
			t->seen += gap >= MADE_NS;
			longest = gap > longest ? gap : longest;
		}
		last = time;
		if (made > 0 && time >= next) {
			while (now() - time < MADE_NS)
				;
			next = time + 4 * MADE_NS;
			made--;
		}
	}
	t->longest_gap = longest;
	t->looked = now() - begun;
}

static void *measure(void *argument)
{
	struct thread *t = argument;
	uint64_t used, last, x = 1;
	cpu_set_t own;

	CPU_ZERO(&own);
	CPU_SET(t->processor, &own);
	sched_setaffinity(0, sizeof(own), &own);
	/* The shortest gap, and whether detours are seen at all. */
	t->shortest = UINT64_MAX;
	last = now();
	for (int i = 0; i < 200000; i++) {
		uint64_t time = now();

		if (time - last < t->shortest && time != last)
			t->shortest = time - last;
		last = time;
	}
	t->threshold = blind ? UINT64_MAX : TIMES * t->shortest;
	look(t, 0, MADE);
	if (t->seen < MADE)
		wrong("a gap that was made on purpose was not seen");

	pthread_barrier_wait(&together);
	used = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	last = now();
	for (unsigned i = 0; i < quanta; i++) {
		uint64_t time;

		x = work(x);
		time = now();
		t->took[i] = time - last;
		last = time;
	}
	t->result = x;
	look(t, look_ns, 0);
	t->used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - used;
	pthread_barrier_wait(&together);
	return NULL;
}

/* Each page holds its number; all are looked at once more, in another order than they came. */
static void fill(size_t bytes)
{
	volatile uint64_t *words = malloc(bytes);
	size_t pages = bytes / PAGE, each = PAGE / sizeof(*words);

	if (!words)
		fail("memory");
	for (size_t i = 0; i < pages; i++)
		words[i * each] = i * FACTOR;
	for (size_t i = pages; i-- > 0;)
		if (words[i * each] != i * FACTOR)
			wrong("memory holds something else");
	/* Never freed: it stays managed. */
}

/* Waits until the process's other threads have come to rest, two seconds at most, after one for the host of a
 * virtual machine, which may still write: without it work took 1.8 % longer in one run; that this was the cause is not shown. */
static void rest(void)
{
	struct timespec pause = {0, 50000000}, settle = {1, 0};

	nanosleep(&settle, NULL);

	for (int i = 0; i < 40; i++) {
		uint64_t before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

		nanosleep(&pause, NULL);
		if (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before < 200000)
			return;
	}
}

static int zero, null;
static char byte;

static long nothing(void) { return syscall(SYS_getppid) - syscall(SYS_getppid); }
static long clock_call(void) { struct timespec t; return clock_gettime(CLOCK_MONOTONIC, &t) + clock_gettime(CLOCK_MONOTONIC, &t); }
static long reading(void) { return read(zero, &byte, 1) + read(zero, &byte, 1) - 2; }
static long writing(void) { return write(null, &byte, 1) + write(null, &byte, 1) - 2; }

static long mapping(void)
{
	for (int i = 0; i < 2; i++) {
		char *place = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (place == MAP_FAILED || munmap(place, 16 * PAGE))
			return -1;
	}
	return 0;
}

static int less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median ns of a call, over batches. Each function makes its call twice. */
static void call(const char *name, long (*function)(void), int count)
{
	double batches[21];
	long bad = 0;

	for (unsigned b = 0; b < 21; b++) {
		uint64_t begun = now();

		for (int i = 0; i < count / 2; i++)
			bad |= function();
		batches[b] = (double)(now() - begun) / count;
	}
	if (bad)
		fail(name);
	qsort(batches, 21, sizeof(*batches), less);
	printf("call %s %.1f\n", name, batches[10]);
}

int main(int argc, char **argv)
{
	static struct thread threads[MOST_PROCESSORS];
	cpu_set_t allowed;
	uint64_t used, begun, elapsed, own = 0;
	size_t mebibytes;
	double seconds;
	int count = 0;

	if (argc == 5 && !strcmp(argv[3], "--corrupt")) {
		blind = !strcmp(argv[4], "detours");
		spoilt = !strcmp(argv[4], "work");
	}
	if ((argc != 3 && !(blind || spoilt)) || (seconds = atof(argv[2])) <= 0) {
		fprintf(stderr, "usage: ream-bench-noise MIB SECONDS [--corrupt work|detours]\n");
		return USAGE;
	}
	mebibytes = (size_t)strtoull(argv[1], NULL, 10);
	quanta = (unsigned)(seconds * 500) + 1;
	look_ns = (uint64_t)(seconds * 5e8);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		fail("sched_getaffinity");
	fill(mebibytes << 20);
	for (int processor = 0; processor < CPU_SETSIZE && count < MOST_PROCESSORS; processor++) {
		if (!CPU_ISSET(processor, &allowed))
			continue;
		threads[count].processor = processor;
		threads[count].took = memory(quanta, sizeof(uint64_t));
		threads[count++].lengths = memory(KEPT, sizeof(uint32_t));
	}
	rest();
	/* With this one, which only waits, at both barriers. */
	pthread_barrier_init(&together, NULL, (unsigned)count + 1);
	for (int i = 0; i < count; i++)
		if ((errno = pthread_create(&threads[i].id, NULL, measure, &threads[i])))
			fail("pthread_create");
	pthread_barrier_wait(&together);
	begun = now();
	used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	pthread_barrier_wait(&together);
	used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used;
	elapsed = now() - begun;
	for (int i = 0; i < count; i++) {
		struct thread *t = &threads[i];

		pthread_join(t->id, NULL);
		own += t->used;
		if (t->result + (uint64_t)spoilt != power((uint64_t)quanta * STEPS))
			wrong("the work came to another result");
		printf("quanta %d", t->processor);
		for (unsigned q = 0; q < quanta; q++)
			printf(" %llu", (unsigned long long)t->took[q]);
		printf("\ndetours %d %llu %llu %llu %llu %llu %llu", t->processor, (unsigned long long)t->looked,
		       (unsigned long long)t->shortest, (unsigned long long)t->threshold, (unsigned long long)t->detours,
		       (unsigned long long)t->lost, (unsigned long long)t->longest_gap);
		for (uint64_t d = 0; d < t->detours && d < KEPT; d++)
			printf(" %u", t->lengths[d]);
		printf("\n");
	}
	/* What the process's other threads took meanwhile; threads' clocks were read a moment later and earlier. */
	printf("others %.9f\n", used > own ? (double)(used - own) / (double)elapsed : 0.0);
	if ((zero = open("/dev/zero", O_RDONLY)) < 0 || (null = open("/dev/null", O_WRONLY)) < 0)
		fail("/dev");
	call("getppid", nothing, 100000);
	call("clock_gettime", clock_call, 200000);
	call("read", reading, 50000);
	call("write", writing, 50000);
	call("mmap+munmap", mapping, 4000);
	printf("verified\n");
	return fflush(stdout) ? 1 : 0;
}
