//! What a pager and a memory server say to each other. The way there:
//!
//! 1. [`hello`]: a connection begins with 16 bytes that say what it is for. A *lane* (a connection for pages) shows that
//!    both ends know the secret of a lease, and draws keys of its own.
//! 2. [`message`]: on a lane requests and replies follow each other in order, each with a header of 32 bytes, the seals of
//!    its pages, 16 bytes that authenticate these two, and its pages.
//! 3. [`seal`]: a page is encrypted by the process that owns it; the server has no key to it.
//!
//! Everything here is parsed from untrusted bytes, in safe Rust; nothing allocates, nothing panics. Numbers are little
//! endian.

#![no_std]
#![forbid(unsafe_code)]

pub mod hello;
pub mod message;
pub mod seal;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of the seal of a page, and of what authenticates a message.
pub const SEAL: usize = 16;
/// Most pages of one message.
pub const MOST_PAGES: u16 = 512;
/// Version of everything here; both ends must have the same.
pub const VERSION: u16 = 1;

/// Reads from a slice what lies between two places; `None` when it is shorter.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Writes into a slice at a place; what does not fit is left out, which no caller lets happen.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}
