//! Whether a process that is paged misses anything of what it has. Who has touched nothing absent for a while needs no more than it
//! has; while others starve it gives up a little at a time, and goes on with that as long as it does not take it back. One that waits
//! for others (a parent for its children, a server for clients) so leaves them nearly all, and has it again when it goes on.
//!
//! The idea is senpai's (Weiner et al., "TMO: Transparent Memory Offloading in Datacenters", ASPLOS 2022): how much a process needs is
//! found out by taking a little, and looking at what comes back.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Without a page that comes for so long nothing is missed, in microseconds.
const LULL: u64 = 200_000;
/// Between two steps.
const PAUSE: u64 = 100_000;
/// The same where what was given up has always come back.
const LONGEST: u64 = 10_000_000;
/// The part of what it has that a process gives up at a time.
const PART: u64 = 8;

/// What the pager's thread, which alone uses it, remembers; times in microseconds.
pub(super) struct Missed {
    /// Pages that had come when it looked last, and when they had last become more.
    came: AtomicU64,
    came_us: AtomicU64,
    /// Pages to come down to, as they leave; `u64::MAX` for none.
    target: AtomicU64,
    /// The last step: when, how many pages, and those that had come before.
    step_us: AtomicU64,
    step: AtomicU64,
    before: AtomicU64,
    pause: AtomicU64,
}

impl Missed {
    pub(super) const fn new() -> Missed {
        Missed {
            came: AtomicU64::new(0),
            came_us: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            step_us: AtomicU64::new(0),
            step: AtomicU64::new(0),
            before: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE),
        }
    }

    /// Whether the process has missed anything of late. `came`: pages that have come to it so far; `waits`: somebody waits for one.
    pub(super) fn look(&self, came: u64, waits: bool, now: u64) -> bool {
        if self.came.swap(came, Relaxed) != came || waits {
            self.came_us.store(now, Relaxed);
        }
        let missed = now.saturating_sub(self.came_us.load(Relaxed)) < LULL;
        if missed {
            self.target.store(u64::MAX, Relaxed);
        }
        missed
    }

    /// Pages that a process which holds so many, and misses nothing, comes down to while others starve.
    pub(super) fn come_down(&self, held: u64, now: u64) -> u64 {
        let (step, pause) = (self.step.load(Relaxed), self.pause.load(Relaxed));
        if now.saturating_sub(self.step_us.load(Relaxed)) < pause {
            return held.min(self.target.load(Relaxed));
        }
        let came = self.came.load(Relaxed);
        let taken_back = came.saturating_sub(self.before.load(Relaxed));
        let pause = if step > 0 && taken_back * 8 > step { (pause * 2).min(LONGEST) } else { PAUSE };
        let target = held - held / PART;
        self.step_us.store(now, Relaxed);
        self.step.store(held / PART, Relaxed);
        self.before.store(came, Relaxed);
        self.pause.store(pause, Relaxed);
        self.target.store(target, Relaxed);
        target
    }
}

/// Whether the program waits: of a process that is not paged nobody knows what it misses.
#[derive(Default)]
pub(super) struct Waiting {
    since: u64,
    ran: u64,
}

impl Waiting {
    /// For so long it has to, in microseconds.
    const SINCE: u64 = 1_000_000;
    /// With that much of a processor at most, in nanoseconds.
    const RAN: u64 = 10_000_000;

    /// Whether it has hardly computed for a while. `ran`: the time on processors that its threads have had so far, in nanoseconds.
    pub(super) fn look(&mut self, ran: u64, now: u64) -> bool {
        if self.since == 0 || ran.saturating_sub(self.ran) > Waiting::RAN {
            *self = Waiting { since: now, ran };
        }
        now.saturating_sub(self.since) >= Waiting::SINCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1 << 40;

    #[test]
    fn who_misses_nothing_comes_down_step_by_step() {
        let missed = Missed::new();
        assert!(missed.look(5, false, START));
        assert!(missed.look(5, false, START + LULL / 2), "too early to tell");
        let mut held = 1600;
        for step in 0..20 {
            let now = START + LULL + step * PAUSE;
            assert!(!missed.look(5, false, now));
            let target = missed.come_down(held, now);
            assert_eq!(target, held - held / PART);
            // On its way there.
            assert_eq!(missed.come_down(held - 1, now + PAUSE / 2), target);
            held = target;
        }
        assert!(held < 500);
    }

    #[test]
    fn who_takes_it_back_is_left_alone_for_longer_and_longer() {
        let missed = Missed::new();
        let (mut now, mut came, mut pauses) = (START, 0, [0; 12]);
        assert!(missed.look(1, false, now));
        for pause in &mut pauses {
            let began = now;
            while missed.look(came, false, now) || missed.come_down(1600, now) == 1600 {
                now += PAUSE / 5;
            }
            *pause = now - began;
            came += 100;
        }
        assert!(pauses.iter().skip(2).is_sorted(), "{pauses:?}");
        assert!(pauses.last().is_some_and(|last| *last >= LONGEST), "{pauses:?}");
        // Until it does not.
        assert!(missed.look(came, false, now));
        for _ in 0..2 {
            now += LONGEST;
            assert!(!missed.look(came, false, now));
            assert!(missed.come_down(1600, now) < 1600);
        }
        now += PAUSE;
        assert!(missed.come_down(1500, now) < 1500);
    }

    #[test]
    fn who_waits_for_a_page_misses_it_and_comes_down_no_further() {
        let missed = Missed::new();
        assert!(!missed.look(0, false, START));
        assert!(missed.come_down(1600, START) < 1600);
        assert!(missed.look(0, true, START + 1));
        assert_eq!(missed.come_down(1600, START + 2), 1600);
    }

    #[test]
    fn who_hardly_computes_waits() {
        let mut waiting = Waiting::default();
        assert!(!waiting.look(0, START));
        assert!(!waiting.look(Waiting::RAN, START + Waiting::SINCE - 1));
        assert!(waiting.look(Waiting::RAN, START + Waiting::SINCE));
        assert!(!waiting.look(2 * Waiting::RAN + 1, START + Waiting::SINCE + 1));
        assert!(!waiting.look(2 * Waiting::RAN + 1, START + 2 * Waiting::SINCE));
        assert!(waiting.look(3 * Waiting::RAN, START + 2 * Waiting::SINCE + 1));
    }
}
