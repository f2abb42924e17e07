//! The real machine: userfaultfd, a staging area, io_uring.
//! Made, used and dropped by one pager thread, in that thread's own descriptor table.

mod awake;
mod completions;
mod config;
mod guard;
mod handover;
mod layered;
mod servers;
mod space;
mod volumes;
mod wires;

use config::fail;
pub use config::{LinuxConfig, Setup};
pub use volumes::Anchors;

use crate::copier;
use crate::digest::Key;
use crate::file::{self, Fd, Part};
use crate::follow::Follower;
use crate::futex::Mutex;
use crate::helper::Helper;
use crate::inbox::Inbox;
use crate::io::Io;
use crate::loans::Loans;
use crate::memory::{self, Advice, MapSlice};
use crate::mover::{self, Direction};
use crate::nodes::Nodes;
use crate::pagemap::Pagemap;
use crate::process;
use crate::queue::Queue;
use crate::remote::Remote;
use crate::staging::Staging;
use crate::suspend::Suspender;
use crate::tiers::{Below, Tiers};
use crate::uffd::{Access, Uffd, feature, mode};
use crate::user::{Ask, Closed};
use crate::{Copied, Digest, Errno, Event, Events, Machine, Mapped, Moved, Stop, Wait};
use awake::Awake;
use ream_page::{BLOCK_BYTES, Block, Frame, PAGE_BYTES, Page, Pages, Run, Slot, StoreId, VOLUMES};
use space::Space;

// What a completion is about, in the upper half of its user data; the lower half is the tag.
const TRANSFER: u64 = 0;
const MESSAGES: u64 = 1 << 32;
const HELPER: u64 = 2 << 32;
const PUNCHED: u64 = 3 << 32;
const UNWATCHED: u64 = 4 << 32;
pub(crate) const LANE: u64 = 5 << 32;
pub(crate) const SPILL_READ: u64 = 6 << 32;
pub(crate) const SPILL_WRITE: u64 = 7 << 32;
pub(crate) const TIER_READ: u64 = 8 << 32;
pub(crate) const TIER_WRITE: u64 = 9 << 32;
const KIND: u64 = 0xff << 32;

/// Ends of transfers that one poll reports, and bytes after which it stops: a device with nothing to do idles meanwhile.
const PORTION: usize = 4;
const PORTION_BYTES: u32 = 1 << 20;
/// The same while whoever is woken runs in place of the pager: what has arrived is there before.
const PORTION_FOLLOWING: usize = 32;

/// Stores a process can read: its own and those of 255 ancestors.
const STORES: usize = 256;
/// Punches in flight; more are done at once.
const PUNCHES: usize = 32;

/// The real machine. A forked child must forget its parent's (`core::mem::forget`), never drop it.
pub struct LinuxMachine {
    staging: Staging,
    inbox: Inbox,
    pagemap: Pagemap,
    io: Io,
    /// /proc/self/mem, where pages are copied instead of moved.
    memory: Option<Fd>,
    /// Nothing is copied out now.
    keeps: bool,
    helper: Helper,
    follower: Follower,
    key: &'static Key,
    loans: Option<&'static Loans>,
    stores: [Fd; STORES],
    /// Files of the other volumes of each store.
    others: [[Fd; VOLUMES - 1]; STORES],
    /// The memory server that is the store instead of files.
    remote: Option<Remote>,
    /// What lies between the pager and the store.
    tiers: Option<Tiers>,
    suspender: Option<Suspender>,
    nodes: Nodes,
    io_limit: u32,
    /// Lists of parts of writes not yet submitted, `PARTS` for each tag.
    parts: MapSlice<[Part; LinuxMachine::PARTS]>,
    /// Transfers that ended while nobody could be told: tag and result.
    ended: Queue<(u32, i32)>,
    /// Slots being punched: first and number, 0 for a free entry.
    punches: [(u32, u32); PUNCHES],
    space: Space,
    watching_messages: bool,
    watching_helper: bool,
    awake: Awake,
    /// Held by whoever moves or resizes the program's mappings through libc.
    moving: Option<&'static Mutex<()>>,
    large: fn(Block) -> bool,
    /// Watches this process.
    own: Fd,
}

