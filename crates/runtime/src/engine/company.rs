//! Whom the pager keeps company: whether it runs on the processor of a thread that faults.
//!
//! A fault answered on the thread's own processor saves two wake-ups across processors. That pays for whoever waits for
//! one page after another; where reading ahead works, or threads compute beside each other, the pager is of more use
//! beside them. Where small pieces come and go, however, each interrupts every other processor that runs one of the
//! program's threads; so as long as these need little of a processor, the pager is better off where they are.

use ream_stats::Counters;

/// Faults between two decisions, while it follows somebody and while it does not.
const FEW: u32 = 16;
const MANY: u32 = 64;
/// Threads told apart; with more, processors are seldom idle, and nobody is followed.
const THREADS: usize = 4;
/// Bytes that a fault brings in, on average, from which on the pager is busy reading ahead.
const AHEAD: u64 = 32 << 10;
/// Pages that a fault fills, on average, from which on the pager is busy filling.
const FILLED: u64 = 8;
/// Bytes of a read, on average, up to which interrupting other processors costs more than they are good for.
const SMALL: u64 = 64 << 10;
/// How much more of a processor than the program the pager must have used for that: so many times as much, and while it
/// follows, which makes it cheaper, so many times.
const TIMES: u64 = 4;
const TIMES_FOLLOWING: u64 = 3;
/// Microseconds between two looks at what both have used.
const LOOK: u64 = 4000;
/// Microseconds between two faults, on average, up to which several threads count as waiting all the time: while the
/// one that was woken runs, the pager does not.
const BURST: u64 = 400;

/// What is counted between two decisions.
#[derive(Clone, Copy, Default)]
struct Work {
    reads: u64,
    bytes: u64,
    missed: u64,
    filled: u64,
    time: u64,
}

impl Work {
    fn now(counters: &Counters, time: u64) -> Work {
        Work {
            reads: counters.reads.get(),
            bytes: counters.bytes_in.get(),
            missed: counters.refaults.get(),
            filled: counters.zero_fills.get(),
            time,
        }
    }
    fn since(&self, before: &Work) -> Work {
        Work {
            reads: self.reads.saturating_sub(before.reads),
            bytes: self.bytes.saturating_sub(before.bytes),
            missed: self.missed.saturating_sub(before.missed),
            filled: self.filled.saturating_sub(before.filled),
            time: self.time.saturating_sub(before.time),
        }
    }
}

/// The faults since the last decision.
#[derive(Default)]
pub(super) struct Company {
    /// Threads and their faults; 0 for a free place.
    threads: [(u32, u32); THREADS],
    /// Faults of threads beyond those.
    others: u32,
    faults: u32,
    before: Option<Work>,
    following: bool,
    /// What pager and program had used when that was last looked at, and when; and whether the program used little.
    used: (Used, u64),
    idles: bool,
}

/// Nanoseconds of processors that have been used.
#[derive(Clone, Copy, Default)]
pub(super) struct Used {
    /// By the whole process.
    pub(super) process: u64,
    /// By its pager.
    pub(super) pager: u64,
}

impl Company {
    /// Takes note of a fault at this time in microseconds. `Some` when it is time to decide: the thread to follow, or
    /// nobody. `used` tells what has been used by now.
    pub(super) fn fault(
        &mut self,
        thread: u32,
        time: u64,
        counters: &Counters,
        used: impl FnOnce() -> Used,
    ) -> Option<Option<u32>> {
        match self.threads.iter_mut().find(|(known, faults)| *known == thread || *faults == 0) {
            Some(place) => *place = (thread, place.1 + 1),
            None => self.others += 1,
        }
        self.faults += 1;
        if self.faults < if self.following { FEW } else { MANY } {
            return None;
        }
        if time.saturating_sub(self.used.1) >= LOOK {
            let (before, now) = (self.used.0, used());
            let pager = now.pager.saturating_sub(before.pager);
            let program = now.process.saturating_sub(before.process).saturating_sub(pager);
            self.idles = program * if self.following { TIMES_FOLLOWING } else { TIMES } <= pager;
            self.used = (now, time);
        }
        let now = Work::now(counters, time);
        let before = self.before.replace(now);
        let choice = before.and_then(|before| self.choose(&now.since(&before)));
        let told = self.following || choice.is_some();
        *self = Company {
            before: self.before,
            following: choice.is_some(),
            used: self.used,
            idles: self.idles,
            ..Company::default()
        };
        told.then_some(choice)
    }

