//! Writing what is Ream's own, not the program's: a reader that went away is an error here, and no SIGPIPE for the program,
//! which would end by it or find it in its handler.

use crate::Errno;
use crate::file::{self, Fd};
use crate::process::{self, SignalSet};
use crate::syscall::{call2, call4, call5, number};

/// SIGPIPE alone.
const PIPE: SignalSet = SignalSet(1 << 12);
/// Longest that a descriptor which does not wait is waited for, in steps of [`STEP_US`]: 5 s.
const STEPS: u32 = 500;
const STEP_US: u64 = 10_000;

/// Writes all bytes. A descriptor that does not wait (O_NONBLOCK) is waited for, but not for good.
pub fn write_all(fd: Fd, bytes: &[u8]) -> Result<(), Errno> {
    let before = process::signal_mask();
    let blocked = before.0 & PIPE.0 != 0;
    // One that came before is the program's.
    let theirs = blocked && pending().0 & PIPE.0 != 0;
    if !blocked {
        process::set_signal_mask(SignalSet(before.0 | PIPE.0));
    }
    let written = write(fd, bytes);
    if written == Err(Errno::PIPE) && !theirs {
        take_back();
    }
    if !blocked {
        process::set_signal_mask(before);
    }
    written
}

/// Whether a write of no more than 4096 bytes would not wait now: it would be done, or fail. Whoever else writes there can change that.
pub fn takes(fd: Fd) -> bool {
    const POLLOUT: u32 = 4;
    // struct pollfd: descriptor; events, and what has happened in the upper half.
    let mut wish = [fd.0 as u32, if cfg!(target_endian = "big") { POLLOUT << 16 } else { POLLOUT }];
    let mut now = [0u64; 2];
    let (wish, now) = (wish.as_mut_ptr().expose_provenance(), now.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel writes to the record and to the struct timespec of 16 bytes.
    unsafe { call5(number::__NR_ppoll, wish, 1, now, 0, 8) }.is_ok_and(|ready| ready > 0)
}

fn write(fd: Fd, mut bytes: &[u8]) -> Result<(), Errno> {
    let mut left = STEPS;
    while !bytes.is_empty() {
        match file::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = bytes.get(written..).unwrap_or(&[]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if left > 0 => {
                left -= 1;
                process::sleep_us(STEP_US);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The signals that wait until they are no longer blocked.
fn pending() -> SignalSet {
    let mut set = SignalSet(0);
    // SAFETY: the kernel writes 8 bytes.
    let _ = unsafe { call2(number::__NR_rt_sigpending, (&raw mut set).expose_provenance(), 8) };
    set
}

/// Takes the blocked signal of a write of ours back.
fn take_back() {
    let (set, now) = (PIPE, [0u64; 2]);
    let (set, now) = ((&raw const set).expose_provenance(), now.as_ptr().expose_provenance());
    // SAFETY: the kernel reads a set of 8 bytes and a timespec of 16; nothing is asked about the signal.
    let _ = unsafe { call4(number::__NR_rt_sigtimedwait, set, 0, now, 8) };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn who_would_be_waited_for_is_known_before() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = Fd(ours.as_raw_fd());
        assert!(takes(fd));
        ours.set_nonblocking(true).unwrap();
        while file::write(fd, &[0; 4096]).is_ok() {}
        assert!(!takes(fd));
        // It would fail, and not wait.
        drop(theirs);
        assert!(takes(fd) && takes(Fd(1 << 20)));
    }

    /// Rust's test runner ignores SIGPIPE; blocked it comes all the same.
    #[test]
    fn the_signal_is_taken_back_unless_it_was_there_before() {
        let (_, nobody_reads) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = Fd(nobody_reads.as_raw_fd());
        let mask = process::signal_mask();
        assert_eq!(write_all(fd, b"x"), Err(Errno::PIPE));
        assert!(process::signal_mask() == mask && pending().0 & PIPE.0 == 0);
        process::set_signal_mask(SignalSet(mask.0 | PIPE.0));
        assert_eq!(write_all(fd, b"x"), Err(Errno::PIPE));
        assert_eq!(pending().0 & PIPE.0, 0);
        // The program's own.
        assert_eq!(file::write(fd, b"x"), Err(Errno::PIPE));
        assert_eq!(write_all(fd, b"x"), Err(Errno::PIPE));
        assert_eq!(pending().0 & PIPE.0, PIPE.0);
        take_back();
        process::set_signal_mask(mask);
    }
}
