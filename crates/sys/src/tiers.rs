//! What lies between the pager's reads and writes and the store below: pages are sealed on their way to a file and opened
//! when they arrive.
//!
//! A write is taken up in portions: its pages go to blocks of our own, are sealed there and written. It has ended when
//! all of them have. A read goes to the frames themselves, in parts where it must; what has arrived is opened where it
//! lies, a transfer at a time, between which faults are looked at.

mod blocks;
mod seals;

use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::{Setup, TIER_READ, TIER_WRITE};
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::{Errno, process};
use blocks::{Blocks, Outcome, Owner, PAGES};
use ream_page::{PAGE_BYTES, Slot, StoreId};
use ream_wire::seal::{KEY, PageKey};
use seals::Seals;

/// Stores that are read: the own one, and those of 255 ancestors.
const STORES: usize = 256;
/// Pages of writes that are dealt with before other things are looked at.
const PORTION: u32 = 64;

/// What there is to be between the pager and the store.
#[derive(Clone, Copy)]
pub struct TiersConfig {
    /// Whether pages in files are sealed.
    pub sealed: bool,
    /// The number of the own store, which no other process of the session has.
    pub store: u32,
    /// Slots that the store may have.
    pub slots: u32,
}

/// What is known of a store.
#[derive(Clone, Copy)]
struct Layer {
    seals: Seals,
}

// SAFETY: integers.
unsafe impl Zeroable for Layer {}

/// What a forked child needs to read what its parent and ancestors have stored: in memory that it inherits.
pub struct Inheritance {
    layers: MapSlice<Layer>,
}

/// A read or a write, by its tag.
#[derive(Clone, Copy)]
struct Op {
    store: u32,
    slot: u32,
    pages: u32,
    /// Pages that are there, or have been taken up.
    done: u32,
    /// Of a read, pages that are being read.
    part: u32,
    /// Of a write, its blocks under way, and how it failed.
    under_way: u32,
    failed: i32,
    /// The frames of a read; the list of parts of a write, and its length.
    address: usize,
    parts: u32,
}

// SAFETY: integers.
unsafe impl Zeroable for Op {}

/// The store below: files, by the number of their store.
pub(crate) struct Below<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) files: &'a [Fd],
}

impl Below<'_> {
    /// # Safety
    /// The memory may be overwritten until the end has been told.
    unsafe fn read(&mut self, tag: u32, store: u32, slot: u32, address: usize, pages: u32) -> Result<(), Errno> {
        let file = self.files.get(store as usize).copied().unwrap_or(Fd::NONE);
        let offset = Slot(slot).offset();
        // SAFETY: the caller's promise.
        unsafe { self.io.read(file, address, pages * PAGE_BYTES as u32, offset, TIER_READ | u64::from(tag)) }
    }

    /// # Safety
    /// The parts, and what they name, stay as they are until the end has been told.
    unsafe fn write(&mut self, block: usize, slot: u32, parts: &[Part]) -> Result<(), Errno> {
        let file = self.files.first().copied().unwrap_or(Fd::NONE);
        // SAFETY: the caller's promise.
        unsafe { self.io.write(file, parts, Slot(slot).offset(), TIER_WRITE | block as u64) }
    }
}

pub(crate) struct Tiers {
    layers: MapSlice<Layer>,
    /// The own store's.
    key: Option<PageKey>,
    sealed: bool,
    ops: MapSlice<Op>,
    /// The write that is being taken up, and those behind it.
    writing: Option<u32>,
    writes: Queue<u32>,
    /// Reads that have arrived from below, and what is to be told.
    arrived: Queue<(u32, i32)>,
    ended: Queue<(u32, i32)>,
    blocks: Blocks,
}

impl Tiers {
    /// For a process, or for a forked child with what it `inherits`: its parent's store is `parent` from now on.
    pub(crate) fn new(
        config: &TiersConfig,
        io_limit: u32,
        inherits: Option<(Inheritance, StoreId)>,
    ) -> Result<Tiers, Setup> {
        let fail = |what: &'static str| move |errno| Setup { what, errno };
        let room = fail("mapping the state of the store's tiers");
        let ops = io_limit as usize;
        let mut layers = match inherits {
            None => MapSlice::new(STORES).map_err(&room)?,
            Some((Inheritance { mut layers }, parent)) => {
                let own = layers.get(0).copied();
                if let (Some(own), Some(place)) = (own, layers.get_mut(parent.0 as usize)) {
                    *place = own;
                }
                layers
            }
        };
        let mut own = Layer { seals: Seals::NONE };
        if config.sealed {
            let mut bytes = [0; KEY];
            process::random(&mut bytes).map_err(fail("drawing a key for pages"))?;
            own.seals = Seals::new(config.slots, bytes, config.store).map_err(&room)?;
        }
        let key = if config.sealed { own.seals.key() } else { None };
        if let Some(place) = layers.get_mut(0) {
            *place = own;
        }
        seals::conceal(&layers);
        Ok(Tiers {
            layers,
            key,
            sealed: config.sealed,
            ops: MapSlice::new(ops).map_err(&room)?,
            writing: None,
            writes: Queue::new(ops).map_err(&room)?,
            arrived: Queue::new(ops).map_err(&room)?,
            ended: Queue::new(ops).map_err(&room)?,
            blocks: Blocks::new().map_err(&room)?,
        })
    }

