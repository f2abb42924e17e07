//! The staging area's places: which are free, populated or empty; on which NUMA node the memory of populated ones lies;
//! and what a place in use holds.

use crate::buddy::Buddy;
use ream_page::{BLOCK_PAGES, Frame, Page, Slot, StoreId};
use ream_sys::memory::MapSlice;
use ream_sys::{Errno, NODES};

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
const FOR_WRITING: u8 = 64;

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
    /// Whoever waits for this page wants to write to it.
    pub fn for_writing(&self) -> bool {
        self.flags & FOR_WRITING != 0
    }
    /// Says whether somebody wants to write to it.
    pub fn set_for_writing(&mut self, on: bool) {
        self.flag(FOR_WRITING, on);
    }
    /// Says whether a thread waits.
    pub fn set_wanted(&mut self, on: bool) {
        self.flag(WANTED, on);
    }
}

/// How full a huge frame in use is, in pages, and whether somebody waits for what is read into it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Fill {
    /// Places that some page refers to.
    pub live: u32,
    /// Places with memory behind them.
    pub filled: u32,
    /// Places into which something is being read.
    pub arriving: u32,
    _unused: u32,
    awaited: u64,
}

impl Fill {
    /// A frame of which so many places are in use from now on.
    pub fn of(pages: u32) -> Fill {
        Fill { live: pages, filled: pages, ..Fill::default() }
    }
    /// A thread waits for this page, which comes with all the rest.
    pub fn wait(&mut self, page: Page) {
        self.awaited = page.0;
    }
    /// The page waited for, once nothing is missing any more.
    pub fn arrived(&mut self) -> Option<Page> {
        if self.arriving > 0 || self.awaited == 0 {
            return None;
        }
        Some(Page(core::mem::take(&mut self.awaited)))
    }
}

// SAFETY: needed to keep the table in zeroed mapped memory; all-zero bytes are a valid Fill.
unsafe impl ream_sys::memory::Zeroable for Fill {}

/// A stack of blocks of the huge area.
struct Stack {
    places: MapSlice<u32>,
    len: usize,
}

impl Stack {
    fn new(blocks: usize) -> Result<Stack, Errno> {
        Ok(Stack { places: MapSlice::new(blocks)?, len: 0 })
    }

    fn push(&mut self, frame: Frame) {
        if let Some(place) = self.places.get_mut(self.len) {
            *place = frame.0;
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        self.len = self.len.checked_sub(1)?;
        self.places.get(self.len).copied().map(Frame)
    }
}

/// Free frames with memory of one node behind them.
struct Pool {
    small: Buddy,
    huge: Stack,
}

/// All places of a shard's staging area.
pub struct Frames {
    info: MapSlice<Info>,
    /// Free places with memory behind them, by node; those beyond the machine's nodes are empty.
    pools: [Pool; NODES],
    nodes: u8,
    /// The node from which frames are taken for now.
    node: u8,
    /// On which node the memory of each place lies; empty where there is but one.
    lies_on: MapSlice<u8>,
    /// Free places of the small area without memory.
    holes: Buddy,
    /// Holes set apart for short runs: the first, and how many are left. What is moved out in one go lies side by side
    /// there, and so do the free frames that it becomes.
    row: (u32, u32),
    /// The same for the huge area.
    huge_holes: Stack,
    /// How full each huge frame that is in use is.
    huge_fill: MapSlice<Fill>,
    huge_start: u32,
}

impl Frames {
    /// All places free and empty. `huge_start`, `frames` and `nodes` as the machine says.
    pub fn new(huge_start: u32, frames: u32, nodes: u8) -> Result<Frames, Errno> {
        let huge = ((frames - huge_start) / BLOCK_PAGES) as usize;
        let nodes = nodes.clamp(1, NODES as u8);
        let pool = |node: usize| -> Result<Pool, Errno> {
            let there = (node < nodes as usize) as usize;
            Ok(Pool { small: Buddy::new(there * huge_start as usize)?, huge: Stack::new(there * huge)? })
        };
        let mut this = Frames {
            info: MapSlice::new(frames as usize)?,
            pools: [pool(0)?, pool(1)?, pool(2)?, pool(3)?, pool(4)?, pool(5)?, pool(6)?, pool(7)?],
            nodes,
            node: 0,
            lies_on: if nodes > 1 { MapSlice::new(frames as usize)? } else { MapSlice::empty() },
            holes: Buddy::new(huge_start as usize)?,
            row: (0, 0),
            huge_holes: Stack::new(huge)?,
            huge_fill: MapSlice::new(huge)?,
            huge_start,
        };
        this.reset(frames);
        Ok(this)
    }

    /// Makes every place free and empty again (a fork's child has a fresh staging area).
    pub fn reset(&mut self, frames: u32) {
        for pool in &mut self.pools {
            pool.small.clear();
            pool.huge.len = 0;
        }
        self.holes.clear();
        self.row = (0, 0);
        self.node = 0;
        self.lies_on.as_mut_slice().fill(0);
        // Highest first, so that the lowest are taken first and the tables stay small.
        for block in (0..self.huge_start / BLOCK_PAGES).rev() {
            self.holes.release(block * BLOCK_PAGES, BLOCK_PAGES);
        }
        self.huge_holes.len = 0;
        for block in (0..(frames - self.huge_start) / BLOCK_PAGES).rev() {
            self.huge_holes.push(Frame(self.huge_start + block * BLOCK_PAGES));
        }
    }

    /// Frames are taken from this node from now on, where it has free ones.
    pub fn turn_to(&mut self, node: u8) {
        self.node = node.min(self.nodes - 1);
    }

    /// The node on which a populated frame lies.
    pub fn node_of(&self, frame: Frame) -> u8 {
        self.lies_on.get(frame.0 as usize).copied().unwrap_or(0)
    }

