//! A memory server as the store: three connections, for pages that threads wait for, for pages read ahead, and for pages
//! to be kept, so that none of these waits for another. Requests are answered in their order on each, so what is received
//! next is known beforehand and lands where it belongs.
//!
//! Pages are sealed on their way out and opened where they arrive. How often a slot was written is kept here, four bytes
//! a slot, and is part of what its seal is bound to: an older page in its place does not open.

mod lane;

use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::Setup;
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::tcp::Address;
use crate::{Errno, Wait, process};
use lane::{Lane, Message, Received};
use ream_page::{PAGE_BYTES, Slot, StoreId};
use ream_wire::hello::{NEW_STORE, Purpose};
use ream_wire::message::{ENDING, HEADER, Kind, Request, Status, between};
use ream_wire::seal::{KEY, PageKey, Place};
use ream_wire::{MOST_PAGES, SEAL};

/// Lanes, by their place.
const DEMAND: usize = 0;
const AHEAD: usize = 1;
const WRITE: usize = 2;
const LANES: usize = 3;
/// Pages that are sealed and sent at once: other requests are looked at in between.
const CHUNK: u32 = 64;
/// Messages of a lane that are not answered yet, at most.
const UNANSWERED: u32 = 256;
/// How long an answer is awaited without going to sleep, in microseconds.
const AWAKE: u64 = 60;
/// Where the last answer took longer, in microseconds, the next one is slept for.
const SOON: u64 = 120;
/// Runs of slots that wait to be forgotten.
const FREES: usize = 256;
/// Ancestors whose stores are read.
const ANCESTORS: usize = 255;

/// The server, and what a process shows it.
#[derive(Clone, Copy)]
pub struct RemoteConfig {
    /// Where it is.
    pub server: Address,
    /// The session's lease.
    pub lease: u64,
    /// The lease's secret.
    pub secret: [u8; KEY],
    /// Whether pages are sealed.
    pub sealed: bool,
    /// Longest that an answer may take, in microseconds.
    pub deadline_us: u64,
    /// Slots that the store may have.
    pub slots: u32,
    /// Most reads and writes in flight.
    pub io_limit: u32,
}

/// How a server was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// It closed a connection.
    Closed,
    /// A connection failed.
    Failed(Errno),
    /// It did not answer in time.
    Late,
    /// An answer was not genuine.
    Forged,
    /// It refused what it must not refuse.
    Refused,
}

/// A read or a write, by its tag.
#[derive(Clone, Copy)]
struct Op {
    /// Zero for the own store, else one more than the ancestor's place.
    ancestor: u32,
    slot: u32,
    pages: u32,
    /// Pages of a write that were sent, and answered.
    sent: u32,
    answered: u32,
    /// What becomes of the whole when a part was refused.
    failed: i32,
    /// The frames of a read; the list of parts of a write, and its length.
    address: usize,
    parts: u32,
    /// Of a read: every page was opened, so it is what was written there last.
    genuine: bool,
}

// SAFETY: integers, and a bool, which zero is a value of.
unsafe impl Zeroable for Op {}

/// A process whose store is read here.
#[derive(Clone, Copy)]
struct Ancestor {
    store: u32,
    key: [u8; KEY],
    versions: usize,
    slots: usize,
}

// SAFETY: integers.
unsafe impl Zeroable for Ancestor {}

/// What a forked child needs to read what its parent and ancestors have stored: in memory that it inherits.
pub struct Bequest {
    ancestors: MapSlice<Ancestor>,
    count: usize,
}

pub(crate) struct Remote {
    lanes: [Lane; LANES],
    ops: MapSlice<Op>,
    /// How often each slot of the own store was written.
    versions: MapSlice<u32>,
    key: PageKey,
    key_bytes: [u8; KEY],
    sealed: bool,
    lease: u64,
    store: u32,
    ancestors: MapSlice<Ancestor>,
    ancestor_count: usize,
    deadline_us: u64,
    /// Reads and writes to be asked for, by lane; the write that is being sent, and slots to be forgotten.
    todo: [Queue<u32>; LANES],
    writing: Option<u32>,
    frees: Queue<(u32, u32)>,
    ended: Queue<(u32, i32)>,
    waited_for: bool,
    /// Whether the last page that a thread waited for came soon.
    soon: bool,
    lost: Option<Lost>,
    forged: bool,
    ending: bool,
}

