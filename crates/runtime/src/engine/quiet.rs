//! What others may bring in between the last eviction before a fork and the copy: the child has it, too, so it is little at a
//! time.

/// Most pages that are kept free for it; of a smaller budget a 32nd.
pub(super) const ROOM: u64 = 256;
/// Least that there are.
pub(super) const LEAST: u64 = 64;
/// When they are gone a thread waits so many microseconds, and all that wait get so many pages together: whoever has a lock that
/// the fork waits for needs few. On a busy machine the copy may be many such steps away.
const STEP: (u64, u64) = (10_000, 16);
/// Steps that are so small; every so many further ones double what the next bring, up to [`ROOM`]: who has the lock may be reading
/// a file into its memory.
const STEPS: (u32, u32) = (25, 5);

/// Steps of one fork.
#[derive(Debug, Default)]
pub(super) struct Steps {
    done: u32,
    /// When a thread began to wait for the next one, in microseconds; 0 if none does.
    since: u64,
}

impl Steps {
    /// Pages that those get who wait for a frame now; `None` while they have to wait on.
    pub(super) fn next(&mut self, now: u64) -> Option<u64> {
        if self.since == 0 {
            self.since = now;
        }
        if now - self.since < STEP.0 {
            return None;
        }
        self.since = 0;
        let doubled = self.done.saturating_sub(STEPS.0) / STEPS.1;
        self.done = self.done.saturating_add(1);
        Some((STEP.1 << doubled.min(16)).min(ROOM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_at_first_and_enough_in_the_end() {
        let mut steps = Steps::default();
        assert_eq!((steps.next(5), steps.next(5 + STEP.0 - 1)), (None, None));
        let mut now = 5;
        let mut pages = |micros: u64| {
            let end = now + micros;
            let mut all = 0;
            while now < end {
                now += 1000;
                all += steps.next(now).unwrap_or(0);
            }
            all
        };
        // A quarter of a second on a busy machine; then a lock's owner reads a file.
        assert!(pages(200_000) <= 20 * STEP.1);
        pages(600_000);
        assert!(pages(500_000) >= 40 * ROOM);
    }
}
