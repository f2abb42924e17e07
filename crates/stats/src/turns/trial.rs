//! Ranks that compute briefly between two waits: to hand a place on, and to bring back what was there, may take longer than
//! what is then computed, or not. Both ways are tried, and the one in which more is computed is taken.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Ranks are brief that compute for less than so many nanoseconds outside the kernel between two waits, in the mean of all of them by number.
/// With more nothing is tried: whoever has begun to compute goes on to its next wait, and beside all others that takes up to a
/// thousand times as long.
const BRIEF_NS: u64 = 10_000_000;
/// Waits of a rank, in the mean, from which on that means something.
const KNOWN: u64 = 4;
/// How long one way is measured, and how long what the other one left has an effect before that, in microseconds.
const MEASURED_US: u64 = 400_000;
const SETTLES_US: u64 = 200_000;
/// Longest that a way is tried in which no rank gets to its next wait.
const STUCK_US: u64 = 2_000_000;
/// Measurements until the way that was worse is tried again: so many, and twice as many each time that it still is.
const AGAIN: (u32, u32) = (16, 64);
/// Not measured yet.
const NONE: u64 = u64::MAX;

/// What is known of both ways. Changed by who has the right to decide.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// 1 while all ranks compute at once.
    all: AtomicU32,
    /// Measurements until the other way is tried again, and how many that were.
    left: AtomicU32,
    again: AtomicU32,
    /// Whether the way is only tried.
    tried: AtomicU32,
    /// When this way began, 0 if nothing did; from when on it is measured, and what had been computed by then.
    began_us: AtomicU64,
    measured_us: AtomicU64,
    before_ns: AtomicU64,
    /// Nanoseconds computed in a second by all ranks together, in turns and at once; 0 as long as that is not known.
    rates: [AtomicU64; 2],
    /// What ranks have computed between their waits, in nanoseconds outside the kernel: where memory goes to and fro all the time,
    /// that keeps processors busy, too.
    computed_ns: AtomicU64,
}

impl Trial {
    /// Whether all ranks compute at once.
    pub(crate) fn all_at_once(&self) -> bool {
        self.all.load(SeqCst) != 0
    }

    /// A rank has computed for so long between two waits, outside the kernel.
    pub(crate) fn computed(&self, ns: u64) {
        // One that began long before says little of the way in which it ends.
        self.computed_ns.fetch_add(ns.min(MEASURED_US * 1000), SeqCst);
    }

    /// Whether ranks that have computed for so long with so many waits, so many of them, are brief.
    pub(crate) fn are_brief(ranks: u64, computed_ns: u64, waits: u64) -> bool {
        ranks > 0 && waits >= KNOWN * ranks && computed_ns / waits < BRIEF_NS
    }

    /// Ranks are not brief: they take turns. What is known of both ways is for when they are again.
    pub(crate) fn pause(&self) {
        if self.all.swap(0, SeqCst) != 0 && self.tried.load(SeqCst) == 0 {
            // It was the better way.
            self.left.store(1, SeqCst);
        }
        self.tried.store(0, SeqCst);
        self.began_us.store(0, SeqCst);
    }

    fn begin(&self, all: bool, now_us: u64) {
        self.all.store(all.into(), SeqCst);
        self.began_us.store(now_us.max(1), SeqCst);
        self.measured_us.store(NONE, SeqCst);
    }

    /// Ranks are brief: measures, and changes ways.
    pub(crate) fn weigh(&self, now_us: u64) {
        let (all, began) = (self.all_at_once(), self.began_us.load(SeqCst));
        let (computed, measured) = (self.computed_ns.load(SeqCst), self.measured_us.load(SeqCst));
        if began == 0 {
            self.begin(all, now_us);
        } else if measured == NONE {
            if now_us.saturating_sub(began) >= SETTLES_US {
                self.measured_us.store(now_us, SeqCst);
                self.before_ns.store(computed, SeqCst);
            }
        } else if now_us.saturating_sub(measured) >= MEASURED_US {
            let done = computed.saturating_sub(self.before_ns.load(SeqCst));
            let for_long = now_us - measured >= STUCK_US && self.tried.load(SeqCst) != 0;
            // While nothing is computed neither way is better, but for one that is only tried and seems to be the reason.
            if done > 0 || for_long {
                self.measured_us.store(now_us, SeqCst);
                self.before_ns.store(computed, SeqCst);
                self.decide(all, (done / (now_us - measured) * 1_000_000).max(1), now_us);
            }
        }
    }

