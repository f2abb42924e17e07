//! Pages kept compressed in memory: a log of segments of 2 MiB, filled one after the other and emptied in that order.
//!
//! An index by slot says where a page lies. What a slot held before stays in its segment as waste, until the segment is
//! emptied: then each page that is still in the index goes below (it is cold), is copied to the end of the log (it was read
//! since it came), or is dropped (it lies below, too). Without a store below the segment with the most waste is
//! emptied, and everything in it copied.

use super::Room;
use crate::Errno;
use crate::memory::{self, Advice, MapSlice, Protection, Zeroable};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use ream_page::PAGE_BYTES;

/// Bytes of a segment.
pub(super) const SEGMENT: usize = 2 << 20;
/// Pages that take more than this are not worth it: they go below as they are.
const WORTH: usize = 3072;
/// Slot and bytes, in front of each page of a segment.
const HEAD: usize = 8;
/// Pages in a row that were not worth it, after which one in [`SAMPLE`] is tried.
const DULL: u32 = 32;
const SAMPLE: u32 = 16;
/// Segments kept free, so that pages that are written now find room.
const SPARE: usize = 2;
const NIL: u32 = u32::MAX;
/// Room for what may become of a page when it is compressed.
const SCRATCH: usize = 8192;

// An entry of the index. Without PRESENT the rest says when the page was last read from below, by the segments that there
// had been; 0: never.
const PRESENT: u64 = 1 << 63;
/// Read since it came.
const READ: u64 = 1 << 62;
/// Below, too.
const CLEAN: u64 = 1 << 61;
const PLACE: u64 = (1 << 61) - 1;

/// Where compressed pages are found: the own ones, or an ancestor's, as they were at the fork.
#[derive(Clone, Copy)]
pub(super) struct View {
    index: usize,
    slots: usize,
    pool: usize,
    bytes: usize,
}

// SAFETY: integers.
unsafe impl Zeroable for View {}

impl View {
    /// Of nothing.
    pub(super) const NONE: View = View { index: 0, slots: 0, pool: 0, bytes: 0 };

    fn entry(&self, slot: u32) -> u64 {
        if slot as usize >= self.slots {
            return 0;
        }
        // SAFETY: mapped for ever, or inherited at the same place, and within it.
        unsafe { *core::ptr::with_exposed_provenance::<u64>(self.index).add(slot as usize) }
    }

    fn set(&mut self, slot: u32, entry: u64) {
        if (slot as usize) < self.slots {
            // SAFETY: as above; the own one's, which this thread alone uses.
            unsafe { *core::ptr::with_exposed_provenance_mut::<u64>(self.index).add(slot as usize) = entry };
        }
    }

    /// Whether a slot's page is here.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.entry(slot) & PRESENT != 0
    }

    /// What lies at a place of the pool.
    fn bytes(&self, place: usize, count: usize) -> Option<&[u8]> {
        if place.checked_add(count)? > self.bytes {
            return None;
        }
        // SAFETY: within the pool, which is mapped for ever; nobody writes to it meanwhile.
        Some(unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(self.pool + place), count) })
    }

    /// Slot and compressed page at a place.
    fn record(&self, place: usize) -> Option<(u32, &[u8])> {
        let head = self.bytes(place, HEAD)?;
        let (slot, count) = head.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        Some((number(slot)?, self.bytes(place + HEAD, number(count)? as usize)?))
    }

    /// Brings a slot's page; false when it is not here, or cannot be brought back: then the page holds zeros.
    pub(super) fn bring(&self, slot: u32, page: &mut [u8]) -> bool {
        let entry = self.entry(slot);
        if entry & PRESENT == 0 {
            return false;
        }
        let whole = match self.record((entry & PLACE) as usize) {
            Some((who, bytes)) if who == slot => expand(bytes, page),
            _ => false,
        };
        if !whole {
            // Ours alone writes there, so this is an error of ours; the pager's hash tells.
            page.fill(0);
        }
        true
    }
}

