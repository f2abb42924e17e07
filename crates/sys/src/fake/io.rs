//! The fake's device and helper thread: operations start, transfer page by page at moments of their own, and end well,
//! short, or with an error.

use super::disk::{EIO, ENOSPC, Op, Outcome, Work};
use super::memory::{Content, Use};
use super::threads::{Access, Doing, HELPER};
use super::{FakeMachine, Touch};
use crate::machine::{Event, Events};
use ream_page::{BLOCK_PAGES, Frame, PAGE_BYTES, Pages, Run, Slot, StoreId};
use std::vec::Vec;

const EINTR: u16 = 4;
const EAGAIN: u16 = 11;
const EFAULT: u16 = 14;
const SECTOR: u64 = 512;

impl FakeMachine {
    fn new_op(&mut self, tag: u32, work: Work, pages: usize, outcome: Outcome) {
        if self.ops.iter().any(|op| op.tag == tag) {
            self.fail(&std::format!("tag {tag} is in use"));
        }
        if outcome != Outcome::Whole {
            self.counts.failed_io += 1;
        }
        let moved = std::vec![false; pages];
        self.ops.push(Op { tag, work, outcome, submitted: false, finish_us: 0, moved });
    }

    fn check_io(&mut self, tag: u32, pages: u32) {
        let busy = self.ops.iter().filter(|op| !matches!(op.work, Work::Unshare { .. })).count() as u32;
        if tag >= self.io_limit || busy >= self.io_limit {
            self.fail(&std::format!("tag {tag} with {busy} operations in flight, the limit is {}", self.io_limit));
        }
        if pages == 0 {
            self.fail("an operation on no pages");
        }
    }

    fn short(&mut self, pages: u32) -> Outcome {
        let sectors = pages as u64 * PAGE_BYTES as u64 / SECTOR;
        Outcome::Short((self.random.between(1, sectors - 1) * SECTOR) as u32)
    }

    fn passing_failure(&mut self, pages: u32) -> Option<Outcome> {
        if self.random.one_in(self.script.short) {
            Some(self.short(pages))
        } else if self.random.one_in(self.script.interrupted) {
            Some(Outcome::Error(if self.random.one_in(2) { EINTR } else { EAGAIN }))
        } else {
            None
        }
    }

    pub(super) fn start_read(&mut self, tag: u32, store: StoreId, slot: Slot, frame: Frame, pages: u32) {
        self.check_io(tag, pages);
        self.check_frames("read", frame.0, pages);
        self.populate(frame.0, pages);
        if self.staging.takes_huge(frame.0) {
            if !self.staging.covers_group(frame.0, pages) {
                self.fail("read of less than a block into an empty huge frame: the kernel would populate all of it");
            }
            self.staging.put_huge(frame.0, &std::vec![Content::ZERO; BLOCK_PAGES as usize]);
        }
        for at in frame.0..frame.0 + pages {
            if self.frame_use(at) != Use::Nothing {
                self.fail(&std::format!("read into frame {at}, which is under I/O"));
            }
            self.staging.places[at as usize].used_by = Use::Reading(tag);
        }
        let Some(disk) = self.stores.get(store.0 as usize).cloned() else {
            self.fail(&std::format!("read from store {}, which does not exist", store.0));
        };
        let outcome = if disk.borrow().bad.range(slot.0..slot.0 + pages).next().is_some()
            || self.random.one_in(self.script.read_error)
        {
            Outcome::Error(EIO)
        } else {
            self.passing_failure(pages).unwrap_or(Outcome::Whole)
        };
        // Direct reads populate their target when they start; a failed one may have come as far as that, or not.
        if outcome == Outcome::Whole || self.random.one_in(2) {
            for at in frame.0..frame.0 + pages {
                let junk = self.junk();
                self.staging.put(at, junk, false);
            }
            self.account();
        }
        self.counts.reads += 1;
        self.counts.pages_read += pages as u64;
        self.new_op(tag, Work::Read { store: store.0, slot: slot.0, frame: frame.0 }, pages as usize, outcome);
    }