impl LinuxMachine {
    /// Makes a machine for the calling thread.
    pub fn new(config: &LinuxConfig) -> Result<LinuxMachine, Setup> {
        crate::clock::find();
        let move_feature = if config.move_pages { feature::MOVE } else { 0 };
        let events = feature::EVENT_REMAP | feature::EVENT_UNMAP;
        let wanted = move_feature | events | feature::WRITE_PROTECT | feature::THREAD_ID;
        let uffd = Uffd::open(wanted, config.user_only, config.ask).map_err(fail("open a userfaultfd"))?;
        LinuxMachine::with(config, uffd).inspect_err(|_| uffd.close())
    }

    fn with(config: &LinuxConfig, uffd: Uffd) -> Result<LinuxMachine, Setup> {
        if config.move_pages && !uffd.has(feature::MOVE) {
            return Err(Setup { what: "move pages with userfaultfd (Linux 6.8 or later)", errno: Errno::INVAL });
        }
        if !config.move_pages && uffd.access == Access::UserOnly && config.loans.is_none() {
            // The kernel's own writes to protected pages would fail.
            return Err(Setup { what: "copy pages with a userfaultfd for ordinary users", errno: Errno::PERM });
        }
        let io_limit = config.io_limit.clamp(1, 1024);
        let io = Io::new(config.uring, io_limit);
        let io = io.map_err(fail(if config.uring { "set up io_uring" } else { "prepare the threads for I/O" }))?;
        let mut stores = [Fd::NONE; STORES];
        if let Some(own) = stores.first_mut() {
            *own = config.store;
        }
        let uffd_fd = uffd.fd;
        Ok(LinuxMachine {
            staging: Staging::new(config.small_frames, config.huge_blocks, config.move_pages, &uffd)?,
            inbox: Inbox::new(uffd).map_err(fail("map the message queue"))?,
            pagemap: Pagemap::open(config.ask).map_err(fail("open /proc/self/pagemap"))?,
            helper: Helper::new().map_err(fail("prepare the helper thread"))?,
            follower: Follower::new([uffd_fd, io.descriptor()], config.uring)
                .map_err(fail("read the processor mask"))?,
            io,
            key: config.key,
            loans: config.loans,
            stores,
            others: [[Fd::NONE; VOLUMES - 1]; STORES],
            remote: None,
            tiers: None,
            suspender: None,
            nodes: Nodes::find(),
            io_limit,
            parts: MapSlice::new(io_limit as usize).map_err(fail("map the lists of writes"))?,
            ended: Queue::new(io_limit as usize + PUNCHES).map_err(fail("map the queue of ended transfers"))?,
            punches: [(0, 0); PUNCHES],
            space: Space::new(),
            watching_messages: false,
            watching_helper: false,
            awake: Awake::default(),
            moving: config.moving,
            large: config.large,
            own: process::watch_process(process::process_id()).unwrap_or(Fd::NONE),
            keeps: false,
            memory: if config.move_pages { None } else { Some(open_memory(config.ask)?) },
        })
    }

    /// Has [`Machine::suspend`] stop threads, which it does not otherwise.
    ///
    /// # Errors
    /// What failed.
    pub fn suspend_threads(&mut self) -> Result<(), Setup> {
        self.suspender = Some(Suspender::new().map_err(fail("prepare to stop threads"))?);
        Ok(())
    }

    /// Whether nothing is in memory only that was told to be stored.
    pub fn is_settled(&self) -> bool {
        self.remote.as_ref().is_none_or(Remote::is_settled) && self.tiers.as_ref().is_none_or(Tiers::is_settled)
    }

    /// Room for every tag; a full queue means that a tag was used twice.
    fn end(&mut self, tag: u32, result: i32) {
        self.ended.push((tag, result));
    }

