//! What a process asks of the session's agent when it may not open it itself, since it has given up its user's rights;
//! and the address by which a program that is just starting finds the session.

/// What is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Need {
    /// The session's memory.
    Session = 1,
    /// The device that makes userfaultfds.
    Userfaultfd = 2,
    /// A new store file.
    Store = 3,
    /// The page map of the process that asks.
    Pagemap = 4,
    /// The memory of the process that asks, to read.
    Memory = 5,
    /// That the summary is written; there is no descriptor in the answer.
    Summary = 6,
    /// One memory server more: its name follows, [`SERVER_NAME`] bytes that end with zeros; there is text behind the answer.
    Server = 7,
}

/// Bytes of the name of a memory server that is to be added.
pub const SERVER_NAME: usize = 256;

impl Need {
    const ALL: [Need; 7] =
        [Need::Session, Need::Userfaultfd, Need::Store, Need::Pagemap, Need::Memory, Need::Summary, Need::Server];
}

/// A message to the agent. The answer is an errno, 0 for success, and with that the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The session's nonce: who does not know it is not answered.
    pub nonce: u64,
    /// What is needed.
    pub need: Need,
}

impl Request {
    /// Bytes of a request.
    pub const BYTES: usize = 12;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Request::BYTES] {
        let mut bytes = [0; Request::BYTES];
        let words = self.nonce.to_ne_bytes().into_iter().chain((self.need as u32).to_ne_bytes());
        for (place, byte) in bytes.iter_mut().zip(words) {
            *place = byte;
        }
        bytes
    }

    /// As it was received; `None` if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Request> {
        let (nonce, need) = bytes.split_first_chunk::<8>()?;
        let need = u32::from_ne_bytes(need.try_into().ok()?);
        let need = Need::ALL.into_iter().find(|known| *known as u32 == need)?;
        Some(Request { nonce: u64::from_ne_bytes(*nonce), need })
    }
}

/// Where a session is: the value of `REAM_SESSION`, `PATH:NONCE-DOOR` with hexadecimal digits, and `!` behind them where
/// its programs must not run without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address<'a> {
    /// The file of its memory.
    pub path: &'a [u8],
    /// Its nonce.
    pub nonce: u64,
    /// What the name of its agent's socket is made of.
    pub door: u64,
    /// What was asked for is a promise: a program that cannot join is not to run.
    pub promised: bool,
}

impl<'a> Address<'a> {
    /// Reads an address; `None` if it is none.
    pub fn parse(text: &'a [u8]) -> Option<Address<'a>> {
        let colon = text.iter().rposition(|byte| *byte == b':')?;
        let (path, rest) = (text.get(..colon)?, text.get(colon + 1..)?);
        let promised = rest.ends_with(b"!");
        let rest = rest.strip_suffix(b"!").unwrap_or(rest);
        let dash = rest.iter().position(|byte| *byte == b'-')?;
        let number = |digits: &[u8]| u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok();
        Some(Address { path, nonce: number(rest.get(..dash)?)?, door: number(rest.get(dash + 1..)?)?, promised })
    }
}

/// The socket's name, in the kernel's abstract names, which begin with a zero byte and leave nothing behind.
pub const fn socket_name(door: u64) -> [u8; 22] {
    let mut name = *b"\0ream-0000000000000000";
    let mut digit = 0;
    while digit < 16 {
        name[6 + digit] = b"0123456789abcdef"[(door >> (60 - 4 * digit)) as usize & 15];
        digit += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn requests_arrive_as_they_were_sent() {
        for need in Need::ALL {
            let request = Request { nonce: 0x1234_5678_9abc_def0, need };
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        let mut bytes = Request { nonce: 1, need: Need::Store }.to_bytes();
        assert_eq!(Request::from_bytes(&bytes[..11]), None);
        bytes[8] = 99;
        assert_eq!(Request::from_bytes(&bytes), None);
    }

    #[test]
    fn addresses_are_read() {
        let address = Address { path: b"/proc/1/fd/3", nonce: 0xff, door: 0x1f, promised: false };
        assert_eq!(Address::parse(b"/proc/1/fd/3:ff-1f"), Some(address));
        assert_eq!(Address::parse(b"/proc/1/fd/3:ff-1f!"), Some(Address { promised: true, ..address }));
        for text in [&b""[..], b"/proc/1/fd/3", b"/x:", b"/x:zz-1", b"/x:1-", b"/x:1", b"/x:1-!", b"!"] {
            assert_eq!(Address::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn names_are_the_doors_digits() {
        assert_eq!(&socket_name(0x0123_4567_89ab_cdef), b"\0ream-0123456789abcdef");
    }
}
