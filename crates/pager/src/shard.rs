//! One shard: its state, its counts, and the turn of work that keeps frames free.

use crate::back::Back;
use crate::faults::SEVERAL;
use crate::frames::{Fill, Frames};
use crate::guard::Leaving;
use crate::io::Op;
use crate::learn::Unlearnt;
use crate::queue::Fifo;
use crate::table::Table;
use crate::turn::{Choosy, PENDING, Pending};
use crate::volumes::Places;
use crate::whole::Errands;
use crate::wishes::Usages;
use ream_page::{BLOCK_PAGES, Block, Frame, Page, Pages, Slot, State, Step, StoreId, VOLUMES, Word};
use ream_policy::{Calm, Extents, Guarding, Marks, Shortage, Stage, Streams, Trial};
use ream_store::Volumes;
use ream_sys::memory::MapSlice;
use ream_sys::{Errno, Machine};

pub use ream_stats::Counters;
use ream_stats::Swap;

/// Pages that a new block of metadata costs: its table entry and the kernel's page table.
const META_PAGES: u64 = 3;

/// What a shard is started with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Pages of RAM that it may hold, staging and metadata included.
    pub limit: u64,
    /// Most slots of its store.
    pub slots: u32,
    /// Which part of an allocation a fault brings in.
    pub fetch: Fetch,
    /// How pages are exchanged with the store.
    pub swap: Swap,
}

/// Which part of an allocation a fault brings in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// What the history of faults suggests.
    Auto,
    /// The extent touched, nothing ahead.
    Lazy,
    /// The extent touched and what follows, as far as the budget allows.
    Aggressive,
}

/// Why a shard cannot go on. The program must be stopped: its data are intact in memory but cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fatal {
    /// A read from a store failed for good.
    Read(Errno),
    /// A slot held something else than what was written there.
    Corrupt(Slot, StoreId),
    /// Nothing can be written any more and RAM is full; so many pages are managed.
    StoreFull(Option<Errno>),
    /// A rule of this program was broken.
    Internal(&'static str),
}

/// Whether a command is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is.
    Done,
    /// Call again after the next events.
    Again,
}

/// The queues of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    New,
    Hot,
    Cooling,
    Clean,
    Ahead,
    Dirty,
}