    /// Whether a thread waits for one page, and nobody else for any: then the next poll stays awake for a moment.
    pub fn one_waits(&mut self, yes: bool) {
        self.awake.wanted = yes;
    }

    /// Ends a fault on a page of the pager's own, such as the doorbell's, where nobody else maps anything: whatever has changed
    /// elsewhere.
    pub fn answer(&mut self, page: Page) {
        self.inbox.answer(page);
    }
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        // The ring's watch keeps the userfaultfd alive beyond its descriptor, so it ends first; then the descriptor,
        // so that nobody, the helper thread neither, sleeps on us any more, and so that unmapping the staging area is
        // not reported to the one who should read the report.
        self.staging.unregister();
        if self.watching_messages && self.io.unwatch(MESSAGES, UNWATCHED) {
            while self.watching_messages && self.io.enter(Wait::Micros(100_000)).is_ok() {
                let Some(completion) = self.io.take() else { break };
                let _ = self.complete(completion);
            }
        }
        self.inbox.uffd.close();
        for fd in [self.memory.unwrap_or(Fd::NONE), self.own].into_iter().filter(|fd| *fd != Fd::NONE) {
            file::close(fd);
        }
    }
}

fn open_memory(ask: Ask) -> Result<Fd, Setup> {
    let own = file::open(c"/proc/self/mem", file::flags::READ, 0);
    own.or_else(|error| ask(Closed::Memory).map_err(|_| error)).map_err(fail("open /proc/self/mem"))
}

impl Machine for LinuxMachine {
    fn frames(&self) -> u32 {
        self.staging.frames
    }
    fn huge_start(&self) -> u32 {
        self.staging.huge_start
    }
    fn may_be_large(&self, block: Block) -> bool {
        (self.large)(block)
    }

    fn move_in(&mut self, frame: Frame, page: Page, pages: u32) -> Moved {
        let Some(source) = self.staging.page(frame, pages) else {
            return Moved { pages: 0, stop: Some(Stop::Mapping) };
        };
        let (inbox, pagemap) = (&mut self.inbox, &mut self.pagemap);
        // SAFETY: frames are the pager's; what was in them belongs to the pages they are moved to.
        unsafe {
            match self.memory {
                None => {
                    self.follower.waking(|| mover::move_pages(inbox, pagemap, (page, source), pages, Direction::In))
                }
                Some(_) => copier::move_in(inbox, pagemap, source, page, pages),
            }
        }
    }

    fn move_out(&mut self, page: Page, frame: Frame, pages: u32) -> Moved {
        let Some(destination) = self.staging.page(frame, pages) else {
            return Moved { pages: 0, stop: Some(Stop::Mapping) };
        };
        let (inbox, pagemap) = (&mut self.inbox, &mut self.pagemap);
        let free = self.loans.map_or(pages, |loans| loans.evict(Run { start: page, pages: pages as u64 }) as u32);
        // SAFETY: the pages are registered, so that whoever touches them sleeps until they are brought back.
        let mut moved = unsafe {
            match self.memory {
                _ if free == 0 => Moved { pages: 0, stop: None },
                None => mover::move_pages(inbox, pagemap, (destination, page), free, Direction::Out),
                Some(_) if self.keeps => Moved { pages: 0, stop: Some(Stop::Busy) },
                Some(memory) => copier::move_out(inbox, pagemap, memory, page, destination, free),
            }
        };
        if let Some(loans) = self.loans {
            loans.evicted();
        }
        if moved.stop.is_none() && free < pages {
            moved.stop = Some(Stop::Busy);
        }
        moved
    }

    fn copy_in(&mut self, frame: Frame, page: Page) -> Copied {
        let Some(source) = self.staging.address(frame, 1) else { return Copied::Failed };
        let inbox = &mut self.inbox;
        self.follower.waking(|| {
            inbox.patiently(|uffd| {
                // SAFETY: a frame of the staging area, in which nobody else writes.
                unsafe { uffd.copy(page.address(), source, PAGE_BYTES, false) }.result
            })
        })
    }

