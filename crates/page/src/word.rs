//! The state of one page, packed into a 64-bit word, and the table of the only ways in which it may change.
//!
//! Layout: bits 0..4 state, 4 hot, 5 slot in flight, 6 mark, 7 guarded, 8..16 store, 16..32 age, 32..64 slot or frame.

use crate::{Frame, Slot, StoreId};

/// Where a page's content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Not Ream's: a fault there is not answered by the state table.
    Unmanaged = 0,
    /// Absent, and reads as zeros: never written, discarded, or all zeros when it was evicted.
    Zero = 1,
    /// Mapped in the program. The slot, if any, holds the content that the page's hash describes.
    Resident = 2,
    /// Absent; its slot holds the content.
    Stored = 3,
    /// Absent; being read into a frame.
    Reading = 4,
    /// Absent; read ahead into a frame, which equals its slot.
    Ahead = 5,
    /// Absent; moved out into a frame, not yet compared with the store.
    Cooling = 6,
    /// Absent; its frame is being written to a new slot.
    Writing = 7,
    /// Absent; moved out into a frame that equals its slot.
    Clean = 8,
}

/// One change of a page's state. What is not listed here cannot happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Unmanaged → Zero.
    Manage,
    /// Zero or Resident → Unmanaged; slots and frames must have been let go before.
    Release,
    /// Unmanaged → Resident without a slot: found mapped when its range was taken over.
    Found,
    /// Zero → Resident: a zeroed frame was installed.
    Fill,
    /// Stored → Reading into the frame.
    Read(Frame),
    /// Reading → Ahead.
    Arrive,
    /// Reading, Ahead, Clean → Stored in the slot: the frame was given up.
    Drop(Slot, StoreId),
    /// Reading, Ahead, Clean → Resident: the frame was installed; the slot still holds the content.
    Install(Slot, StoreId),
    /// Resident → Cooling in the frame.
    Cool(Frame),
    /// Cooling → Resident: moved back; the slot, if any, as before.
    Rescue(Option<Slot>, StoreId),
    /// Cooling → Writing.
    Write,
    /// Cooling or Writing → Clean: the frame equals its slot.
    Match,
    /// Writing → Cooling: the write failed.
    Fail,
    /// Writing → Resident: a copy was installed while the write goes on; the slot counts once it has ended well.
    CopyBack(Slot),
    /// Resident with a slot in flight → the same without: the write ended well.
    Settle,
    /// Resident → Stored: it was guarded, and dropped where it was.
    Leave,
    /// Resident → Resident without a slot.
    Forget,
    /// Resident, Stored or Cooling → Zero: discarded by the program, or found to be all zeros.
    Empty,
}

const NONE: u32 = u32::MAX;
const HOT: u64 = 1 << 4;
const IN_FLIGHT: u64 = 1 << 5;
const MARK: u64 = 1 << 6;
const GUARDED: u64 = 1 << 7;

/// The packed state of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Word(pub u64);

impl Word {
    const fn pack(state: State, index: u32, store: StoreId) -> Word {
        Word(state as u64 | (store.0 as u64) << 8 | (index as u64) << 32)
    }

    /// Where the content is.
    pub const fn state(self) -> State {
        match self.0 & 0xf {
            1 => State::Zero,
            2 => State::Resident,
            3 => State::Stored,
            4 => State::Reading,
            5 => State::Ahead,
            6 => State::Cooling,
            7 => State::Writing,
            8 => State::Clean,
            _ => State::Unmanaged,
        }
    }

    /// The slot of a Resident or Stored page, if it has one.
    pub const fn slot(self) -> Option<(Slot, StoreId)> {
        let index = (self.0 >> 32) as u32;
        match self.state() {
            State::Resident | State::Stored if index != NONE => Some((Slot(index), StoreId((self.0 >> 8) as u8))),
            _ => None,
        }
    }

    /// The frame of a page that is in the staging area.
    pub const fn frame(self) -> Option<Frame> {
        match self.state() {
            State::Reading | State::Ahead | State::Cooling | State::Writing | State::Clean => {
                Some(Frame((self.0 >> 32) as u32))
            }
            _ => None,
        }
    }