    /// Says on which node the memory of frames lies.
    pub fn set_node(&mut self, frame: Frame, pages: u32, node: u8) {
        let (first, node) = (frame.0 as usize, node.min(self.nodes - 1));
        if let Some(places) = self.lies_on.as_mut_slice().get_mut(first..first + pages as usize) {
            places.fill(node);
        }
    }

    fn pool(&mut self, node: u8) -> Option<&mut Pool> {
        self.pools.get_mut(node as usize)
    }

    /// The nodes, the one from which frames are taken last.
    fn others_first(&self) -> impl Iterator<Item = u8> + use<> {
        let (node, nodes) = (self.node, self.nodes);
        (1..=nodes).map(move |step| (node + step) % nodes)
    }

    /// Whether the frame lies in the huge area.
    pub fn is_huge(&self, frame: Frame) -> bool {
        frame.0 >= self.huge_start
    }

    /// The huge frame that holds this place: its first place.
    pub fn huge_of(&self, frame: Frame) -> Frame {
        Frame(frame.0 - (frame.0 - self.huge_start) % BLOCK_PAGES)
    }

    /// Whether a place follows another one, and belongs to the same frame or to the small area as that does.
    pub fn adjoin(&self, first: Frame, next: Frame) -> bool {
        first.plus(1) == next && (!self.is_huge(next) || self.huge_of(next) != next)
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
        self.pools.iter().take(self.nodes as usize).map(|pool| pool.small.count).sum()
    }

    /// Free populated huge frames.
    pub fn huge_full_count(&self) -> u64 {
        self.pools.iter().take(self.nodes as usize).map(|pool| pool.huge.len as u64).sum()
    }

    /// Takes a run of populated places of the node.
    pub fn take_full(&mut self, pages: u32) -> Option<Frame> {
        self.pool(self.node)?.small.take(pages).map(Frame)
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

    /// Takes populated places of any shape, at most `most`, to be emptied; those of the node last.
    pub fn take_any_full(&mut self, most: u32) -> Option<(Frame, u32)> {
        let found = self.others_first().find_map(|node| self.pool(node)?.small.take_any(most));
        found.map(|(start, pages)| (Frame(start), pages))
    }

    /// Gives back populated places of the small area.
    pub fn put_full(&mut self, frame: Frame, pages: u32) {
        let (mut done, nodes) = (0, self.nodes);
        while done < pages {
            let first = frame.plus(done);
            let node = self.node_of(first);
            let alike = |index: &u32| self.node_of(frame.plus(*index)) == node;
            let length = if nodes == 1 { pages } else { (done..pages).take_while(alike).count() as u32 };
            if let Some(pool) = self.pool(node) {
                pool.small.release(first.0, length);
            }
            done += length.max(1);
        }
    }

    /// Gives back empty places of the small area.
    pub fn put_hole(&mut self, frame: Frame, pages: u32) {
        self.holes.release(frame.0, pages);
    }

    /// Takes a populated huge frame of the node.
    pub fn take_huge_full(&mut self) -> Option<Frame> {
        self.pool(self.node)?.huge.pop()
    }

    /// Takes a populated huge frame to be emptied; those of the node last.
    pub fn take_any_huge_full(&mut self) -> Option<Frame> {
        self.others_first().find_map(|node| self.pool(node)?.huge.pop())
    }

    /// Takes an empty huge frame.
    pub fn take_huge_hole(&mut self) -> Option<Frame> {
        self.huge_holes.pop()
    }

    /// Gives back a populated huge frame.
    pub fn put_huge_full(&mut self, frame: Frame) {
        let node = self.node_of(frame);
        if let Some(pool) = self.pool(node) {
            pool.huge.push(frame);
        }
    }

    /// Gives back an empty huge frame.
    pub fn put_huge_hole(&mut self, frame: Frame) {
        self.huge_holes.push(frame);
    }

    /// How full the huge frame is that holds this place; `None` in the small area.
    pub fn fill_of(&mut self, frame: Frame) -> Option<&mut Fill> {
        if self.is_huge(frame) { self.huge_fill(self.huge_of(frame)) } else { None }
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
        let mut frames = Frames::new(2048, 2048 + 1024, 1).unwrap();
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

    #[test]
    fn frames_go_back_to_the_node_that_they_lie_on() {
        let mut frames = Frames::new(1024, 1024 + 1024, 2).unwrap();
        let (small, huge) = (frames.take_hole(8).unwrap(), frames.take_huge_hole().unwrap());
        frames.set_node(small, 8, 1);
        frames.set_node(small.plus(2), 3, 0);
        frames.set_node(huge, BLOCK_PAGES, 1);
        frames.put_full(small, 8);
        frames.put_huge_full(huge);
        assert_eq!((frames.full_count(), frames.huge_full_count()), (8, 1));
        frames.turn_to(0);
        assert!(frames.take_huge_full().is_none() && frames.take_full(4).is_none());
        let own = [frames.take_full(2).unwrap(), frames.take_full(1).unwrap()];
        assert!(own.iter().all(|frame| frames.node_of(*frame) == 0) && frames.take_full(1).is_none());
        // What is emptied are the others' frames first.
        own.iter().zip([2, 1]).for_each(|(frame, pages)| frames.put_full(*frame, pages));
        let mut gone = 0;
        while gone < 5 {
            let (frame, pages) = frames.take_any_full(4).unwrap();
            assert_eq!(frames.node_of(frame), 1);
            gone += pages;
        }
        assert_eq!(frames.take_any_huge_full(), Some(huge));
        frames.turn_to(1);
        assert!(frames.take_full(1).is_none());
        assert_eq!(frames.take_any_full(1).map(|(frame, _)| frames.node_of(frame)), Some(0));
    }
}
