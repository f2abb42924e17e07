//! One connection to a memory server: bytes that are to be sent, requests that are not answered, the reply that comes
//! next.

use super::op::Op;
use super::{Lost, UNANSWERED, request};
use crate::file::{Fd, Part};
use crate::io::Io;
use crate::linux::LANE;
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::tcp::{self, Address, Header, Stream};
use crate::{Errno, process};
use ream_page::PAGE_BYTES;
use ream_wire::hello::{ANSWER, Answer, Connection, HELLO, Hello, PREAMBLE, Purpose, RANDOM, directions};
use ream_wire::message::{ENDING, HEADER, Kind, Reply, Request, Status, between};
use ream_wire::seal::{Direction, KEY, PageKey, Place};
use ream_wire::{MOST_PAGES, SEAL};

/// How a server is reached.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) address: Address,
    pub(super) lease: u64,
    pub(super) secret: [u8; KEY],
}

/// A request that was sent.
#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) tag: u32,
    pub(super) request: Request,
}

/// The same in a queue: kind, tag, store, slot, pages, and the number.
type Kept = ([u32; 5], u64);

/// What the kernel is told of a transfer, at a place that does not move.
#[repr(C)]
#[derive(Clone, Copy)]
struct Transfer {
    header: Header,
    parts: [Part; 2],
}

// SAFETY: integers.
unsafe impl Zeroable for Transfer {}

pub(super) enum Received {
    /// The whole reply to that.
    All(Message),
    /// The rest is still to come.
    Part,
}

pub(super) struct Lane {
    pub(super) fd: Fd,
    to: Direction,
    from: Direction,
    /// Bytes from `start` to `end` are to be sent.
    out: MapSlice<u8>,
    start: usize,
    end: usize,
    sending: bool,
    unanswered: Queue<Kept>,
    unanswered_count: u32,
    /// The reply that comes next, how much of it has come, and since when it is awaited.
    next: Option<Message>,
    back: MapSlice<u8>,
    got: usize,
    receiving: bool,
    since: u64,
    /// When something came last.
    pub(super) heard: u64,
    /// With how many bytes the kernel wakes who receives.
    wakes_at: u32,
    /// For sending, and for receiving.
    transfers: MapSlice<Transfer>,
    /// Whether its server was about to end when it was opened.
    pub(super) ending: bool,
}

/// Bytes of pages that are received at once.
const AT_ONCE: usize = 256 << 10;

const PROTOCOL: Errno = Errno(71);
const IO: fn(ream_wire::message::Malformed) -> Errno = |_| PROTOCOL;

/// Both ends have shown who they are.
struct Greeted {
    to: Direction,
    from: Direction,
    store: u32,
    /// Whether the server is about to end.
    ending: bool,
}

impl Greeted {
    /// Asks for something that has no pages, and waits for the answer.
    fn ask(&mut self, stream: &Stream, kind: Kind, store: u32) -> Result<(), Errno> {
        let asked = request(kind, store, 0, 0, self.to.next());
        let header = asked.to_bytes();
        let mut message = [0; HEADER + SEAL];
        message.get_mut(..HEADER).ok_or(PROTOCOL)?.copy_from_slice(&header);
        message.get_mut(HEADER..).ok_or(PROTOCOL)?.copy_from_slice(&self.to.sign(&header));
        stream.send(&message)?;
        stream.receive(&mut message)?;
        let (header, tag) = message.split_first_chunk::<HEADER>().ok_or(PROTOCOL)?;
        self.from.verify(header, tag.try_into().map_err(|_| PROTOCOL)?).map_err(IO)?;
        let reply = Reply::parse(header, &asked).map_err(IO)?;
        self.ending = reply.notices & ENDING != 0;
        if reply.status == Status::Done { Ok(()) } else { Err(PROTOCOL) }
    }
}

impl Lane {
    /// Connects, shows who this is and sees who the other is. Returns the lane, and the number of its store.
    pub(super) fn open(
        way: &Way,
        purpose: Purpose,
        store: u32,
        bytes: usize,
        deadline: u64,
    ) -> Result<(Lane, u32), Errno> {
        let stream = Stream::connect(&way.address, deadline)?;
        Lane::set_up(way, &stream, purpose, store, bytes).inspect_err(|_| crate::file::close(stream.fd))
    }