impl Remote {
    /// Connects: a store of its own, and three lanes.
    pub(crate) fn connect(config: &RemoteConfig) -> Result<Remote, Setup> {
        let fail = |what: &'static str| move |errno| Setup { what, errno };
        let deadline = process::now_us() + config.deadline_us;
        let mut store = NEW_STORE;
        let mut lane = |purpose, bytes| {
            let lane = Lane::open(config, purpose, store, bytes, deadline);
            let (lane, answered) = lane.map_err(fail("connecting to the memory server"))?;
            store = answered;
            Ok(lane)
        };
        let requests = UNANSWERED as usize * (HEADER + SEAL);
        let write = lane(Purpose::Write, HEADER + between(CHUNK as u16) + CHUNK as usize * PAGE_BYTES)?;
        let demand = lane(Purpose::Demand, requests)?;
        let ahead = lane(Purpose::Ahead, requests)?;
        let mut key_bytes = [0; KEY];
        process::random(&mut key_bytes).map_err(fail("drawing a key for pages"))?;
        let key = PageKey::new(&key_bytes).ok_or(Setup { what: "making a key for pages", errno: Errno::INVAL })?;
        let room = fail("mapping the state of the memory server's lanes");
        let queue = || Queue::new(config.io_limit as usize);
        Ok(Remote {
            lanes: [demand, ahead, write],
            ops: MapSlice::new(config.io_limit as usize).map_err(&room)?,
            versions: MapSlice::new(config.slots as usize).map_err(&room)?,
            key,
            key_bytes,
            sealed: config.sealed,
            lease: config.lease,
            store,
            ancestors: MapSlice::new(ANCESTORS).map_err(&room)?,
            ancestor_count: 0,
            deadline_us: config.deadline_us,
            todo: [queue().map_err(&room)?, queue().map_err(&room)?, queue().map_err(&room)?],
            writing: None,
            frees: Queue::new(FREES).map_err(&room)?,
            ended: Queue::new(config.io_limit as usize).map_err(&room)?,
            waited_for: false,
            soon: true,
            lost: None,
            forged: false,
            ending: false,
        })
    }

    /// The connection by which the store lives: a child that has a copy of it keeps the store.
    pub(crate) fn anchor(&self) -> Fd {
        self.lanes[WRITE].fd
    }

    pub(crate) fn descriptors(&self) -> [Fd; LANES] {
        [self.lanes[DEMAND].fd, self.lanes[AHEAD].fd, self.lanes[WRITE].fd]
    }

    /// In a forked child, of the parent's: what is needed to read it. Nothing of it is used any more afterwards.
    pub(crate) fn bequeath(&mut self) -> Bequest {
        let mut ancestors = core::mem::replace(&mut self.ancestors, MapSlice::empty());
        let versions = core::mem::replace(&mut self.versions, MapSlice::empty()).leak();
        let own = Ancestor {
            store: self.store,
            key: self.key_bytes,
            versions: versions.as_ptr().expose_provenance(),
            slots: versions.len(),
        };
        let mut count = self.ancestor_count;
        if let Some(place) = ancestors.get_mut(count) {
            *place = own;
            count += 1;
        }
        Bequest { ancestors, count }
    }

