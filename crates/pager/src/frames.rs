//! The staging area's places: which are free, populated or empty, kept as power-of-two runs so that extents find
//! contiguous room; and what a place in use holds.

use ream_page::{BLOCK_PAGES, Frame, Page, Slot, StoreId};
use ream_sys::Errno;
use ream_sys::memory::MapSlice;

const ORDERS: usize = 10;
const NIL: u32 = u32::MAX;
/// Runs of holes up to this length are taken side by side.
const SHORT: u32 = 32;
/// Holes that are set apart for them at a time.
const ROW: u32 = 64;

/// What a frame in use holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    page: u64,
    slot: u32,
    store: u8,
    flags: u8,
    _unused: u16,
}

// SAFETY: needed so that the table can live in zeroed mapped memory; all-zero bytes are a valid Info and it has no
// padding, references or niches.
unsafe impl ream_sys::memory::Zeroable for Info {}

const HAS_SLOT: u8 = 1;
const DETACHED: u8 = 2;
const SLOT_IN_FLIGHT: u8 = 4;
const IO: u8 = 8;
const WANTED: u8 = 16;
const HASHED: u8 = 32;

impl Info {
    /// A frame that holds `page`; its slot, if any, is where the content was or will be.
    pub fn new(page: Page, slot: Option<(Slot, StoreId)>) -> Info {
        let mut info = Info { page: page.0, slot: 0, store: 0, flags: 0, _unused: 0 };
        info.set_slot(slot);
        info
    }
    /// The page whose content this is.
    pub fn page(&self) -> Page {
        Page(self.page)
    }
    /// The page moved to another address.
    pub fn set_page(&mut self, page: Page) {
        self.page = page.0;
    }
    /// The slot that belongs to the page.
    pub fn slot(&self) -> Option<(Slot, StoreId)> {
        (self.flags & HAS_SLOT != 0).then_some((Slot(self.slot), StoreId(self.store)))
    }
    /// Sets or clears the slot.
    pub fn set_slot(&mut self, slot: Option<(Slot, StoreId)>) {
        match slot {
            Some((slot, store)) => {
                self.slot = slot.0;
                self.store = store.0;
                self.flags |= HAS_SLOT;
            }
            None => self.flags &= !(HAS_SLOT | SLOT_IN_FLIGHT),
        }
    }
    fn flag(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
    /// No page refers to this frame any more: it is freed when its I/O ends.
    pub fn detached(&self) -> bool {
        self.flags & DETACHED != 0
    }
    /// Marks the frame as no longer referred to.
    pub fn detach(&mut self) {
        self.flags |= DETACHED;
    }
    /// The slot is still being written from another frame.
    pub fn slot_in_flight(&self) -> bool {
        self.flags & SLOT_IN_FLIGHT != 0
    }
    /// Says whether the slot is still being written from another frame.
    pub fn set_slot_in_flight(&mut self, on: bool) {
        self.flag(SLOT_IN_FLIGHT, on);
    }
    /// A read or write of this frame is under way.
    pub fn io(&self) -> bool {
        self.flags & IO != 0
    }
    /// Says whether a read or write is under way.
    pub fn set_io(&mut self, on: bool) {
        self.flag(IO, on);
    }
    /// The page's hash in the table is that of this frame's content, which is not in the store.
    pub fn hashed(&self) -> bool {
        self.flags & HASHED != 0
    }
    /// Says whether the hash in the table is that of this frame.
    pub fn set_hashed(&mut self, on: bool) {
        self.flag(HASHED, on);
    }
    /// A thread waits for this page: install it as soon as it has arrived.
    pub fn wanted(&self) -> bool {
        self.flags & WANTED != 0
    }
    /// Says whether a thread waits.
    pub fn set_wanted(&mut self, on: bool) {
        self.flag(WANTED, on);
    }
}

/// How full a huge frame in use is, in pages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fill {
    /// Places that some page refers to.
    pub live: u32,
    /// Places with memory behind them.
    pub filled: u32,
}

