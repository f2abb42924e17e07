//! The local copy of what is at memory servers: the store's file, written behind. A page counts as written there when it is
//! in one of a few blocks of memory that are on their way to the file; when all are, writes wait for one.
//!
//! What lies there is as the program's memory was, as in any store file: readable by nobody else, and without a name. Or it is
//! sealed (`--encrypt`), as what goes to the servers is, with the same seals: key, slot and version are the same, and
//! so is the page.

use super::changes::Change;
use super::{CHUNK, News, Remote, SPILLED};
use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::{SPILL_READ, SPILL_WRITE};
use crate::memory::MapSlice;
use crate::queue::Queue;
use crate::{Errno, process};
use ream_page::{PAGE_BYTES, Slot};
use ream_stats::SPILL;
use ream_wire::seal::Place;

/// Blocks of 64 pages on their way: 8 MiB.
const BLOCKS: usize = 32;
/// How long a file that could not be written is left alone, in microseconds.
const REST: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Block {
    /// Pages; 0 for a free one.
    pages: u32,
    slot: u32,
    done: u32,
    /// When to try again, after a failure that must not be; 0 while it is being written.
    again: u64,
    part: Part,
}

const FREE: Block = Block { pages: 0, slot: 0, done: 0, again: 0, part: Part { address: 0, bytes: 0 } };

pub(super) struct Spill {
    memory: MapSlice<u8>,
    blocks: [Block; BLOCKS],
    /// Operations that are to be taken up.
    pub(super) writes: Queue<u32>,
    pub(super) reads: Queue<u32>,
    broken_until: u64,
    /// Why it could not be written last.
    refusal: i32,
    /// A page in the file was not genuine; said once.
    forged: bool,
}

impl Spill {
    pub(super) fn new(ops: usize) -> Result<Spill, Errno> {
        Ok(Spill {
            memory: MapSlice::new(BLOCKS * CHUNK as usize * PAGE_BYTES)?,
            blocks: [FREE; BLOCKS],
            writes: Queue::new(ops)?,
            reads: Queue::new(ops)?,
            broken_until: 0,
            refusal: Errno::IO.negative(),
            forged: false,
        })
    }

    /// Whether all is in the file.
    pub(super) fn is_settled(&self) -> bool {
        self.blocks.iter().all(|block| block.pages == 0) && self.writes.is_empty()
    }

    pub(super) fn works(&self, now: u64) -> bool {
        now >= self.broken_until
    }

    fn touches(&self, slot: u32, pages: u32) -> bool {
        self.blocks.iter().any(|block| block.pages > 0 && block.slot < slot + pages && slot < block.slot + block.pages)
    }

    /// Where a slot's page is in a block, and how many of so many follow it there; or how many are in none.
    fn in_block(&self, slot: u32, pages: u32) -> (Option<usize>, u32) {
        let mut before = pages;
        for (number, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.pages > 0) {
            let end = block.slot + block.pages;
            if (block.slot..end).contains(&slot) {
                let place = number * CHUNK as usize + (slot - block.slot) as usize;
                return (Some(place * PAGE_BYTES), pages.min(end - slot));
            }
            if block.slot > slot {
                before = before.min(block.slot - slot);
            }
        }
        (None, before)
    }

    /// Has a block written, or the rest of it.
    fn submit(&mut self, number: usize, io: &mut Io, file: Fd) {
        let start = self.memory.as_ptr().expose_provenance() + number * CHUNK as usize * PAGE_BYTES;
        let Some(block) = self.blocks.get_mut(number) else { return };
        let gone = block.done as usize * PAGE_BYTES;
        block.part = Part { address: start + gone, bytes: block.pages as usize * PAGE_BYTES - gone };
        block.again = 0;
        let offset = Slot(block.slot + block.done).offset();
        // SAFETY: block and part stay as they are until the end has been told.
        let begun = unsafe { io.write(file, core::slice::from_ref(&block.part), offset, SPILL_WRITE | number as u64) };
        if begun.is_err() {
            block.again = process::now_us() + 1000;
        }
    }
}

impl Remote {
    /// Takes up what is to be written to the local copy, and to be read from it. Returns whether to go on at once.
    pub(super) fn advance_spill(&mut self, io: &mut Io, files: &[Fd]) -> bool {
        if self.spill.is_none() {
            return false;
        }
        let now = process::now_us();
        for _ in 0..self.spill.as_ref().map_or(0, |spill| spill.writes.len()) {
            let Some(tag) = self.spill.as_mut().and_then(|spill| spill.writes.pop()) else { break };
            if !self.take_write(tag, now, io, files) {
                if let Some(spill) = &mut self.spill {
                    spill.writes.push(tag);
                }
            }
        }
        let mut more = false;
        for _ in 0..self.spill.as_ref().map_or(0, |spill| spill.reads.len()) {
            let Some(tag) = self.spill.as_mut().and_then(|spill| spill.reads.pop()) else { break };
            more |= self.take_read(tag, io, files);
        }
        let Some(spill) = &mut self.spill else { return more };
        for number in 0..BLOCKS {
            let due = spill.blocks.get(number).is_some_and(|block| block.pages > 0 && (1..=now).contains(&block.again));
            if due {
                spill.submit(number, io, files.first().copied().unwrap_or(Fd::NONE));
            }
        }
        more
    }