    /// So much was computed in a second while ranks took turns, or computed all at once.
    fn decide(&self, all: bool, rate: u64, now_us: u64) {
        let [turns, at_once] = &self.rates;
        let (own, other) = if all { (at_once, turns) } else { (turns, at_once) };
        let tried = self.tried.swap(0, SeqCst) != 0;
        let before = own.load(SeqCst);
        own.store(if tried || before == 0 { rate } else { before / 2 + rate / 2 }, SeqCst);
        let known = other.load(SeqCst);
        if tried && rate < known {
            // No better than it was.
            let again = (self.again.load(SeqCst) * 2).clamp(AGAIN.0, AGAIN.1);
            self.again.store(again, SeqCst);
            self.left.store(again, SeqCst);
            self.begin(!all, now_us);
        } else if tried {
            self.again.store(AGAIN.0, SeqCst);
            self.left.store(AGAIN.0, SeqCst);
        } else if known == 0 || self.left.fetch_sub(1, SeqCst) <= 1 {
            self.left.store(1, SeqCst);
            self.tried.store(1, SeqCst);
            self.begin(!all, now_us);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// For how many of so many seconds all ranks compute at once, where so much is computed in a second in turns and at once.
    fn seconds_at_once(trial: &Trial, clock: &mut u64, seconds: u64, in_turns: u64, at_once: u64) -> f64 {
        const LOOK: u64 = 20_000;
        let sum = (0..seconds * 1_000_000 / LOOK).map(|_| {
            *clock += LOOK;
            let all = trial.all_at_once();
            trial.computed(if all { at_once } else { in_turns } * LOOK / 1_000_000);
            trial.weigh(*clock);
            u64::from(all)
        });
        sum.sum::<u64>() as f64 * LOOK as f64 / 1e6
    }

    #[test]
    fn the_way_in_which_more_is_computed_is_taken() {
        let (worse, better, mut clock) = (Trial::default(), Trial::default(), 0);
        let wasted = seconds_at_once(&worse, &mut clock, 100, 800_000_000, 200_000_000);
        assert!((0.5..5.0).contains(&wasted), "{wasted} s");
        let used = seconds_at_once(&better, &mut clock, 100, 500_000_000, 800_000_000);
        assert!((90.0..99.5).contains(&used), "{used} s");
        // What was better is not for ever.
        let after = seconds_at_once(&better, &mut clock, 100, 800_000_000, 500_000_000);
        assert!(after < 50.0, "{after} s");
    }

    /// Long before a rank gets to its next wait all at once, it is taken for what it is.
    #[test]
    fn a_way_in_which_nothing_comes_to_an_end_is_left() {
        let (trial, mut clock) = (Trial::default(), 0);
        let wasted = seconds_at_once(&trial, &mut clock, 100, 800_000_000, 0);
        assert!((2.0..12.0).contains(&wasted), "{wasted} s");
        // Or one at last, in a window that begins with nothing.
        let (trial, mut clock) = (Trial::default(), 0);
        seconds_at_once(&trial, &mut clock, 1, 100_000_000, 0);
        assert!(trial.all_at_once());
        seconds_at_once(&trial, &mut clock, 1, 100_000_000, 0);
        trial.computed(60_000_000);
        seconds_at_once(&trial, &mut clock, 1, 100_000_000, 0);
        assert!(!trial.all_at_once());
    }

    /// What is known outlasts a phase in which ranks are not brief.
    #[test]
    fn the_better_way_comes_back_after_a_pause() {
        let (trial, mut clock) = (Trial::default(), 0);
        seconds_at_once(&trial, &mut clock, 5, 500_000_000, 800_000_000);
        assert!(trial.all_at_once());
        trial.pause();
        assert!(!trial.all_at_once());
        let used = seconds_at_once(&trial, &mut clock, 5, 500_000_000, 800_000_000);
        assert!(used > 4.0, "{used} s");
    }

    #[test]
    fn while_nothing_is_computed_nothing_changes() {
        let trial = Trial::default();
        assert!(seconds_at_once(&trial, &mut 0, 10, 0, 0) == 0.0);
    }

    #[test]
    fn brief_are_those_that_wait_often() {
        assert!(!Trial::are_brief(4, 1_000_000, 15) && Trial::are_brief(4, 1_000_000, 16));
        assert!(!Trial::are_brief(4, 16 * BRIEF_NS, 16) && !Trial::are_brief(0, 0, 0));
    }
}
