//! What lies between the pager's reads and writes and the store below: pages are kept compressed in memory, and sealed on
//! their way to a file and opened when they arrive.
//!
//! A write is taken up in portions: its pages are compressed and kept, or go to blocks of our own, are sealed there and
//! written. It has ended when all of them have. A read is answered from what is kept, and from below, which brings it to the
//! frames themselves, in parts where it must; what has arrived is opened where it lies, a transfer at a time, between which
//! faults are looked at.

mod blocks;
mod reads;
mod seals;
mod sinks;
mod zip;

use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::{Setup, TIER_READ, TIER_WRITE};
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::remote::Remote;
use crate::{Errno, process};
use blocks::{Blocks, Outcome, Owner, PAGES};
use ream_page::{PAGE_BYTES, Slot, StoreId};
use ream_stats::{Counters, Ledger, Process};
use ream_wire::seal::{KEY, PageKey};
use seals::Seals;
use zip::{Kept, View, Zip};

/// Most transfers that the tiers have under way beside those they were asked for.
pub const TIER_BLOCKS: u32 = blocks::BLOCKS as u32;
/// Stores that are read: the own one, and those of 255 ancestors.
const STORES: usize = 256;
/// Pages of writes that are dealt with before other things are looked at.
const PORTION: u32 = 64;

/// What there is to be between the pager and the store.
#[derive(Clone, Copy)]
pub struct TiersConfig {
    /// Whether pages in files are sealed.
    pub sealed: bool,
    /// Most bytes of compressed pages, of all processes; 0: none are compressed.
    pub zip_bytes: u64,
    /// Whether there is a store below.
    pub below: bool,
    /// The account of compressed pages, and this process there.
    pub ledger: &'static Ledger,
    /// See `ledger`.
    pub process: &'static Process,
    /// The number of the own store, which no other process of the session has.
    pub store: u32,
    /// Slots that the store may have.
    pub slots: u32,
}

/// What is known of a store.
#[derive(Clone, Copy)]
struct Layer {
    seals: Seals,
    zip: View,
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
    /// Of a read, pages that are being read; whether some between them are here; whether that has gone wrong once; what
    /// had left and what had been written meanwhile.
    part: u32,
    mixed: bool,
    again: bool,
    /// Whether a thread waits for it; whether all of it was here.
    demand: bool,
    below: bool,
    left: u64,
    passed: u64,
    /// When it was begun, in microseconds.
    began: u64,
    /// Of a write, its blocks under way, and how it failed.
    under_way: u32,
    failed: i32,
    /// The frames of a read; the list of parts of a write, and its length.
    address: usize,
    parts: u32,
}

// SAFETY: integers.
unsafe impl Zeroable for Op {}

impl Op {
    const NONE: Op = Op {
        store: 0,
        slot: 0,
        pages: 0,
        done: 0,
        part: 0,
        mixed: false,
        again: false,
        demand: false,
        below: false,
        left: 0,
        passed: 0,
        began: 0,
        under_way: 0,
        failed: 0,
        address: 0,
        parts: 0,
    };
}

/// The account of compressed pages.
#[derive(Clone, Copy)]
struct Room {
    ledger: &'static Ledger,
    process: &'static Process,
}

impl Room {
    fn acquire(self, bytes: usize) -> bool {
        let taken = self.process.acquire_zip(self.ledger, bytes as u64);
        self.process.counters.zip_bytes.raise(self.process.zip_bytes());
        taken
    }

    fn give_back(self, bytes: usize) {
        self.process.give_back_zip(self.ledger, bytes as u64);
    }
}

/// The store below: files, by the number of their store, or memory servers.
pub(crate) struct Below<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) files: &'a [Fd],
    pub(crate) remote: Option<&'a mut Remote>,
    /// Tags from here on are those of blocks.
    pub(crate) io_limit: u32,
}