    /// Copies a write's pages into blocks. False while there are none, or a write of the same pages is on its way.
    fn take_write(&mut self, tag: u32, now: u64, io: &mut Io, files: &[Fd]) -> bool {
        let Some(op) = self.ops.get(tag as usize).copied() else { return true };
        let (Some(spill), true) = (&mut self.spill, op.open() & SPILLED != 0) else { return true };
        let ours = tag < self.config.io_limit;
        let stale = !ours && !self.mend.is_current((tag - self.config.io_limit) as usize, &self.tables);
        if !spill.works(now) || stale {
            self.spill_failed(tag);
            return true;
        }
        let needed = op.pages.div_ceil(CHUNK) as usize;
        let free = spill.blocks.iter().filter(|block| block.pages == 0).count();
        if free < needed || spill.touches(op.slot, op.pages) {
            return false;
        }
        // SAFETY: the list and the frames do not change until the end of the write has been told.
        let parts = unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
        };
        let pages = parts.iter().flat_map(|part| (part.address..part.address + part.bytes).step_by(PAGE_BYTES));
        let mut block = usize::MAX;
        for (index, page) in (0u32..).zip(pages) {
            if index % CHUNK == 0 {
                block = spill.blocks.iter().position(|block| block.pages == 0).unwrap_or(usize::MAX);
                if let Some(fresh) = spill.blocks.get_mut(block) {
                    *fresh = Block { pages: CHUNK.min(op.pages - index), slot: op.slot + index, ..FREE };
                }
            }
            let at = (block * CHUNK as usize + (index % CHUNK) as usize) * PAGE_BYTES;
            let Some(place) = spill.memory.as_mut_slice().get_mut(at..at + PAGE_BYTES) else { break };
            // SAFETY: a frame, whole; the place is as large, and our own.
            unsafe {
                core::ptr::with_exposed_provenance::<u8>(page).copy_to_nonoverlapping(place.as_mut_ptr(), PAGE_BYTES)
            };
            if let Some(own) = self.tables.get_mut(0).filter(|_| self.config.spill_sealed) {
                let slot = op.slot + index;
                let bound = Place { lease: own.lease, store: own.store, slot, version: own.version(slot) };
                own.set_seal(slot, self.key.seal(&bound, place).unwrap_or_default());
            }
            if index % CHUNK == CHUNK - 1 || index == op.pages - 1 {
                spill.submit(block, io, files.first().copied().unwrap_or(Fd::NONE));
            }
        }
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.good |= SPILLED;
        }
        self.settle(tag);
        true
    }

    fn spill_failed(&mut self, tag: u32) {
        let refusal = self.spill.as_ref().map_or(0, |spill| spill.refusal);
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.bad |= SPILLED;
            if op.failed == 0 {
                op.failed = refusal;
            }
        }
        self.settle(tag);
    }

    /// Reads from the file, or, what is still on its way there or is refused there, from its block. Returns whether
    /// that was done at once.
    fn take_read(&mut self, tag: u32, io: &mut Io, files: &[Fd]) -> bool {
        let (Some(op), Some(spill)) = (self.ops.get_mut(tag as usize), &mut self.spill) else { return false };
        let first = op.slot + op.done;
        // Of what ancestors have stored all is in their files.
        let (block, pages) = if op.table == 0 { spill.in_block(first, op.part) } else { (None, op.part) };
        let bytes = pages as usize * PAGE_BYTES;
        (op.part, op.changes) = (pages, self.changes.count());
        if let Some(source) = block.and_then(|at| spill.memory.as_slice().get(at..at + bytes)) {
            // SAFETY: frames of the read, which nobody else uses before its end is told; no block lies in them.
            unsafe {
                let frames = core::ptr::with_exposed_provenance_mut::<u8>(op.place());
                frames.copy_from_nonoverlapping(source.as_ptr(), bytes);
            }
            self.spill_read(tag, bytes as i32);
            return true;
        }
        // What was to come into the file, and did not, is had from elsewhere: what lies there is older.
        let Some(table) = self.tables.get(op.table as usize) else { return false };
        let gone = |slot| {
            let who = table.holder(slot) & (self.up | SPILLED);
            who != 0 && who & SPILLED == 0
        };
        if (first..first + pages).any(gone) {
            self.route(tag);
            return true;
        }
        // Those of ancestors have the numbers that their stores have.
        let file = files.get(op.table as usize).copied().unwrap_or(Fd::NONE);
        // SAFETY: the frames are the read's, and left alone until its end.
        let begun =
            unsafe { io.read(file, op.place(), bytes as u32, Slot(first).offset(), SPILL_READ | u64::from(tag)) };
        if begun.is_err() {
            spill.reads.push(tag);
        }
        false
    }

    /// A block has been written, or not, or a read from the file has ended.
    pub(crate) fn spilled(&mut self, written: bool, what: u32, result: i32) {
        if written { self.spill_written(what, result) } else { self.spill_read(what, result) }
    }

    /// A read from the file has ended.
    fn spill_read(&mut self, tag: u32, result: i32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        if result <= 0 && result != Errno::AGAIN.negative() && result != Errno::INTR.negative() {
            let failed = if result == 0 { Errno::IO.negative() } else { result };
            return self.end(tag, failed);
        }
        // A part is had: the rest is asked for again.
        op.part = op.part.min((result.max(0) as usize / PAGE_BYTES) as u32);
        if !self.config.spill_sealed || self.open_spilled(tag) {
            self.part_read(tag);
        } else {
            self.route(tag);
        }
    }

    /// Opens pages from the file where they are. False when some are to be asked for again: another has one, or it was
    /// not clear what had become of it meanwhile. What nobody else has holds zeros, and the pager's hash decides whether
    /// anybody wanted it.
    fn open_spilled(&mut self, tag: u32) -> bool {
        let Some(op) = self.ops.get(tag as usize).copied() else { return true };
        let other = if op.table == 0 { None } else { self.key_of(op.table) };
        let key = other.as_ref().unwrap_or(&self.key);
        let can = self.up | SPILLED;
        let Some(table) = self.tables.get_mut(op.table as usize) else { return true };
        let (mut forged, mut elsewhere, mut again) = (0, false, false);
        for number in 0..op.part {
            let slot = op.slot + op.done + number;
            let bound = Place { lease: table.lease, store: table.store, slot, version: table.version(slot) };
            // SAFETY: a frame of the read, whose bytes have come, and which nobody else uses before its end is told.
            let page = unsafe {
                let start = core::ptr::with_exposed_provenance_mut(op.place() + number as usize * PAGE_BYTES);
                core::slice::from_raw_parts_mut(start, PAGE_BYTES)
            };
            let (who, seal) = (table.holder(slot), table.seal(slot).unwrap_or_default());
            if key.open(&bound, page, &seal) {
                self.mend.opened(tag, slot);
                continue;
            }
            // As in `open`: nobody wants what nobody has.
            if who & can == 0 {
                continue;
            }
            match self.changes.since(op.changes, op.table, slot) {
                Some(Change::Written) => continue,
                Some(Change::No) if who & SPILLED != 0 => {}
                Some(Change::No | Change::Moved) | None => {
                    again = true;
                    continue;
                }
            }
            forged += 1;
            elsewhere |= who & !SPILLED != 0;
            table.put(slot, 1, who & !SPILLED, &mut self.counts);
        }
        if forged > 0 {
            self.count_forged(SPILL, forged);
            self.mend.wake();
            if !elsewhere {
                self.forged = Some(SPILL);
            } else if self.spill.as_mut().is_some_and(|spill| !core::mem::replace(&mut spill.forged, true)) {
                self.tell(News::Forged(SPILL));
            }
        }
        !(elsewhere || again)
    }

    /// A block has been written, or not.
    fn spill_written(&mut self, number: u32, result: i32) {
        let Some(block) = self.spill.as_mut().and_then(|spill| spill.blocks.get_mut(number as usize)) else { return };
        let got = (result.max(0) as usize / PAGE_BYTES) as u32;
        block.done += got;
        if block.done >= block.pages {
            *block = FREE;
            return;
        }
        let passing = got > 0 || result == Errno::AGAIN.negative() || result == Errno::INTR.negative();
        if passing {
            block.again = 1;
            return;
        }
        // It could not be written. Whoever has another copy does without this one; the others stay here until it can.
        let now = process::now_us();
        let (slot, pages) = (block.slot, block.pages);
        block.again = now + REST;
        let Some(own) = self.tables.get_mut(0) else { return };
        let alone = (slot..slot + pages).any(|slot| own.holder(slot) == SPILLED);
        if !alone {
            for slot in slot..slot + pages {
                let who = own.holder(slot);
                own.put(slot, 1, who & !SPILLED, &mut self.counts);
            }
            if let Some(spill) = &mut self.spill {
                if let Some(block) = spill.blocks.get_mut(number as usize) {
                    *block = FREE;
                }
            }
            self.mend.wake();
            // Those that others are still to answer, too. What waits for the block is no part of it, and has its turn next.
            for op in self.ops.as_mut_slice().iter_mut().take(self.config.io_limit as usize) {
                let in_block = op.good & SPILLED != 0 && op.touches(0, slot, pages);
                if op.nature() == super::Nature::Write && in_block {
                    op.good &= !SPILLED;
                    op.bad |= SPILLED;
                }
            }
        }
        let told = self.spill.as_ref().is_some_and(|spill| !spill.works(now));
        let refusal = if result < 0 { result } else { Errno::IO.negative() };
        if let Some(spill) = &mut self.spill {
            (spill.broken_until, spill.refusal) = (now + REST, refusal);
        }
        if !told {
            self.tell(super::News::Spill(Errno(refusal.unsigned_abs() as u16)));
        }
    }
}

#[cfg(test)]
mod tests;