/// One shard of a process.
pub struct Shard<M: Machine> {
    pub(crate) machine: M,
    pub(crate) table: Table,
    pub(crate) frames: Frames,
    /// NUMA nodes, and the one to which frames and memory belong for now.
    pub(crate) nodes: u8,
    pub(crate) node: u8,
    pub(crate) slots: Volumes,
    /// Faults that read, and faults that fill or rescue: separate histories.
    pub(crate) streams: Streams,
    pub(crate) touches: Streams,
    pub(crate) ops: MapSlice<Op>,
    pub(crate) tags: MapSlice<u32>,
    pub(crate) tags_free: usize,
    /// Reads and writes under way.
    pub(crate) reading: u32,
    pub(crate) writing: u32,
    /// Reads under way of a single page that a thread waits for.
    pub(crate) lone: u32,
    /// Pages to be read for streams that still leave room for such, since there was one lately.
    pub(crate) beside: u32,
    pub(crate) swap: Swap,
    pub(crate) new: Fifo,
    pub(crate) hot: Fifo,
    pub(crate) cooling: Fifo,
    pub(crate) dirty: Fifo,
    pub(crate) clean: Fifo,
    pub(crate) ahead: Fifo,
    /// Entries of `ahead` that were there when the eviction clock was last looked at for them, and when that was.
    pub(crate) ahead_old: u64,
    pub(crate) ahead_looked: u64,
    pub(crate) dirty_pages: u64,
    pub(crate) count: [u64; 9],
    pub(crate) hot_resident: u64,
    /// Hot pages that are being read, or were read ahead.
    pub(crate) hot_coming: u64,
    pub(crate) used: u64,
    /// What was there before and has not been looked at.
    pub(crate) unlearnt: Unlearnt,
    /// Pages counted in `used` that were found to map the shared page of zeros, and so take none.
    pub(crate) shared_zeros: u64,
    /// Blocks whose metadata are counted in `used`.
    pub(crate) charged: u64,
    pub(crate) limit: u64,
    /// Pages of the limit, extent and halvings that the marks were made for.
    marked_for: (u64, u64, u32),
    pub(crate) stage: Stage,
    pub(crate) trial: Trial,
    pub(crate) shortage: Shortage,
    /// How much is asked for at once.
    pub(crate) extents: Extents,
    pub(crate) marks: Marks,
    /// Pages evicted so far: the eviction clock.
    pub(crate) evictions: u64,
    /// Of these, pages that were moved out.
    pub(crate) cooled: u64,
    pub(crate) guarding: Guarding,
    pub(crate) calm: Calm,
    /// Whether pages may be guarded.
    pub(crate) guards: bool,
    pub(crate) leaving: Leaving,
    /// Runs that could have left without being moved out.
    pub(crate) left: u64,
    /// Queue entries tried for eviction since one could be moved.
    pub(crate) fruitless: u64,
    /// Errands of the helper since a page was last moved out.
    pub(crate) vain: u64,
    /// When the helper was last asked.
    pub(crate) last_errand: u64,
    /// Whole blocks read while no populated huge frame was free, and which share of all they were of late, in 65536ths.
    pub(crate) whole_reads: u32,
    pub(crate) lacking: u32,
    /// Nothing resident could be moved out when that was last tried.
    pub(crate) barren: bool,
    /// Eviction has begun and not yet filled the stage.
    pub(crate) tidying: bool,
    /// A thread waits for a frame, and none can be had within the limit.
    pub(crate) starved: bool,
    pub(crate) pending: MapSlice<Pending>,
    pub(crate) pending_head: usize,
    pub(crate) pending_len: usize,
    pub(crate) choosy: Choosy,
    pub(crate) reserved: [u32; VOLUMES],
    /// Ranges that have a volume of their own.
    pub(crate) places: Places,
    pub(crate) store_full: Option<Errno>,
    /// What it means that no slot is left: how the store refused the last that it had no space for, else that it is full.
    pub(crate) no_room: Errno,
    /// Whether a full store was tried once more before the program is stopped.
    pub(crate) tried_again: bool,
    pub(crate) failures: u32,
    pub(crate) fetch: Fetch,
    /// The allocations that are being fetched whole.
    pub(crate) errands: Errands,
    /// What was in RAM when a rank's turn ended.
    pub(crate) back: Back,
    /// What the program says of ranges.
    pub(crate) usages: Usages,
    /// No eviction: a fork is being prepared.
    pub(crate) quiet: bool,
    /// Whether touches of what is in a store, or was never written, wait for better times.
    pub(crate) withheld: bool,
    /// Pages may be shared with a child that lives or lived.
    pub(crate) forked: bool,
    /// Pages under read that some thread waits for.
    pub(crate) wanted: u64,
    /// Reads were started that the machine has not been told to submit.
    pub(crate) started: bool,
    /// What the helper makes ours alone, and the operation that says when it is done.
    pub(crate) unsharing: Option<(u32, Pages)>,
    /// Whether a fork is being prepared, so that the helper gets no errand any more.
    pub(crate) settling: bool,
    /// Whether a fork is being prepared, from its beginning on.
    pub(crate) preparing: bool,
    /// The fewest pages held since a fork began to be prepared, and when that was reached.
    pub(crate) fork_least: (u64, u64),
    /// What it was asked for last.
    pub(crate) unshared: Pages,
    pub(crate) fatal: Option<Fatal>,
    pub(crate) counters: &'static Counters,
}

/// Part of the limit that the next extents of many streams together may take: one of so many.
const STREAMED: u64 = 2;
/// Populated runs of at least so many pages are read into one by one before fresh frames are.
const WORTH: u32 = 8;

/// Lengths to try for `pages` frames side by side: all of them, then ever smaller powers of two down to `least`.
fn lengths(pages: u32, least: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(pages), move |length| {
        Some(length.next_power_of_two() / 2).filter(|half| *half >= least)
    })
}