    fn copy_run_in(&mut self, frame: Frame, page: Page, pages: u32, guard: bool) -> Moved {
        let Some(source) = self.staging.page(frame, pages) else {
            return Moved { pages: 0, stop: Some(Stop::Mapping) };
        };
        let inbox = &mut self.inbox;
        inbox.guards |= guard;
        // SAFETY: frames of the staging area, in which nobody else writes.
        self.follower.waking(|| unsafe { copier::copy(inbox, source, page, pages, guard) })
    }

    fn guards(&self) -> bool {
        self.can_guard()
    }

    fn unguard(&mut self, run: Run) -> Copied {
        self.end_guard(run)
    }

    fn drop_guarded(&mut self, runs: &[Run], dropped: &mut dyn FnMut(Run)) {
        self.drop_parts(runs, dropped);
    }

    fn suspend(&mut self) {
        self.suspender.iter_mut().for_each(|suspender| _ = suspender.suspend());
    }

    fn resume(&mut self) {
        self.suspender.iter_mut().for_each(Suspender::resume);
    }

    fn zero_in(&mut self, page: Page) -> Copied {
        self.inbox.patiently(|uffd| uffd.zero(page.address(), PAGE_BYTES))
    }

    fn wake(&mut self, run: Run) {
        self.inbox.uffd.wake(run.start.address(), run.bytes());
    }

