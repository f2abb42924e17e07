//! Memory servers as the store. To each there are three connections, for pages that threads wait for, for pages read ahead,
//! and for pages to be kept, so that none of these waits for another. Requests are answered in their order on each, so what
//! is received next is known beforehand and lands where it belongs.
//!
//! Pages are sealed on their way out and opened where they arrive. How often a slot was written is kept here, four bytes
//! a slot, and is part of what its seal is bound to: an older page in its place does not open. One byte more says who has
//! it: each page is written to as many servers as wanted, or to one and to a local file, and read from any of them. Or it
//! is written to one, and another has the sum of several servers' pages.

mod added;
mod attic;
mod bequest;
mod changes;
mod collect;
mod dial;
mod groups;
mod lane;
mod leave;
mod log;
mod loss;
mod mend;
mod op;
mod peer;
mod reads;
mod rebuild;
mod room;
mod spill;
mod table;
mod tier;
mod writes;

use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::Setup;
use crate::memory::MapSlice;
use crate::queue::Queue;
use crate::tcp::Address;
use crate::{Errno, Wait, process};
pub use bequest::Bequest;
use changes::Changes;
use dial::Dialler;
use lane::{Lane, Message, Received, Way};
use log::Log;
use mend::Mend;
use op::{Nature, Op};
pub use peer::News;
use peer::{Peer, State};
use ream_page::{PAGE_BYTES, Slot, StoreId};
use ream_stats::{Process, SERVERS, Session};
use ream_wire::MOST_PAGES;
use ream_wire::message::{ENDING, Kind, Request, Status};
use ream_wire::seal::{KEY, PageKey};
use rebuild::Builds;
use room::Room;
use spill::Spill;
use table::{Counts, SPILLED, Table};
use tier::Tier;

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
/// Ancestors whose stores are read.
const ANCESTORS: usize = 255;
/// Slots that lie together at the same servers: a segment of a server's memory.
const SEGMENT: u32 = 512;
/// Longest that one of several servers may take to be connected to, in microseconds.
const DIAL: u64 = 1_000_000;
/// Pages up to which a read tells how far away its server is.
const SMALL: u32 = 16;

/// What has failed when no server can be reached, and nothing else can keep pages.
pub const CONNECTING: &str = "connecting to the memory server";

/// The servers, and what a process shows them.
#[derive(Clone, Copy)]
pub struct RemoteConfig {
    /// Leases, free memory, and what other processes have lost.
    pub session: &'static Session,
    /// This process there.
    pub process: &'static Process,
    /// Where they are; those that there are come first.
    pub servers: [Option<Address>; SERVERS],
    /// How many of them each page is written to.
    pub replicas: u32,
    /// Whether the process's store file has a copy of each page.
    pub spill: bool,
    /// Whether that file is below the servers instead: each page is at as many of them as wanted, or there.
    pub below: bool,
    /// Whether pages have a sum instead of copies.
    pub parity: bool,
    /// Whether what is in that file is sealed.
    pub spill_sealed: bool,
    /// Whether pages are sealed.
    pub sealed: bool,
    /// Longest that an answer may take where nobody else can give it, in microseconds.
    pub deadline_us: u64,
    /// Slots that the store may have now, and that it may come to have when servers are added.
    pub slots: u32,
    /// See `slots`.
    pub most_slots: u32,
    /// Most reads and writes in flight.
    pub io_limit: u32,
}

