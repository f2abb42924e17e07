//! Requests and replies. A header is 32 bytes:
//!
//! | bytes | request | reply |
//! |---|---|---|
//! | 0..4 | bytes that follow header, seals and authentication: the pages | the same |
//! | 4 | kind | kind, highest bit set |
//! | 5 | 0 | status |
//! | 6..8 | number of pages | number of pages |
//! | 8..12 | store | store |
//! | 12..16 | first slot | first slot |
//! | 16..24 | number of the message on this lane, from 0 | number of the request that it answers |
//! | 24 | 0 | notices |
//! | 25..32 | 0 | 0 |

use crate::{MOST_PAGES, PAGE, SEAL, part, put};

/// Bytes of a header.
pub const HEADER: usize = 32;
/// Slots of a store are below this.
pub const SLOTS: u32 = u32::MAX - 1024;
/// Stores whose number their client has chosen have one from here on.
pub const MADE: u32 = 1 << 31;
/// A notice: the server is about to end.
pub const ENDING: u8 = 1;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The pages of consecutive slots; they come with the reply. Those that hold nothing are zeros.
    Read = 1,
    /// To keep the pages that come with the request.
    Write = 2,
    /// To forget the pages of consecutive slots.
    Free = 3,
    /// Nothing: whether the other end is there.
    Ping = 4,
    /// A store of this number, from [`MADE`] on, that this lane may write, too, and that lives as long as it.
    Make = 5,
}

impl Kind {
    fn from(byte: u8) -> Option<Kind> {
        [Kind::Read, Kind::Write, Kind::Free, Kind::Ping, Kind::Make].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Done = 0,
    /// Not kept: the server has no memory left.
    Full = 1,
    /// Not kept: the client has all the memory that it may have.
    Quota = 2,
    /// There is no such store in this lease, or it is another process's.
    Foreign = 3,
}

impl Status {
    const ALL: [Status; 4] = [Status::Done, Status::Full, Status::Quota, Status::Foreign];
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// No such kind of message, or no such status.
    Kind,
    /// More pages than a message may have, none, or slots beyond the last.
    Range,
    /// The length does not go with the rest.
    Length,
    /// Bytes that must be zero are not.
    Reserved,
    /// Not the number that is next on this lane: repeated, lost, or of another lane.
    Order,
    /// It was not made by who knows the lane's key, or has been changed.
    Forged,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is asked for.
    pub kind: Kind,
    /// The store.
    pub store: u32,
    /// The first slot; 0 for a ping.
    pub slot: u32,
    /// Slots; 0 for a ping.
    pub pages: u16,
    /// Number of the message on its lane.
    pub number: u64,
}

/// A reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The request that it answers.
    pub request: Request,
    /// What became of it.
    pub status: Status,
    /// [`ENDING`] or 0.
    pub notices: u8,
}

const REPLY: u8 = 0x80;

fn header(request: &Request, kind: u8, status: u8, notices: u8, pages: u16) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    put(&mut bytes, 0, &(pages as u32 * PAGE as u32).to_le_bytes());
    put(&mut bytes, 4, &[kind, status]);
    put(&mut bytes, 6, &request.pages.to_le_bytes());
    put(&mut bytes, 8, &request.store.to_le_bytes());
    put(&mut bytes, 12, &request.slot.to_le_bytes());
    put(&mut bytes, 16, &request.number.to_le_bytes());
    put(&mut bytes, 24, &[notices]);
    bytes
}

/// What a request and a reply share: kind byte, status byte, request without its kind, length, notices.
fn fields(bytes: &[u8; HEADER]) -> Option<(u8, u8, Request, u32, u8)> {
    let [_, _, _, _, kind, status, ..] = *bytes;
    let request = Request {
        kind: Kind::from(kind & !REPLY)?,
        store: u32::from_le_bytes(part(bytes, 8)?),
        slot: u32::from_le_bytes(part(bytes, 12)?),
        pages: u16::from_le_bytes(part(bytes, 6)?),
        number: u64::from_le_bytes(part(bytes, 16)?),
    };
    let [notices] = part(bytes, 24)?;
    Some((kind, status, request, u32::from_le_bytes(part(bytes, 0)?), notices))
}

impl Request {
    /// Pages that come with it.
    pub fn body(&self) -> u16 {
        if self.kind == Kind::Write { self.pages } else { 0 }
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; HEADER] {
        header(self, self.kind as u8, 0, 0, self.body())
    }

    /// As it was received. Whether it is genuine is another question.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Request, Malformed> {
        let (kind, status, request, length, notices) = fields(bytes).ok_or(Malformed::Kind)?;
        if kind & REPLY != 0 {
            return Err(Malformed::Kind);
        }
        if status != 0 || notices != 0 || bytes.iter().skip(25).any(|byte| *byte != 0) {
            return Err(Malformed::Reserved);
        }
        request.in_range()?;
        if length != request.body() as u32 * PAGE as u32 {
            return Err(Malformed::Length);
        }
        Ok(request)
    }

    fn in_range(&self) -> Result<(), Malformed> {
        let fits = match self.kind {
            Kind::Ping => self.pages == 0 && self.slot == 0,
            Kind::Make => self.pages == 0 && self.slot == 0 && self.store >= MADE,
            _ => {
                let end = self.slot.checked_add(self.pages as u32);
                (1..=MOST_PAGES).contains(&self.pages) && end.is_some_and(|end| end <= SLOTS)
            }
        };
        if fits { Ok(()) } else { Err(Malformed::Range) }
    }
}

