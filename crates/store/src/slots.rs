//! The slot allocator: which 4 KiB places of the store file are taken, kept so that what is written together lies
//! together. Freed slots that a forked process may still read stay in limbo until the last lease ends.

use ream_page::Slot;
use ream_sys::Errno;
use ream_sys::memory::MapSlice;

/// Slots of a segment, the unit in which contiguous room is kept: 2 MiB.
pub const SEGMENT: u32 = 512;
const WORDS: u32 = SEGMENT / 64;
const NIL: u32 = u32::MAX;
/// Free segments that keep their space in any case: 16 MiB.
const KEPT: u32 = 8;

/// No slot is free below the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsFull;

/// A stack of segments.
struct Stack {
    head: u32,
    count: u32,
}

impl Stack {
    const EMPTY: Stack = Stack { head: NIL, count: 0 };

    fn push(&mut self, next: &mut MapSlice<u32>, segment: u32) {
        if let Some(link) = next.get_mut(segment as usize) {
            *link = self.head;
            self.head = segment;
            self.count += 1;
        }
    }

    fn pop(&mut self, next: &MapSlice<u32>) -> Option<u32> {
        let segment = self.head;
        self.head = *next.get(segment as usize)?;
        self.count -= 1;
        Some(segment)
    }
}

/// All slots of one store file.
pub struct Slots {
    taken: MapSlice<u64>,
    /// Taken when the process last forked while a lease lives: not to be overwritten or handed out again.
    frozen: MapSlice<u64>,
    /// Frozen slots that nobody here refers to any more.
    limbo: MapSlice<u64>,
    /// Free slots of each segment.
    room: MapSlice<u32>,
    /// Links of the stacks of wholly free segments below the frontier; `NIL` ends one.
    next: MapSlice<u32>,
    /// Those with space in the file, and those whose space was given back.
    empty: Stack,
    punched: Stack,
    /// Segments that have ever been used: the file's length.
    frontier: u32,
    /// Most segments there may be now, and by the limit.
    segments: u32,
    limit: u32,
    /// Segment and slot within it where the next small run is looked for.
    open: u32,
    cursor: u32,
    hint: u32,
    in_use: u64,
    in_limbo: u64,
    frozen_any: bool,
}

impl Slots {
    /// An empty store of at most `limit` slots (rounded down to whole segments, at least one).
    pub fn new(limit: u32) -> Result<Slots, Errno> {
        let segments = (limit / SEGMENT).max(1);
        let words = segments as usize * WORDS as usize;
        Ok(Slots {
            taken: MapSlice::new(words)?,
            frozen: MapSlice::new(words)?,
            limbo: MapSlice::new(words)?,
            room: MapSlice::new(segments as usize)?,
            next: MapSlice::new(segments as usize)?,
            empty: Stack::EMPTY,
            punched: Stack::EMPTY,
            frontier: 0,
            segments,
            limit: segments,
            open: NIL,
            cursor: 0,
            hint: 0,
            in_use: 0,
            in_limbo: 0,
            frozen_any: false,
        })
    }

    /// Slots that hold content, limbo included.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Slots that must exist in the file: the file's length in slots.
    pub fn length(&self) -> u32 {
        self.frontier * SEGMENT
    }

    /// Lowers the limit to what the file has now, after the file system refused more.
    pub fn stop_growing(&mut self, slots: u32) {
        let segments = slots / SEGMENT;
        // Also where one of those beyond is in use: none is added.
        self.segments = self.frontier.max(segments).min(self.segments);
        // The last segment has no space behind it: unless it is let go of, it is the one that is handed out again and again.
        while self.frontier > segments {
            let last = self.frontier - 1;
            if self.room.get(last as usize) != Some(&SEGMENT) {
                return;
            }
            if self.open == last {
                self.open = NIL;
            } else if self.empty.head == last {
                let _ = self.empty.pop(&self.next);
            } else {
                return;
            }
            self.frontier = last;
        }
        self.segments = segments;
    }

    /// Sets the limit, as far as there are tables for: more where what keeps the store has grown. Less than what is used
    /// already it cannot be.
    pub fn set_limit(&mut self, slots: u32) {
        let tables = self.room.len() as u32;
        self.limit = (slots / SEGMENT).max(1).max(self.frontier).min(tables);
        self.segments = self.limit;
    }

    /// Raises the limit to what it was: the file system may have room again.
    pub fn grow_again(&mut self) {
        self.segments = self.limit;
    }

    /// Most slots there may be.
    pub fn limit(&self) -> u32 {
        self.segments * SEGMENT
    }

    fn word(&self, slot: u32) -> u64 {
        self.taken.get(slot as usize / 64).copied().unwrap_or(u64::MAX)
    }

