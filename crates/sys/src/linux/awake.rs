//! Waiting awake for the one page that a thread waits for: from fast devices it is there before a processor that sleeps is awake
//! again. Only as long as nobody else wants the processor.

use crate::Wait;
use crate::io::Io;
use crate::process;

/// Longest wait, in microseconds.
const LONGEST: u64 = 150;
/// Waits in vain, one after the other, after which the device counts as slow.
const VAIN: u32 = 4;
/// What an interruption by another thread counts for, and how much of that is too much; each wait without one counts against it.
const INTERRUPTED: u32 = 8;
const TOO_OFTEN: u32 = 16;
/// How long nobody waits awake then, in microseconds; twice as long each time that it happens again soon, up to the longest.
const REST: u64 = 50_000;
const LONGEST_REST: u64 = 3_200_000;

#[derive(Default)]
pub(super) struct Awake {
    /// Whether a thread waits for one page, and nobody else for any.
    pub(super) wanted: bool,
    vain: u32,
    interrupted: u32,
    rest: u64,
    rest_until: u64,
}

impl Awake {
    /// Submits what there is, and waits for a moment where that is worth it.
    pub(super) fn wait(&mut self, io: &mut Io) {
        let began = process::now_us();
        if !self.wanted || began < self.rest_until || io.enter(Wait::No).is_err() {
            return;
        }
        let before = process::interruptions();
        self.vain = if io.spin(LONGEST) { 0 } else { self.vain + 1 };
        self.interrupted = match process::interruptions() == before {
            true => self.interrupted.saturating_sub(1),
            false => self.interrupted + INTERRUPTED,
        };
        if self.vain >= VAIN || self.interrupted >= TOO_OFTEN {
            let again = began < self.rest_until + LONGEST_REST && self.rest > 0;
            self.rest = if again { (self.rest * 2).min(LONGEST_REST) } else { REST };
            self.rest_until = process::now_us() + self.rest;
            (self.vain, self.interrupted) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until it rests, and says how often it has waited.
    fn waits(awake: &mut Awake, io: &mut Io) -> u32 {
        awake.rest_until = awake.rest_until.min(process::now_us());
        let before = awake.rest_until;
        (1..)
            .find(|_| {
                awake.wait(io);
                awake.rest_until > before
            })
            .unwrap()
    }

    #[test]
    fn a_slow_device_is_not_waited_for_longer_and_longer() {
        // Containers may forbid io_uring; threads are never waited for awake.
        let mut io = Io::new(true, 8).or_else(|_| Io::new(false, 8)).unwrap();
        let mut awake = Awake::default();
        awake.wait(&mut io);
        assert_eq!((awake.vain, awake.rest), (0, 0), "nobody waits");
        awake.wanted = true;
        // Fewer where others want the processor.
        assert!(waits(&mut awake, &mut io) <= VAIN);
        assert_eq!(awake.rest, REST);
        let until = awake.rest_until;
        awake.wait(&mut io);
        assert_eq!((awake.vain, awake.rest_until), (0, until), "it rests");
        assert!(waits(&mut awake, &mut io) <= VAIN);
        assert_eq!(awake.rest, 2 * REST);
    }
}