impl<M: Machine> Shard<M> {
    /// A shard that manages nothing yet.
    pub fn new(machine: M, config: Config, counters: &'static Counters) -> Result<Shard<M>, Errno> {
        let frames = Frames::new(machine.huge_start(), machine.frames(), machine.nodes())?;
        let entries = config.limit.clamp(1024, 1 << 28) as usize;
        // Every staged page has a place, and may be an entry by itself.
        let staged = machine.frames().max(1024) as usize * 2;
        let tags = machine.io_limit() as usize;
        let mut shard = Shard {
            nodes: machine.nodes().clamp(1, ream_sys::NODES as u8),
            node: u8::MAX,
            machine,
            table: Table::new()?,
            frames,
            slots: Volumes::new(config.slots)?,
            streams: Streams::new(0),
            touches: Streams::new(0),
            ops: MapSlice::new(tags)?,
            tags: MapSlice::new(tags)?,
            tags_free: 0,
            reading: 0,
            writing: 0,
            lone: 0,
            beside: 0,
            swap: config.swap,
            new: Fifo::new(entries * 2)?,
            hot: Fifo::new(entries * 2)?,
            cooling: Fifo::new(staged)?,
            dirty: Fifo::new(staged)?,
            clean: Fifo::new(staged)?,
            ahead: Fifo::new(staged)?,
            ahead_old: 0,
            ahead_looked: 0,
            dirty_pages: 0,
            count: [0; 9],
            hot_resident: 0,
            hot_coming: 0,
            used: 0,
            unlearnt: Unlearnt::new()?,
            shared_zeros: 0,
            charged: 0,
            limit: 0,
            marked_for: (u64::MAX, 0, 0),
            stage: Stage::default(),
            trial: Trial::default(),
            shortage: Shortage::default(),
            extents: Extents::default(),
            marks: Marks::for_limit(config.limit, 1, 0),
            evictions: 0,
            cooled: 0,
            guarding: Guarding::default(),
            calm: Calm::default(),
            guards: false,
            leaving: Leaving::default(),
            left: 0,
            fruitless: 0,
            vain: 0,
            last_errand: 0,
            whole_reads: 0,
            lacking: 0,
            barren: false,
            tidying: false,
            starved: false,
            pending: MapSlice::new(PENDING)?,
            pending_head: 0,
            pending_len: 0,
            choosy: Choosy::default(),
            reserved: [0; VOLUMES],
            places: Places::new(),
            store_full: None,
            no_room: Errno(28),
            tried_again: false,
            failures: 0,
            fetch: config.fetch,
            errands: Errands::default(),
            back: Back::new()?,
            usages: Usages::new(),
            quiet: false,
            withheld: false,
            forked: false,
            wanted: 0,
            started: false,
            unsharing: None,
            settling: false,
            preparing: false,
            fork_least: (u64::MAX, 0),
            unshared: Pages::none(Block(0)),
            fatal: None,
            counters,
        };
        shard.reset_tags();
        shard.set_limit(config.limit);
        Ok(shard)
    }

    pub(crate) fn reset_tags(&mut self) {
        let tags = self.tags.len();
        for (index, tag) in self.tags.as_mut_slice().iter_mut().enumerate() {
            *tag = (tags - 1 - index) as u32;
        }
        self.tags_free = tags;
        (self.reading, self.writing, self.lone, self.beside) = (0, 0, 0, 0);
    }