// SAFETY: needed to keep the table in zeroed mapped memory; all-zero bytes are a valid Fill.
unsafe impl ream_sys::memory::Zeroable for Fill {}

/// A buddy allocator over places; knows nothing of what they hold.
struct Buddy {
    next: MapSlice<u32>,
    previous: MapSlice<u32>,
    /// Order + 1 of the free run that starts at a place; 0 when none does.
    free: MapSlice<u8>,
    heads: [u32; ORDERS],
    count: u64,
}

impl Buddy {
    fn new(places: usize) -> Result<Buddy, Errno> {
        Ok(Buddy {
            next: MapSlice::new(places)?,
            previous: MapSlice::new(places)?,
            free: MapSlice::new(places)?,
            heads: [NIL; ORDERS],
            count: 0,
        })
    }

    fn link(&mut self, start: u32, order: usize) {
        let Some(head) = self.heads.get_mut(order) else { return };
        let old = core::mem::replace(head, start);
        if let (Some(next), Some(previous), Some(free)) = (
            self.next.get_mut(start as usize),
            self.previous.get_mut(start as usize),
            self.free.get_mut(start as usize),
        ) {
            *next = old;
            *previous = NIL;
            *free = order as u8 + 1;
        }
        if let Some(previous) = self.previous.get_mut(old as usize) {
            *previous = start;
        }
    }

    fn unlink(&mut self, start: u32, order: usize) {
        let next = self.next.get(start as usize).copied().unwrap_or(NIL);
        let previous = self.previous.get(start as usize).copied().unwrap_or(NIL);
        match self.next.get_mut(previous as usize) {
            Some(link) => *link = next,
            None => {
                if let Some(head) = self.heads.get_mut(order) {
                    *head = next;
                }
            }
        }
        if let Some(link) = self.previous.get_mut(next as usize) {
            *link = previous;
        }
        if let Some(free) = self.free.get_mut(start as usize) {
            *free = 0;
        }
    }