    fn is_taken(&self, slot: u32) -> bool {
        self.word(slot) >> (slot % 64) & 1 != 0
    }

    /// A wholly free segment, one that has space if there is one.
    fn pop_empty(&mut self) -> Option<u32> {
        self.empty.pop(&self.next).or_else(|| self.punched.pop(&self.next))
    }

    /// A wholly free segment whose space is not needed soon, since a quarter of the file is as free: its space is to
    /// be given back. It may be handed out again at once.
    pub fn spare(&mut self) -> Option<(Slot, u32)> {
        if self.empty.count <= KEPT.max((self.frontier - self.punched.count) / 4) {
            return None;
        }
        let segment = self.empty.pop(&self.next)?;
        self.punched.push(&mut self.next, segment);
        Some((Slot(segment * SEGMENT), SEGMENT))
    }

    fn extend(&mut self) -> Option<u32> {
        if self.frontier >= self.segments {
            return None;
        }
        let segment = self.frontier;
        self.frontier += 1;
        *self.room.get_mut(segment as usize)? = SEGMENT;
        Some(segment)
    }

    fn mark(&mut self, start: u32, count: u32) {
        for slot in start..start + count {
            if let Some(word) = self.taken.get_mut(slot as usize / 64) {
                *word |= 1 << (slot % 64);
            }
        }
        if let Some(room) = self.room.get_mut((start / SEGMENT) as usize) {
            *room -= count;
        }
        self.in_use += count as u64;
    }

    /// Takes up to `want` (1 to 512) consecutive slots of one segment. A request for 512 gets a whole segment if there
    /// is one; smaller requests are laid side by side in the open segment. May return fewer than asked, never none.
    pub fn take(&mut self, want: u32) -> Result<(Slot, u32), SlotsFull> {
        let want = want.clamp(1, SEGMENT);
        if want == SEGMENT {
            if let Some(segment) = self.pop_empty().or_else(|| self.extend()) {
                self.mark(segment * SEGMENT, SEGMENT);
                return Ok((Slot(segment * SEGMENT), SEGMENT));
            }
        }
        // One pass per segment that may have to be opened; every opened segment has room, so this ends at once.
        for _ in 0..2 {
            if self.open != NIL {
                if let Some(found) = self.next_run(want) {
                    return Ok(found);
                }
                self.open = NIL;
            }
            self.open = self.choose().ok_or(SlotsFull)?;
            self.cursor = 0;
        }
        Err(SlotsFull)
    }

    /// The next free run of the open segment at or after the cursor.
    fn next_run(&mut self, want: u32) -> Option<(Slot, u32)> {
        let base = self.open * SEGMENT;
        while self.cursor < SEGMENT {
            let slot = base + self.cursor;
            let free = !self.word(slot) >> (slot % 64);
            if free == 0 {
                self.cursor += 64 - slot % 64;
                continue;
            }
            self.cursor += free.trailing_zeros();
            let start = base + self.cursor;
            let mut count = 0;
            while count < want && self.cursor + count < SEGMENT && !self.is_taken(start + count) {
                count += 1;
            }
            self.mark(start, count);
            self.cursor += count;
            return Some((Slot(start), count));
        }
        None
    }

    /// A segment to fill next: an empty one; else, where a quarter or more of the file is holes, one with many of
    /// them; else a new one; else any with room.
    fn choose(&mut self) -> Option<u32> {
        if let Some(segment) = self.pop_empty() {
            return Some(segment);
        }
        let free = self.frontier as u64 * SEGMENT as u64 - self.in_use;
        if free * 4 >= self.frontier as u64 * SEGMENT as u64 {
            if let Some(segment) = self.roomiest(SEGMENT / 4, 256) {
                return Some(segment);
            }
        }
        self.extend().or_else(|| self.scan(1, u32::MAX))
    }

    /// The next segment with at least `least` free slots, looking at no more than `steps`.
    fn scan(&mut self, least: u32, steps: u32) -> Option<u32> {
        for _ in 0..steps.min(self.frontier) {
            if let Some((_, segment)) = self.next_segment(least) {
                return Some(segment);
            }
        }
        None
    }

    /// Goes on to the next segment: its room and its number when it has at least `least` free slots and is not wholly free.
    fn next_segment(&mut self, least: u32) -> Option<(u32, u32)> {
        self.hint = if self.hint + 1 >= self.frontier { 0 } else { self.hint + 1 };
        let room = self.room.get(self.hint as usize).copied().unwrap_or(0);
        (room >= least && room < SEGMENT).then_some((room, self.hint))
    }

