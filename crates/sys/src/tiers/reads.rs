//! Reads: what is kept here is brought at once, the rest from below, and sealed pages are opened where they arrive.

use super::zip::Kept;
use super::{Below, Op, PORTION, Tiers};
use crate::{Errno, process};
use ream_page::{PAGE_BYTES, Slot, StoreId};

/// Pages that are here, and are read along from below between others, since one transfer is cheaper than two.
const GAP: u32 = 8;
/// Largest transfer from below of which pages rise: what comes in larger ones comes fast enough.
const RISING: u32 = 16;

/// A page of a read's frames.
///
/// # Safety
/// Nobody else looks at the frames before the end of the read has been told.
unsafe fn frame<'a>(op: &Op, index: u32) -> &'a mut [u8] {
    let at = core::ptr::with_exposed_provenance_mut::<u8>(op.address + index as usize * PAGE_BYTES);
    // SAFETY: a frame of the read, whole, and the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(at, PAGE_BYTES) }
}

impl Tiers {
    /// # Safety
    /// The frames may be overwritten until the end has been told.
    pub(crate) unsafe fn read(
        &mut self,
        tag: u32,
        store: StoreId,
        slot: Slot,
        (address, pages): (usize, u32),
        below: &mut Below<'_>,
    ) {
        let demand = self.waited_for;
        let began = if self.zip.is_some() { process::now_us() } else { 0 };
        let op = Op { store: store.0.into(), slot: slot.0, pages, address, demand, began, ..Op::NONE };
        match self.ops.get_mut(tag as usize) {
            Some(place) => *place = op,
            None => return self.end(tag, Errno::INVAL.negative()),
        }
        if self.zip.is_none() {
            self.go_on_reading(tag, &mut 0, below);
        } else if demand {
            self.waited.push(tag);
        } else {
            self.ahead.push(tag);
        }
    }

    /// Looks at reads, a portion at a time. Returns whether there are more.
    pub(crate) fn advance_reads(&mut self, below: &mut Below<'_>) -> bool {
        let mut left = PORTION;
        while let Some(tag) = self.waited.pop() {
            if !self.go_on_reading(tag, &mut left, below) {
                self.waited.push(tag);
                return true;
            }
        }
        while let Some(tag) = self.ahead.pop() {
            if !self.go_on_reading(tag, &mut left, below) {
                self.ahead.push(tag);
                return true;
            }
        }
        false
    }

    /// Brings pages that are here, at most `left`, and has the next part of the others brought. False when that was not enough.
    fn go_on_reading(&mut self, tag: u32, left: &mut u32, below: &mut Below<'_>) -> bool {
        let Some(op) = self.ops.get_mut(tag as usize) else { return true };
        if self.zip.is_none() {
            op.part = op.pages - op.done;
            self.submit_read(tag, below);
            return true;
        }
        let Some(layer) = self.layers.get_mut(op.store as usize) else { return true };
        while op.done < op.pages {
            let slot = op.slot + op.done;
            let here = layer.zip.has(slot);
            if !here && self.below {
                break;
            }
            if *left == 0 {
                return false;
            }
            *left -= 1;
            // SAFETY: see `frame`.
            let page = unsafe { frame(op, op.done) };
            if !layer.zip.bring(slot, page) {
                // It was never written, or is not wanted any more.
                page.fill(0);
            }
            if let (Some(zip), 0, true) = (&self.zip, op.store, here) {
                zip.note_read(&mut layer.zip, slot);
            }
            op.done += 1;
        }
        if op.done == op.pages {
            let (pages, us) = (op.pages, process::now_us().saturating_sub(op.began));
            let counters = self.counters;
            let (waited, waited_us) = if op.below {
                (&counters.below_waited, &counters.below_waited_us)
            } else {
                counters.zip_reads.add_alone(1);
                counters.zip_pages.add_alone(pages.into());
                (&counters.zip_waited, &counters.zip_waited_us)
            };
            if op.demand {
                waited.add_alone(1);
                waited_us.add_alone(us);
            }
            self.end(tag, (pages as usize * PAGE_BYTES) as i32);
            return true;
        }
        (op.part, op.mixed) = (1, false);
        for next in 1..op.pages - op.done {
            if !layer.zip.has(op.slot + op.done + next) {
                op.mixed |= next > op.part;
                op.part = next + 1;
            } else if next - op.part >= GAP || op.again {
                break;
            }
        }
        self.submit_read(tag, below);
        true
    }

