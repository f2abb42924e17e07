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
/// A segment that was refused, or a new one, is tried again after so many slots were found in holes instead: 16 MiB.
const PATIENCE: u32 = 8 * SEGMENT;

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
    /// Those with space in the file, those whose space was given back, and those that what keeps the store had no space for.
    empty: Stack,
    punched: Stack,
    refused: Stack,
    /// Segments for which there was no space, in use or not: a bit each.
    refusals: MapSlice<u64>,
    /// Slots found in holes since one was refused, or the file could not grow.
    patience: u32,
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
            refused: Stack::EMPTY,
            refusals: MapSlice::new(segments.div_ceil(64) as usize)?,
            patience: 0,
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
        self.patience = 0;
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
        self.grow_again();
    }

    /// Raises the limit to what it was, and hands out again what was refused: what keeps the store may have room again.
    pub fn grow_again(&mut self) {
        self.segments = self.limit;
        while let Some(segment) = self.refused.pop(&self.next) {
            self.punched.push(&mut self.next, segment);
        }
        for word in self.refusals.as_mut_slice() {
            *word = 0;
        }
    }

    /// What keeps the store had no space for this slot, which is still taken: its segment is not handed out for a while, nor
    /// are new ones.
    pub fn refuse(&mut self, slot: Slot) {
        let segment = slot.0 / SEGMENT;
        if let Some(word) = self.refusals.get_mut(segment as usize / 64) {
            *word |= 1 << (segment % 64);
        }
        if self.open == segment {
            self.open = NIL;
        }
        self.segments = self.frontier;
        self.patience = 0;
    }

    fn is_refused(&self, segment: u32) -> bool {
        self.refusals.get(segment as usize / 64).is_some_and(|word| word >> (segment % 64) & 1 != 0)
    }

    /// One of the segments that were refused, once in a while: others who share the room may have left some.
    fn pop_refused(&mut self) -> Option<u32> {
        if self.patience < PATIENCE {
            return None;
        }
        let segment = self.refused.pop(&self.next)?;
        self.patience = 0;
        if let Some(word) = self.refusals.get_mut(segment as usize / 64) {
            *word &= !(1 << (segment % 64));
        }
        Some(segment)
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

    /// A new segment. After one was refused, or the file could not grow, once in a while: others who share the room may have
    /// left some.
    fn extend(&mut self) -> Option<u32> {
        if self.frontier >= self.segments {
            if self.patience < PATIENCE || self.frontier >= self.limit {
                return None;
            }
            self.patience = 0;
            self.segments = self.limit;
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
            self.patience = self.patience.saturating_add(count);
            return Some((Slot(start), count));
        }
        None
    }

    /// A segment to fill next: an empty one; else, where a quarter or more of the file is holes, one with many of
    /// them; else a new one; else one with as much room as there is.
    fn choose(&mut self) -> Option<u32> {
        if let Some(segment) = self.pop_empty().or_else(|| self.pop_refused()) {
            return Some(segment);
        }
        let (all, spared) = (self.frontier - self.refused.count, self.refused.count * SEGMENT);
        let free = self.frontier as u64 * SEGMENT as u64 - self.in_use - spared as u64;
        if free * 4 >= all as u64 * SEGMENT as u64 {
            if let Some(segment) = self.roomiest(SEGMENT / 4, 256) {
                return Some(segment);
            }
        }
        self.extend().or_else(|| self.roomiest(1, 256)).or_else(|| self.scan(1, u32::MAX))
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
        (room >= least && room < SEGMENT && !self.is_refused(self.hint)).then_some((room, self.hint))
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
            let whole = *room == SEGMENT && segment != self.open;
            if whole && self.is_refused(segment) {
                self.refused.push(&mut self.next, segment);
            } else if whole {
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
mod tests;
