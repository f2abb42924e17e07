//! What a rank had in RAM when its turn ended, and how that comes back at once when its turn begins: in big extents, as far
//! as there is room, while the program runs and is served first.

use crate::shard::Shard;
use crate::table::blocks;
use ream_page::{Page, Run, State};
use ream_sys::memory::{MapSlice, Zeroable};
use ream_sys::{Errno, Machine};

/// Runs that are remembered; beyond these the last one is stretched.
const RUNS: usize = 16 * 1024;
/// Pages that a run may leap over: reading them along costs less than a read of its own.
const GAP: u64 = 16;
/// Parts looked at in one turn.
const LOOKED: u32 = 64;

#[derive(Clone, Copy)]
#[repr(C)]
struct Had {
    start: u64,
    pages: u64,
}

// SAFETY: needed to keep the list in zeroed mapped memory; all-zero bytes are a valid Had.
unsafe impl Zeroable for Had {}

/// What was in RAM when it was last noted down, and how far that has come back.
pub(crate) struct Back {
    list: MapSlice<Had>,
    len: usize,
    /// Pages in the list.
    pages: u64,
    /// The next run, and how much of it is done.
    next: usize,
    done: u64,
    active: bool,
}

impl Back {
    pub(crate) fn new() -> Result<Back, Errno> {
        Ok(Back { list: MapSlice::new(RUNS)?, len: 0, pages: 0, next: 0, done: 0, active: false })
    }

    /// Nothing is known.
    pub(crate) fn forget(&mut self) {
        (self.len, self.pages, self.active) = (0, 0, false);
    }

    /// Whether what arrives belongs into the program at once.
    pub(crate) fn active(&self) -> bool {
        self.active
    }

    fn add(&mut self, run: Run) {
        self.pages += run.pages;
        if let Some(last) = self.len.checked_sub(1).and_then(|last| self.list.get_mut(last)) {
            let end = last.start + last.pages;
            if run.start.0 >= end && (run.start.0 - end <= GAP || self.len == RUNS) {
                last.pages = run.end().0 - last.start;
                return;
            }
        }
        if let Some(place) = self.list.get_mut(self.len) {
            *place = Had { start: run.start.0, pages: run.pages };
            self.len += 1;
        }
    }
}

impl<M: Machine> Shard<M> {
    /// Notes down what is in RAM, unless an earlier list has not come back wholly: then that stays. Returns how many pages
    /// the list has.
    pub fn note_resident(&mut self) -> u64 {
        if self.back.active {
            self.back.active = false;
            return self.back.pages;
        }
        self.back.forget();
        let Shard { table, back, .. } = self;
        table.each_resident(|run| back.add(run));
        self.back.pages
    }

    /// Pages that were noted down.
    pub fn noted(&self) -> u64 {
        self.back.pages
    }

    /// Begins to bring back what was noted down, as far as there is room.
    pub fn begin_bringing(&mut self) {
        (self.back.next, self.back.done) = (0, 0);
        self.back.active = self.back.len > 0;
    }

    /// Whether that is under way.
    pub fn bringing(&self) -> bool {
        self.back.active
    }

    /// What has not come back by now comes when it is touched.
    pub fn stop_bringing(&mut self) {
        self.back.active = false;
    }

    /// Goes on bringing back. Returns whether there is more to look at at once.
    pub(crate) fn bring_more(&mut self) -> bool {
        if !self.back.active {
            return false;
        }
        let Some(had) = self.back.list.get(self.back.next).copied().filter(|_| self.back.next < self.back.len) else {
            self.back.active = self.count(State::Reading) > 0;
            return false;
        };
        let mut left = Run { start: Page(had.start + self.back.done), pages: had.pages - self.back.done };
        for _ in 0..LOOKED {
            let Some((_, part)) = blocks(left).next() else { break };
            // What would only push other pages out again is left.
            let there = self.count(State::Resident) + self.count(State::Ahead) + self.count(State::Reading);
            let room = self.limit().saturating_sub(self.fixed() + self.marks.high);
            if there + part.pages > room || !self.fetch_part(part, &mut false) {
                return false;
            }
            self.keep(part);
            self.back.done += part.pages;
            left = Run { start: part.end(), pages: left.pages - part.pages };
        }
        if left.pages == 0 {
            self.back.next += 1;
            self.back.done = 0;
        }
        true
    }

    /// Gives up what a range has in a store, and nothing else: its pages there read as zeros from now on.
    pub fn drop_stored(&mut self, run: Run) {
        for (block, part) in blocks(run) {
            if self.table.meta(block).is_none() {
                continue;
            }
            for page in crate::table::pages(part) {
                if self.table.word(page).state() == State::Stored {
                    self.let_go(Run { start: page, pages: 1 }, false);
                }
            }
        }
    }
}