    /// A connection on which nothing is ever asked, so that it cannot be left in the middle of a message: stores live as long
    /// as it does, this one and some that were made by their numbers.
    pub(super) fn anchor(
        way: &Way,
        store: u32,
        mut made: impl Iterator<Item = u32>,
        deadline: u64,
    ) -> Result<Fd, Errno> {
        let stream = Stream::connect(&way.address, deadline)?;
        let kept = Lane::greet(way, &stream, Purpose::Ahead, store)
            .and_then(|mut greeted| made.try_for_each(|number| greeted.ask(&stream, Kind::Make, number)));
        kept.map(|()| stream.fd).inspect_err(|_| crate::file::close(stream.fd))
    }

    fn greet(way: &Way, stream: &Stream, purpose: Purpose, store: u32) -> Result<Greeted, Errno> {
        let mut random = [0; RANDOM];
        process::random(&mut random)?;
        let hello = Hello { lease: way.lease, store, purpose, random };
        let mut first = [0; PREAMBLE + HELLO];
        first.get_mut(..PREAMBLE).ok_or(PROTOCOL)?.copy_from_slice(&Connection::Lane.preamble());
        first.get_mut(PREAMBLE..).ok_or(PROTOCOL)?.copy_from_slice(&hello.to_bytes(&way.secret));
        stream.send(&first)?;
        let mut answer = [0; ANSWER];
        stream.receive(&mut answer)?;
        let answer = Answer::parse(&answer, &hello, &way.secret).ok_or(PROTOCOL)?;
        let (to, from) = directions(&hello, &answer, &way.secret).ok_or(PROTOCOL)?;
        let mut greeted = Greeted { to, from, store: answer.store, ending: false };
        greeted.ask(stream, Kind::Ping, answer.store)?;
        Ok(greeted)
    }

    fn set_up(way: &Way, stream: &Stream, purpose: Purpose, store: u32, bytes: usize) -> Result<(Lane, u32), Errno> {
        let Greeted { to, from, store, ending } = Lane::greet(way, stream, purpose, store)?;
        stream.ready()?;
        Ok((Lane { ending, ..Lane::new(stream.fd, to, from, bytes)? }, store))
    }

    fn new(fd: Fd, to: Direction, from: Direction, bytes: usize) -> Result<Lane, Errno> {
        Ok(Lane {
            fd,
            to,
            from,
            out: MapSlice::new(bytes)?,
            start: 0,
            end: 0,
            sending: false,
            unanswered: Queue::new(UNANSWERED as usize)?,
            unanswered_count: 0,
            next: None,
            back: MapSlice::new(HEADER + between(MOST_PAGES))?,
            got: 0,
            receiving: false,
            since: 0,
            heard: process::now_us(),
            wakes_at: 1,
            transfers: MapSlice::new(2)?,
            ending: false,
        })
    }

    /// Whether all that was to be sent is on its way.
    pub(super) fn is_clear(&self) -> bool {
        !self.sending && self.start == self.end
    }

    /// Whether one more request can be made.
    pub(super) fn has_room(&self) -> bool {
        let used = if self.start == self.end { 0 } else { self.end };
        self.unanswered_count < UNANSWERED && !self.sending && self.out.len() - used >= HEADER + SEAL
    }

    /// Whether one answer is awaited, and nothing else is under way.
    pub(super) fn waits_for_one(&self) -> bool {
        self.receiving && self.unanswered_count == 1
    }

    /// Since when an answer is awaited, and how many pages go along with it.
    pub(super) fn since(&self) -> Option<(u64, u64)> {
        self.next.map(|message| (self.since, message.request.pages.into()))
    }

    /// Since when the answer that has come last was awaited.
    pub(super) fn begun(&self) -> u64 {
        self.since
    }

    /// How long the answer that has come last was awaited, in microseconds.
    pub(super) fn took(&self) -> u64 {
        process::now_us().saturating_sub(self.since)
    }

    /// Lets the waiting have begun later.
    pub(super) fn forgive(&mut self, us: u64) {
        self.since += us;
    }

    /// Ends the connection: what the kernel does for it ends soon.
    pub(super) fn shut(&self) {
        tcp::shut(self.fd);
    }

    /// Whether the kernel does nothing for it any more.
    pub(super) fn is_quiet(&self) -> bool {
        !self.sending && !self.receiving
    }