    /// Whether the page belongs to the protected part of the resident set.
    pub const fn hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// The same word, marked as in the protected part or not.
    pub const fn with_hot(self, hot: bool) -> Word {
        Word(if hot { self.0 | HOT } else { self.0 & !HOT })
    }

    /// A mark for whoever walks the pages; not kept by any step.
    pub const fn marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// The same word with or without the mark.
    pub const fn with_mark(self, mark: bool) -> Word {
        Word(if mark { self.0 | MARK } else { self.0 & !MARK })
    }

    /// Whether this Resident page was installed under write protection that has not been ended since: it holds what its slot
    /// does. No step keeps it.
    pub const fn guarded(self) -> bool {
        self.0 & GUARDED != 0
    }

    /// The same Resident word, guarded if its slot holds its content; or not guarded.
    pub const fn with_guard(self, on: bool) -> Word {
        match self.slot() {
            Some(_) if on && !self.slot_in_flight() => Word(self.0 | GUARDED),
            _ => Word(self.0 & !GUARDED),
        }
    }

    /// Whether the slot of this Resident page is still being written.
    pub const fn slot_in_flight(self) -> bool {
        self.0 & IN_FLIGHT != 0
    }

    /// The same Resident word with its slot marked as still being written.
    pub const fn with_slot_in_flight(self) -> Word {
        match self.slot() {
            Some(_) => Word(self.0 | IN_FLIGHT),
            None => self,
        }
    }

    /// The same word after a fork, in the child: a slot of the process's own store is one of `parent`'s now, and nothing is
    /// guarded there.
    pub const fn with_ancestor(self, parent: StoreId) -> Word {
        match self.slot() {
            Some((_, StoreId::OWN)) => Word((self.0 | (parent.0 as u64) << 8) & !GUARDED),
            _ => Word(self.0 & !GUARDED),
        }
    }

