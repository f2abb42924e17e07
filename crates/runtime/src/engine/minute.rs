//! Whether the program spends its time waiting for pages: said once, so that nobody waits a week for what a larger
//! budget would do in an hour.

use super::message::warn;
use core::fmt;
use ream_stats::{Process, Session};
use ream_sys::process;

/// How long is looked at, in microseconds.
const MINUTE: u64 = 60_000_000;

/// The last minute of the program's threads.
#[derive(Default)]
pub struct Minute {
    began: u64,
    waited: u64,
    ran: u64,
    told: bool,
}

impl Minute {
    /// Takes the time, what all threads have waited for pages so far, and what they have run, in microseconds. True
    /// once, at the end of the first minute in which they waited longer than they ran, and for more than half of it.
    pub fn look(&mut self, now: u64, waited: u64, ran: u64) -> bool {
        if self.began == 0 {
            (self.began, self.waited, self.ran) = (now, waited, ran);
        }
        if self.told || now - self.began < MINUTE {
            return false;
        }
        let (waits, runs) = (waited.saturating_sub(self.waited), ran.saturating_sub(self.ran));
        // Whoever slept for long is looked at late: that was more than a minute.
        self.told = waits > runs && waits > (now - self.began) / 2;
        (self.began, self.waited, self.ran) = (now, waited, ran);
        self.told
    }

    /// Says once when the program does little but wait for pages.
    pub fn complain(&mut self, now: u64, session: &Session, entry: &Process) {
        let counters = &entry.counters;
        let ran = process::process_time_ns().saturating_sub(counters.pager_ns.get());
        if !self.look(now, counters.waited_ns.get() / 1000, ran / 1000) {
            return;
        }
        let (budget, more) = (session.ledger().total_pages(), counters.pages_to_halve_refaults());
        warn(format_args!("{}", Hint { budget, more }));
    }
}

/// What is said of such a minute, with the pages of the budget, and how many more would halve the reads where that is known.
pub struct Hint {
    pub budget: u64,
    pub more: Option<u64>,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.budget / 256;
        f.write_str("over half of the last minute was spent waiting for pages; ")?;
        match self.more {
            Some(pages) => write!(f, "{} MiB instead of {total} MiB would halve the reads", total + pages / 256),
            None => write!(f, "more memory than {total} MiB would help"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString as _;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn it_is_said_once_and_only_when_true() {
        let mut minute = Minute::default();
        let mut look = |now: u64, waited: u64, ran: u64| minute.look(now * SECOND, waited * SECOND, ran * SECOND);
        assert!(!look(100, 1000, 5));
        // Two threads that compute and wait a third of the time.
        assert!(!look(130, 1020, 45));
        assert!(!look(161, 1040, 85));
        // A thread that sleeps, and waits when it wakes.
        assert!(!look(222, 1045, 85));
        // One that waits for most of the minute, seen when that is over.
        assert!(!look(240, 1070, 87));
        assert!(look(283, 1095, 92));
        assert!(!look(344, 1155, 92));
    }

    #[test]
    fn less_than_half_is_not_worth_a_word() {
        let said = |seconds: u64, waited: u64, ran: u64| {
            let mut minute = Minute::default();
            minute.look(SECOND, 0, 0);
            minute.look((1 + seconds) * SECOND, waited * SECOND, ran * SECOND)
        };
        assert!(said(60, 31, 0) && said(60, 31, 30) && !said(60, 30, 0) && !said(59, 59, 0));
        // Two threads that wait for more than half of the time, and run for longer.
        assert!(!said(60, 55, 60) && said(60, 61, 60));
        // What was a minute's wait, after which it slept for an hour.
        assert!(!said(3600, 60, 0) && !said(3600, 1800, 0) && said(3600, 1801, 0));
    }

    #[test]
    fn what_would_help_is_said_where_it_is_known() {
        let start = "over half of the last minute was spent waiting for pages; ";
        let said = |budget, more| Hint { budget, more }.to_string().strip_prefix(start).map(ToString::to_string);
        assert_eq!(said(64 << 8, Some(32 << 8)).as_deref(), Some("96 MiB instead of 64 MiB would halve the reads"));
        assert_eq!(said(64 << 8, None).as_deref(), Some("more memory than 64 MiB would help"));
    }
}