impl RemoteConfig {
    /// Whether pages come from where they are in clear, and are sealed where they go: nobody vouches for them then. A page that
    /// opened is what was written.
    fn seals_anew(&self, target: usize, who: u32) -> bool {
        let sealed = |in_file| if in_file { self.spill_sealed } else { self.sealed };
        sealed(target == ream_stats::SPILL) && !sealed(who == SPILLED)
    }
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

pub(crate) struct Remote {
    config: RemoteConfig,
    peers: [Peer; SERVERS],
    count: usize,
    /// Bit by server: it can be used.
    up: u32,
    /// Bit by server: it was added, and has not been used yet; and until when it is waited for rather than that a write fails.
    unused: u32,
    unused_until: u64,
    /// Connections by which the parent's store lives, too, where there are any yet.
    parents: [Fd; SERVERS],
    ops: MapSlice<Op>,
    /// The own store, then those of ancestors, the nearest last.
    tables: MapSlice<Table>,
    table_count: usize,
    counts: Counts,
    changes: Changes,
    /// Bits of the servers to which a segment's slots go; 0 while nobody has any.
    homes: MapSlice<u8>,
    key: PageKey,
    /// Reads for which nobody could be asked just now.
    parked: Queue<u32>,
    parked_since: u64,
    ended: Queue<(u32, i32)>,
    spill: Option<Spill>,
    mend: Mend,
    /// The disk below, where there is one.
    tier: Option<Tier>,
    /// Where pages have a sum: what is written, and computed.
    log: Log,
    builds: Builds,
    room: Room,
    dialler: Option<Dialler>,
    news: [Option<News>; 16],
    waited_for: bool,
    /// Whether the last page that a thread waited for came soon.
    soon: bool,
    forged: Option<usize>,
    fatal: bool,
    /// Pages have fewer copies than wanted for want of room; said once.
    degraded: bool,
    /// When it is looked again whether servers that are about to end are missed.
    let_go_at: u64,
    /// When we looked last, and until when we meant to sleep then.
    looked: u64,
    asleep_until: u64,
    told: (u64, u64, u32, u32, [u64; SERVERS + 1], [u64; SERVERS]),
}

impl Remote {
    /// Connects to as many as can be had: a store of its own, and three lanes, at each. `heir`: of what a
    /// parent has bequeathed, whose pages there are to be read.
    pub(crate) fn connect(config: &RemoteConfig, heir: Option<&Bequest>) -> Result<Remote, Setup> {
        let fail = |what: &'static str| move |errno| Setup { what, errno };
        let room = fail("mapping the state of the memory servers' lanes");
        let mut key_bytes = [0; KEY];
        process::random(&mut key_bytes).map_err(fail("drawing a key for pages"))?;
        let key = PageKey::new(&key_bytes).ok_or(Setup { what: "making a key for pages", errno: Errno::INVAL })?;
        let ops = config.io_limit as usize;
        let mut remote = Remote {
            config: *config,
            peers: [const { Peer::none() }; SERVERS],
            count: 0,
            up: 0,
            unused: 0,
            unused_until: 0,
            parents: [Fd::NONE; SERVERS],
            ops: MapSlice::new(ops + mend::JOBS).map_err(&room)?,
            tables: MapSlice::new(ANCESTORS + 1).map_err(&room)?,
            table_count: 1,
            counts: Counts::new(config.replicas + u32::from(config.spill), config.below),
            changes: Changes::new().map_err(&room)?,
            homes: MapSlice::new((config.most_slots / SEGMENT) as usize + 1).map_err(&room)?,
            key,
            parked: Queue::new(ops + mend::JOBS).map_err(&room)?,
            parked_since: 0,
            ended: Queue::new(ops + mend::JOBS).map_err(&room)?,
            spill: None,
            mend: Mend::none(),
            tier: config
                .below
                .then(|| Tier::new((config.most_slots / SEGMENT) as usize + 1))
                .transpose()
                .map_err(&room)?,
            log: Log::none(),
            builds: Builds::none(),
            room: Room::NEW,
            dialler: None,
            news: [None; 16],
            waited_for: false,
            soon: true,
            forged: None,
            fatal: false,
            degraded: false,
            let_go_at: 0,
            looked: process::now_us(),
            asleep_until: 0,
            told: (0, 0, 0, 0, [0; SERVERS + 1], [0; SERVERS]),
        };
        let local = config.spill || config.below;
        if local {
            remote.spill = Some(Spill::new(ops + mend::JOBS).map_err(&room)?);
        }
        if config.parity {
            remote.log = Log::new(ops + mend::JOBS).map_err(&room)?;
            remote.builds = Builds::new(ops + mend::JOBS).map_err(&room)?;
        }
        let places = remote.places();
        let mut first = None;
        for (index, address) in config.servers.iter().enumerate().map_while(|(index, it)| Some((index, (*it)?))) {
            remote.count = index + 1;
            let Some(place) = remote.peers.get_mut(index) else { break };
            *place = Peer::new(address, places).map_err(&room)?;
        }
        // What its pages are bound to beside slot and version: the same wherever they go.
        let bound = remote.way(0).map_or(0, |(way, _)| way.lease);
        let (slots, number) = ((config.slots, config.most_slots), config.process.generation() as u32);
        let table = Table::with_room(slots, key_bytes, bound, number).map_err(&room)?;
        let table = if config.spill_sealed { table.with_seals().map_err(&room)? } else { table };
        let table = if config.parity { table.with_groups().map_err(&room)? } else { table };
        remote.keep_table(0, table);
        remote.conceal();
        let alone = remote.count == 1 && !local;
        if !alone {
            remote.mend = Mend::new(config.io_limit).map_err(&room)?;
        }
        for index in 0..remote.count {
            // The parent's lease, as long as that has connections of it: there its pages are.
            let inherited = heir.and_then(|heir| heir.ways.get(index).copied().flatten());
            let Some((way, generation)) = inherited.or_else(|| remote.way(index)) else { continue };
            let away = config.session.servers().get(index).is_some_and(|server| server.away());
            if !alone && away && inherited.is_none() {
                continue;
            }
            remote.note_alarms(index);
            let deadline = if alone { config.deadline_us } else { DIAL.min(config.deadline_us) };
            match dial::dial(&way, deadline) {
                Ok((lanes, _)) if !alone && inherited.is_none() && lanes[WRITE].ending => {
                    if let Some(peer) = remote.peers.get_mut(index) {
                        peer.generation = generation;
                        peer.decline(&lanes, process::now_us());
                    }
                }
                Ok(dialled) => {
                    remote.rise(index, dialled, way, generation);
                    let anchor = heir.filter(|_| inherited.is_some()).map(|heir| heir.anchor(index, &way, deadline));
                    // Without one the copy of the parent's lane stays.
                    if let (Some(Ok(anchor)), Some(place)) = (anchor, remote.parents.get_mut(index)) {
                        *place = anchor;
                    }
                }
                Err(errno) => _ = first.get_or_insert(errno),
            }
        }
        // They are used for as long as they are there.
        for index in 0..remote.count {
            let needed = remote.up == 0 && !local && remote.peers.get(index).is_some_and(|peer| peer.ending);
            let Some((way, generation)) = remote.way(index).filter(|_| needed) else { continue };
            if let Ok(dialled) = dial::dial(&way, DIAL.min(config.deadline_us)) {
                remote.rise(index, dialled, way, generation);
            }
        }
        if remote.up == 0 && !local {
            let errno = first.unwrap_or(Errno::TIMEDOUT);
            return Err(fail(CONNECTING)(errno));
        }
        Ok(remote)
    }

