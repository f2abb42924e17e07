//! Whether the program spends its time waiting for pages: said once, so that nobody waits a week for what a larger
//! budget would do in an hour.

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
        self.told = waits > runs && waits > MINUTE / 2;
        (self.began, self.waited, self.ran) = (now, waited, ran);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