    fn choose(&self, work: &Work) -> Option<u32> {
        let faults = self.faults as u64;
        let alone = self.threads.iter().filter(|(_, faults)| *faults > 0).count() == 1;
        let waits = work.bytes < faults * AHEAD
            && work.filled < faults * FILLED
            && work.reads <= work.missed + work.missed / 8 + faults / 8
            && self.others == 0
            && (alone || work.time < faults * BURST);
        let pieces = alone && self.idles && work.reads >= faults / 2 && work.bytes < work.reads * SMALL;
        let (thread, _) = self.threads.iter().max_by_key(|(_, faults)| *faults)?;
        ((waits || pieces) && *thread != 0).then_some(*thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decision after so many faults by these threads in turns, each with so much work.
    fn decide(threads: &[u32], each: Work) -> Option<Option<u32>> {
        decide_beside(threads, each, 10)
    }

    /// The same, where the program uses so much of a processor for each 10 of the pager's.
    fn decide_beside(threads: &[u32], each: Work, program: u64) -> Option<Option<u32>> {
        let counters = Counters::default();
        let mut company = Company::default();
        let mut last = None;
        for (index, thread) in threads.iter().cycle().take(2 * MANY as usize).enumerate() {
            counters.reads.add_alone(each.reads);
            counters.bytes_in.add_alone(each.bytes);
            counters.refaults.add_alone(each.missed);
            counters.zero_fills.add_alone(each.filled);
            let used = || Used { process: index as u64 * (10 + program), pager: index as u64 * 10 };
            last = company.fault(*thread, index as u64 * each.time, &counters, used).or(last);
        }
        last
    }

    const RANDOM: Work = Work { reads: 1, bytes: 4096, missed: 1, filled: 0, time: 150 };

    #[test]
    fn whoever_waits_for_page_after_page_is_followed() {
        assert_eq!(decide(&[7], RANDOM), Some(Some(7)));
        assert_eq!(decide(&[7], Work { time: 5000, ..RANDOM }), Some(Some(7)));
        assert_eq!(decide(&[7], Work { reads: 0, bytes: 0, missed: 0, ..RANDOM }), Some(Some(7)));
        assert_eq!(decide(&[8, 7, 7], RANDOM), Some(Some(7)));
    }

    #[test]
    fn small_pieces_come_and_go_beside_whoever_only_waits_for_them() {
        let pieces = Work { reads: 12, bytes: 12 * 16384, missed: 0, filled: 0, time: 150 };
        assert_eq!(decide_beside(&[7], pieces, 2), Some(Some(7)));
        assert_eq!(decide_beside(&[7], pieces, 5), None);
        assert_eq!(decide_beside(&[7], Work { bytes: 12 << 20, ..pieces }, 2), None);
        assert_eq!(decide_beside(&[7, 8], pieces, 2), None);
    }

    #[test]
    fn streams_fills_computing_threads_and_crowds_are_not() {
        assert_eq!(decide(&[7], Work { bytes: 1 << 20, ..RANDOM }), None);
        assert_eq!(decide(&[7], Work { reads: 2, ..RANDOM }), None);
        assert_eq!(decide(&[7], Work { filled: 64, ..RANDOM }), None);
        assert_eq!(decide(&[8, 7], Work { time: 1000, ..RANDOM }), None);
        assert_eq!(decide(&[5, 6, 7, 8, 9], RANDOM), None);
        assert_eq!(decide(&[0], RANDOM), None);
    }
}