/// Expands what [`Zip::keep`] has compressed.
fn expand(bytes: &[u8], page: &mut [u8]) -> bool {
    if bytes.len() == PAGE_BYTES {
        page.copy_from_slice(bytes);
        return true;
    }
    decompress_into(bytes, page).is_ok_and(|bytes| bytes == PAGE_BYTES)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not charged, or charged and empty.
    None,
    Empty,
    /// Being filled; full; being emptied.
    Open,
    Full,
    Emptied,
}

#[derive(Clone, Copy)]
struct Segment {
    state: u32,
    /// Bytes written, and bytes of pages that count.
    used: u32,
    live: u32,
    /// Pages on their way below.
    leaving: u32,
    /// A forked child may have it, too: it stays as it is.
    frozen: bool,
    /// The order in which they were filled.
    before: u32,
    after: u32,
}

// SAFETY: integers and a truth value.
unsafe impl Zeroable for Segment {}

impl Segment {
    fn is(&self, state: State) -> bool {
        self.state == state as u32
    }
}

/// What became of a page that was to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// It is here.
    Yes,
    /// It is not worth it.
    Dull,
    /// There is no room just now.
    Full,
}

/// What is next in a segment that is being emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A page that goes below.
    Sink(u32),
    /// It was dealt with here.
    Done,
    /// The segment is through.
    End,
}

pub(super) struct Zip {
    segments: MapSlice<Segment>,
    /// Segments that were ever used.
    touched: usize,
    /// Charged and empty.
    empty: usize,
    open: u32,
    /// The full ones, oldest first.
    oldest: u32,
    newest: u32,
    /// The one being emptied, how far, and bytes of it that were copied.
    emptying: u32,
    at: usize,
    copied: usize,
    /// Whether there is a store below.
    below: bool,
    /// Pages in a row that were not worth it.
    dull: u32,
    /// Segments begun.
    clock: u64,
    /// Pages that went below only: what was here may be there since.
    pub(super) left: u64,
    /// Nobody has room to give.
    starved: bool,
    /// Nothing can be gained by emptying, before there is more waste.
    idle: bool,
    /// Bytes of the page that came last.
    pub(super) last: u64,
    table: CompressTable,
    scratch: MapSlice<u8>,
}

impl Zip {
    /// A pool of `bytes`, of which nothing is used, for ever: nothing unmaps it. Returns it with its view.
    pub(super) fn new(bytes: u64, slots: u32, below: bool) -> Result<(Zip, View), Errno> {
        let count = (bytes as usize / SEGMENT).max(1);
        let pool = memory::map(count * SEGMENT, SEGMENT, Protection::ReadWrite)?.as_ptr().expose_provenance();
        // SAFETY: large pages and what a core dump holds change no content.
        unsafe {
            let _ = memory::advise(pool, count * SEGMENT, Advice::HugePage);
            let _ = memory::advise(pool, count * SEGMENT, Advice::DontDump);
        }
        let index = MapSlice::<u64>::new(slots as usize)?.leak().as_mut_ptr().expose_provenance();
        let zip = Zip {
            segments: MapSlice::new(count)?,
            touched: 0,
            empty: 0,
            open: NIL,
            oldest: NIL,
            newest: NIL,
            emptying: NIL,
            at: 0,
            copied: 0,
            below,
            dull: 0,
            clock: 1,
            left: 0,
            starved: false,
            idle: false,
            last: 0,
            table: CompressTable::small(),
            scratch: MapSlice::new(SCRATCH)?,
        };
        Ok((zip, View { index, slots: slots as usize, pool, bytes: count * SEGMENT }))
    }

    fn segment(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(number as usize)
    }

    fn link(&mut self, number: u32, first: bool) {
        let (before, after) = if first { (NIL, self.oldest) } else { (self.newest, NIL) };
        if let Some(segment) = self.segment(number) {
            (segment.before, segment.after, segment.state) = (before, after, State::Full as u32);
        }
        match self.segment(before) {
            Some(segment) => segment.after = number,
            None => self.oldest = number,
        }
        match self.segment(after) {
            Some(segment) => segment.before = number,
            None => self.newest = number,
        }
    }

