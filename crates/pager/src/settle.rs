//! What has cooled: it is compared with the store, and written in clusters where it differs.

use crate::evict::CLUSTER;
use crate::faults::WHOLE_PIECES;
use crate::shard::{List, Shard};
use ream_page::{BLOCK_PAGES, Frame, Page, State, Step, StoreId};
use ream_sys::Machine;

/// Most pages of scattered frames that a write gathers: 512 KiB.
const LARGEST_CLUSTER: usize = 128;
/// Pages of a run from which on its being scattered over the store matters.
pub(crate) const GATHER: u32 = 64;
/// Pages of a block that are written to a segment of their own.
pub(crate) const NEARLY_ALL: u32 = BLOCK_PAGES - BLOCK_PAGES / 8;
/// Dirty pages side by side in the store, from which on they are overwritten where they are.
const IN_PLACE: usize = 16;

impl<M: Machine> Shard<M> {
    /// Compares the run that has cooled longest with the store. Returns how many pages were looked at, 0 when there is
    /// nothing to compare.
    pub(crate) fn settle_one(&mut self) -> u32 {
        let Some((start, pages)) = self.cooling.pop() else { return 0 };
        let (start, pages) = self.with_what_left_with_it(start, pages);
        let mut clean: Option<(Page, u32)> = None;
        let mut dirty = [Frame(0); BLOCK_PAGES as usize];
        let mut dirty_len = 0;
        let mut looked = 0;
        let pieces = if pages >= GATHER { self.pieces_of(start, pages) } else { 1 };
        // A run that was read as one, and so will be again, is worth being written anew, side by side, where it lies in many.
        let scattered = pages >= GATHER && pieces > (pages / 8).min(WHOLE_PIECES);
        for index in 0..pages {
            let page = start.plus(index);
            let word = self.table.word(page);
            let Some(frame) = word.frame().filter(|_| word.state() == State::Cooling) else { continue };
            let info = self.frames.info(frame);
            if info.hashed() {
                continue;
            }
            if info.slot_in_flight() {
                // Its last content is still being written: looked at again later.
                self.queue(List::Cooling, page, 1);
                continue;
            }
            looked += 1;
            let next = (index + 1 < pages).then(|| self.table.word(page.plus(1)).frame()).flatten();
            let digest = self.machine.digest_then(frame, next);
            if digest.zero {
                self.free_slot(info.slot());
                self.step(page, Step::Empty);
                self.free_frames(frame, 1);
                self.shared_zeros = self.shared_zeros.saturating_sub(1);
                self.counters.evictions_clean.add_alone(1);
                continue;
            }
            if !scattered && info.slot().is_some() && digest.hash == self.table.hash(page) {
                self.counters.evictions_clean.add_alone(1);
                self.step(page, Step::Match);
                clean = match clean {
                    Some((first, count)) if first.plus(count) == page => Some((first, count + 1)),
                    other => {
                        self.push_clean(other);
                        Some((page, 1))
                    }
                };
                continue;
            }
            self.table.set_hash(page, digest.hash);
            self.frames.update(frame, |info| info.set_hashed(true));
            if let Some(place) = dirty.get_mut(dirty_len) {
                *place = frame;
                dirty_len += 1;
            }
        }
        self.push_clean(clean);
        self.counters.hashes.add_alone(looked as u64);
        // So it is where nearly all of it is to be written anyway.
        let anew = pieces > 1 && dirty_len as u32 >= pages - pages / 8;
        let dirty = dirty.get(..dirty_len).unwrap_or(&[]);
        let written = if scattered && anew { self.write_as_one(dirty) } else { 0 };
        self.sort_dirty(dirty.get(written..).unwrap_or(&[]), anew);
        // Entries whose pages have all gone elsewhere still count as a step.
        looked.max(1)
    }

    /// A short run; or, where its block has left as one, though in pieces, nearly all of it.
    fn with_what_left_with_it(&mut self, start: Page, pages: u32) -> (Page, u32) {
        let block = start.block();
        let Some(meta) = self.table.meta_mut(block).filter(|meta| meta.as_one()) else { return (start, pages) };
        meta.set_as_one(false);
        let cools = |page: &Page| {
            let word = self.table.word(*page);
            let frame = word.frame().filter(|_| word.state() == State::Cooling);
            frame.is_some_and(|frame| !self.frames.info(frame).hashed() && !self.frames.info(frame).slot_in_flight())
        };
        let all = crate::table::pages(block.run()).filter(cools).count() as u32;
        if all >= NEARLY_ALL { (block.first(), BLOCK_PAGES) } else { (start, pages) }
    }

    /// In how many pieces a run lies in the store; one, if much of it is not in frames.
    fn pieces_of(&self, start: Page, pages: u32) -> u32 {
        let (mut pieces, mut absent) = (0, 0);
        let mut last = None;
        for index in 0..pages {
            let Some(frame) = self.table.word(start.plus(index)).frame() else {
                absent += 1;
                continue;
            };
            let slot = self.frames.info(frame).slot();
            if last.is_none() || slot != last {
                pieces += 1;
            }
            last = slot.map(|(slot, store)| (slot.plus(1), store));
        }
        if absent > pages / 8 { 1 } else { pieces }
    }

