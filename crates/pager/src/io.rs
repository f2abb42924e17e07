//! Reads and writes in flight: how they start, what their ends mean, and what happens when they fail.

use crate::faults::COMES_AGAIN;
use crate::frames::Fill;
use crate::shard::{Fatal, Fetch, List, Shard};
use ream_page::{BLOCK_PAGES, Frame, PAGE_BYTES, Page, Pages, Slot, State, Step, StoreId};
use ream_sys::memory::Zeroable;
use ream_sys::{Errno, Machine};

/// Most runs of frames in one write.
const PARTS: usize = 128;
/// How often a failed read or write is tried again at once.
const RETRIES: u32 = 8;
/// Writes that may fail in a row before the store counts as full.
const FAILURES: u32 = 64;

const EINTR: i32 = -4;
const EAGAIN: i32 = -11;
const ENOSPC: i32 = -28;
const EDQUOT: i32 = -122;
const EFBIG: i32 = -27;

/// One operation in flight.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Op {
    kind: u32,
    pages: u32,
    slot: u32,
    store: u32,
    retries: u32,
    /// Pages already transferred by earlier attempts.
    done: u32,
    /// 1 for a read of a single page that a thread waits for.
    lone: u32,
    part_count: u32,
    parts: [(u32, u32); PARTS],
}

// SAFETY: needed to keep operations in zeroed mapped memory; all-zero bytes are a valid, unused Op.
unsafe impl Zeroable for Op {}

const READ: u32 = 1;
const WRITE: u32 = 2;
const UNSHARE: u32 = 3;

impl Op {
    fn frames(&self) -> impl Iterator<Item = Frame> + use<> {
        let parts = self.parts;
        let count = self.part_count as usize;
        (0..count).flat_map(move |index| {
            let (frame, pages) = parts.get(index).copied().unwrap_or((0, 0));
            (frame..frame + pages).map(Frame)
        })
    }
}

/// Whether an error says that space is missing: the file system's, the user's quota, or what a file may have of it.
fn is_full(errno: Errno) -> bool {
    matches!(-(errno.0 as i32), ENOSPC | EDQUOT | EFBIG)
}

impl<M: Machine> Shard<M> {
    pub(crate) fn take_tag(&mut self) -> Option<u32> {
        self.tags_free = self.tags_free.checked_sub(1)?;
        self.tags.get(self.tags_free).copied()
    }