    /// Changes the number of pages that the shard may hold.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.set_marks();
    }

    /// The marks are shares of what is left beside the pages that must stay.
    pub(crate) fn set_marks(&mut self) {
        let room = self.limit.saturating_sub(self.fixed());
        let extent = self.extents.pages();
        let round = self.hot_resident * 2 > self.count(State::Resident) && extent >= SEVERAL as u64;
        let halvings = self.stage.halvings(self.cooled, self.counters.rescues.get(), round);
        if (room, extent, halvings) != self.marked_for {
            self.marked_for = (room, extent, halvings);
            self.marks = Marks::for_limit(room, extent, halvings);
            self.streams.set_window((self.marks.ahead - self.marks.ahead / 4).min(u32::MAX as u64) as u32);
            for streams in [&mut self.streams, &mut self.touches] {
                streams.set_room((room / STREAMED).min(u32::MAX as u64) as u32);
            }
        }
    }

    /// Pages that it may hold.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Pages that it holds: resident ones, populated frames, metadata.
    pub fn used(&self) -> u64 {
        self.used - self.shared_zeros.min(self.used)
    }

    /// Whether what is mapped is no more than may be.
    pub fn is_within_limit(&self) -> bool {
        self.used <= self.limit
    }

    /// Pages in this state.
    pub fn count(&self, state: State) -> u64 {
        self.count.get(state as usize).copied().unwrap_or(0)
    }

    /// Pages of those that nothing can be done about: metadata, and pages that must stay.
    pub fn fixed(&self) -> u64 {
        self.charged * META_PAGES + self.table.held_resident()
    }

    /// Whether the store refused the last write, or had no slot.
    pub fn store_is_full(&self) -> bool {
        self.store_full.is_some()
    }

    /// Slots of its own store that hold content.
    pub fn slots_in_use(&self) -> u64 {
        self.slots.in_use()
    }

    /// Faults that wait for a frame.
    pub fn waiting(&self) -> usize {
        self.pending_len
    }

    /// Pages that threads wait for now.
    pub fn threads_waiting(&self) -> u64 {
        self.wanted + self.pending_len as u64
    }

    /// Whether reads were started since the last call, which the next poll submits.
    pub fn take_started(&mut self) -> bool {
        core::mem::take(&mut self.started)
    }

    /// Adds to the time that threads waited: so many of them for so many microseconds.
    pub fn count_waiting(&mut self, threads: u64, us: u64) {
        self.counters.waited_ns.add_alone(threads * us * 1000);
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to change it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What stopped the shard, if anything did.
    pub fn fatal(&self) -> Option<Fatal> {
        self.fatal
    }

    pub(crate) fn fail(&mut self, why: Fatal) {
        if self.fatal.is_none() {
            self.fatal = Some(why);
        }
    }

    /// Whether the page is managed.
    pub fn manages(&self, page: Page) -> bool {
        self.table.word(page).state() != State::Unmanaged
    }

    /// Sets a page's word and keeps the counts.
    pub(crate) fn put(&mut self, page: Page, old: Word, new: Word) {
        if let Some(count) = self.count.get_mut(old.state() as usize) {
            *count = count.wrapping_sub(1);
        }
        if let Some(count) = self.count.get_mut(new.state() as usize) {
            *count = count.wrapping_add(1);
        }
        for (word, sign) in [(old, u64::MAX), (new, 1)] {
            match word.state() {
                _ if !word.hot() => {}
                State::Resident => self.hot_resident = self.hot_resident.wrapping_add(sign),
                State::Reading | State::Ahead => self.hot_coming = self.hot_coming.wrapping_add(sign),
                _ => {}
            }
        }
        if !self.table.set(page, new) {
            self.fail(Fatal::Internal("no memory for the state of a block"));
        }
        self.charge_blocks();
    }

    /// Takes one step of the transition table; a step that is not in it stops the shard.
    pub(crate) fn step(&mut self, page: Page, step: Step) {
        let old = self.table.word(page);
        match old.step(step) {
            Some(new) => self.put(page, old, new),
            None => self.fail(Fatal::Internal("a page took a step that the state table does not have")),
        }
    }

    /// Pages that can be had at once: room below the limit and free populated frames.
    pub(crate) fn free_pages(&self) -> u64 {
        self.limit.saturating_sub(self.used) + self.populated_and_free()
    }

    /// Populated frames with nothing in them.
    fn populated_and_free(&self) -> u64 {
        self.frames.full_count() + self.frames.huge_full_count() * BLOCK_PAGES as u64
    }

    /// Pages that it holds something in: [`Shard::used`] without frames that are free.
    pub fn filled(&self) -> u64 {
        self.used().saturating_sub(self.populated_and_free())
    }

    /// Lets go of a slot of our own store.
    pub(crate) fn free_slot(&mut self, slot: Option<(Slot, StoreId)>) {
        if let Some((slot, StoreId::OWN)) = slot {
            if self.slots.free(slot) {
                self.machine.freed(slot);
            }
            self.store_full = None;
        }
    }

    /// Takes `pages` consecutive small frames, within the limit: populated free ones, else fresh ones.
    pub(crate) fn obtain(&mut self, pages: u32) -> Option<Frame> {
        self.extents.ask(pages);
        if let Some(frame) = self.frames.take_full(pages) {
            return Some(frame);
        }
        if !self.make_room(pages as u64, false) {
            return None;
        }
        let frame = self.frames.take_hole(pages)?;
        self.used += pages as u64;
        self.populated_here(frame, pages);
        Some(frame)
    }

    /// Takes `pages` consecutive small frames or, where nowhere so many lie side by side, as many as do: populated ones
    /// but for runs that are too short, else fresh ones. The second value tells how many.
    pub(crate) fn obtain_most(&mut self, pages: u32) -> Option<(Frame, u32)> {
        self.extents.ask(pages);
        let populated = lengths(pages, WORTH).find_map(|length| Some((self.frames.take_full(length)?, length)));
        if populated.is_some() {
            return populated;
        }
        if !self.make_room(pages as u64, true) {
            return None;
        }
        let (frame, length) = lengths(pages, 1).find_map(|length| Some((self.frames.take_hole(length)?, length)))?;
        self.used += length as u64;
        self.populated_here(frame, length);
        Some((frame, length))
    }

    /// Takes a huge frame, within the limit. The second value tells whether it is populated.
    pub(crate) fn obtain_huge(&mut self) -> Option<(Frame, bool)> {
        self.extents.ask(BLOCK_PAGES);
        if let Some(frame) = self.frames.take_huge_full() {
            self.fill_huge(frame);
            return Some((frame, true));
        }
        if !self.make_room(BLOCK_PAGES as u64, true) {
            return None;
        }
        let frame = self.frames.take_huge_hole()?;
        self.used += BLOCK_PAGES as u64;
        self.populated_here(frame, BLOCK_PAGES);
        self.fill_huge(frame);
        Some((frame, false))
    }

    fn fill_huge(&mut self, frame: Frame) {
        if let Some(fill) = self.frames.huge_fill(frame) {
            *fill = Fill::of(BLOCK_PAGES);
        }
    }

    /// Populated frames that are no longer needed become free.
    pub(crate) fn free_frames(&mut self, frame: Frame, pages: u32) {
        if !self.frames.is_huge(frame) {
            self.frames.put_full(frame, pages);
            return;
        }
        self.leave_huge(frame, pages, false);
    }

    /// Frames whose pages were moved to the program are holes now.
    pub(crate) fn vacate_frames(&mut self, frame: Frame, pages: u32) {
        if !self.frames.is_huge(frame) {
            self.frames.put_hole(frame, pages);
            return;
        }
        self.leave_huge(frame, pages, true);
    }

    fn leave_huge(&mut self, frame: Frame, pages: u32, moved: bool) {
        let first = self.frames.huge_of(frame);
        let Some(fill) = self.frames.huge_fill(first) else { return };
        fill.live -= pages;
        if moved {
            fill.filled -= pages;
        }
        let (live, filled) = (fill.live, fill.filled);
        if live > 0 {
            return;
        }
        if filled == BLOCK_PAGES {
            self.frames.put_huge_full(first);
            return;
        }
        if filled > 0 || pages < BLOCK_PAGES {
            // Also frees the page table that single moves left behind.
            self.machine.empty_frames(&[(first, BLOCK_PAGES)]);
            self.used -= filled as u64;
        }
        self.frames.put_huge_hole(first);
    }

    /// Counts the metadata of blocks, new and retired ones, against the limit.
    pub(crate) fn charge_blocks(&mut self) {
        let blocks = self.table.blocks();
        if blocks != self.charged {
            self.used = (self.used + blocks * META_PAGES).saturating_sub(self.charged * META_PAGES);
            self.charged = blocks;
        }
    }
}
