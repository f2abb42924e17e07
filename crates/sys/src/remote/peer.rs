//! A server, as this process sees it: its lanes while they are there, and when to try again otherwise.

use super::lane::{Lane, Way};
use super::{LANES, Lost, WRITE};
use crate::Errno;
use crate::file;
use crate::queue::Queue;
use crate::tcp::Address;

/// How long a server that had no room is not asked for more, in microseconds.
const FULL: u64 = 500_000;
/// Runs of slots that wait to be forgotten.
const FREES: usize = 256;
/// Least and longest time before a server is called again, in microseconds.
const SOON: u64 = 50_000;
const LATE: u64 = 1_500_000;

/// Whether it can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is no such server.
    None,
    /// It is called again at some time.
    Down,
    /// It is being called.
    Dialling,
    Up,
    /// Lost, and the kernel is still at work for its lanes.
    Closing,
}

pub(super) struct Peer {
    pub(super) state: State,
    pub(super) address: Option<Address>,
    /// The lease of its lanes.
    pub(super) way: Option<Way>,
    pub(super) generation: u32,
    pub(super) lanes: Option<[Lane; LANES]>,
    /// Reads and writes to be asked for, by lane; the write that is being sent, and slots to be forgotten.
    pub(super) todo: [Queue<u32>; LANES],
    pub(super) writing: Option<u32>,
    pub(super) frees: Queue<(u32, u32)>,
    /// How long a small read takes, in sixteenths of a microsecond; sinks slowly while others are read.
    pub(super) latency: u64,
    /// Bytes that it has left, as far as is known.
    pub(super) free: u64,
    free_told: u64,
    /// When it may have room again.
    full_until: u64,
    pub(super) retry_at: u64,
    backoff: u64,
    pub(super) ending: bool,
    /// A page from it was not genuine; said once for its connections.
    pub(super) forged: bool,
    /// How many alarms about it, by processes of the session, its lanes have outlived.
    pub(super) outlived: u64,
    /// There are so many by now, as was seen at that time.
    suspicion: Option<(u64, u64)>,
}

impl Peer {
    /// No server.
    pub(super) const fn none() -> Peer {
        Peer {
            state: State::None,
            address: None,
            way: None,
            generation: 0,
            lanes: None,
            todo: [const { Queue::none() }; LANES],
            writing: None,
            frees: Queue::none(),
            latency: 0,
            free: 0,
            free_told: 0,
            full_until: 0,
            retry_at: 0,
            backoff: SOON,
            ending: false,
            forged: false,
            outlived: 0,
            suspicion: None,
        }
    }

    pub(super) fn new(address: Address, ops: usize) -> Result<Peer, Errno> {
        let mut peer = Peer::none();
        peer.state = State::Down;
        peer.address = Some(address);
        for queue in &mut peer.todo {
            *queue = Queue::new(ops)?;
        }
        peer.frees = Queue::new(FREES)?;
        Ok(peer)
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// It can be used from now on.
    pub(super) fn rise(&mut self, lanes: [Lane; LANES], way: Way, generation: u32) {
        self.lanes = Some(lanes);
        self.way = Some(way);
        self.generation = generation;
        self.state = State::Up;
        (self.backoff, self.full_until, self.ending, self.forged) = (SOON, 0, false, false);
        while self.frees.pop().is_some() {}
    }

    /// It is about to end, others are there, and nothing that we need is with it: these lanes are not for use. It is called again when the
    /// session has another lease of it.
    pub(super) fn decline(&mut self, lanes: &[Lane; LANES], now: u64) {
        lanes.iter().for_each(|lane| file::close(lane.fd));
        self.ending = true;
        self.wait(now);
    }

    /// There were so many alarms about it in the session. Since when there was one that a lane has not heard from it after, if any.
    pub(super) fn suspected(&mut self, alarms: u64, now: u64) -> Option<u64> {
        if alarms == self.outlived {
            return None;
        }
        let (_, since) = self.suspicion.filter(|(seen, _)| *seen == alarms).unwrap_or((alarms, now));
        self.suspicion = Some((alarms, since));
        if self.lanes.iter().flatten().all(|lane| lane.heard > since) {
            (self.outlived, self.suspicion) = (alarms, None);
            return None;
        }
        Some(since)
    }

    /// It had no room: it is not asked for more for a while.
    pub(super) fn fill_up(&mut self, now: u64) {
        (self.full_until, self.free) = (now + FULL, 0);
    }

    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_until > now
    }

    /// Something was given back there.
    pub(super) fn has_room_again(&mut self) {
        self.full_until = 0;
    }

    /// It has so many bytes left, as others have heard.
    pub(super) fn told(&mut self, free: u64) {
        if free != self.free_told {
            (self.free_told, self.free) = (free, free);
        }
    }

    /// It is called again later.
    pub(super) fn wait(&mut self, now: u64) {
        self.state = State::Down;
        self.retry_at = now + self.backoff;
        self.backoff = (self.backoff * 3 / 2).min(LATE);
    }

    /// It is called again now: something has changed.
    pub(super) fn hurry(&mut self) {
        self.backoff = SOON;
        self.retry_at = 0;
    }

    /// Ends its lanes.
    pub(super) fn shut(&mut self) {
        self.state = State::Closing;
        self.writing = None;
        self.lanes.iter().flatten().for_each(Lane::shut);
    }

    /// Whether the kernel does nothing for its lanes any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.lanes.iter().flatten().all(Lane::is_quiet)
    }

    /// Lets go of its lanes, once it is quiet.
    pub(super) fn fall(&mut self, now: u64) {
        for lane in self.lanes.take().iter().flatten() {
            file::close(lane.fd);
        }
        for queue in &mut self.todo {
            while queue.pop().is_some() {}
        }
        self.wait(now);
    }

    /// Whether a lane has something to be asked for.
    pub(super) fn has_work(&self, lane: usize) -> bool {
        self.todo.get(lane).is_some_and(|queue| !queue.is_empty())
            || lane == WRITE && (self.writing.is_some() || !self.frees.is_empty())
    }

    /// What a read from it would cost: its time, and those before it.
    pub(super) fn cost(&self, lane: usize) -> u64 {
        let waiting = self.todo.get(lane).map_or(0, Queue::len) as u64
            + self.lanes.as_ref().and_then(|lanes| lanes.get(lane)).map_or(0, |lane| lane.open_requests().into());
        (self.latency + 16) * (waiting + 1)
    }

    /// A small read took so long.
    pub(super) fn measured(&mut self, us: u64) {
        let us16 = us.min(1 << 24) * 16;
        self.latency = if self.latency == 0 { us16 } else { (self.latency * 7 + us16) / 8 };
    }
}

/// What a process tells about a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It was lost; nothing else was.
    Lost(usize, Lost),
    /// It was lost, and with it pages that nobody else had.
    Fatal(usize, Lost),
    /// It can be used again.
    Back(usize),
    /// It is about to end.
    Ending(usize),
    /// It was about to end, and has nothing any more that is missed: its connections were closed.
    Emptied(usize),
    /// A page from it was not genuine, and is had from elsewhere.
    Forged(usize),
    /// Pages have fewer copies than wanted, since nobody else has room for them.
    Degraded,
    /// The local copy could not be written.
    Spill(Errno),
}