    pub(super) fn start_write(&mut self, tag: u32, slot: Slot, frames: Vec<u32>) {
        let pages = frames.len() as u32;
        self.check_io(tag, pages);
        for at in &frames {
            match self.staging.places[*at as usize] {
                p if p.content.is_none() => self.fail(&std::format!("write from frame {at}, which is empty")),
                p if p.used_by != Use::Nothing => self.fail(&std::format!("write from frame {at}, under I/O")),
                _ => self.staging.places[*at as usize].used_by = Use::Writing(tag),
            }
        }
        let overlaps = |op: &Op| op.written_slots().is_some_and(|(a, b)| a < slot.0 + pages && slot.0 < b);
        if let Some(other) = self.ops.iter().find(|op| overlaps(op)) {
            self.fail(&std::format!("two writes in flight to one slot, tags {} and {tag}", other.tag));
        }
        let disk = self.stores[0].clone();
        if let Some(frozen) = disk.borrow().frozen.range(slot.0..slot.0 + pages).next() {
            self.fail(&std::format!("write to slot {frozen}, which a forked child may still read"));
        }
        if slot.place() + pages > disk.borrow().reserved[slot.volume() as usize] {
            self.fail(&std::format!("write beyond the reserved slots: {} + {pages}", slot.0));
        }
        let slots = slot.0..slot.0 + pages;
        let outcome = if disk.borrow().bad.range(slots.clone()).next().is_some()
            || self.random.one_in(self.script.write_error)
        {
            Outcome::Error(EIO)
        } else if !slots.into_iter().all(|s| disk.borrow_mut().claim(s)) || self.random.one_in(self.script.write_full) {
            Outcome::Error(ENOSPC)
        } else {
            self.passing_failure(pages).unwrap_or(Outcome::Whole)
        };
        self.counts.writes += 1;
        self.counts.pages_written += pages as u64;
        self.new_op(tag, Work::Write { slot: slot.0, frames }, pages as usize, outcome);
    }

    pub(super) fn start_unshare(&mut self, tag: u32, pages: &Pages) -> bool {
        let mut mapped = Pages::none(pages.block);
        for run in pages.runs() {
            let each = (0..run.pages as u32).map(|index| run.start.plus(index));
            each.filter(|page| self.mapped_pages(Run { start: *page, pages: 1 }) > 0)
                .for_each(|page| mapped.insert(page));
        }
        if self.helper_busy || self.random.one_in(self.script.helper_busy) || mapped.is_empty() {
            return false;
        }
        self.helper_busy = true;
        self.counts.errands += 1;
        self.new_op(tag, Work::Unshare { pages: mapped, next: mapped.block.first() }, 0, Outcome::Whole);
        true
    }

    /// Everything started goes to the device and gets its time of ending.
    pub(super) fn submit(&mut self) {
        for index in 0..self.ops.len() {
            if !self.ops[index].submitted {
                let took = self.random.between(self.script.io_min_us, self.script.io_max_us);
                self.ops[index].submitted = true;
                self.ops[index].finish_us = self.clock_us + took;
            }
        }
    }

    /// When the first operation in flight ends.
    pub(super) fn next_finish(&self) -> Option<u64> {
        self.ops.iter().filter(|op| op.submitted && self.can_finish(op)).map(|op| op.finish_us).min()
    }

    fn can_finish(&self, op: &Op) -> bool {
        match op.work {
            Work::Unshare { pages, next } => next == pages.block.run().end(),
            _ => true,
        }
    }

    /// Some operations transfer a page.
    pub(super) fn device_works(&mut self) {
        for index in 0..self.ops.len() {
            if self.ops[index].submitted && !self.ops[index].moved.is_empty() && self.random.one_in(4) {
                let page = self.random.below(self.ops[index].moved.len() as u64) as usize;
                self.transfer(index, page);
            }
        }
    }

    /// One page of an operation crosses between frame and slot, unless its outcome forbids it.
    fn transfer(&mut self, index: usize, page: usize) {
        let op = &self.ops[index];
        let whole_pages = match op.outcome {
            Outcome::Whole => op.moved.len(),
            Outcome::Short(bytes) => bytes as usize / PAGE_BYTES,
            Outcome::Error(_) => 0,
        };
        if op.moved[page] || page >= whole_pages {
            return;
        }
        match &op.work {
            Work::Read { store, slot, frame } => {
                let (at, slot) = (frame + page as u32, slot + page as u32);
                let content = self.stores[*store as usize].borrow().slots.get(&slot).copied();
                let content = content.unwrap_or_else(|| self.junk());
                self.staging.put(at, content, false);
                self.account();
            }
            Work::Write { slot, frames } => {
                let content = self.staging.places[frames[page] as usize].content.unwrap_or_default();
                self.stores[0].borrow_mut().slots.insert(slot + page as u32, content);
            }
            Work::Unshare { .. } => {}
        }
        self.ops[index].moved[page] = true;
    }

    /// Ends the operations whose time has come, in any order, and reports them.
    pub(super) fn report_io(&mut self, events: &mut Events, limit: usize) -> usize {
        let mut reported = 0;
        while reported < limit && events.room() > 0 {
            let due = |op: &Op| op.submitted && op.finish_us <= self.clock_us && self.can_finish(op);
            let ready: Vec<usize> = (0..self.ops.len()).filter(|i| due(&self.ops[*i])).collect();
            let Some(index) = ready.get(self.random.below(ready.len() as u64) as usize) else { break };
            let event = self.finish(*index);
            events.push(event);
            reported += 1;
        }
        reported
    }