    pub(crate) fn inherit(&mut self, bequest: Bequest) {
        self.ancestors = bequest.ancestors;
        self.ancestor_count = bequest.count;
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Whether a page did not open.
    pub(crate) fn forged(&self) -> bool {
        self.forged
    }

    /// Whether the server has said that it is about to end.
    pub(crate) fn ending(&self) -> bool {
        self.ending
    }

    pub(crate) fn set_waited_for(&mut self, on: bool) {
        self.waited_for = on;
    }

    pub(crate) fn read(&mut self, tag: u32, store: StoreId, slot: Slot, address: usize, pages: u32) {
        let known = store == StoreId::OWN || store.0 as usize <= self.ancestor_count;
        let op = Op {
            ancestor: store.0.into(),
            slot: slot.0,
            pages,
            sent: 0,
            answered: 0,
            failed: 0,
            address,
            parts: 0,
            genuine: false,
        };
        let lane = if self.waited_for { DEMAND } else { AHEAD };
        self.start(tag, op, lane, known && pages <= MOST_PAGES as u32);
    }

    pub(crate) fn write(&mut self, tag: u32, slot: Slot, parts: &[Part]) {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let op = Op {
            ancestor: 0,
            slot: slot.0,
            pages: (bytes / PAGE_BYTES) as u32,
            sent: 0,
            answered: 0,
            failed: 0,
            address: parts.as_ptr().expose_provenance(),
            parts: parts.len() as u32,
            genuine: false,
        };
        self.start(tag, op, WRITE, true);
    }

    fn start(&mut self, tag: u32, op: Op, lane: usize, good: bool) {
        let (place, queue) = (self.ops.get_mut(tag as usize), self.todo.get_mut(lane));
        if let (true, Some(place), Some(queue)) = (good && op.pages > 0, place, queue) {
            *place = op;
            if queue.push(tag) {
                return;
            }
        }
        self.ended.push((tag, Errno::INVAL.negative()));
    }

    /// Has slots forgotten. They are written only after that, since both go by the same lane, in order.
    pub(crate) fn forget(&mut self, slot: Slot, pages: u32) {
        // Where there is no room the space stays taken, until the slots are written or forgotten again.
        self.frees.push((slot.0, pages));
    }

    pub(crate) fn pop_ended(&mut self) -> Option<(u32, i32)> {
        self.ended.pop()
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Sends what can be sent, and gets ready to receive. Returns whether there is more to send at once.
    pub(crate) fn advance(&mut self, io: &mut Io) -> bool {
        let mut more = false;
        for index in 0..LANES {
            if self.lost.is_some() {
                return false;
            }
            match self.advance_lane(index, io) {
                Ok(again) => more |= again,
                Err(lost) => self.lost = Some(lost),
            }
        }
        more
    }

    fn advance_lane(&mut self, index: usize, io: &mut Io) -> Result<bool, Lost> {
        if self.lanes[index].is_clear() {
            while self.lanes[index].has_room() && self.compose(index)? {}
        }
        let lane = &mut self.lanes[index];
        lane.transmit(io, index)?;
        lane.expect(io, index, &self.ops)?;
        let waiting = self.todo.get(index).is_some_and(|queue| !queue.is_empty())
            || index == WRITE && (self.writing.is_some() || !self.frees.is_empty());
        Ok(waiting && lane.is_clear() && lane.has_room())
    }

    /// Makes the next message of a lane. False when there is none.
    fn compose(&mut self, index: usize) -> Result<bool, Lost> {
        if index != WRITE {
            let Some(tag) = self.todo[index].pop() else { return Ok(false) };
            let op = self.ops.get(tag as usize).copied().ok_or(Lost::Refused)?;
            let store = self.wire_store(op.ancestor);
            self.lanes[index].request(Kind::Read, tag, store, op.slot, op.pages as u16);
            return Ok(true);
        }
        // Forgetting first: what is written later may be the same slots.
        if let Some((slot, pages)) = self.frees.pop() {
            for start in (0..pages).step_by(MOST_PAGES as usize).take(1) {
                let count = (pages - start).min(MOST_PAGES as u32);
                self.lanes[WRITE].request(Kind::Free, u32::MAX, self.store, slot + start, count as u16);
            }
            return Ok(true);
        }
        let Some(tag) = self.writing.take().or_else(|| self.todo[WRITE].pop()) else { return Ok(false) };
        let Some(op) = self.ops.get(tag as usize).copied() else { return Ok(false) };
        let count = CHUNK.min(op.pages - op.sent);
        let first = op.slot + op.sent;
        if !self.lanes[WRITE].begin(count) {
            // Behind what is to be sent before it.
            self.writing = Some(tag);
            return Ok(false);
        }
        // SAFETY: the list and the frames do not change until the end of the write has been told.
        let parts = unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
        };
        let mut skip = op.sent as usize * PAGE_BYTES;
        let mut done = 0;
        for part in parts {
            let gone = skip.min(part.bytes);
            skip -= gone;
            let mut at = part.address + gone;
            while at < part.address + part.bytes && done < count {
                let slot = first + done;
                let Some(version) = self.versions.get_mut(slot as usize).filter(|version| **version < u32::MAX) else {
                    // Written four thousand million times, or beyond the store's end: out of service.
                    self.give_up(tag, Errno::IO.negative());
                    return Ok(false);
                };
                *version += 1;
                let place = Place { lease: self.lease, store: self.store, slot, version: *version };
                let key = self.sealed.then_some(&self.key);
                // SAFETY: a frame, whole.
                unsafe { self.lanes[WRITE].page(done, count, at, key, &place) };
                done += 1;
                at += PAGE_BYTES;
            }
        }
        self.lanes[WRITE].end(tag, self.store, first, count);
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.sent += count;
            if op.sent < op.pages {
                self.writing = Some(tag);
            }
        }
        // One at a time: what others have asked for meanwhile is looked at before the next.
        Ok(false)
    }