    /// In a forked child, of the parent's: what is needed to read it. Nothing of it is used any more afterwards.
    pub(crate) fn bequeath(&mut self) -> Inheritance {
        Inheritance { layers: core::mem::replace(&mut self.layers, MapSlice::empty()) }
    }

    /// Whether pages in files are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Whether nothing is on its way that was told to be stored.
    pub(crate) fn is_settled(&self) -> bool {
        self.blocks.is_settled()
    }

    /// Whether there is something to tell or to open.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.arrived.is_empty()
    }

    fn end(&mut self, tag: u32, result: i32) {
        self.ended.push((tag, result));
    }

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
        let op = Op {
            store: store.0.into(),
            slot: slot.0,
            pages,
            done: 0,
            part: 0,
            under_way: 0,
            failed: 0,
            address,
            parts: 0,
        };
        match self.ops.get_mut(tag as usize) {
            Some(place) => *place = op,
            None => return self.end(tag, Errno::INVAL.negative()),
        }
        self.go_on_reading(tag, below);
    }

    /// Has the next part of a read brought.
    fn go_on_reading(&mut self, tag: u32, below: &mut Below<'_>) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.part = op.pages - op.done;
        let (store, slot, part) = (op.store, op.slot + op.done, op.part);
        let address = op.address + op.done as usize * PAGE_BYTES;
        // SAFETY: the frames are the read's until its end is told.
        if let Err(error) = unsafe { below.read(tag, store, slot, address, part) } {
            self.end(tag, error.negative());
        }
    }

    /// Something has ended below: a block's write, or a read, which is looked at later.
    pub(crate) fn happened(&mut self, written: bool, what: u32, result: i32) {
        if written {
            self.block_ended(what as usize, result);
        } else {
            self.arrived.push((what, result));
        }
    }

    /// A read has brought something.
    fn arrive(&mut self, tag: u32, result: i32, below: &mut Below<'_>) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        if result == Errno::AGAIN.negative() || result == Errno::INTR.negative() {
            return self.go_on_reading(tag, below);
        }
        let got = op.part.min((result.max(0) as usize / PAGE_BYTES) as u32);
        if got == 0 {
            return self.end(tag, if result < 0 { result } else { Errno::IO.negative() });
        }
        self.open(&op, got);
        let Some(place) = self.ops.get_mut(tag as usize) else { return };
        place.done += got;
        if place.done == place.pages {
            self.end(tag, (op.pages as usize * PAGE_BYTES) as i32);
        } else {
            self.go_on_reading(tag, below);
        }
    }

    /// Opens pages of a read that have arrived. What does not open becomes zeros: it may have been read along for nothing, and
    /// the pager's hash tells where it was not.
    fn open(&mut self, op: &Op, pages: u32) {
        let Some(layer) = self.layers.get(op.store as usize).filter(|_| self.sealed) else { return };
        let other = if op.store == 0 { None } else { layer.seals.key() };
        let Some(key) = other.as_ref().or(self.key.as_ref()) else { return };
        for index in op.done..op.done + pages {
            let at = core::ptr::with_exposed_provenance_mut::<u8>(op.address + index as usize * PAGE_BYTES);
            // SAFETY: a frame of the read, whole, which nobody else looks at before its end has been told.
            let page = unsafe { core::slice::from_raw_parts_mut(at, PAGE_BYTES) };
            layer.seals.open(key, op.slot + index, page);
        }
    }

    /// # Safety
    /// List and frames stay as they are until the end has been told.
    pub(crate) unsafe fn write(&mut self, tag: u32, slot: Slot, parts: &[Part]) {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let op = Op {
            store: 0,
            slot: slot.0,
            pages: (bytes / PAGE_BYTES) as u32,
            done: 0,
            part: 0,
            under_way: 0,
            failed: 0,
            address: parts.as_ptr().expose_provenance(),
            parts: parts.len() as u32,
        };
        match self.ops.get_mut(tag as usize) {
            Some(place) => *place = op,
            None => return self.end(tag, Errno::INVAL.negative()),
        }
        self.writes.push(tag);
    }

    /// Goes on with what is to be done. Returns whether there is more at once.
    pub(crate) fn advance(&mut self, below: &mut Below<'_>) -> bool {
        while let Some(number) = self.blocks.due() {
            self.submit(number, below);
        }
        let Some(tag) = self.writing.take().or_else(|| self.writes.pop()) else { return false };
        match self.take_up(tag, below) {
            Some(true) => !self.writes.is_empty(),
            Some(false) => {
                self.writing = Some(tag);
                true
            }
            None => {
                self.writing = Some(tag);
                false
            }
        }
    }

    /// Takes a portion of a write up. `Some(true)`: all has been; `None`: the rest has to wait for blocks.
    fn take_up(&mut self, tag: u32, below: &mut Below<'_>) -> Option<bool> {
        let op = self.ops.get(tag as usize).copied()?;
        let end = op.pages.min(op.done + PORTION);
        // SAFETY: the list and the frames do not change until the end of the write has been told.
        let parts = unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
        };
        let (mut open, mut skip, mut done) = (None, op.done as usize * PAGE_BYTES, op.done);
        let mut blocked = false;
        'parts: for part in parts {
            let gone = skip.min(part.bytes);
            skip -= gone;
            for at in (part.address + gone..part.address + part.bytes).step_by(PAGE_BYTES) {
                if done == end || op.failed != 0 {
                    break 'parts;
                }
                // SAFETY: a frame, whole, in which nobody writes.
                let page =
                    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(at), PAGE_BYTES) };
                if !self.pass(tag, op.slot + done, page, &mut open, below) {
                    blocked = true;
                    break 'parts;
                }
                done += 1;
            }
        }
        self.close(open, below);
        let place = self.ops.get_mut(tag as usize)?;
        place.done = if place.failed == 0 { done } else { place.pages };
        if place.done == place.pages {
            self.settle(tag);
            return Some(true);
        }
        if blocked { None } else { Some(false) }
    }

    /// Copies a page to a block that goes to the store below. False while none can be had.
    fn pass(&mut self, tag: u32, slot: u32, page: &[u8], open: &mut Option<usize>, below: &mut Below<'_>) -> bool {
        let room = |blocks: &Blocks, number: usize| {
            blocks.list.get(number).is_some_and(|block| block.pages < PAGES && block.slot + block.pages == slot)
        };
        let number = match *open {
            Some(number) if room(&self.blocks, number) => number,
            full => {
                self.close(full, below);
                *open = None;
                // Two writes of a slot at once would end in any order.
                if self.blocks.touches(slot) {
                    return false;
                }
                let Some(number) = self.blocks.take(Owner::Write(tag), slot) else { return false };
                *open = Some(number);
                number
            }
        };
        let Some(place) = self.blocks.next(number) else { return false };
        place.copy_from_slice(page);
        true
    }

    /// Has a filled block sealed and written.
    fn close(&mut self, block: Option<usize>, below: &mut Below<'_>) {
        let Some((number, block)) = block.and_then(|number| Some((number, *self.blocks.list.get(number)?))) else {
            return;
        };
        if block.pages == 0 {
            return;
        }
        let Owner::Write(tag) = block.owner;
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.under_way += 1;
        }
        if let (Some(key), Some(layer)) = (&self.key, self.layers.get_mut(0)) {
            for index in 0..block.pages {
                let sealed =
                    self.blocks.page(number, index).is_some_and(|page| layer.seals.seal(key, block.slot + index, page));
                if !sealed {
                    return self.block_ended(number, Errno::IO.negative());
                }
            }
        }
        self.submit(number, below);
    }

    fn submit(&mut self, number: usize, below: &mut Below<'_>) {
        let Some((slot, parts)) = self.blocks.rest(number) else { return };
        // SAFETY: block and list stay as they are until the end has been told.
        if unsafe { below.write(number, slot, parts) }.is_err() {
            self.blocks.postpone(number);
        }
    }

    fn block_ended(&mut self, number: usize, result: i32) {
        let Outcome::Ended(block, failed) = self.blocks.ended(number, result) else { return };
        let Owner::Write(tag) = block.owner;
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.under_way -= 1;
            if failed != 0 {
                op.failed = failed;
            }
        }
        self.settle(tag);
    }

    /// Ends a write of which nothing is left to do.
    fn settle(&mut self, tag: u32) {
        let Some(op) = self.ops.get(tag as usize) else { return };
        if op.done == op.pages && op.under_way == 0 {
            let result = if op.failed == 0 { (op.pages as usize * PAGE_BYTES) as i32 } else { op.failed };
            self.end(tag, result);
        }
    }

    /// What has ended, the oldest first; what has arrived is opened for it.
    pub(crate) fn pop_ended(&mut self, below: &mut Below<'_>) -> Option<(u32, i32)> {
        loop {
            if let Some(ended) = self.ended.pop() {
                return Some(ended);
            }
            let (tag, result) = self.arrived.pop()?;
            self.arrive(tag, result, below);
        }
    }
}