impl Below<'_> {
    /// # Safety
    /// The memory may be overwritten until the end has been told.
    unsafe fn read(
        &mut self,
        (tag, demand): (u32, bool),
        store: u32,
        slot: u32,
        address: usize,
        pages: u32,
    ) -> Result<(), Errno> {
        if let Some(remote) = &mut self.remote {
            remote.set_waited_for(demand);
            remote.read(tag, StoreId(store as u8), Slot(slot), address, pages);
            return Ok(());
        }
        let file = self.files.get(store as usize).copied().unwrap_or(Fd::NONE);
        let offset = Slot(slot).offset();
        // SAFETY: the caller's promise.
        unsafe { self.io.read(file, address, pages * PAGE_BYTES as u32, offset, TIER_READ | u64::from(tag)) }
    }

    /// # Safety
    /// The parts, and what they name, stay as they are until the end has been told.
    unsafe fn write(&mut self, block: usize, slot: u32, parts: &[Part]) -> Result<(), Errno> {
        if let Some(remote) = &mut self.remote {
            remote.write(self.io_limit + block as u32, Slot(slot), parts);
            return Ok(());
        }
        let file = self.files.first().copied().unwrap_or(Fd::NONE);
        // SAFETY: the caller's promise.
        unsafe { self.io.write(file, parts, Slot(slot).offset(), TIER_WRITE | block as u64) }
    }
}

/// What became of a page of a write.
enum Put {
    Done,
    /// It has to wait.
    Blocked,
    Failed,
}

pub(crate) struct Tiers {
    layers: MapSlice<Layer>,
    /// The own store's.
    key: Option<PageKey>,
    sealed: bool,
    zip: Option<Zip>,
    room: Room,
    counters: &'static Counters,
    below: bool,
    ops: MapSlice<Op>,
    /// Reads that are to be looked at: those that threads wait for, and the others.
    waited: Queue<u32>,
    ahead: Queue<u32>,
    waited_for: bool,
    /// Pages that passed what is kept here by.
    passed: u64,
    /// Until when nothing is sunk, after a failure, in microseconds.
    rest_until: u64,
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
        let mut own = Layer { seals: Seals::NONE, zip: View::NONE };
        if config.sealed {
            let mut bytes = [0; KEY];
            process::random(&mut bytes).map_err(fail("drawing a key for pages"))?;
            own.seals = Seals::new(config.slots, bytes, config.store).map_err(&room)?;
        }
        let mut zip = None;
        if config.zip_bytes > 0 {
            let (made, view) = Zip::new(config.zip_bytes, config.slots, config.below).map_err(&room)?;
            own.zip = view;
            zip = Some(made);
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
            zip,
            room: Room { ledger: config.ledger, process: config.process },
            counters: &config.process.counters,
            below: config.below,
            ops: MapSlice::new(ops).map_err(&room)?,
            waited: Queue::new(ops).map_err(&room)?,
            ahead: Queue::new(ops).map_err(&room)?,
            waited_for: false,
            passed: 0,
            rest_until: 0,
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
        self.blocks.is_settled() && self.writing.is_none() && self.writes.is_empty()
    }

    pub(crate) fn set_waited_for(&mut self, on: bool) {
        self.waited_for = on;
    }