    /// No more of a write is sent; it ends when what was sent has been answered.
    fn give_up(&mut self, tag: u32, result: i32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.failed = result;
        if op.answered == op.sent {
            self.ended.push((tag, result));
        }
    }

    fn wire_store(&self, ancestor: u32) -> u32 {
        match (ancestor as usize).checked_sub(1).and_then(|place| self.ancestors.get(place)) {
            Some(ancestor) => ancestor.store,
            None => self.store,
        }
    }

    /// Something that a lane was waiting for has happened.
    pub(crate) fn happened(&mut self, what: u32, result: i32) {
        let (index, sends) = ((what >> 1) as usize, what & 1 != 0);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let outcome = if sends {
            lane.sent(result)
        } else {
            match lane.received(result) {
                Ok(Received::All(message)) => self.answered(index, &message),
                Ok(Received::Part) => Ok(()),
                Err(lost) => Err(lost),
            }
        };
        if let Err(lost) = outcome {
            self.lost.get_or_insert(lost);
        }
    }

    /// A reply is there.
    fn answered(&mut self, index: usize, message: &Message) -> Result<(), Lost> {
        let reply = self.lanes[index].reply(message)?;
        self.ending |= reply.notices & ENDING != 0;
        if index == DEMAND {
            self.soon = self.lanes[DEMAND].took() <= SOON;
        }
        let tag = message.tag;
        match message.request.kind {
            Kind::Read => {
                if reply.status != Status::Done {
                    return Err(Lost::Refused);
                }
                let op = self.ops.get(tag as usize).copied().ok_or(Lost::Refused)?;
                let genuine = self.sealed && self.open(index, &op);
                if let Some(op) = self.ops.get_mut(tag as usize) {
                    op.genuine = genuine;
                }
                self.ended.push((tag, (op.pages as usize * PAGE_BYTES) as i32));
            }
            Kind::Write => {
                let op = self.ops.get_mut(tag as usize).ok_or(Lost::Refused)?;
                op.answered += message.request.pages as u32;
                match reply.status {
                    Status::Done => {}
                    Status::Full | Status::Quota => op.failed = Errno::NOSPC.negative(),
                    _ => return Err(Lost::Refused),
                }
                let given_up = op.failed != 0;
                if op.answered == op.sent && (given_up || op.sent == op.pages) {
                    let result = if given_up { op.failed } else { (op.pages as usize * PAGE_BYTES) as i32 };
                    self.ended.push((tag, result));
                    if self.writing == Some(tag) {
                        self.writing = None;
                    }
                }
            }
            Kind::Free | Kind::Ping => {}
        }
        Ok(())
    }

