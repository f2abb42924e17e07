//! Named parts of a program's work, which it marks itself: how often each was entered, how long it took, and what was paged
//! meanwhile. Processes of a session that use the same name share the entry.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::{Counter, Counters};

/// Names that a session can tell apart.
pub const PHASES: usize = 32;
/// Longest name, in bytes.
pub const PHASE_NAME: usize = 31;

const FREE: u32 = 0;
const NAMING: u32 = 1;
const NAMED: u32 = 2;

/// What happened in a phase, added over all processes and all times it was entered.
#[repr(C)]
#[derive(Debug)]
pub struct Phase {
    stage: AtomicU32,
    padding: AtomicU32,
    name: [AtomicU64; 4],
    /// Times that it was left.
    pub times: Counter,
    /// Microseconds between entering and leaving.
    pub spent_us: Counter,
    /// What the counters of those names grew by meanwhile.
    pub faults: Counter,
    /// See `faults`.
    pub bytes_in: Counter,
    /// See `faults`.
    pub bytes_out: Counter,
    /// See `faults`.
    pub waited_ns: Counter,
}

/// What a process's counters were when it entered a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    now_us: u64,
    faults: u64,
    bytes_in: u64,
    bytes_out: u64,
    waited_ns: u64,
}

impl Mark {
    /// Zero at no time; for a static.
    pub const NONE: Mark = Mark { now_us: 0, faults: 0, bytes_in: 0, bytes_out: 0, waited_ns: 0 };

    /// The counters of a process now.
    pub fn of(counters: &Counters, now_us: u64) -> Mark {
        Mark {
            now_us,
            faults: counters.faults.get(),
            bytes_in: counters.bytes_in.get(),
            bytes_out: counters.bytes_out.get(),
            waited_ns: counters.waited_ns.get(),
        }
    }
}

impl Phase {
    /// The name; unused bytes are zero.
    pub fn name(&self) -> [u8; PHASE_NAME + 1] {
        let mut bytes = [0; PHASE_NAME + 1];
        for (place, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            place.copy_from_slice(&word.load(SeqCst).to_ne_bytes());
        }
        bytes
    }

    /// A process leaves the phase that it entered at `from`.
    pub fn leave(&self, from: Mark, to: Mark) {
        self.times.add(1);
        self.spent_us.add(to.now_us.saturating_sub(from.now_us));
        self.faults.add(to.faults.saturating_sub(from.faults));
        self.bytes_in.add(to.bytes_in.saturating_sub(from.bytes_in));
        self.bytes_out.add(to.bytes_out.saturating_sub(from.bytes_out));
        self.waited_ns.add(to.waited_ns.saturating_sub(from.waited_ns));
    }
}

/// The phases of a session, in the order in which their names came up. All zero is none.
#[repr(C)]
#[derive(Debug)]
pub struct Phases([Phase; PHASES]);

impl Phases {
    /// Whether a text can be a name: 1 to 31 bytes of UTF-8 without control characters, quotes and backslashes.
    pub fn is_name(name: &[u8]) -> bool {
        let plain = |byte: &u8| *byte >= b' ' && !matches!(*byte, b'"' | b'\\' | 0x7f);
        (1..=PHASE_NAME).contains(&name.len()) && name.iter().all(plain) && core::str::from_utf8(name).is_ok()
    }

    /// The phase of this name, entered in the list if it is new. `None` when it is not a name, or there are too many.
    pub fn find(&self, name: &[u8]) -> Option<(usize, &Phase)> {
        if !Phases::is_name(name) {
            return None;
        }
        let mut wanted = [0; PHASE_NAME + 1];
        wanted.get_mut(..name.len())?.copy_from_slice(name);
        for (index, phase) in self.0.iter().enumerate() {
            if phase.stage.compare_exchange(FREE, NAMING, SeqCst, SeqCst).is_ok() {
                for (piece, word) in wanted.chunks_exact(8).zip(&phase.name) {
                    let mut number = [0; 8];
                    number.copy_from_slice(piece);
                    word.store(u64::from_ne_bytes(number), SeqCst);
                }
                phase.stage.store(NAMED, SeqCst);
                return Some((index, phase));
            }
            // Somebody is writing a name; one killed while at it leaves an entry that is nobody's.
            for _ in 0..10_000 {
                if phase.stage.load(SeqCst) != NAMING {
                    break;
                }
                core::hint::spin_loop();
            }
            if phase.stage.load(SeqCst) == NAMED && phase.name() == wanted {
                return Some((index, phase));
            }
        }
        None
    }

    /// The phase at a place of the list.
    pub fn get(&self, index: usize) -> Option<&Phase> {
        self.0.get(index)
    }

    /// Those that were entered and left.
    pub fn used(&self) -> impl Iterator<Item = &Phase> {
        self.0.iter().filter(|phase| phase.stage.load(SeqCst) == NAMED && phase.times.get() > 0)
    }
}

#[cfg(test)]
impl Phases {
    pub(crate) fn none() -> Phases {
        Phases(core::array::from_fn(|_| Phase {
            stage: AtomicU32::new(FREE),
            padding: AtomicU32::new(0),
            name: Default::default(),
            times: Counter::default(),
            spent_us: Counter::default(),
            faults: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            waited_ns: Counter::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_name_keeps_its_place_and_too_many_are_refused() {
        let phases = Phases::none();
        for round in 0..2 {
            for index in 0..PHASES {
                let found = phases.find(std::format!("phase {index}").as_bytes()).unwrap();
                assert_eq!(found.0, index, "round {round}");
            }
        }
        assert!(phases.find(b"one more").is_none());
        assert_eq!(phases.used().count(), 0);
        let (before, after) = (Mark::NONE, Mark { now_us: 5, faults: 2, ..Mark::NONE });
        phases.find(b"phase 7").unwrap().1.leave(before, after);
        let phase = phases.used().next().unwrap();
        assert_eq!((phase.times.get(), phase.spent_us.get(), phase.faults.get()), (1, 5, 2));
    }

    #[test]
    fn names_can_be_printed_anywhere() {
        for name in [&b""[..], &[b'a'; 32], b"a\"b", b"a\\b", b"a\nb", b"\xff"] {
            assert!(!Phases::is_name(name), "{name:?}");
        }
        assert!(Phases::is_name(&[b'a'; 31]) && Phases::is_name("Lösung 2".as_bytes()));
    }
}