    /// Requests that are not answered.
    pub(super) fn open_requests(&self) -> u32 {
        self.unanswered_count
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.out.as_mut_slice().get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn keep(&mut self, tag: u32, request: &Request) {
        let kept = [request.kind as u32, tag, request.store, request.slot, request.pages.into()];
        self.unanswered.push((kept, request.number));
        self.unanswered_count += 1;
    }

    /// Appends a request without pages.
    pub(super) fn request(&mut self, kind: Kind, tag: u32, store: u32, slot: u32, pages: u16) {
        let made = request(kind, store, slot, pages, self.to.next());
        let header = made.to_bytes();
        let tag_bytes = self.to.sign(&header);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        self.put(self.end, &header);
        self.put(self.end + HEADER, &tag_bytes);
        self.end += HEADER + SEAL;
        self.keep(tag, &made);
    }

    /// Whether a message with so many pages can be made; nothing else must wait to be sent.
    pub(super) fn begin(&mut self, pages: u32) -> bool {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        self.end == 0 && self.out.len() >= HEADER + between(pages as u16) + pages as usize * PAGE_BYTES
    }

    /// Puts one page into the message, sealed where there is a key.
    ///
    /// # Safety
    /// The page is whole and readable.
    pub(super) unsafe fn page(&mut self, number: u32, pages: u32, at: usize, key: Option<&PageKey>, place: &Place) {
        let start = HEADER + between(pages as u16) + number as usize * PAGE_BYTES;
        let Some(room) = self.out.as_mut_slice().get_mut(start..start + PAGE_BYTES) else { return };
        // SAFETY: the caller's promise; the room is as large, and our own.
        unsafe { core::ptr::with_exposed_provenance::<u8>(at).copy_to_nonoverlapping(room.as_mut_ptr(), PAGE_BYTES) };
        let seal = key.and_then(|key| key.seal(place, room)).unwrap_or([0; SEAL]);
        self.put(HEADER + number as usize * SEAL, &seal);
    }

    /// Puts one page into the message that is sealed already, or is none.
    pub(super) fn raw_page(&mut self, number: u32, pages: u32, page: &[u8], seal: &[u8; SEAL]) {
        self.put(HEADER + between(pages as u16) + number as usize * PAGE_BYTES, page);
        self.put(HEADER + number as usize * SEAL, seal);
    }

    /// A page as it was put into the message, and its seal.
    pub(super) fn sealed(&self, number: u32, pages: u32) -> (&[u8], &[u8]) {
        let part = |start: usize, bytes: usize| self.out.as_slice().get(start..start + bytes).unwrap_or(&[]);
        let start = HEADER + between(pages as u16) + number as usize * PAGE_BYTES;
        (part(start, PAGE_BYTES), part(HEADER + number as usize * SEAL, SEAL))
    }

    /// Ends the message that was begun.
    pub(super) fn end(&mut self, tag: u32, store: u32, slot: u32, pages: u32) {
        let made = request(Kind::Write, store, slot, pages as u16, self.to.next());
        self.put(0, &made.to_bytes());
        let signed = HEADER + pages as usize * SEAL;
        let bytes = self.to.sign(self.out.as_slice().get(..signed).unwrap_or(&[]));
        self.put(signed, &bytes);
        self.end = signed + SEAL + pages as usize * PAGE_BYTES;
        self.keep(tag, &made);
    }

    /// Sends what the kernel takes at once, and has the ring send the rest.
    pub(super) fn transmit(&mut self, io: &mut Io, index: usize) -> Result<(), Lost> {
        if self.sending || self.start == self.end {
            return Ok(());
        }
        let bytes = self.out.as_slice().get(self.start..self.end).unwrap_or(&[]);
        self.start += tcp::send_now(self.fd, bytes).map_err(Lost::Failed)?;
        if self.start == self.end {
            return Ok(());
        }
        let rest = Part { address: self.out.as_ptr().expose_provenance() + self.start, bytes: self.end - self.start };
        let place = self.describe(0, [rest, Part { address: 0, bytes: 0 }], 1);
        // SAFETY: what is described stays as it is until `sent`.
        unsafe { io.send(self.fd, place, LANE | (index as u64) << 1 | 1) }.map_err(Lost::Failed)?;
        self.sending = true;
        Ok(())
    }

    fn describe(&mut self, which: usize, parts: [Part; 2], count: usize) -> usize {
        let Some(transfer) = self.transfers.get_mut(which) else { return 0 };
        transfer.parts = parts;
        transfer.header = Header {
            name: 0,
            name_length: 0,
            parts: transfer.parts.as_ptr().expose_provenance(),
            count,
            control: 0,
            control_length: 0,
            flags: 0,
        };
        (&raw mut transfer.header).expose_provenance()
    }

    /// The ring has sent something.
    pub(super) fn sent(&mut self, result: i32) -> Result<(), Lost> {
        self.sending = false;
        match result {
            1.. => self.start = (self.start + result as usize).min(self.end),
            _ if passing(result) => {}
            _ => return Err(failed(result)),
        }
        Ok(())
    }

    fn head(message: &Message) -> usize {
        let pages = if message.request.kind == Kind::Read { message.request.pages } else { 0 };
        HEADER + between(pages)
    }

    fn body(message: &Message) -> usize {
        if message.request.kind == Kind::Read { message.request.pages as usize * PAGE_BYTES } else { 0 }
    }

    /// Has the ring receive the reply that comes next.
    pub(super) fn expect(&mut self, io: &mut Io, index: usize, ops: &MapSlice<Op>) -> Result<(), Lost> {
        if self.receiving {
            return Ok(());
        }
        if self.next.is_none() {
            let Some(([kind, tag, store, slot, pages], number)) = self.unanswered.pop() else { return Ok(()) };
            let kinds = [Kind::Read, Kind::Write, Kind::Free, Kind::Ping, Kind::Make];
            let kind = kinds.into_iter().find(|known| *known as u32 == kind).unwrap_or(Kind::Ping);
            self.next = Some(Message { tag, request: request(kind, store, slot, pages as u16, number) });
            self.got = 0;
            self.since = process::now_us();
        }
        let Some(message) = self.next else { return Ok(()) };
        let (head, body) = (Lane::head(&message), Lane::body(&message));
        let frames = ops.get(message.tag as usize).map_or(0, Op::place);
        let past = self.got.saturating_sub(head);
        let first = Part {
            address: self.back.as_ptr().expose_provenance() + self.got.min(head),
            bytes: head.saturating_sub(self.got),
        };
        let rest = Part { address: frames + past, bytes: body - past };
        let rest = if io.heeds_marks() {
            let rest = Part { bytes: rest.bytes.min(AT_ONCE), ..rest };
            self.wake_at((first.bytes + rest.bytes) as u32);
            rest
        } else {
            rest
        };
        let (parts, count) = match (first.bytes, rest.bytes) {
            (0, _) => ([rest, rest], 1),
            (_, 0) => ([first, first], 1),
            _ => ([first, rest], 2),
        };
        let place = self.describe(1, parts, count);
        // SAFETY: buffer and frames are ours until the reply is there, and what is described stays as it is.
        unsafe { io.receive(self.fd, place, LANE | (index as u64) << 1) }.map_err(Lost::Failed)?;
        self.receiving = true;
        Ok(())
    }

    /// One wake-up for what is received at once, instead of one for each segment that comes: half as long again took an
    /// ordered read otherwise.
    fn wake_at(&mut self, bytes: u32) {
        // Where that is refused, the wake-ups are many.
        if bytes != self.wakes_at && tcp::wake_at(self.fd.0, bytes).is_ok() {
            self.wakes_at = bytes;
        }
    }

    /// Something has come.
    pub(super) fn received(&mut self, result: i32) -> Result<Received, Lost> {
        self.receiving = false;
        let Some(message) = self.next else { return Ok(Received::Part) };
        match result {
            1.. => {
                self.got += result as usize;
                self.heard = process::now_us();
            }
            0 => return Err(Lost::Closed),
            _ if passing(result) => return Ok(Received::Part),
            _ => return Err(failed(result)),
        }
        if self.got < Lane::head(&message) + Lane::body(&message) {
            return Ok(Received::Part);
        }
        self.next = None;
        self.unanswered_count -= 1;
        Ok(Received::All(message))
    }

    /// The reply that has come, if it is genuine.
    pub(super) fn reply(&mut self, message: &Message) -> Result<Reply, Lost> {
        let signed = Lane::head(message) - SEAL;
        let bytes = self.back.as_slice();
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Lost::Forged)?;
        let tag = bytes.get(signed..).and_then(|rest| rest.first_chunk()).ok_or(Lost::Forged)?;
        self.from.verify(bytes.get(..signed).unwrap_or(&[]), tag).map_err(|_| Lost::Forged)?;
        Reply::parse(header, &message.request).map_err(|_| Lost::Forged)
    }

    /// The seal of a page of the reply that has come last.
    pub(super) fn seal(&self, number: u32) -> Option<[u8; SEAL]> {
        let start = HEADER + number as usize * SEAL;
        self.back.as_slice().get(start..)?.first_chunk().copied()
    }
}

fn passing(result: i32) -> bool {
    result == Errno::AGAIN.negative() || result == Errno::INTR.negative()
}

fn failed(result: i32) -> Lost {
    Lost::Failed(Errno(result.unsigned_abs() as u16))
}

#[cfg(test)]
mod tests;