    /// Opens the pages of a read where they are. One that does not open holds zeros then: whether anybody wanted it, the
    /// pager finds out, which keeps a hash of each page that is stored. Whether all have opened.
    fn open(&mut self, index: usize, op: &Op) -> bool {
        let mut genuine = true;
        let ancestor = (op.ancestor as usize).checked_sub(1).and_then(|place| self.ancestors.get(place)).copied();
        let other = ancestor.as_ref().and_then(|ancestor| PageKey::new(&ancestor.key));
        let key = other.as_ref().unwrap_or(&self.key);
        for number in 0..op.pages {
            let slot = op.slot + number;
            let version = match &ancestor {
                None => self.versions.get(slot as usize).copied().unwrap_or(0),
                Some(ancestor) if (slot as usize) < ancestor.slots => {
                    // SAFETY: inherited from the parent, within the mapping, which nobody unmaps or changes.
                    unsafe { *core::ptr::with_exposed_provenance::<u32>(ancestor.versions).add(slot as usize) }
                }
                Some(_) => 0,
            };
            let store = ancestor.as_ref().map_or(self.store, |ancestor| ancestor.store);
            let place = Place { lease: self.lease, store, slot, version };
            let Some(seal) = self.lanes[index].seal(number) else { return false };
            // SAFETY: a frame of the read, whose bytes have come, and which nobody else uses before its end is told.
            let page = unsafe {
                let start = core::ptr::with_exposed_provenance_mut(op.address + number as usize * PAGE_BYTES);
                core::slice::from_raw_parts_mut(start, PAGE_BYTES)
            };
            // What was never written is read along at times, and then not wanted.
            if !key.open(&place, page, &seal) {
                genuine = false;
                self.forged |= version != 0;
            }
        }
        genuine
    }

    /// Whether a read that has ended brought what was written last, and nothing else.
    pub(crate) fn vouches(&self, tag: u32) -> bool {
        self.ops.get(tag as usize).is_some_and(|op| op.genuine)
    }

    /// Where a thread waits for one page, that is often there sooner than a thread that sleeps is awake again.
    pub(crate) fn wait_awake(&mut self, io: &mut Io) {
        if self.soon && self.lanes[DEMAND].waits_for_one() {
            // Submits what there is.
            let _ = io.enter(Wait::No).is_ok() && io.spin(AWAKE);
        }
    }

    /// How long may be waited, so that a late answer is noticed.
    pub(crate) fn patience(&self, wait: Wait) -> Wait {
        let oldest = self.lanes.iter().filter_map(Lane::since).min();
        let Some(oldest) = oldest else { return wait };
        let left = (oldest + self.deadline_us).saturating_sub(process::now_us()) + 1000;
        match wait {
            Wait::No => Wait::No,
            Wait::Micros(us) => Wait::Micros(us.min(left)),
            Wait::Forever => Wait::Micros(left),
        }
    }

    /// Notices a late answer. Whoever looks much too late was stopped itself meanwhile, and what came in that time may
    /// not have been taken yet: it gets a moment for that.
    pub(crate) fn look_at_clock(&mut self) {
        const OVERSLEPT: u64 = 1_000_000;
        let now = process::now_us();
        for lane in &mut self.lanes {
            let Some(since) = lane.since() else { continue };
            match now.saturating_sub(since).saturating_sub(self.deadline_us) {
                0 => {}
                late if late > OVERSLEPT => lane.forgive(now.saturating_sub(self.deadline_us) + OVERSLEPT / 2),
                _ => {
                    self.lost.get_or_insert(Lost::Late);
                }
            }
        }
    }
}

/// The request that a message makes.
fn request(kind: Kind, store: u32, slot: u32, pages: u16, number: u64) -> Request {
    Request { kind, store, slot, pages, number }
}
