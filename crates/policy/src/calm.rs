//! When single pages are best moved out. Each such move interrupts every processor on which a thread of the program runs, and
//! waits for it; none while all threads that use pages wait for some. So it is put off until they do, where they do often enough.

/// Who waits, as seen of late, and what moving pages out takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    most: u64,
    looks: u32,
    calls: u32,
    pages: u32,
    vain: u32,
    rest: u32,
}

impl Calm {
    /// So many threads wait at least, at some time: fewer are not worth it.
    const FEW: u64 = 3;
    /// Looks after which the most that were seen to wait count for one less.
    const FADE: u32 = 64;
    /// Calls after which the past counts half.
    const MEMORY: u32 = 256;
    /// Pages that a call moves on average from which on its interrupt hardly counts.
    const LONG: u32 = 4;
    /// Attempts in vain, a success counting one less, after which no more are made for so many looks.
    const PATIENCE: u32 = 32;
    const REST: u32 = 1024;

    /// So many threads wait, before any that can go on does.
    pub fn saw(&mut self, waiting: u64) {
        self.looks = self.looks.wrapping_add(1);
        self.rest = self.rest.saturating_sub(1);
        if self.looks % Calm::FADE == 0 {
            self.most = self.most.saturating_sub(1);
        }
        self.most = self.most.max(waiting);
    }

    /// So many pages have left in so many calls.
    pub fn left(&mut self, calls: u32, pages: u32) {
        if self.calls.max(self.pages / Calm::LONG) > Calm::MEMORY {
            (self.calls, self.pages) = (self.calls / 2, self.pages / 2);
        }
        (self.calls, self.pages) = (self.calls + calls, self.pages + pages);
    }

    /// Whether it is worth waiting for.
    pub fn is_worth(&self) -> bool {
        self.most >= Calm::FEW && self.rest == 0 && self.pages < self.calls * Calm::LONG
    }

    /// Whether all wait, for all that is known.
    pub fn is_now(&self, waiting: u64) -> bool {
        waiting >= self.most
    }

    /// It was waited for; whether it came.
    pub fn ended(&mut self, came: bool) {
        self.vain = if came { self.vain.saturating_sub(1) } else { self.vain + 2 };
        if self.vain > Calm::PATIENCE {
            (self.vain, self.rest) = (0, Calm::REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(waiting: u64) -> Calm {
        let mut calm = Calm::default();
        calm.saw(waiting);
        calm.left(100, 120);
        calm
    }

    #[test]
    fn it_is_worth_it_for_single_pages_of_several_threads() {
        assert!(busy(16).is_worth());
        assert!(!busy(2).is_worth(), "two threads");
        let mut long = busy(16);
        long.left(10, 5000);
        assert!(!long.is_worth(), "whole blocks");
        // It has been single pages for a while again.
        for _ in 0..5000 {
            long.left(1, 1);
        }
        assert!(long.is_worth());
        assert!(!Calm::default().is_worth());
    }

    #[test]
    fn all_wait_when_as_many_do_as_ever_of_late() {
        let mut calm = busy(16);
        assert!(!calm.is_now(15) && calm.is_now(16) && calm.is_now(17));
        // Half of them have ended.
        for _ in 0..64 * 8 {
            calm.saw(8);
        }
        assert!(calm.is_now(8) && !calm.is_now(7));
    }

    #[test]
    fn who_computes_is_not_waited_for_again_and_again() {
        let mut calm = busy(16);
        let attempts = (0..100).take_while(|_| {
            calm.ended(false);
            calm.is_worth()
        });
        assert!(attempts.count() < 20);
        for _ in 0..5000 {
            calm.saw(16);
        }
        assert!(calm.is_worth(), "it is tried again");
        for attempt in 0..1000 {
            calm.ended(attempt % 4 != 0);
        }
        assert!(calm.is_worth(), "it comes mostly");
    }
}