    /// Keys are left out of core dumps.
    fn conceal(&self) {
        let (start, bytes) = (self.tables.as_ptr().expose_provenance(), self.tables.len() * size_of::<Table>());
        // SAFETY: what is left out of a dump changes nothing else.
        let _ = unsafe { crate::memory::advise(start, bytes.next_multiple_of(4096), crate::memory::Advice::DontDump) };
    }

    fn keep_table(&mut self, index: usize, table: Table) {
        if let Some(place) = self.tables.get_mut(index) {
            *place = table;
        }
    }

    /// How a server is reached now.
    fn way(&self, index: usize) -> Option<(Way, u32)> {
        let granted = self.config.session.servers().get(index)?.granted()?;
        let address = self.peers.get(index)?.address?;
        Some((Way { address, lease: granted.lease, secret: granted.secret }, granted.generation))
    }

    /// A server can be used from now on.
    fn rise(&mut self, index: usize, dialled: ([Lane; LANES], u32), way: Way, generation: u32) {
        let (lanes, store) = dialled;
        if let Some(peer) = self.peers.get_mut(index) {
            peer.rise(lanes, way, generation);
        }
        self.up |= 1 << index;
        self.unused &= !(1 << index);
        self.room.has_more();
        self.look_who_leaves();
        if let Some(place) = self.tables.get_mut(0).and_then(|table| table.stores.get_mut(index)) {
            *place = store;
        }
    }

    /// Whether pages from a server were not what was written there; whose.
    pub(crate) fn forged(&self) -> Option<usize> {
        self.forged
    }

    /// What has happened since this was last asked.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let first = self.news.first_mut()?.take();
        self.news.rotate_left(1);
        first
    }

    /// What there is no place for is not told; for what ends the program there is one.
    fn tell(&mut self, news: News) {
        let kept = usize::from(!matches!(news, News::Fatal(..)));
        let places = self.news.len() - kept;
        if let Some(place) = self.news.iter_mut().take(places).find(|place| place.is_none()) {
            *place = Some(news);
        }
    }