    /// When the page was last evicted, in the pager's eviction clock modulo 2^16.
    pub const fn age(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The same word with another age.
    pub const fn with_age(self, age: u16) -> Word {
        Word(self.0 & !(0xffff << 16) | (age as u64) << 16)
    }

    /// The word after `step`, or `None` when the table does not allow it.
    pub const fn step(self, step: Step) -> Option<Word> {
        use State::*;
        let state = self.state();
        let next = match (state, step) {
            (Unmanaged, Step::Manage) => Word::pack(Zero, NONE, StoreId::OWN),
            (Unmanaged, Step::Found) => Word::pack(Resident, NONE, StoreId::OWN),
            (Zero | Resident, Step::Release) => return Some(Word(0)),
            (Zero, Step::Fill) => Word::pack(Resident, NONE, StoreId::OWN),
            (Stored, Step::Read(frame)) => Word::pack(Reading, frame.0, StoreId::OWN),
            (Reading, Step::Arrive) => Word::pack(Ahead, (self.0 >> 32) as u32, StoreId::OWN),
            (Reading | Ahead | Clean, Step::Drop(slot, store)) => Word::pack(Stored, slot.0, store),
            (Reading | Ahead | Clean, Step::Install(slot, store)) => Word::pack(Resident, slot.0, store),
            (Resident, Step::Cool(frame)) => Word::pack(Cooling, frame.0, StoreId::OWN),
            (Cooling, Step::Rescue(Some(slot), store)) => Word::pack(Resident, slot.0, store),
            (Cooling, Step::Rescue(None, _)) => Word::pack(Resident, NONE, StoreId::OWN),
            (Cooling, Step::Write) => Word::pack(Writing, (self.0 >> 32) as u32, StoreId::OWN),
            (Cooling | Writing, Step::Match) => Word::pack(Clean, (self.0 >> 32) as u32, StoreId::OWN),
            (Writing, Step::Fail) => Word::pack(Cooling, (self.0 >> 32) as u32, StoreId::OWN),
            (Writing, Step::CopyBack(slot)) => {
                let word = Word::pack(Resident, slot.0, StoreId::OWN);
                Word(word.0 | IN_FLIGHT)
            }
            (Resident, Step::Settle) if self.slot_in_flight() => return Some(Word(self.0 & !IN_FLIGHT)),
            (Resident, Step::Leave) if self.guarded() => {
                Word::pack(Stored, (self.0 >> 32) as u32, StoreId((self.0 >> 8) as u8))
            }
            (Resident, Step::Forget) => Word::pack(Resident, NONE, StoreId::OWN),
            (Resident | Stored | Cooling, Step::Empty) => Word::pack(Zero, NONE, StoreId::OWN),
            _ => return None,
        };
        // Heat and age are the policy's; they travel along.
        Some(Word(next.0 | self.0 & (HOT | 0xffff << 16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 18] = [
        Step::Manage,
        Step::Release,
        Step::Found,
        Step::Fill,
        Step::Read(Frame(7)),
        Step::Arrive,
        Step::Drop(Slot(9), StoreId(3)),
        Step::Install(Slot(9), StoreId(3)),
        Step::Cool(Frame(8)),
        Step::Rescue(Some(Slot(4)), StoreId(2)),
        Step::Write,
        Step::Match,
        Step::Fail,
        Step::CopyBack(Slot(5)),
        Step::Settle,
        Step::Leave,
        Step::Forget,
        Step::Empty,
    ];

    /// Walks the table at random and holds the words against what each state promises.
    #[test]
    fn random_walk_keeps_the_promises() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut word = Word::default();
        let mut seen = [false; 9];
        for _ in 0..200_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let step = STEPS[(seed % STEPS.len() as u64) as usize];
            if let Some(next) = word.step(step) {
                word = next;
            }
            if seed % 3 == 0 && word.state() == State::Resident {
                word = word.with_guard(true);
            }
            seen[word.state() as usize] = true;
            let staged = word.frame().is_some();
            match word.state() {
                State::Unmanaged => assert_eq!(word.0, 0),
                State::Zero => assert!(!staged && word.slot().is_none()),
                State::Resident => {
                    assert!(!staged && (!word.slot_in_flight() || word.slot().is_some()));
                    assert!(!word.guarded() || word.slot().is_some() && !word.slot_in_flight());
                }
                State::Stored => assert!(!staged && word.slot().is_some()),
                _ => assert!(staged && word.slot().is_none() && !word.slot_in_flight()),
            }
        }
        assert!(seen.iter().all(|s| *s), "some state was never reached: {seen:?}");
    }

    #[test]
    fn only_what_is_guarded_leaves_and_no_step_keeps_a_guard() {
        let word = Word::default().step(Step::Found).unwrap();
        assert!(!word.with_guard(true).guarded(), "without a slot there is nothing that it could be dropped for");
        let word = word.step(Step::Cool(Frame(1))).unwrap().step(Step::Match).unwrap();
        let word = word.step(Step::Install(Slot(5), StoreId(2))).unwrap();
        assert_eq!(word.step(Step::Leave), None);
        let guarded = word.with_guard(true);
        assert!(guarded.guarded() && guarded.with_hot(true).guarded() && !guarded.with_guard(false).guarded());
        let left = guarded.step(Step::Leave).unwrap();
        assert_eq!((left.state(), left.slot()), (State::Stored, Some((Slot(5), StoreId(2)))));
        for step in STEPS {
            assert!(guarded.step(step).is_none_or(|next| !next.guarded()), "{step:?}");
        }
        assert!(!guarded.with_ancestor(StoreId(7)).guarded());
    }

    #[test]
    fn heat_and_age_survive_a_round_trip() {
        let word = Word::default().step(Step::Found).unwrap().with_hot(true).with_age(0xbeef);
        let word = word.step(Step::Cool(Frame(1))).unwrap().step(Step::Match).unwrap();
        let word = word.step(Step::Drop(Slot(77), StoreId(1))).unwrap();
        assert!(word.hot());
        assert_eq!(word.age(), 0xbeef);
        assert_eq!(word.slot(), Some((Slot(77), StoreId(1))));
    }

    #[test]
    fn a_write_in_flight_cannot_be_forgotten_twice() {
        let word = Word::default().step(Step::Found).unwrap().step(Step::Cool(Frame(1))).unwrap();
        let word = word.step(Step::Write).unwrap().step(Step::CopyBack(Slot(5))).unwrap();
        assert!(word.slot_in_flight());
        let settled = word.step(Step::Settle).unwrap();
        assert!(!settled.slot_in_flight());
        assert_eq!(settled.step(Step::Settle), None);
        assert!(word.step(Step::Forget).unwrap().slot().is_none());
    }
}