impl Reply {
    /// Pages that come with it.
    pub fn body(&self) -> u16 {
        if self.request.kind == Kind::Read && self.status == Status::Done { self.request.pages } else { 0 }
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; HEADER] {
        header(&self.request, self.request.kind as u8 | REPLY, self.status as u8, self.notices, self.body())
    }

    /// As it was received, for the request that is next to be answered.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; HEADER], request: &Request) -> Result<Reply, Malformed> {
        let (kind, status, echoed, length, notices) = fields(bytes).ok_or(Malformed::Kind)?;
        let status = Status::ALL.into_iter().find(|known| *known as u8 == status).ok_or(Malformed::Kind)?;
        if kind & REPLY == 0 || echoed.kind != request.kind {
            return Err(Malformed::Kind);
        }
        if notices & !ENDING != 0 || bytes.iter().skip(25).any(|byte| *byte != 0) {
            return Err(Malformed::Reserved);
        }
        if echoed != *request {
            return Err(Malformed::Order);
        }
        let reply = Reply { request: *request, status, notices };
        if length != reply.body() as u32 * PAGE as u32 {
            return Err(Malformed::Length);
        }
        Ok(reply)
    }
}

/// Bytes between a header and its pages: their seals, and the authentication.
pub const fn between(pages: u16) -> usize {
    (pages as usize + 1) * SEAL
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn requests() -> impl Iterator<Item = Request> {
        let kinds =
            [(Kind::Read, 1), (Kind::Read, 512), (Kind::Write, 3), (Kind::Free, 512), (Kind::Ping, 0), (Kind::Make, 0)];
        kinds.into_iter().map(|(kind, pages)| Request {
            kind,
            store: if kind == Kind::Make { MADE + 7 } else { 7 },
            slot: if pages > 0 { 99 } else { 0 },
            pages,
            number: 1 << 40,
        })
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for request in requests() {
            assert_eq!(Request::parse(&request.to_bytes()), Ok(request));
            for status in Status::ALL {
                let reply = Reply { request, status, notices: ENDING };
                assert_eq!(Reply::parse(&reply.to_bytes(), &request), Ok(reply));
                assert_eq!(Request::parse(&reply.to_bytes()), Err(Malformed::Kind));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = Request { kind: Kind::Write, store: 7, slot: 99, pages: 3, number: 5 };
        let with = |change: &dyn Fn(&mut Request)| {
            let mut request = good;
            change(&mut request);
            Request::parse(&request.to_bytes())
        };
        assert_eq!(with(&|request| request.pages = 0), Err(Malformed::Range));
        assert_eq!(with(&|request| request.pages = 513), Err(Malformed::Range));
        assert_eq!(with(&|request| request.slot = u32::MAX), Err(Malformed::Range));
        assert_eq!(with(&|request| request.slot = SLOTS - 2), Err(Malformed::Range));
        assert!(with(&|request| request.slot = SLOTS - 3).is_ok());
        let make = |store, slot| Request { kind: Kind::Make, store, slot, pages: 0, number: 5 };
        assert!(Request::parse(&make(MADE, 0).to_bytes()).is_ok());
        assert_eq!(Request::parse(&make(MADE - 1, 0).to_bytes()), Err(Malformed::Range));
        assert_eq!(Request::parse(&make(MADE, 1).to_bytes()), Err(Malformed::Range));
        let bytes = |at: usize, value: u8| {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            Request::parse(&bytes)
        };
        assert_eq!(bytes(3, 0xff), Err(Malformed::Length));
        assert_eq!(bytes(0, 1), Err(Malformed::Length));
        assert_eq!(bytes(4, 9), Err(Malformed::Kind));
        assert_eq!(bytes(4, 0), Err(Malformed::Kind));
        assert_eq!(bytes(31, 1), Err(Malformed::Reserved));
        assert_eq!(bytes(5, 1), Err(Malformed::Reserved));
        // A reply to another request.
        let reply = Reply { request: good, status: Status::Done, notices: 0 }.to_bytes();
        let other = Request { number: 6, ..good };
        assert_eq!(Reply::parse(&reply, &other), Err(Malformed::Order));
        assert_eq!(Reply::parse(&good.to_bytes(), &good), Err(Malformed::Kind));
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: nodeb:7400"), Err(Malformed::Kind));
    }

    #[test]
    fn random_bytes_are_refused_or_mean_what_they_say() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut accepted = 0;
        for round in 0..200_000u32 {
            let mut bytes = [0u8; HEADER];
            if round % 2 == 0 {
                bytes.iter_mut().for_each(|byte| *byte = next() as u8);
            } else {
                // A good one with one byte changed.
                bytes = requests().nth((next() % 6) as usize).unwrap().to_bytes();
                bytes[(next() % 32) as usize] = next() as u8;
            }
            if let Ok(request) = Request::parse(&bytes) {
                assert_eq!(request.to_bytes(), bytes);
                assert!(request.pages <= MOST_PAGES);
                accepted += 1;
            }
            for request in requests() {
                if let Ok(reply) = Reply::parse(&bytes, &request) {
                    assert_eq!(reply.to_bytes(), bytes);
                }
            }
        }
        assert!(accepted > 100);
    }
}