    /// Whether nothing is in memory only that was told to be stored.
    pub(crate) fn is_settled(&self) -> bool {
        self.spill.as_ref().is_none_or(Spill::is_settled) && self.log.is_settled()
    }

    /// A child is about to be forked: what it reads stays as it is until [`Remote::thaw`]. `alone`: nothing is above the servers, so
    /// that no slot has what nobody needs any more.
    pub(crate) fn freeze(&mut self, alone: bool) {
        self.with_groups(groups::Groups::freeze);
        self.freeze_tier();
        self.freeze_room();
        if alone {
            self.freeze_attic();
        }
    }

    /// No child is there any more that reads what was frozen.
    pub(crate) fn thaw(&mut self) {
        self.with_groups(groups::Groups::thaw);
        self.thaw_tier();
        self.thaw_room();
        self.thaw_attic();
    }

    /// Whether no thread is at work for it, so that rights can be given up.
    pub(crate) fn rests(&self) -> bool {
        self.dialler.as_ref().is_none_or(Dialler::is_done)
    }

    pub(crate) fn set_waited_for(&mut self, on: bool) {
        self.waited_for = on;
    }

    pub(crate) fn read(&mut self, tag: u32, store: StoreId, slot: Slot, address: usize, pages: u32) {
        let table = u32::from(store.0);
        let lane = if self.waited_for { DEMAND } else { AHEAD };
        let known = (table as usize) < self.table_count && (1..=MOST_PAGES as u32).contains(&pages);
        match self.ops.get_mut(tag as usize) {
            Some(op) if known => {
                let began = if self.tier.is_some() { process::now_us() } else { 0 };
                *op = Op::read(table, slot.0, pages, address, lane);
                op.began = began;
            }
            _ => return self.end(tag, Errno::INVAL.negative()),
        }
        self.route(tag);
    }

    pub(crate) fn write(&mut self, tag: u32, slot: Slot, parts: &[Part]) {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let pages = (bytes / PAGE_BYTES) as u32;
        let known = (1..=u32::from(u16::MAX)).contains(&pages);
        // Two writes of a slot at once would need two seals; nobody asks for that, and whoever does must ask again.
        let busy = self.ops.as_slice().iter().take(self.config.io_limit as usize);
        if busy.filter(|op| op.nature() == Nature::Write).any(|op| op.touches(0, slot.0, pages)) {
            return self.end(tag, Errno::AGAIN.negative());
        }
        let begun = known && self.tables.get_mut(0).is_some_and(|own| own.begin(slot.0, pages, &mut self.counts));
        match self.ops.get_mut(tag as usize) {
            Some(op) if begun => *op = Op::write(0, slot.0, pages, parts.as_ptr().expose_provenance(), parts.len()),
            _ => return self.end(tag, Errno::IO.negative()),
        }
        self.begin_write(tag);
    }