    fn unlink(&mut self, number: u32) {
        let Some((before, after)) = self.segment(number).map(|segment| (segment.before, segment.after)) else { return };
        match self.segment(before) {
            Some(segment) => segment.after = after,
            None => self.oldest = after,
        }
        match self.segment(after) {
            Some(segment) => segment.before = before,
            None => self.newest = before,
        }
    }

    /// Nothing in a segment counts any more. Its memory is kept for the next, unless there is enough of that.
    fn release(&mut self, number: u32, view: &View, room: Room) {
        (self.starved, self.idle) = (false, false);
        let keep = self.empty < SPARE + 2;
        if let Some(segment) = self.segment(number) {
            *segment = Segment {
                state: if keep { State::Empty } else { State::None } as u32,
                used: 0,
                live: 0,
                leaving: 0,
                frozen: false,
                before: NIL,
                after: NIL,
            };
        }
        if keep {
            self.empty += 1;
            return;
        }
        // SAFETY: nothing of what is there is found by the index any more.
        let _ = unsafe { memory::advise(view.pool + number as usize * SEGMENT, SEGMENT, Advice::DontNeed) };
        room.give_back(SEGMENT);
    }

    /// An empty segment; of those that are charged already, else one more. The last one is for copies.
    fn obtain(&mut self, last: bool, room: Room) -> Option<u32> {
        if self.empty > usize::from(!last) {
            let found = self.segments.as_slice().iter().take(self.touched).position(|it| it.is(State::Empty))?;
            self.empty -= 1;
            return Some(found as u32);
        }
        let fresh = self.segments.as_slice().iter().take(self.touched).position(|it| it.is(State::None));
        let number = fresh.or_else(|| (self.touched < self.segments.len()).then_some(self.touched))?;
        if !room.acquire(SEGMENT) {
            self.starved = true;
            return None;
        }
        self.touched = self.touched.max(number + 1);
        if !last && self.empty == 0 {
            // The first that can be had is the last one.
            if let Some(segment) = self.segments.get_mut(number) {
                segment.state = State::Empty as u32;
            }
            self.empty = 1;
            return self.obtain(false, room);
        }
        Some(number as u32)
    }