    /// Nobody needs what a slot holds any more.
    pub(crate) fn freed(&mut self, slot: Slot) {
        if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get_mut(0)) {
            zip.forget(&mut own.zip, slot.0, self.room);
        }
    }

    /// A child is about to be forked, which reads what is kept here: it stays as it is until [`Tiers::thaw`].
    pub(crate) fn freeze(&mut self) {
        if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get(0)) {
            zip.freeze(&own.zip, self.room);
        }
    }

    /// No child is there any more that reads it.
    pub(crate) fn thaw(&mut self) {
        if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get(0)) {
            zip.thaw(&own.zip, self.room);
        }
    }

    /// Whether there is something to tell or to open.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.arrived.is_empty()
    }

    fn end(&mut self, tag: u32, result: i32) {
        self.ended.push((tag, result));
    }

    /// Something has ended below: a block's write, or a read, which is looked at later.
    pub(crate) fn happened(&mut self, written: bool, what: u32, result: i32) {
        if written {
            self.block_ended(what as usize, result);
        } else {
            self.arrived.push((what, result));
        }
    }

    /// # Safety
    /// List and frames stay as they are until the end has been told.
    pub(crate) unsafe fn write(&mut self, tag: u32, slot: Slot, parts: &[Part]) {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let op = Op {
            slot: slot.0,
            pages: (bytes / PAGE_BYTES) as u32,
            address: parts.as_ptr().expose_provenance(),
            parts: parts.len() as u32,
            ..Op::NONE
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
        if self.advance_reads(below) {
            return true;
        }
        let mut more = false;
        if let Some(tag) = self.writing.take().or_else(|| self.writes.pop()) {
            match self.take_up(tag, below) {
                Some(true) => more = !self.writes.is_empty(),
                Some(false) => {
                    self.writing = Some(tag);
                    more = true;
                }
                None => self.writing = Some(tag),
            }
        }
        more | self.sink(below)
    }

    /// Takes a portion of a write up. `Some(true)`: all has been; `None`: the rest has to wait for blocks.
    fn take_up(&mut self, tag: u32, below: &mut Below<'_>) -> Option<bool> {
        let Some(op) = self.ops.get(tag as usize).copied() else { return Some(true) };
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
                if done == end {
                    break 'parts;
                }
                // SAFETY: a frame, whole, in which nobody writes.
                let page =
                    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(at), PAGE_BYTES) };
                match self.put(tag, op.slot + done, page, &mut open, below) {
                    Put::Done => done += 1,
                    Put::Blocked => {
                        blocked = true;
                        break 'parts;
                    }
                    Put::Failed => break 'parts,
                }
            }
        }
        self.close(open, below);
        let Some(place) = self.ops.get_mut(tag as usize) else { return Some(true) };
        place.done = if place.failed == 0 { done } else { place.pages };
        if place.done == place.pages {
            self.settle(tag);
            return Some(true);
        }
        if blocked { None } else { Some(false) }
    }

    /// Keeps a page of a write, or has it go below.
    fn put(&mut self, tag: u32, slot: u32, page: &[u8], open: &mut Option<usize>, below: &mut Below<'_>) -> Put {
        if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get_mut(0)) {
            let kept = zip.keep(&mut own.zip, slot, page, false, self.room);
            if kept == Kept::Yes {
                self.counters.zip_kept.add_alone(1);
                self.counters.zip_kept_bytes.add_alone(zip.last);
                return Put::Done;
            }
            if !self.below {
                // Waste is squeezed out first, if there is any.
                if zip.begin() {
                    return Put::Blocked;
                }
                if let Some(op) = self.ops.get_mut(tag as usize) {
                    op.failed = Errno::NOSPC.negative();
                }
                return Put::Failed;
            }
        }
        if !self.pass(Owner::Write(tag), slot, open, below) {
            return Put::Blocked;
        }
        let Some(place) = open.and_then(|number| self.blocks.next(number)) else { return Put::Blocked };
        place.copy_from_slice(page);
        if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get_mut(0)) {
            zip.forget(&mut own.zip, slot, self.room);
            self.counters.zip_passed.add_alone(1);
        }
        self.passed += 1;
        Put::Done
    }

    /// Has `open` be a block in which a slot comes next. False while there is none.
    fn pass(&mut self, owner: Owner, slot: u32, open: &mut Option<usize>, below: &mut Below<'_>) -> bool {
        let room = |blocks: &Blocks, number: usize| {
            blocks.list.get(number).is_some_and(|block| block.pages < PAGES && block.slot + block.pages == slot)
        };
        if open.is_some_and(|number| room(&self.blocks, number)) {
            return true;
        }
        self.close(open.take(), below);
        // Two writes of a slot at once would end in any order.
        if self.blocks.touches(slot) {
            return false;
        }
        *open = self.blocks.take(owner, slot);
        open.is_some()
    }

    /// Has a filled block sealed and written.
    fn close(&mut self, block: Option<usize>, below: &mut Below<'_>) {
        let Some((number, block)) = block.and_then(|number| Some((number, *self.blocks.list.get(number)?))) else {
            return;
        };
        if block.pages == 0 {
            return;
        }
        if let Owner::Write(tag) = block.owner {
            if let Some(op) = self.ops.get_mut(tag as usize) {
                op.under_way += 1;
            }
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
        match block.owner {
            Owner::Write(tag) => {
                if let Some(op) = self.ops.get_mut(tag as usize) {
                    op.under_way -= 1;
                    if failed != 0 {
                        op.failed = failed;
                    }
                }
                self.settle(tag);
            }
            Owner::Segment(number) => self.sank(number, block.slot, block.pages, failed == 0),
        }
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