    /// An operation has ended. Those that copy pages are ours.
    fn end(&mut self, tag: u32, result: i32) {
        if self.tier.is_some() && tag < self.config.io_limit && result >= 0 {
            self.count_read(tag);
        }
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.end();
        }
        match tag.checked_sub(self.config.io_limit) {
            Some(job) => self.mended(job as usize, result),
            None => _ = self.ended.push((tag, result)),
        }
    }

    /// Has slots forgotten. They are written only after that, since both go by the same lane, in order.
    pub(crate) fn forget(&mut self, slot: Slot, pages: u32) {
        if let Some(own) = self.tables.get_mut(0) {
            own.put(slot.0, pages, 0, &mut self.counts);
        }
        if self.log.is_some() {
            // Their rows are, when their groups are empty.
            return;
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.is_up()) {
            // Where there is no room the space stays taken, until the slots are written or forgotten again.
            peer.frees.push((slot.0, pages));
        }
    }

    pub(crate) fn pop_ended(&mut self) -> Option<(u32, i32)> {
        self.ended.pop()
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || self.news.iter().any(Option::is_some)
    }

    /// Sends what can be sent, and gets ready to receive. Returns whether there is more to send at once.
    pub(crate) fn advance(&mut self, io: &mut Io, files: &[Fd]) -> bool {
        if self.fatal {
            return false;
        }
        let mut more = false;
        self.take_in_new();
        if self.log.is_some() {
            self.advance_log();
            self.advance_builds();
        }
        for index in 0..self.count {
            for lane in 0..LANES {
                if self.up >> index & 1 == 0 {
                    break;
                }
                match self.advance_lane(index, lane, io) {
                    Ok(again) => more |= again,
                    Err(lost) => self.lose(index, lost),
                }
            }
        }
        if self.mend.is_some() {
            self.look_after();
            more |= self.advance_spill(io, files);
            more |= self.advance_mend();
            more |= self.advance_tier();
            self.let_go();
        }
        self.publish();
        more
    }

    fn advance_lane(&mut self, index: usize, which: usize, io: &mut Io) -> Result<bool, Lost> {
        while self.lane(index, which).is_some_and(|lane| lane.is_clear() && lane.has_room())
            && self.compose(index, which)?
        {}
        let Some(peer) = self.peers.get_mut(index) else { return Ok(false) };
        let waiting = peer.has_work(which);
        let Some(lane) = peer.lanes.as_mut().and_then(|lanes| lanes.get_mut(which)) else { return Ok(false) };
        lane.transmit(io, index * LANES + which)?;
        lane.expect(io, index * LANES + which, &self.ops)?;
        Ok(waiting && lane.is_clear() && lane.has_room())
    }

    fn lane(&mut self, index: usize, which: usize) -> Option<&mut Lane> {
        self.peers.get_mut(index)?.lanes.as_mut()?.get_mut(which)
    }

    /// Makes the next message of a lane. False when there is none.
    fn compose(&mut self, index: usize, which: usize) -> Result<bool, Lost> {
        if which == WRITE { self.compose_write(index) } else { self.compose_read(index, which) }
    }

    /// Something that a lane was waiting for has happened.
    pub(crate) fn happened(&mut self, what: u32, result: i32) {
        let (number, sends) = ((what >> 1) as usize, what & 1 != 0);
        let (index, which) = (number / LANES, number % LANES);
        let state = self.peers.get(index).map_or(State::None, |peer| peer.state);
        let Some(lane) = self.lane(index, which) else { return };
        let outcome = if sends {
            lane.sent(result)
        } else {
            match lane.received(result) {
                _ if state != State::Up => Ok(()),
                Ok(Received::All(message)) => self.answered(index, which, &message),
                Ok(Received::Part) => Ok(()),
                Err(lost) => Err(lost),
            }
        };
        if let Err(lost) = outcome {
            self.lose(index, lost);
        }
    }

    /// A reply is there.
    fn answered(&mut self, index: usize, which: usize, message: &Message) -> Result<(), Lost> {
        let Some(lane) = self.lane(index, which) else { return Ok(()) };
        let (reply, took) = (lane.reply(message)?, lane.took());
        if which == DEMAND {
            self.soon = took <= SOON;
        }
        if reply.notices & ENDING != 0 {
            self.note_ending(index);
        }
        match message.request.kind {
            Kind::Read if reply.status == Status::Done => self.read_answered(index, which, message.tag),
            Kind::Read => Err(Lost::Refused),
            Kind::Write => self.write_answered(index, message, reply.status),
            Kind::Make => {
                self.store_made(index, message, reply.status == Status::Done);
                Ok(())
            }
            Kind::Free | Kind::Ping => Ok(()),
        }
    }

    /// Where a thread waits for one page, that is often there sooner than a thread that sleeps is awake again.
    pub(crate) fn wait_awake(&mut self, io: &mut Io) {
        let lanes = self.peers.iter().filter_map(|peer| peer.lanes.as_ref());
        if self.soon && lanes.map(|lanes| &lanes[DEMAND]).any(Lane::waits_for_one) {
            // Submits what there is.
            let _ = io.enter(Wait::No).is_ok() && io.spin(AWAKE);
        }
    }

    /// The key to a store's pages: the own one is at hand.
    fn key_of(&self, table: u32) -> Option<PageKey> {
        self.tables.get(table as usize).and_then(|table| PageKey::new(&table.key))
    }
}

/// The request that a message makes.
fn request(kind: Kind, store: u32, slot: u32, pages: u16, number: u64) -> Request {
    Request { kind, store, slot, pages, number }
}

#[cfg(test)]
mod tests;