    /// Asks for the part of a read that comes next.
    fn submit_read(&mut self, tag: u32, below: &mut Below<'_>) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        if !op.below {
            self.counters.below_reads.add_alone(1);
        }
        op.below = true;
        op.left = self.zip.as_ref().map_or(0, |zip| zip.left);
        // What is written meanwhile, or is being written, may arrive as it was or as it will be.
        op.passed = if self.blocks.writes() { u64::MAX } else { self.passed };
        let (store, slot, part, demand) = (op.store, op.slot + op.done, op.part, op.demand);
        let address = op.address + op.done as usize * PAGE_BYTES;
        // SAFETY: the frames are the read's until its end is told.
        if let Err(error) = unsafe { below.read((tag, demand), store, slot, address, part) } {
            self.end(tag, error.negative());
        }
    }

    /// A read has brought something.
    pub(super) fn arrive(&mut self, tag: u32, result: i32, below: &mut Below<'_>) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        if result == Errno::AGAIN.negative() || result == Errno::INTR.negative() {
            return self.submit_read(tag, below);
        }
        let got = op.part.min((result.max(0) as usize / PAGE_BYTES) as u32);
        if got == 0 {
            return self.end(tag, if result < 0 { result } else { Errno::IO.negative() });
        }
        let left = self.zip.as_ref().map_or(0, |zip| zip.left);
        let Some(place) = self.ops.get_mut(tag as usize) else { return };
        if op.mixed && op.left != left {
            // A page between may have gone below after it was looked for there: once more, without such pages.
            place.again = true;
        } else {
            place.done += got;
            self.open(&op, got);
            self.complete(&op, got);
        }
        if self.zip.is_some() {
            if op.demand {
                self.waited.push(tag)
            } else {
                self.ahead.push(tag)
            };
        } else if op.done + got == op.pages {
            self.end(tag, (op.pages as usize * PAGE_BYTES) as i32);
        } else {
            self.go_on_reading(tag, &mut 0, below);
        }
    }

    /// Opens pages of a read that have arrived. What does not open becomes zeros: it may have been read along for nothing, and
    /// the pager's hash tells where it was not.
    fn open(&mut self, op: &Op, pages: u32) {
        let Some(layer) = self.layers.get(op.store as usize).filter(|_| self.sealed) else { return };
        let other = if op.store == 0 { None } else { layer.seals.key() };
        let Some(key) = other.as_ref().or(self.key.as_ref()) else { return };
        for index in op.done..op.done + pages {
            // SAFETY: see `frame`.
            layer.seals.open(key, op.slot + index, unsafe { frame(op, index) });
        }
    }

    /// Of pages that have arrived, those that are here are brought from here; those that come again and again rise.
    fn complete(&mut self, op: &Op, pages: u32) {
        let (Some(zip), Some(layer)) = (&mut self.zip, self.layers.get_mut(op.store as usize)) else { return };
        let mut fresh = 0;
        let sure = op.store == 0 && op.pages <= RISING && op.passed == self.passed && !self.blocks.writes();
        for index in op.done..op.done + pages {
            let slot = op.slot + index;
            // SAFETY: see `frame`.
            let page = unsafe { frame(op, index) };
            if layer.zip.bring(slot, page) {
                continue;
            }
            fresh += 1;
            if sure && zip.rises(&mut layer.zip, slot) {
                let kept = zip.keep(&mut layer.zip, slot, page, true, self.room);
                self.counters.zip_risen.add_alone((kept == Kept::Yes).into());
            }
        }
        self.counters.below_pages.add_alone(fresh);
    }
}