    pub(crate) fn put_tag(&mut self, tag: u32) {
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.kind = 0;
        }
        if let Some(place) = self.tags.get_mut(self.tags_free) {
            *place = tag;
            self.tags_free += 1;
        }
    }

    /// Reads consecutive slots into consecutive frames for consecutive pages; what is read for one that is not Stored is
    /// thrown away.
    pub(crate) fn start_read(&mut self, tag: u32, store: StoreId, slot: Slot, page: Page, frame: Frame, pages: u32) {
        for index in 0..pages {
            let (at, page) = (frame.plus(index), page.plus(index));
            let mut info = crate::frames::Info::new(page, Some((slot.plus(index), store)));
            info.set_io(true);
            if self.table.word(page).state() == State::Stored {
                self.frames.set(at, info);
                self.step(page, Step::Read(at));
            } else {
                info.detach();
                self.frames.set(at, info);
            }
        }
        if let Some(op) = self.ops.get_mut(tag as usize) {
            *op = Op {
                kind: READ,
                pages,
                slot: slot.0,
                store: store.0 as u32,
                retries: 0,
                done: 0,
                lone: 0,
                part_count: 1,
                parts: [(0, 0); PARTS],
            };
            op.parts[0] = (frame.0, pages);
        }
        if let Some(fill) = self.frames.fill_of(frame) {
            fill.arriving += pages;
        }
        self.counters.reads.add_alone(1);
        self.reading += 1;
        self.started = true;
        self.machine.read(tag, store, slot, frame, pages);
    }

    /// A read that has just been started is of a single page that a thread waits for.
    pub(crate) fn is_lone(&mut self, tag: u32) {
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.lone = 1;
            self.lone += 1;
            // Not for who reads in order now and at random then: nothing else is under way there.
            if self.reading > self.lone {
                self.beside = COMES_AGAIN;
            }
        }
    }

    /// Writes the frames of Cooling pages to consecutive slots. The pages' hashes are in the table already.
    pub(crate) fn start_write(&mut self, tag: u32, slot: Slot, frames: &[Frame]) {
        let mut op = Op {
            kind: WRITE,
            pages: frames.len() as u32,
            slot: slot.0,
            store: 0,
            retries: 0,
            done: 0,
            lone: 0,
            part_count: 0,
            parts: [(0, 0); PARTS],
        };
        for (index, frame) in frames.iter().enumerate() {
            let page = self.frames.info(*frame).page();
            self.frames.update(*frame, |info| {
                info.set_slot(Some((slot.plus(index as u32), StoreId::OWN)));
                info.set_io(true);
            });
            self.step(page, Step::Write);
            let count = op.part_count as usize;
            match count.checked_sub(1).and_then(|last| op.parts.get_mut(last)) {
                Some((first, pages)) if *first + *pages == frame.0 => *pages += 1,
                _ => {
                    if let Some(part) = op.parts.get_mut(count) {
                        *part = (frame.0, 1);
                        op.part_count += 1;
                    }
                }
            }
        }
        self.counters.writes.add_alone(1);
        self.writing += 1;
        self.submit_write(tag, &op);
        if let Some(place) = self.ops.get_mut(tag as usize) {
            *place = op;
        }
    }

    /// Starts what is left of a write.
    fn submit_write(&mut self, tag: u32, op: &Op) {
        let mut parts = [(Frame(0), 0); PARTS];
        let (mut count, mut skip) = (0, op.done);
        for (frame, pages) in op.parts.iter().take(op.part_count as usize).copied() {
            let gone = skip.min(pages);
            skip -= gone;
            if gone < pages {
                if let Some(part) = parts.get_mut(count) {
                    *part = (Frame(frame + gone), pages - gone);
                    count += 1;
                }
            }
        }
        self.machine.write(tag, Slot(op.slot + op.done), parts.get(..count).unwrap_or(&[]));
    }

    /// Whether making pages ours alone may let them leave: not when nothing has left although that was tried for all. Then
    /// something else keeps them, a device for example.
    pub(crate) fn errands_help(&self) -> bool {
        self.vain <= self.new.len() + self.hot.len()
    }

    /// Asks the helper to make pages ours alone. Returns whether it was asked.
    pub(crate) fn start_unshare(&mut self, pages: &Pages) -> bool {
        if self.unsharing.is_some() {
            return false;
        }
        let Some(tag) = self.take_tag() else { return false };
        if !self.machine.unshare(tag, pages) {
            self.put_tag(tag);
            return false;
        }
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.kind = UNSHARE;
        }
        self.unsharing = Some((tag, *pages));
        true
    }

    /// An operation ended.
    pub(crate) fn io_done(&mut self, tag: u32, result: i32) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        if op.kind == UNSHARE {
            if let Some((_, pages)) = self.unsharing.take() {
                // What still cannot be moved is left alone for now.
                self.unshared = pages;
                self.vain += 1;
                if result >= 0 && self.errands_help() {
                    self.fruitless = 0;
                }
            }
            self.put_tag(tag);
            return;
        }
        let missing = op.pages - op.done;
        let got = if result > 0 { (result as usize / PAGE_BYTES) as u32 } else { 0 };
        if got >= missing {
            if op.kind == READ {
                self.read_ended(tag, op, None)
            } else {
                self.failures = 0;
                self.write_done(tag, &op)
            }
            return;
        }
        // Short, interrupted or failed: what is missing is tried again before anybody hears of it.
        self.counters.io_retries.add_alone(1);
        let passing = result == EINTR || result == EAGAIN || got > 0;
        // A read of several pages is not: each is asked for by itself once somebody waits for it.
        let tries = if op.kind == READ && missing > 1 { 0 } else { RETRIES };
        if passing || op.retries < tries && !matches!(result, ENOSPC | EDQUOT | EFBIG) {
            if let Some(place) = self.ops.get_mut(tag as usize) {
                place.done += got;
                place.retries += !passing as u32;
                let op = *place;
                if op.kind == READ {
                    let (slot, store) = (Slot(op.slot + op.done), StoreId(op.store as u8));
                    let frame = Frame(op.parts[0].0 + op.done);
                    self.machine.read(tag, store, slot, frame, op.pages - op.done);
                } else {
                    self.submit_write(tag, &op);
                }
            }
            return;
        }
        let errno = Errno(if result < 0 { result.unsigned_abs() as u16 } else { 5 });
        if op.kind == READ { self.read_ended(tag, op, Some(errno)) } else { self.write_failed(tag, &op, errno) }
    }

    /// A read has ended, well or not.
    fn read_ended(&mut self, tag: u32, op: Op, errno: Option<Errno>) {
        let frame = Frame(op.parts[0].0);
        if let Some(fill) = self.frames.fill_of(frame) {
            fill.arriving -= op.pages;
        }
        match errno {
            None => self.read_done(tag, &op),
            Some(errno) => self.read_failed(tag, op, errno),
        }
        if let Some(page) = self.frames.fill_of(frame).and_then(Fill::arrived) {
            self.install_arrived(page, self.frames.huge_of(frame));
        }
    }

    /// Whether a page's frame is part of a large one that still lacks something. Then it is installed with the rest, which
    /// would be small pages for ever otherwise.
    pub(crate) fn comes_whole(&mut self, page: Page, frame: Frame) -> bool {
        match self.frames.fill_of(frame).filter(|fill| fill.arriving > 0) {
            Some(fill) => fill.wait(page),
            None => return false,
        }
        true
    }

    /// All that is left of what was read onto a large page is installed, since somebody waits for this page of it. What was
    /// discarded meanwhile, or could not be read, is a fault again.
    fn install_arrived(&mut self, page: Page, first: Frame) {
        self.installing();
        for index in 0..BLOCK_PAGES {
            let at = first.plus(index);
            let next = self.frames.info(at).page();
            let word = self.table.word(next);
            if word.state() == State::Ahead && word.frame() == Some(at) {
                let run = self.staged_run(next, next.block().run(), |state| state == State::Ahead);
                self.install_and_wake(run);
            }
        }
        self.has_installed();
        self.machine.wake(page.block().run());
    }

    /// A read failed for good. What came before its error has been read; of the rest only a page that a thread waits for
    /// and that was asked for by itself is the end: the others remain in the store, and are asked for one by one.
    fn read_failed(&mut self, tag: u32, op: Op, errno: Errno) {
        let first = Frame(op.parts[0].0);
        for index in op.done..op.pages {
            let at = first.plus(index);
            self.frames.update(at, |info| info.set_io(false));
            let info = self.frames.info(at);
            if info.wanted() && !info.detached() && op.pages == 1 {
                return self.fail(Fatal::Read(errno));
            }
            self.wanted -= info.wanted() as u64;
            if !info.detached() {
                self.back_to_store(info.page(), at);
                if info.wanted() {
                    self.postpone_as(info.page(), false, 0, true);
                }
            }
            self.free_frames(at, 1);
        }
        self.read_done(tag, &Op { pages: op.done, ..op });
    }

    fn read_done(&mut self, tag: u32, op: &Op) {
        self.put_tag(tag);
        self.reading -= 1;
        self.lone -= op.lone;
        self.counters.bytes_in.add_alone(op.pages as u64 * PAGE_BYTES as u64);
        let frame = Frame(op.parts[0].0);
        let mut wanted = false;
        for index in 0..op.pages {
            let at = frame.plus(index);
            self.frames.update(at, |info| info.set_io(false));
            let info = self.frames.info(at);
            self.wanted -= info.wanted() as u64;
            if info.detached() {
                // The program let go of the page meanwhile, or it was never wanted.
                self.free_frames(at, 1);
                continue;
            }
            self.counters.hashes.add_alone(1);
            let next = (index + 1 < op.pages).then(|| at.plus(1));
            if self.machine.digest_then(at, next).hash != self.table.hash(info.page()) {
                let (slot, store) = info.slot().unwrap_or((Slot(0), StoreId::OWN));
                self.fail(Fatal::Corrupt(slot, store));
                return;
            }
            self.step(info.page(), Step::Arrive);
            wanted |= info.wanted();
        }
        let installs = wanted || self.fetch == Fetch::Aggressive || self.back.active();
        let installs = installs && !self.comes_whole(self.frames.info(frame).page(), frame);
        if installs {
            self.installing();
        }
        // In runs between pages that were moved or discarded meanwhile, or read for nothing.
        let mut index = 0;
        while index < op.pages {
            let at = frame.plus(index);
            let info = self.frames.info(at);
            let first = info.page();
            let mut length = 1;
            while !info.detached() && index + length < op.pages && {
                let next = self.frames.info(at.plus(length));
                !next.detached() && next.page() == first.plus(length) && first.in_block() as u32 + length < BLOCK_PAGES
            } {
                length += 1;
            }
            if !info.detached() {
                match installs {
                    true => self.install_and_wake((at, first, length)),
                    false => self.queue(List::Ahead, first, length),
                }
            }
            index += length;
        }
        self.has_installed();
    }

    fn write_done(&mut self, tag: u32, op: &Op) {
        self.put_tag(tag);
        self.writing -= 1;
        self.tried_again = false;
        self.counters.bytes_out.add_alone(op.pages as u64 * PAGE_BYTES as u64);
        let mut clean: Option<(Page, u32)> = None;
        for (index, at) in op.frames().enumerate() {
            let slot = Slot(op.slot + index as u32);
            self.frames.update(at, |info| info.set_io(false));
            let info = self.frames.info(at);
            let page = info.page();
            if info.detached() {
                self.free_frames(at, 1);
                self.settle_detached(page, slot, Ok(()));
                continue;
            }
            self.step(page, Step::Match);
            clean = match clean {
                Some((start, pages)) if start.plus(pages) == page && page.in_block() != 0 && pages < BLOCK_PAGES => {
                    Some((start, pages + 1))
                }
                _ => {
                    self.push_clean(clean);
                    Some((page, 1))
                }
            };
        }
        self.push_clean(clean);
    }

    /// A page moved while an older copy of it is being written: the end of that write is told to its new address.
    pub(crate) fn redirect_write(&mut self, from: Page, to: Page, slot: Option<(Slot, StoreId)>) {
        for tag in 0..self.ops.len() {
            let Some(op) = self.ops.get(tag).copied().filter(|op| op.kind == WRITE) else { continue };
            for frame in op.frames() {
                let info = self.frames.info(frame);
                if info.io() && info.detached() && info.page() == from && info.slot() == slot {
                    self.frames.update(frame, |info| info.set_page(to));
                    return;
                }
            }
        }
    }

    pub(crate) fn push_clean(&mut self, run: Option<(Page, u32)>) {
        if let Some((start, pages)) = run {
            self.queue(List::Clean, start, pages);
        }
    }

    /// A page was copied back while it was being written, or let go of: its new slot now counts, or nobody wants it.
    fn settle_detached(&mut self, page: Page, slot: Slot, outcome: Result<(), Errno>) {
        let word = self.table.word(page);
        match word.state() {
            State::Resident if word.slot_in_flight() && word.slot() == Some((slot, StoreId::OWN)) => {
                match outcome {
                    Ok(()) => self.step(page, Step::Settle),
                    Err(errno) => {
                        self.step(page, Step::Forget);
                        self.unwritten(slot, errno);
                    }
                }
                return;
            }
            State::Cooling => {
                if let Some(frame) = word.frame() {
                    let info = self.frames.info(frame);
                    if info.slot_in_flight() && info.slot() == Some((slot, StoreId::OWN)) {
                        match outcome {
                            Ok(()) => self.frames.update(frame, |info| info.set_slot_in_flight(false)),
                            Err(errno) => {
                                self.frames.update(frame, |info| info.set_slot(None));
                                self.unwritten(slot, errno);
                            }
                        }
                        return;
                    }
                }
            }
            _ => {}
        }
        match outcome {
            Ok(()) => self.free_slot(Some((slot, StoreId::OWN))),
            Err(errno) => self.unwritten(slot, errno),
        }
    }

    /// A slot holds nothing, since writing it failed: free again if only space was missing, though others are tried first, else
    /// out of service.
    fn unwritten(&mut self, slot: Slot, errno: Errno) {
        self.machine.freed(slot);
        if is_full(errno) {
            self.slots.refuse(slot);
            self.slots.free(slot);
        } else {
            self.slots.abandon(slot);
        }
    }

    /// A write failed for good: the pages stay in memory, without slots.
    fn write_failed(&mut self, tag: u32, op: &Op, errno: Errno) {
        self.put_tag(tag);
        self.writing -= 1;
        match is_full(errno) {
            true => self.no_room = errno,
            false => self.failures += 1,
        }
        for (index, at) in op.frames().enumerate() {
            let slot = Slot(op.slot + index as u32);
            self.frames.update(at, |info| info.set_io(false));
            let info = self.frames.info(at);
            let page = info.page();
            if info.detached() {
                self.free_frames(at, 1);
                self.settle_detached(page, slot, Err(errno));
                continue;
            }
            self.frames.update(at, |info| {
                info.set_slot(None);
                info.set_hashed(true);
            });
            self.step(page, Step::Fail);
            self.unwritten(slot, errno);
            self.enqueue_dirty(page);
        }
        // Where only space was missing, the next write goes elsewhere, until no slot is left.
        if self.failures > FAILURES || is_full(errno) && Slot(op.slot).volume() != 0 {
            match Slot(op.slot).volume() {
                0 => self.store_full = Some(errno),
                // Its pages go to the first volume from now on.
                volume => {
                    self.slots.close(volume);
                    self.failures = 0;
                }
            }
        }
    }
}
