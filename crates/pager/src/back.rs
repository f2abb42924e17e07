//! What a rank had in RAM when its turn ended, and how that comes back at once when its turn begins: in big extents, as far
//! as there is room, while the program runs and is served first.

use crate::shard::Shard;
use crate::table::blocks;
use ream_page::{BLOCK_PAGES, Block, Page, Run, State};
use ream_sys::memory::{MapSlice, Zeroable};
use ream_sys::{Errno, Machine};

/// Runs that are remembered; beyond these the last one is stretched.
const RUNS: usize = 16 * 1024;
/// Ranges that are remembered of those that are overwritten while others compute.
const EXPECTED: usize = 512;
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

impl Had {
    fn run(self) -> Run {
        Run { start: Page(self.start), pages: self.pages }
    }
}

// SAFETY: needed to keep the list in zeroed mapped memory; all-zero bytes are a valid Had.
unsafe impl Zeroable for Had {}

/// What was in RAM when it was last noted down, and how far that has come back.
pub(crate) struct Back {
    list: MapSlice<Had>,
    len: usize,
    /// What was given up because it is going to be overwritten, and is wanted in the turn after that.
    expected: MapSlice<Had>,
    expected_len: usize,
    /// Of these, how many were known when the turn began.
    expected_before: usize,
    /// Pages in the first list, and those that are wanted of both.
    pages: u64,
    wanted: u64,
    /// The next run, and how much of it is done.
    next: usize,
    done: u64,
    active: bool,
}

impl Back {
    pub(crate) fn new() -> Result<Back, Errno> {
        Ok(Back {
            list: MapSlice::new(RUNS)?,
            len: 0,
            expected: MapSlice::new(EXPECTED)?,
            expected_len: 0,
            expected_before: 0,
            pages: 0,
            wanted: 0,
            next: 0,
            done: 0,
            active: false,
        })
    }

    /// Nothing is known.
    pub(crate) fn forget(&mut self) {
        (self.len, self.pages, self.wanted, self.active) = (0, 0, 0, false);
        (self.expected_len, self.expected_before) = (0, 0);
    }

    /// Nothing is known but what was expected in the turn that ends.
    fn begin(&mut self) {
        let kept = self.expected_len - self.expected_before;
        for index in 0..kept {
            if let Some(had) = self.expected.get(self.expected_before + index).copied() {
                if let Some(place) = self.expected.get_mut(index) {
                    *place = had;
                }
            }
        }
        (self.len, self.pages) = (0, 0);
        (self.expected_len, self.expected_before) = (kept, 0);
    }

    /// The program is about to have this overwritten while it waits, and needs it in its next turn.
    fn expect(&mut self, run: Run) {
        let contains = |had: &Had| had.start <= run.start.0 && run.end().0 <= had.start + had.pages;
        // What was expected in this turn says nothing of the next one: its list ends with the turn.
        if self.expected_runs().skip(self.expected_before).any(|had| contains(&had)) {
            return;
        }
        if let Some(place) = self.expected.get_mut(self.expected_len) {
            *place = Had { start: run.start.0, pages: run.pages };
            self.expected_len += 1;
        }
    }

    /// What this turn expected joins what was expected before it: as one range where they overlap.
    fn merge_expected(&mut self) {
        let mut kept = self.expected_before;
        for index in self.expected_before..self.expected_len {
            let Some(had) = self.expected.get(index).copied() else { break };
            let end = had.start + had.pages;
            let overlaps = |before: &Had| before.start < end && had.start < before.start + before.pages;
            let found = self.expected_runs().take(kept).position(|before| overlaps(&before));
            if let Some(place) = self.expected.get_mut(found.unwrap_or(kept)) {
                if found.is_some() {
                    let start = place.start.min(had.start);
                    *place = Had { start, pages: end.max(place.start + place.pages) - start };
                } else {
                    *place = had;
                    kept += 1;
                }
            }
        }
        self.expected_len = kept;
    }

    fn expected_runs(&self) -> impl Iterator<Item = Had> + '_ {
        (0..self.expected_len).filter_map(|index| self.expected.get(index).copied())
    }

    /// The run with this number, of both lists.
    fn run(&self, index: usize) -> Option<Had> {
        match index.checked_sub(self.len) {
            None => self.list.get(index).copied(),
            Some(index) => self.expected.get(index).copied().filter(|_| index < self.expected_len),
        }
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
    /// Notes down what is in RAM, and what is expected to be wanted, unless an earlier list has not come back wholly: then
    /// that stays. Returns how many pages the list has.
    pub fn note_resident(&mut self) -> u64 {
        if self.back.active {
            return self.keep_noted();
        }
        let Shard { table, back, .. } = self;
        back.begin();
        table.each_resident(|run| back.add(run));
        self.count_wanted()
    }

    /// The list that was noted down stays for the next turn, with what is expected besides: the program has hardly done
    /// anything since it began to come back. Returns how many pages the list has.
    pub fn keep_noted(&mut self) -> u64 {
        self.back.active = false;
        self.back.merge_expected();
        self.count_wanted()
    }

    /// Pages that were noted down, and those that are expected and not in RAM.
    fn count_wanted(&mut self) -> u64 {
        let there = |(block, part): (Block, Run)| match self.table.meta(block) {
            None => 0,
            Some(meta) if part.pages == BLOCK_PAGES as u64 => meta.resident() as u64,
            Some(_) => {
                let is_resident = |page: &Page| self.table.word(*page).state() == State::Resident;
                crate::table::pages(part).filter(is_resident).count() as u64
            }
        };
        let absent = |run: Run| run.pages - blocks(run).map(there).sum::<u64>();
        self.back.wanted = self.back.pages + self.back.expected_runs().map(|had| absent(had.run())).sum::<u64>();
        self.back.wanted
    }

    /// A turn begins: what was expected to be wanted in it is not for the next one.
    pub fn begin_turn(&mut self) {
        self.back.expected_before = self.back.expected_len;
    }

    /// Pages that were noted down.
    pub fn noted(&self) -> u64 {
        self.back.wanted
    }

    /// Begins to bring back what was noted down, as far as there is room.
    pub fn begin_bringing(&mut self) {
        (self.back.next, self.back.done) = (0, 0);
        self.back.active = self.back.len + self.back.expected_len > 0;
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
        let Some(had) = self.back.run(self.back.next) else {
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

    /// Gives up what a range has in a store, and with `all` what it has in RAM: its pages read as zeros from now on. The program
    /// has them overwritten, and wants them when its next turn begins, if this one ends before. What is in RAM is moved out first,
    /// so that pages stay which a device may write to just now.
    pub fn drop_stored(&mut self, run: Run, all: bool) {
        self.back.expect(run);
        for (block, part) in blocks(run) {
            if self.table.meta(block).is_none() {
                continue;
            }
            if all {
                self.cool_part(part);
            }
            for page in crate::table::pages(part) {
                let state = self.table.word(page).state();
                let is_staged = !matches!(state, State::Unmanaged | State::Zero | State::Resident);
                if state == State::Stored || all && is_staged {
                    self.let_go(Run { start: page, pages: 1 }, false);
                }
            }
        }
    }
}