    /// Writes nearly all of a block to a segment of its own, in as many parts as its frames are scattered over. Returns how many
    /// of the frames: none where there is no segment for it, or where the file is half empty as it is.
    fn write_as_one(&mut self, frames: &[Frame]) -> usize {
        let Some(first) = frames.first().filter(|_| frames.len() as u32 >= NEARLY_ALL) else { return 0 };
        let volume = self.places.of(self.frames.info(*first).page());
        if !self.may_write() || self.slots.in_use() * 2 < self.slots.length(volume) as u64 {
            return 0;
        }
        let Some((slot, count)) = self.take_slots(volume, BLOCK_PAGES) else { return 0 };
        let mut done = 0;
        while count == BLOCK_PAGES && done < frames.len() && self.may_write() {
            let rest = frames.get(done..).unwrap_or(&[]);
            let ends = rest.windows(2).enumerate().filter(|(_, pair)| matches!(pair, [a, b] if a.plus(1) != *b));
            let length = ends.map(|(index, _)| index + 1).nth(LARGEST_CLUSTER - 1).unwrap_or(rest.len());
            let Some(tag) = self.take_tag() else { break };
            let part = rest.get(..length).unwrap_or(&[]);
            for frame in part {
                self.free_slot(self.frames.info(*frame).slot());
            }
            self.start_write(tag, slot.plus(done as u32), part);
            done += length;
        }
        (done as u32..count).for_each(|index| self.free_slot(Some((slot.plus(index), StoreId::OWN))));
        done
    }

    /// Long dirty runs go to the store at once, in place where they own a run of slots and are not to be written `anew`; the
    /// rest is gathered.
    fn sort_dirty(&mut self, frames: &[Frame], anew: bool) {
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let info = self.frames.info(*first);
            let mut length = 1;
            if let Some((slot, StoreId::OWN)) = info.slot().filter(|_| !anew) {
                length = rest
                    .iter()
                    .enumerate()
                    .take_while(|(index, frame)| {
                        let expected = slot.plus(*index as u32);
                        self.frames.info(**frame).slot() == Some((expected, StoreId::OWN))
                            && self.slots.may_overwrite(expected)
                    })
                    .count()
                    .max(1);
                if length >= IN_PLACE && self.may_write() && parts(rest.get(..length).unwrap_or(&[])) <= M::PARTS {
                    if let Some(tag) = self.take_tag() {
                        self.start_write(tag, slot, rest.get(..length).unwrap_or(&[]));
                        rest = rest.get(length..).unwrap_or(&[]);
                        continue;
                    }
                }
            }
            for frame in rest.get(..length).unwrap_or(&[]) {
                // From here on the page has no slot: if it is touched before it is written, nothing claims that the
                // store holds its content.
                let info = self.frames.info(*frame);
                self.free_slot(info.slot());
                self.frames.update(*frame, |info| info.set_slot(None));
                self.enqueue_dirty(info.page());
            }
            rest = rest.get(length..).unwrap_or(&[]);
        }
    }

    /// Writes one cluster of gathered dirty pages. Returns whether it could.
    pub(crate) fn flush(&mut self) -> bool {
        if !self.may_write() || self.store_full.is_some() {
            return false;
        }
        let mut frames = [Frame(0); BLOCK_PAGES as usize];
        let (mut len, mut runs, mut volume) = (0, 0, 0);
        while len < frames.len() {
            let Some((page, _)) = self.dirty.pop() else { break };
            self.dirty_pages -= 1;
            let Some(frame) = self.is_dirty(page) else { continue };
            // A cluster goes to one volume.
            let wanted = self.places.of(page);
            if len > 0 && wanted != volume {
                let _ = self.dirty.push_front(page, 1);
                self.dirty_pages += 1;
                break;
            }
            volume = wanted;
            let joins = len > 0 && frames.get(len - 1).is_some_and(|last| last.plus(1) == frame);
            if !joins && runs == LARGEST_CLUSTER {
                let _ = self.dirty.push_front(page, 1);
                self.dirty_pages += 1;
                break;
            }
            runs += !joins as usize;
            // The queue may name a page twice; it is gathered once.
            self.frames.update(frame, |info| info.set_hashed(false));
            if let Some(place) = frames.get_mut(len) {
                *place = frame;
                len += 1;
            }
        }
        if len == 0 {
            return false;
        }
        let taken = self.take_slots(volume, len as u32);
        let count = taken.map_or(0, |(_, count)| count as usize);
        if let Some((slot, count)) = taken {
            if let Some(tag) = self.take_tag() {
                self.start_write(tag, slot, frames.get(..count as usize).unwrap_or(&[]));
            }
        }
        for frame in frames.get(count..len).unwrap_or(&[]).iter().rev() {
            let page = self.frames.info(*frame).page();
            self.frames.update(*frame, |info| info.set_hashed(true));
            let _ = self.dirty.push_front(page, 1);
            self.dirty_pages += 1;
        }
        count > 0
    }

    /// Compares about so many of the pages that cool with the store, and writes what differs, whether frames are needed
    /// or not.
    pub(crate) fn settle(&mut self, most: u32) {
        let mut looked = 0;
        for _ in 0..self.cooling.len() {
            if looked >= most || !self.may_write() {
                break;
            }
            looked += self.settle_one();
            if self.dirty_pages >= CLUSTER {
                self.flush();
            }
        }
        while self.dirty_pages > 0 && self.flush() {}
    }
}

/// Number of runs of consecutive frames.
fn parts(frames: &[Frame]) -> usize {
    1 + frames.windows(2).filter(|pair| matches!(pair, [a, b] if a.plus(1) != *b)).count()
}
