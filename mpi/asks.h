/* Ranks that ask again and again for what has not come wait for it, whatever they do in between, unless that is work. Included
 * by shim.c alone.
 */

/* Failed tests after which it is looked whether anything is done in between, and how long such a test may take then. */
#define TESTS 64
#define TEST 20000
/* Time after which it is looked whether the process has paused all the while, in nanoseconds. */
#define PAUSE 10000000

/* Begins to look at what the process does between tests. */
static void look_anew(void)
{
	self.looked = now();
	self.busy = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	self.faults = rank.faults();
	self.asked = 0;
}

/* Whether the process, with all its threads, has done next to nothing since then but ask, and has brought no page in. */
static int has_paused(void)
{
	uint64_t passed = now() - self.looked, busy = read_clock(CLOCK_PROCESS_CPUTIME_ID) - self.busy;

	if (!self.busy || rank.faults() != self.faults || busy > passed / 4)
		return 0;
	return busy < (uint64_t)self.asked * TEST || busy < passed / 20;
}

/* A test has failed: what lies between it and the last ones. */
static void look_between(void)
{
	uint64_t time;

	self.asked++;
	if (self.between != WORKS) {
		if (self.between == SPINS && now() - self.left < 4 * TEST)
			return;
		self.between = has_paused() ? PAUSES : WORKS;
		return;
	}
	if (++self.fails % TESTS == 0) {
		time = now();
		if (time - self.failed < TESTS * TEST)
			self.between = SPINS;
		self.failed = time;
	}
	/* Most things have come before it is worth while to look at more than a clock that costs next to nothing. */
	time = read_clock(CLOCK_MONOTONIC_COARSE);
	if (!self.looked) {
		self.looked = time;
		self.busy = 0;
	} else if ((int64_t)(time - self.looked) >= PAUSE) {
		if (has_paused())
			self.between = PAUSES;
		look_anew();
	}
}

/* A call that only asks has answered yes or no. Whoever asks and asks waits all the same. */
static void tested(int yes)
{
	if (!joined || self.depth)
		return;
	if (yes) {
		self.fails = self.deferred = 0;
		self.between = WORKS;
		self.looked = 0;
		return;
	}
	look_between();
	if (self.between == WORKS)
		return;
	if (self.between == PAUSES) {
		rank.pauses();
	} else if (multiple && known > 1) {
		/* Others of its threads may compute. */
		usleep(50);
		if (has_paused())
			rank.pauses();
	} else {
		rank.defer(++self.deferred);
	}
	look_anew();
	self.left = now();
}

/* One-sided calls, which are answered at once, may be another way to ask and ask. */
static void answered(void)
{
	if (!joined || self.depth || multiple || ++self.answered % TESTS)
		return;
	rank.defer(0);
}