    /// Adds a page to the log; false when there is no room.
    fn append(&mut self, view: &mut View, slot: u32, bytes: &[u8], flags: u64, last: bool, room: Room) -> bool {
        let whole = HEAD + bytes.len().next_multiple_of(8);
        let fits = self.segments.get(self.open as usize).is_some_and(|open| open.used as usize + whole <= SEGMENT);
        if !fits {
            self.close_open(view, room);
            let Some(number) = self.obtain(last, room) else { return false };
            self.clock += 1;
            self.open = number;
            if let Some(segment) = self.segment(number) {
                segment.state = State::Open as u32;
            }
        }
        let number = self.open;
        let Some(segment) = self.segments.get_mut(number as usize) else { return false };
        let place = number as usize * SEGMENT + segment.used as usize;
        self.last = whole as u64;
        segment.used += whole as u32;
        segment.live += whole as u32;
        let to = core::ptr::with_exposed_provenance_mut::<u8>(view.pool + place);
        // SAFETY: within the segment, in which nothing lies from here on.
        unsafe {
            to.copy_from_nonoverlapping(slot.to_le_bytes().as_ptr(), 4);
            to.add(4).copy_from_nonoverlapping((bytes.len() as u32).to_le_bytes().as_ptr(), 4);
            to.add(HEAD).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.forget(view, slot, room);
        view.set(slot, PRESENT | flags | place as u64);
        true
    }

    /// The open segment is full, or no longer to be written to.
    fn close_open(&mut self, view: &View, room: Room) {
        let number = core::mem::replace(&mut self.open, NIL);
        match self.segment(number) {
            Some(segment) if segment.live > 0 || segment.frozen => self.link(number, false),
            Some(_) => self.release(number, view, room),
            None => {}
        }
    }

    /// Keeps a page, compressed. `clean`: it lies below, too.
    pub(super) fn keep(&mut self, view: &mut View, slot: u32, page: &[u8], clean: bool, room: Room) -> Kept {
        if self.below && self.dull >= DULL {
            self.dull = self.dull.wrapping_add(1).max(DULL);
            if self.dull % SAMPLE != 0 {
                return Kept::Dull;
            }
        }
        let mut scratch = core::mem::replace(&mut self.scratch, MapSlice::empty());
        let made = compress_into_with_table(page, scratch.as_mut_slice(), &mut self.table).unwrap_or(PAGE_BYTES);
        let bytes = match scratch.as_slice().get(..made).filter(|_| made <= WORTH) {
            Some(bytes) => Some(bytes),
            None if self.below => None,
            // There is nowhere else.
            None => Some(page),
        };
        let flags = if clean { CLEAN } else { 0 };
        let kept = match bytes {
            Some(bytes) if self.append(view, slot, bytes, flags, false, room) => Kept::Yes,
            Some(_) => Kept::Full,
            None => Kept::Dull,
        };
        self.dull = if kept == Kept::Dull { self.dull.wrapping_add(1) } else { 0 };
        self.scratch = scratch;
        kept
    }

    /// A slot's page is not wanted any more, or lies below only.
    pub(super) fn forget(&mut self, view: &mut View, slot: u32, room: Room) {
        let entry = view.entry(slot);
        if entry & PRESENT == 0 {
            return;
        }
        view.set(slot, 0);
        let place = (entry & PLACE) as usize;
        let bytes = view.record(place).map_or(0, |(_, bytes)| HEAD + bytes.len().next_multiple_of(8));
        let number = (place / SEGMENT) as u32;
        let Some(segment) = self.segment(number) else { return };
        segment.live -= (bytes as u32).min(segment.live);
        let dead = segment.live == 0 && segment.is(State::Full) && !segment.frozen;
        self.idle = false;
        if dead {
            self.unlink(number);
            self.release(number, view, room);
        }
    }

    /// A page was read from here.
    pub(super) fn note_read(&self, view: &mut View, slot: u32) {
        view.set(slot, view.entry(slot) | READ);
    }

    /// A page was read from below. Whether it was before, not longer ago than what lies here came: then it is to come here.
    pub(super) fn rises(&self, view: &mut View, slot: u32) -> bool {
        let before = view.entry(slot);
        if before & PRESENT != 0 {
            return false;
        }
        view.set(slot, self.clock);
        before != 0 && self.clock - before < self.segments.len() as u64
    }

    /// Whether a segment is being emptied, or can be: begins with it where there is need. False while nothing is to be
    /// done, or what is on its way below has to arrive first.
    pub(super) fn begin(&mut self) -> bool {
        if self.emptying != NIL {
            return self.at < SEGMENT;
        }
        let short = self.empty < SPARE && (self.touched == self.segments.len() || self.starved);
        if !short || self.idle {
            return false;
        }
        let Some(number) = self.candidate() else {
            self.idle = true;
            return false;
        };
        self.unlink(number);
        if let Some(segment) = self.segment(number) {
            segment.state = State::Emptied as u32;
        }
        (self.emptying, self.at, self.copied) = (number, 0, 0);
        true
    }

    fn candidate(&self) -> Option<u32> {
        let (mut number, mut best) = (self.oldest, None);
        while let Some(segment) = self.segments.get(number as usize) {
            if !segment.frozen {
                if self.below {
                    return Some(number);
                }
                if best.is_none_or(|(live, _)| segment.live < live) {
                    best = Some((segment.live, number));
                }
            }
            number = segment.after;
        }
        // With less waste than an eighth it would be much copying for nothing.
        best.filter(|(live, _)| (*live as usize) < SEGMENT / 8 * 7).map(|(_, number)| number)
    }

    /// The next page of the segment that is being emptied. A page to be sunk is asked for again until it was.
    pub(super) fn step(&mut self, view: &mut View, room: Room) -> Step {
        let number = self.emptying;
        let start = number as usize * SEGMENT;
        let Some(segment) = self.segments.get(number as usize).copied() else { return Step::End };
        let place = start + self.at;
        if self.at >= segment.used as usize {
            return Step::End;
        }
        let Some((slot, bytes)) = view.record(place) else { return Step::End };
        let whole = HEAD + bytes.len().next_multiple_of(8);
        let entry = view.entry(slot);
        if entry & PRESENT == 0 || entry & PLACE != place as u64 {
            self.at += whole;
            return Step::Done;
        }
        let hot = entry & READ != 0 && self.copied < SEGMENT / 2;
        if !self.below || hot {
            let mut copy = [0; PAGE_BYTES];
            let count = bytes.len();
            if let (Some(place), Some(bytes)) = (copy.get_mut(..count), bytes.get(..count)) {
                place.copy_from_slice(bytes);
            }
            if self.append(view, slot, copy.get(..count).unwrap_or(&[]), entry & CLEAN, true, room) {
                self.at += whole;
                self.copied += whole;
                return Step::Done;
            }
            if !self.below {
                self.idle = true;
                return Step::End;
            }
        }
        if entry & CLEAN != 0 {
            self.at += whole;
            self.forget(view, slot, room);
            view.set(slot, self.clock);
            self.left += 1;
            return Step::Done;
        }
        Step::Sink(slot)
    }

    /// The segment that is being emptied.
    pub(super) fn number(&self) -> u32 {
        self.emptying
    }

    /// The page that is to be sunk is on its way.
    pub(super) fn sinks(&mut self, view: &View) -> u32 {
        let number = self.emptying;
        if let Some((_, bytes)) = view.record(number as usize * SEGMENT + self.at) {
            self.at += HEAD + bytes.len().next_multiple_of(8);
        }
        if let Some(segment) = self.segment(number) {
            segment.leaving += 1;
        }
        number
    }

    /// A page on its way from a segment has come below, or has not.
    pub(super) fn sank(&mut self, view: &mut View, number: u32, slot: u32, well: bool, room: Room) {
        let entry = view.entry(slot);
        let same = entry & PRESENT != 0 && (entry & PLACE) as usize / SEGMENT == number as usize;
        if same && well {
            self.forget(view, slot, room);
            self.left += 1;
        } else if same {
            // It stays, and is copied the next time.
            view.set(slot, entry | READ);
        }
        if let Some(segment) = self.segment(number) {
            segment.leaving -= 1;
        }
        self.finish(view, room);
    }

    /// The segment that is being emptied is through.
    pub(super) fn pass_on(&mut self, view: &View, room: Room) {
        self.at = SEGMENT;
        self.finish(view, room);
    }

    fn finish(&mut self, view: &View, room: Room) {
        let number = self.emptying;
        let Some(segment) = self.segment(number).copied() else { return };
        if self.at < SEGMENT || segment.leaving > 0 {
            return;
        }
        self.emptying = NIL;
        if segment.live == 0 && !segment.frozen {
            self.release(number, view, room);
        } else {
            self.link(number, false);
        }
    }

    /// A child is about to be forked, which gets all that there is: it stays as it is until [`Zip::thaw`]. Nothing
    /// is on its way below.
    pub(super) fn freeze(&mut self, view: &View, room: Room) {
        if self.emptying != NIL {
            self.pass_on(view, room);
        }
        for segment in self.segments.as_mut_slice().iter_mut().take(self.touched) {
            segment.frozen = segment.is(State::Open) || segment.is(State::Full);
        }
        self.close_open(view, room);
    }

    /// No child is there any more that has it.
    pub(super) fn thaw(&mut self, view: &View, room: Room) {
        for number in 0..self.touched as u32 {
            let Some(segment) = self.segment(number) else { break };
            segment.frozen = false;
            if segment.live == 0 && segment.is(State::Full) {
                self.unlink(number);
                self.release(number, view, room);
            }
        }
    }
}

#[cfg(test)]
mod tests;