    fn release_order(&mut self, mut start: u32, mut order: usize) {
        self.count += 1 << order;
        while order + 1 < ORDERS {
            let buddy = start ^ (1 << order);
            if self.free.get(buddy as usize) != Some(&(order as u8 + 1)) {
                break;
            }
            self.unlink(buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.link(start, order);
    }

    fn release(&mut self, mut start: u32, mut pages: u32) {
        while pages > 0 {
            let aligned = if start == 0 { 9 } else { start.trailing_zeros().min(9) };
            let order = aligned.min(31 - pages.leading_zeros());
            self.release_order(start, order as usize);
            start += 1 << order;
            pages -= 1 << order;
        }
    }

    fn take(&mut self, pages: u32) -> Option<u32> {
        let order = pages.next_power_of_two().trailing_zeros() as usize;
        let found = (order..ORDERS).find(|order| self.heads.get(*order).is_some_and(|head| *head != NIL))?;
        let start = *self.heads.get(found)?;
        self.unlink(start, found);
        self.count -= 1 << found;
        // What the request does not need goes back.
        self.release(start + pages, (1 << found) - pages);
        Some(start)
    }

    /// Takes the largest free run of at most `most` pages' order; used to give memory back.
    fn take_any(&mut self, most: u32) -> Option<(u32, u32)> {
        let order = (0..ORDERS).rev().find(|order| self.heads.get(*order).is_some_and(|head| *head != NIL))?;
        let pages = (1u32 << order).min(most.max(1));
        Some((self.take_exact(order, pages)?, pages))
    }

    fn take_exact(&mut self, order: usize, pages: u32) -> Option<u32> {
        let start = *self.heads.get(order)?;
        self.unlink(start, order);
        self.count -= 1 << order;
        self.release(start + pages, (1 << order) - pages);
        Some(start)
    }
}

/// All places of a shard's staging area.
pub struct Frames {
    info: MapSlice<Info>,
    /// Free places of the small area: with memory behind them, and holes.
    full: Buddy,
    holes: Buddy,
    /// Holes set apart for short runs: the first, and how many are left. What is moved out in one go lies side by side
    /// there, and so do the free frames that it becomes.
    row: (u32, u32),
    /// The same for the huge area, in blocks, as stacks.
    huge_full: MapSlice<u32>,
    huge_full_len: usize,
    huge_holes: MapSlice<u32>,
    huge_holes_len: usize,
    /// How full each huge frame that is in use is.
    huge_fill: MapSlice<Fill>,
    huge_start: u32,
}

impl Frames {
    /// All places free and empty. `huge_start` and `frames` as the machine says.
    pub fn new(huge_start: u32, frames: u32) -> Result<Frames, Errno> {
        let huge = ((frames - huge_start) / BLOCK_PAGES) as usize;
        let mut this = Frames {
            info: MapSlice::new(frames as usize)?,
            full: Buddy::new(huge_start as usize)?,
            holes: Buddy::new(huge_start as usize)?,
            row: (0, 0),
            huge_full: MapSlice::new(huge.max(1))?,
            huge_full_len: 0,
            huge_holes: MapSlice::new(huge.max(1))?,
            huge_holes_len: 0,
            huge_fill: MapSlice::new(huge.max(1))?,
            huge_start,
        };
        this.reset(frames);
        Ok(this)
    }

    /// Makes every place free and empty again (a fork's child has a fresh staging area).
    pub fn reset(&mut self, frames: u32) {
        let blocks = self.huge_start / BLOCK_PAGES;
        self.full.heads = [NIL; ORDERS];
        self.holes.heads = [NIL; ORDERS];
        self.full.count = 0;
        self.holes.count = 0;
        self.row = (0, 0);
        for place in 0..self.huge_start as usize {
            if let (Some(full), Some(hole)) = (self.full.free.get_mut(place), self.holes.free.get_mut(place)) {
                if *full != 0 || *hole != 0 {
                    *full = 0;
                    *hole = 0;
                }
            }
        }
        // Highest first, so that the lowest are taken first and the tables stay small.
        for block in (0..blocks).rev() {
            self.holes.release(block * BLOCK_PAGES, BLOCK_PAGES);
        }
        self.huge_full_len = 0;
        self.huge_holes_len = 0;
        for block in (0..(frames - self.huge_start) / BLOCK_PAGES).rev() {
            self.push_huge_hole(Frame(self.huge_start + block * BLOCK_PAGES));
        }
    }

    /// Whether the frame lies in the huge area.
    pub fn is_huge(&self, frame: Frame) -> bool {
        frame.0 >= self.huge_start
    }

    /// The huge frame that holds this place: its first place.
    pub fn huge_of(&self, frame: Frame) -> Frame {
        Frame(frame.0 - (frame.0 - self.huge_start) % BLOCK_PAGES)
    }

    /// What a frame in use holds.
    pub fn info(&self, frame: Frame) -> Info {
        self.info.get(frame.0 as usize).copied().unwrap_or(Info::new(Page(0), None))
    }

    /// Changes what a frame in use holds.
    pub fn update(&mut self, frame: Frame, change: impl FnOnce(&mut Info)) {
        if let Some(info) = self.info.get_mut(frame.0 as usize) {
            change(info);
        }
    }

    /// Sets what a frame holds.
    pub fn set(&mut self, frame: Frame, info: Info) {
        self.update(frame, |place| *place = info);
    }

    /// Empty places of the small area.
    pub fn hole_count(&self) -> u64 {
        self.holes.count + self.row.1 as u64
    }

    /// Free populated places of the small area.
    pub fn full_count(&self) -> u64 {
        self.full.count
    }

    /// Free populated huge frames.
    pub fn huge_full_count(&self) -> u64 {
        self.huge_full_len as u64
    }

    /// Takes a run of populated places.
    pub fn take_full(&mut self, pages: u32) -> Option<Frame> {
        self.full.take(pages).map(Frame)
    }

    /// Takes a run of empty places.
    pub fn take_hole(&mut self, pages: u32) -> Option<Frame> {
        if pages > SHORT {
            return self
                .holes
                .take(pages)
                .or_else(|| {
                    let (first, left) = core::mem::take(&mut self.row);
                    self.holes.release(first, left);
                    self.holes.take(pages)
                })
                .map(Frame);
        }
        if self.row.1 < pages {
            let row = self.holes.take_any(ROW)?;
            let (first, left) = core::mem::replace(&mut self.row, row);
            self.holes.release(first, left);
        }
        let (first, left) = self.row;
        if left < pages {
            return None;
        }
        self.row = (first + pages, left - pages);
        Some(Frame(first))
    }

    /// Takes populated places of any shape, at most `most`, to be emptied.
    pub fn take_any_full(&mut self, most: u32) -> Option<(Frame, u32)> {
        self.full.take_any(most).map(|(start, pages)| (Frame(start), pages))
    }

    /// Gives back populated places of the small area.
    pub fn put_full(&mut self, frame: Frame, pages: u32) {
        self.full.release(frame.0, pages);
    }

    /// Gives back empty places of the small area.
    pub fn put_hole(&mut self, frame: Frame, pages: u32) {
        self.holes.release(frame.0, pages);
    }

    /// Takes a populated huge frame.
    pub fn take_huge_full(&mut self) -> Option<Frame> {
        self.huge_full_len = self.huge_full_len.checked_sub(1)?;
        self.huge_full.get(self.huge_full_len).copied().map(Frame)
    }

    /// Takes an empty huge frame.
    pub fn take_huge_hole(&mut self) -> Option<Frame> {
        self.huge_holes_len = self.huge_holes_len.checked_sub(1)?;
        self.huge_holes.get(self.huge_holes_len).copied().map(Frame)
    }

    /// Gives back a populated huge frame.
    pub fn put_huge_full(&mut self, frame: Frame) {
        if let Some(place) = self.huge_full.get_mut(self.huge_full_len) {
            *place = frame.0;
            self.huge_full_len += 1;
        }
    }

    fn push_huge_hole(&mut self, frame: Frame) {
        if let Some(place) = self.huge_holes.get_mut(self.huge_holes_len) {
            *place = frame.0;
            self.huge_holes_len += 1;
        }
    }

    /// Gives back an empty huge frame.
    pub fn put_huge_hole(&mut self, frame: Frame) {
        self.push_huge_hole(frame);
    }

    /// How full the huge frame is whose first place this is.
    pub fn huge_fill(&mut self, frame: Frame) -> Option<&mut Fill> {
        let block = (frame.0.checked_sub(self.huge_start)?) / BLOCK_PAGES;
        self.huge_fill.get_mut(block as usize)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn buddies_merge_to_whole_blocks() {
        let mut frames = Frames::new(2048, 2048 + 1024).unwrap();
        let mut held = Vec::new();
        let mut seed = 3u64;
        for _ in 0..20_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let pages = (seed % 512) as u32 + 1;
            if seed >> 32 & 1 == 0 {
                if let Some(frame) = frames.take_hole(pages) {
                    assert!(frame.0 + pages <= 2048);
                    held.push((frame, pages));
                }
            } else if !held.is_empty() {
                let (frame, pages) = held.swap_remove((seed >> 40) as usize % held.len());
                frames.put_hole(frame, pages);
            }
            let mut sorted: Vec<_> = held.iter().map(|(frame, pages)| (frame.0, *pages)).collect();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "runs overlap");
            let used: u32 = sorted.iter().map(|run| run.1).sum();
            assert_eq!(frames.hole_count(), 2048 - used as u64);
        }
        for (frame, pages) in held {
            frames.put_hole(frame, pages);
        }
        for _ in 0..4 {
            assert!(frames.take_hole(512).is_some());
        }
        assert!(frames.take_hole(1).is_none());
    }
}