    fn finish(&mut self, index: usize) -> Event {
        for page in 0..self.ops[index].moved.len() {
            self.transfer(index, page);
        }
        let op = self.ops.swap_remove(index);
        let bytes = (op.moved.len() * PAGE_BYTES) as i32;
        match op.work {
            Work::Read { frame, .. } => {
                for (n, moved) in op.moved.iter().enumerate() {
                    let at = frame + n as u32;
                    self.staging.places[at as usize].used_by = Use::Nothing;
                    // What a failed read leaves behind is anything.
                    if !moved && self.staging.places[at as usize].content.is_some() {
                        let junk = self.junk();
                        self.staging.put(at, junk, false);
                    }
                }
            }
            Work::Write { slot, ref frames } => {
                for (n, moved) in op.moved.iter().enumerate() {
                    self.staging.places[frames[n] as usize].used_by = Use::Nothing;
                    // Neither old nor new content is sure where a write failed.
                    if !moved && self.random.one_in(2) {
                        let junk = self.junk();
                        self.stores[0].borrow_mut().slots.insert(slot + n as u32, junk);
                    }
                }
            }
            Work::Unshare { .. } => self.helper_busy = false,
        }
        let result = match op.outcome {
            Outcome::Whole => bytes,
            Outcome::Short(bytes) => bytes as i32,
            Outcome::Error(errno) => -(errno as i32),
        };
        Event::Io { tag: op.tag, result }
    }

    /// The helper goes on with its pages; it sleeps on absent pages as any thread does.
    pub(super) fn helper_works(&mut self) {
        let Some(index) = self.ops.iter().position(|op| matches!(op.work, Work::Unshare { .. })) else { return };
        let Work::Unshare { pages, mut next } = self.ops[index].work else { return };
        let asleep = self.threads.get(&HELPER).is_some_and(|t| t.doing != Doing::Runs);
        if asleep || !self.ops[index].submitted || !self.random.one_in(2) {
            return;
        }
        while next != pages.block.run().end() {
            if pages.contains(next) {
                match self.touch(HELPER, next, Access::Populate) {
                    Touch::Hit(_) => {}
                    Touch::Sleeps => break,
                    Touch::Fatal => self.ops[index].outcome = Outcome::Error(EFAULT),
                }
            }
            next = next.plus(1);
        }
        self.ops[index].work = Work::Unshare { pages, next };
    }

    /// Slots with space behind them in a volume of the process's own store.
    pub fn store_used(&self, volume: u8) -> u32 {
        self.stores[0].borrow().used(volume)
    }

    /// Whether not one more slot of the first volume can be claimed.
    pub fn store_is_full(&self) -> bool {
        let disk = self.stores[0].borrow();
        disk.used(0) >= disk.capacity[0]
    }

    /// Changes how many slots a volume of the own store has space for; what is claimed stays.
    pub fn set_store_slots(&mut self, volume: u8, slots: u32) {
        self.stores[0].borrow_mut().capacity[volume as usize] = slots;
    }

    /// Makes the own store one that claims space for so many slots side by side when one is written, and none before.
    pub fn claim_by(&mut self, slots: u32) {
        self.stores[0].borrow_mut().unit = slots;
    }

    /// What a slot holds.
    pub fn slot(&self, store: StoreId, slot: Slot) -> Option<Content> {
        self.stores.get(store.0 as usize)?.borrow().slots.get(&slot.0).copied()
    }

    /// Makes a slot answer EIO for good, or heals it.
    pub fn spoil_slot(&mut self, slot: Slot, bad: bool) {
        let mut disk = self.stores[0].borrow_mut();
        if bad {
            disk.bad.insert(slot.0)
        } else {
            disk.bad.remove(&slot.0)
        };
    }

    /// Changes what a slot holds behind the pager's back, as a failing device does; no call reports an error.
    pub fn corrupt_slot(&mut self, store: StoreId, slot: Slot) {
        let junk = self.junk();
        if let Some(disk) = self.stores.get(store.0 as usize) {
            disk.borrow_mut().slots.insert(slot.0, junk);
        }
    }

    /// The same with any slot that holds something; returns false when none does.
    pub fn corrupt_any(&mut self, which: usize) -> bool {
        let junk = self.junk();
        let mut disk = self.stores[0].borrow_mut();
        let count = disk.slots.len().max(1);
        match disk.slots.values_mut().nth(which % count) {
            Some(content) => *content = junk,
            None => return false,
        }
        true
    }
}