    /// The one with the most free slots, and `least` at least, of the next `steps` segments.
    fn roomiest(&mut self, least: u32, steps: u32) -> Option<u32> {
        let steps = 0..steps.min(self.frontier);
        steps.filter_map(|_| self.next_segment(least)).max().map(|(_, segment)| segment)
    }

    /// Lets go of a slot. One that a forked process may still read stays taken until [`Slots::thaw`]: then false.
    pub fn free(&mut self, slot: Slot) -> bool {
        let (index, bit) = (slot.0 as usize / 64, 1u64 << (slot.0 % 64));
        if self.frozen_any && self.frozen.get(index).is_some_and(|word| word & bit != 0) {
            if let Some(word) = self.limbo.get_mut(index) {
                if *word & bit == 0 {
                    *word |= bit;
                    self.in_limbo += 1;
                }
            }
            return false;
        }
        self.release(slot);
        true
    }

    /// Takes a slot out of service that the device cannot write: it is never handed out again.
    pub fn abandon(&mut self, slot: Slot) {
        if self.is_taken(slot.0) {
            self.in_use -= 1;
        }
    }

    fn release(&mut self, slot: Slot) {
        let (index, bit) = (slot.0 as usize / 64, 1u64 << (slot.0 % 64));
        let segment = slot.0 / SEGMENT;
        let Some(word) = self.taken.get_mut(index) else { return };
        debug_assert!(*word & bit != 0, "slot freed twice");
        if *word & bit == 0 {
            return;
        }
        *word &= !bit;
        self.in_use -= 1;
        if let Some(room) = self.room.get_mut(segment as usize) {
            *room += 1;
            if *room == SEGMENT && segment != self.open {
                self.empty.push(&mut self.next, segment);
            }
        }
        if segment == self.open && self.room.get(segment as usize) == Some(&SEGMENT) {
            self.cursor = 0;
        }
    }

    /// Whether the slot's content may be overwritten where it is.
    pub fn may_overwrite(&self, slot: Slot) -> bool {
        !self.frozen_any || self.frozen.get(slot.0 as usize / 64).is_some_and(|word| word >> (slot.0 % 64) & 1 == 0)
    }

    /// A fork: what is taken now may be read by another process until [`Slots::thaw`].
    pub fn freeze(&mut self) {
        for index in 0..self.frontier as usize * WORDS as usize {
            if let (Some(frozen), Some(taken)) = (self.frozen.get_mut(index), self.taken.get(index)) {
                *frozen |= *taken;
            }
        }
        self.frozen_any = true;
    }

    /// Whether a freeze is on.
    pub fn is_frozen(&self) -> bool {
        self.frozen_any
    }

    /// The last lease has ended: slots in limbo become free, which `freed` is told of.
    pub fn thaw(&mut self, freed: &mut dyn FnMut(Slot)) {
        if !self.frozen_any {
            return;
        }
        self.frozen_any = false;
        for index in 0..self.frontier as usize * WORDS as usize {
            if let Some(frozen) = self.frozen.get_mut(index) {
                *frozen = 0;
            }
            let Some(limbo) = self.limbo.get_mut(index) else { continue };
            let mut bits = core::mem::take(limbo);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                self.release(Slot(index as u32 * 64 + bit));
                freed(Slot(index as u32 * 64 + bit));
            }
        }
        self.in_limbo = 0;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn whole_segments_are_aligned_and_contiguous() {
        let mut slots = Slots::new(4096).unwrap();
        let (slot, count) = slots.take(512).unwrap();
        assert_eq!((slot.0 % 512, count), (0, 512));
        let (small, _) = slots.take(3).unwrap();
        let (whole, count) = slots.take(512).unwrap();
        assert_eq!((whole.0 % 512, count), (0, 512));
        assert!(small.0 / 512 != whole.0 / 512);
    }

    #[test]
    fn the_limit_rises_as_far_as_the_tables_reach() {
        let mut slots = Slots::new(8 * 512).unwrap();
        slots.set_limit(2 * 512);
        assert_eq!(slots.limit(), 2 * 512);
        assert!(slots.take(512).is_ok() && slots.take(512).is_ok());
        assert_eq!(slots.take(1), Err(SlotsFull));
        // What is used stays.
        slots.set_limit(512);
        assert_eq!(slots.limit(), 2 * 512);
        slots.set_limit(3 * 512 + 7);
        assert!(slots.take(512).is_ok());
        assert_eq!(slots.take(1), Err(SlotsFull));
        slots.stop_growing(3 * 512);
        slots.set_limit(u32::MAX);
        assert_eq!((slots.limit(), slots.take(512)), (8 * 512, Ok((Slot(3 * 512), 512))));
    }