    fn present(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped) -> bool) {
        self.pagemap.walk_while(run, found);
    }

    fn register(&mut self, run: Run) -> Result<(), Errno> {
        // The same for all, since mappings of different kinds stay apart.
        let register = |modes| self.inbox.uffd.register(run.start.address(), run.bytes(), modes);
        register(mode::MISSING | mode::WRITE_PROTECT).or_else(|_| register(mode::MISSING))
    }

    fn unregister(&mut self, run: Run) -> Result<(), Errno> {
        self.inbox.uffd.unregister(run.start.address(), run.bytes())
    }

    fn drop_table(&mut self, block: Block) {
        if !self.inbox.has_changed() && self.pagemap.none(block.run()) {
            // SAFETY: nothing is mapped in the block, as just seen, and on registered memory only we can map.
            let _ = unsafe { memory::advise(block.first().address(), BLOCK_BYTES, Advice::DontNeed) };
        }
    }

    fn unshare(&mut self, tag: u32, pages: &Pages) -> bool {
        self.follower.take_back();
        let mut mapped = Pages::none(pages.block);
        self.pagemap.walk(pages.block.run(), &mut |part, _| {
            (0..part.pages as u32).for_each(|index| mapped.insert(part.start.plus(index)));
        });
        let pages = pages.and(&mapped);
        !pages.is_empty() && self.helper.unshare(tag, &pages)
    }

    fn zero_frames(&mut self, frame: Frame, pages: u32) -> bool {
        let Some(address) = self.staging.address(frame, pages) else { return false };
        let zero = |address: usize, bytes: usize| {
            // SAFETY: frames of the staging area, mapped for writing, which nobody else uses.
            unsafe { core::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, bytes) };
        };
        let run = Run::inside(address, pages as usize * PAGE_BYTES);
        // What is empty becomes zeros by being populated; only the rest needs to be written.
        self.pagemap.walk(run, &mut |part, _| zero(part.start.address(), part.bytes()));
        // SAFETY: populating changes no content.
        match unsafe { memory::advise(address, run.bytes(), Advice::PopulateWrite) } {
            Ok(()) => true,
            // Before Linux 5.14 there is no such advice.
            Err(Errno::INVAL) => {
                zero(address, run.bytes());
                true
            }
            Err(_) => false,
        }
    }

    fn empty_frames(&mut self, runs: &[(Frame, u32)]) {
        // SAFETY: the pager gives their content up.
        unsafe { self.staging.empty(runs, self.own) };
    }

    fn digest_then(&mut self, frame: Frame, next: Option<Frame>) -> Digest {
        let next = next.and_then(|next| self.staging.address(next, 1)).map(core::ptr::without_provenance);
        match self.staging.address(frame, 1) {
            // SAFETY: a mapped frame, page-aligned, in which nobody writes while the pager looks.
            Some(address) => unsafe { self.key.digest_at(core::ptr::with_exposed_provenance(address), next) },
            None => Digest { hash: 0, zero: false },
        }
    }

    fn read(&mut self, tag: u32, store: StoreId, slot: Slot, frame: Frame, pages: u32) {
        let fd = self.file(store, slot.volume());
        let Some(address) = self.staging.address(frame, pages) else {
            return self.end(tag, Errno::FAULT.negative());
        };
        if let Some(tiers) = &mut self.tiers {
            let mut below =
                Below { io: &mut self.io, files: &self.stores, remote: self.remote.as_mut(), io_limit: self.io_limit };
            // SAFETY: the frames are the pager's, and left alone until the event has been reported.
            return unsafe { tiers.read(tag, store, slot, (address, pages), &mut below) };
        }
        if let Some(remote) = &mut self.remote {
            return remote.read(tag, store, slot, address, pages);
        }
        let Some(bytes) = pages.checked_mul(PAGE_BYTES as u32) else {
            return self.end(tag, Errno::INVAL.negative());
        };
        // SAFETY: the frames are the pager's, and left alone until the event has been reported.
        if let Err(error) = unsafe { self.io.read(fd, address, bytes, slot.offset(), TRANSFER | tag as u64) } {
            self.end(tag, error.negative());
        }
    }

    fn write(&mut self, tag: u32, slot: Slot, runs: &[(Frame, u32)]) {
        let pages = runs.iter().fold(0u32, |all, (_, pages)| all.saturating_add(*pages));
        self.follower.take_back();
        self.settle_punches(slot, pages);
        let fd = self.file(StoreId::OWN, slot.volume());
        let staging = &self.staging;
        let all = runs.iter().all(|(frame, pages)| staging.address(*frame, *pages).is_some());
        let list = self.parts.get_mut(tag as usize).and_then(|list| list.get_mut(..runs.len()));
        let (Some(list), true) = (list, all && !runs.is_empty()) else {
            return self.end(tag, Errno::FAULT.negative());
        };
        for (part, (frame, pages)) in list.iter_mut().zip(runs) {
            let address = staging.address(*frame, *pages).unwrap_or(0);
            *part = Part { address, bytes: *pages as usize * PAGE_BYTES };
        }
        if let Some(tiers) = &mut self.tiers {
            // SAFETY: the frames do not change until the event has been reported, and the list of this tag not before.
            return unsafe { tiers.write(tag, slot, list) };
        }
        if let Some(remote) = &mut self.remote {
            return remote.write(tag, slot, list);
        }
        // SAFETY: the frames do not change until the event has been reported, and the list of this tag not before.
        if let Err(error) = unsafe { self.io.write(fd, list, slot.offset(), TRANSFER | tag as u64) } {
            self.end(tag, error.negative());
        }
    }

    fn reserve(&mut self, volume: u8, slots: u32) -> Result<(), Errno> {
        self.grow(volume, slots)
    }
    fn room(&self, volume: u8) -> u32 {
        self.space_left(volume)
    }
    fn has_room_again(&mut self) -> bool {
        self.has_space_again()
    }
    fn reserve_again(&mut self, slot: Slot, pages: u32) -> bool {
        self.take_space_again(slot, pages)
    }
    fn punch(&mut self, slot: Slot, pages: u32) {
        self.give_space(slot, pages);
    }

    fn io_limit(&self) -> u32 {
        self.io_limit
    }

    /// May return without an event earlier than told: callers look again.
    fn poll(&mut self, wait: Wait, events: &mut Events) {
        let portion = if self.follower.follows() { PORTION_FOLLOWING } else { PORTION };
        if self.follower.has_woken() {
            // It has gone on in our place meanwhile, and may be back.
            self.inbox.ready = true;
            self.inbox.deliver(events, portion);
            if !events.as_slice().is_empty() {
                return;
            }
        }
        self.follower.take_back();
        self.watch();
        let mut nothing = self.ended.is_empty() && !self.inbox.waiting();
        let mut wait = wait;
        if let Some(tiers) = &mut self.tiers {
            nothing &= !tiers.advance(&mut Below {
                io: &mut self.io,
                files: &self.stores,
                remote: self.remote.as_mut(),
                io_limit: self.io_limit,
            }) && !tiers.has_ended();
        }
        if let Some(remote) = &mut self.remote {
            let more = remote.advance(&mut self.io, &self.stores);
            nothing &= !more && !remote.has_ended();
            wait = remote.patience(wait);
        }
        if let Some(remote) = self.remote.as_mut().filter(|_| nothing && wait != Wait::No) {
            remote.wait_awake(&mut self.io);
        }
        if nothing && wait != Wait::No && self.remote.is_none() && self.tiers.is_none() {
            self.awake.wait(&mut self.io);
        }
        // An error here (no memory) leaves everything queued for the next time.
        let _ = self.io.enter(if nothing { wait } else { Wait::No });
        while let Some(completion) = self.io.take() {
            if let Some((tag, result)) = self.complete(completion) {
                self.end(tag, result);
            }
        }
        if let Some(remote) = &mut self.remote {
            remote.look_at_clock();
        }
        // What threads ask for comes first: the device has it while what has arrived is looked at, a portion at a time.
        self.inbox.deliver(events, portion);
        let mut bytes = 0;
        for _ in 0..portion {
            let Some((tag, result)) = self.next_ended() else { break };
            events.push(Event::Io { tag, result });
            bytes += result.max(0) as u32;
            if bytes >= PORTION_BYTES {
                break;
            }
        }
    }

    fn ask(&mut self, events: &mut Events) {
        self.inbox.ready = true;
        self.inbox.deliver(events, 0);
    }

    fn submit(&mut self) {
        self.follower.take_back();
        if let Some(tiers) = &mut self.tiers {
            let (remote, io_limit) = (self.remote.as_mut(), self.io_limit);
            tiers.advance_reads(&mut Below { io: &mut self.io, files: &self.stores, remote, io_limit });
        }
        if let Some(remote) = &mut self.remote {
            remote.advance(&mut self.io, &self.stores);
        }
        let _ = self.io.enter(Wait::No);
    }

    fn freed(&mut self, slot: Slot) {
        if let Some(tiers) = &mut self.tiers {
            // What is just going from there to the store may come to lie there all the same.
            return tiers.freed(slot);
        }
        if let Some(remote) = &mut self.remote {
            remote.freed(slot.0);
        }
    }

    fn waited_for(&mut self, on: bool) {
        if let Some(tiers) = &mut self.tiers {
            return tiers.set_waited_for(on);
        }
        if let Some(remote) = &mut self.remote {
            remote.set_waited_for(on);
        }
    }

    fn now_us(&mut self) -> u64 {
        process::now_us()
    }

    fn nodes(&self) -> u8 {
        self.nodes.count()
    }

    fn nodes_of(&mut self, run: Run, found: &mut dyn FnMut(Run, u8)) {
        self.nodes.of_run(run, found);
    }

    fn node_of_thread(&mut self, thread: u32) -> Option<u8> {
        let thread = Some(thread).filter(|thread| *thread != 0)?;
        self.nodes.of_processor(self.follower.processor_of(thread)?)
    }

    fn prefer(&mut self, node: u8) {
        // Reads that were started populate their frames when they are submitted.
        self.submit();
        let _ = self.nodes.set_preferred(node);
    }

    fn follow(&mut self, thread: Option<u32>) {
        self.follower.follow(thread);
    }

    fn follows(&self) -> bool {
        self.follower.follows()
    }
}