    #[test]
    fn the_segment_with_most_holes_is_filled_first() {
        let mut slots = Slots::new(8 * 512).unwrap();
        for _ in 0..4 {
            assert_eq!(slots.take(512).unwrap().1, 512);
        }
        for (segment, holes) in [(0, 130), (1, 200), (2, 400), (3, 150)] {
            assert!((0..holes).all(|slot| slots.free(Slot(segment * 512 + slot))));
        }
        assert_eq!(slots.take(64), Ok((Slot(2 * 512), 64)));
    }

    #[test]
    fn small_runs_lie_side_by_side() {
        let mut slots = Slots::new(4096).unwrap();
        let (first, count) = slots.take(64).unwrap();
        assert_eq!(count, 64);
        assert_eq!(slots.take(64).unwrap(), (Slot(first.0 + 64), 64));
    }

    #[test]
    fn random_use_against_a_set() {
        let mut slots = Slots::new(8 * 512).unwrap();
        let mut held: Vec<u32> = Vec::new();
        let mut set = BTreeSet::new();
        let mut seed = 42u64;
        let mut full = 0;
        for step in 0..60_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Phases of filling and of emptying.
            if (seed >> 20) % 8 < if step / 7000 % 2 == 0 { 7 } else { 2 } {
                let want = [1, 7, 64, 512][(seed % 4) as usize];
                match slots.take(want) {
                    Ok((start, count)) => {
                        assert!(count >= 1 && count <= want);
                        for slot in start.0..start.0 + count {
                            assert!(slot < slots.length() && set.insert(slot), "slot handed out twice");
                            held.push(slot);
                        }
                    }
                    Err(SlotsFull) => {
                        full += 1;
                        assert_eq!(set.len(), 8 * 512, "full although slots are free");
                    }
                }
            } else {
                for _ in 0..(seed >> 8) % 200 {
                    if held.is_empty() {
                        break;
                    }
                    let slot = held.swap_remove((seed >> 30) as usize % held.len());
                    assert!(set.remove(&slot));
                    slots.free(Slot(slot));
                }
            }
            assert_eq!(slots.in_use(), set.len() as u64);
        }
        assert!(full > 0, "the limit was never reached");
    }

    #[test]
    fn space_that_is_not_needed_soon_is_given_back_once() {
        let mut slots = Slots::new(200 * 512).unwrap();
        let taken: Vec<Slot> = (0..120).map(|_| slots.take(512).unwrap().0).collect();
        let free = |slots: &mut Slots, some: &[Slot]| {
            for segment in some {
                (0..512).for_each(|index| _ = slots.free(segment.plus(index)));
            }
        };
        free(&mut slots, &taken[..30]);
        assert_eq!(slots.spare(), None);
        free(&mut slots, &taken[30..]);
        let spare: BTreeSet<u32> = core::iter::from_fn(|| slots.spare()).map(|(slot, _)| slot.0).collect();
        assert_eq!(spare.len(), 120 - 8);
        // What has space is handed out first, then the rest.
        let again: Vec<u32> = (0..120).map(|_| slots.take(512).unwrap().0.0).collect();
        assert!(again[..8].iter().all(|slot| !spare.contains(slot)));
        assert!(again[8..].iter().all(|slot| spare.contains(slot)));
        assert_eq!(slots.length(), 120 * 512);
        free(&mut slots, &taken[..1]);
        assert_eq!(slots.spare(), None);
    }

    #[test]
    fn an_abandoned_slot_is_not_handed_out_again() {
        let mut slots = Slots::new(512).unwrap();
        let (start, _) = slots.take(512).unwrap();
        slots.abandon(start.plus(7));
        assert_eq!(slots.in_use(), 511);
        for index in (0..512).filter(|index| *index != 7) {
            slots.free(start.plus(index));
        }
        assert_eq!(slots.in_use(), 0);
        let mut count = 0;
        while let Ok((first, found)) = slots.take(64) {
            assert!(!(first.0..first.0 + found).contains(&(start.0 + 7)));
            count += found;
        }
        assert_eq!(count, 511);
    }

    #[test]
    fn frozen_slots_wait_for_the_last_lease() {
        let mut slots = Slots::new(512).unwrap();
        let (start, count) = slots.take(512).unwrap();
        assert_eq!(count, 512);
        slots.freeze();
        assert!(!slots.may_overwrite(start));
        slots.free(start);
        slots.free(start.plus(1));
        assert_eq!(slots.take(1), Err(SlotsFull));
        slots.thaw(&mut |_| {});
        assert!(slots.may_overwrite(start.plus(2)));
        assert_eq!(slots.in_use(), 510);
        assert_eq!(slots.take(2), Ok((start, 2)));
    }
}
