//! Calls by which the kernel keeps plain references to the program's pages: it would go on reading the frames, which
//! hold other pages by then, since a move does not see such references. They are turned into copies.

use crate::heap::in_session;
use crate::lending;
use ream_sys::Errno;
use ream_sys::loans::Chain;
use ream_sys::syscall::{call3, call4, call5, call6, number};

const EOPNOTSUPP: Errno = Errno(95);

/// Whether the descriptor is the writing end of a pipe.
fn is_pipe_to_write(fd: usize) -> bool {
    const GET_FLAGS: usize = 3;
    const GET_PIPE_SIZE: usize = 1032;
    const ACCESS: usize = 3;
    // SAFETY: both only ask.
    let (size, flags) =
        unsafe { (call3(number::__NR_fcntl, fd, GET_PIPE_SIZE, 0), call3(number::__NR_fcntl, fd, GET_FLAGS, 0)) };
    size.is_ok() && flags.is_ok_and(|flags| flags & ACCESS != 0)
}

/// Waits until the descriptor can be written, or only asks whether it can.
fn writable(fd: usize, wait: bool) -> Result<bool, Errno> {
    #[repr(C)]
    struct Poll {
        fd: i32,
        events: i16,
        found: i16,
    }
    const OUT: i16 = 4;
    let mut poll = Poll { fd: fd as i32, events: OUT, found: 0 };
    let now = [0u64; 2];
    let limit = if wait { 0 } else { now.as_ptr().expose_provenance() };
    // SAFETY: the kernel writes one structure, and reads the time if there is one.
    let found = unsafe { call5(number::__NR_ppoll, (&raw mut poll).expose_provenance(), 1, limit, 0, 8) }?;
    Ok(found > 0)
}

/// vmsplice(2). Into a pipe, as much as it has room for is copied.
///
/// # Safety
/// `parts` are `count` vectors of memory as the manual asks for.
pub unsafe fn vmsplice(fd: usize, parts: usize, count: usize, flags: usize) -> Result<usize, Errno> {
    const NONBLOCK: usize = 2;
    const KNOWN: usize = 15;
    if !in_session() || flags & !KNOWN != 0 || !is_pipe_to_write(fd) {
        // SAFETY: the caller's promise. Out of a pipe the kernel copies by itself.
        return unsafe { call4(number::__NR_vmsplice, fd, parts, count, flags) };
    }
    // SAFETY: the caller's promise.
    let loan = unsafe { lending::lend_parts(parts, count) };
    // SAFETY: the caller's promise.
    let done = unsafe { copy_to_pipe(fd, parts, count, flags & NONBLOCK == 0) };
    lending::take_back(loan);
    done
}

/// # Safety
/// As for [`vmsplice`].
unsafe fn copy_to_pipe(fd: usize, parts: usize, count: usize, wait: bool) -> Result<usize, Errno> {
    const NO_WAIT: usize = 8;
    loop {
        // SAFETY: the caller's promise; a position of -1 is that of the file, which a pipe has not.
        match unsafe { call6(number::__NR_pwritev2, fd, parts, count, usize::MAX, usize::MAX, NO_WAIT) } {
            Err(Errno::AGAIN) => {}
            Err(EOPNOTSUPP) => {
                if writable(fd, wait)? {
                    // SAFETY: the caller's promise.
                    return unsafe { write_little(fd, parts, count) };
                }
            }
            done => return done,
        }
        if !wait {
            return Err(Errno::AGAIN);
        }
        writable(fd, true)?;
    }
}

/// Writes as much as a pipe that can be written takes at once, whatever its mode: for kernels that cannot be told not to
/// wait in a pipe.
///
/// # Safety
/// As for [`vmsplice`].
unsafe fn write_little(fd: usize, parts: usize, count: usize) -> Result<usize, Errno> {
    const ATOMIC: usize = 4096;
    // SAFETY: the caller's promise: so many pairs of address and length.
    let list = unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<[usize; 2]>(parts), count) };
    let [address, bytes] = list.iter().find(|[_, bytes]| *bytes > 0).copied().unwrap_or([0, 0]);
    // SAFETY: the caller's promise.
    unsafe { call3(number::__NR_write, fd, address, bytes.min(ATOMIC)) }
}

/// setsockopt(2). Sending without copies is refused, as by a family of sockets that has no such thing: programs then
/// send with copies.
///
/// # Safety
/// As the manual says.
pub unsafe fn setsockopt(fd: usize, level: usize, name: usize, value: usize, bytes: usize) -> Result<(), Errno> {
    const SOCKET: usize = 1;
    const ZERO_COPY: usize = 60;
    if in_session() && level == SOCKET && name == ZERO_COPY && value != 0 && bytes >= size_of::<i32>() {
        // SAFETY: the caller's promise.
        let on = unsafe { core::ptr::with_exposed_provenance::<i32>(value).read_unaligned() };
        if on != 0 {
            return Err(EOPNOTSUPP);
        }
    }
    let loan = lending::lend(value, bytes, Chain::default());
    // SAFETY: the caller's promise.
    let result = unsafe { call5(number::__NR_setsockopt, fd, level, name, value, bytes) }.map(drop);
    lending::take_back(loan);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::join_session;
    use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
    use std::os::fd::AsRawFd as _;

    const NONBLOCK: usize = 2;

    fn joined_pipe() -> (PipeReader, PipeWriter) {
        join_session();
        pipe().unwrap()
    }

    fn splice(fd: &impl std::os::fd::AsRawFd, bytes: &[u8], flags: usize) -> Result<usize, Errno> {
        let parts = [[0, 0], [bytes.as_ptr().expose_provenance(), bytes.len()]];
        // SAFETY: the parts live as long as the call.
        unsafe { vmsplice(fd.as_raw_fd() as usize, parts.as_ptr().expose_provenance(), 2, flags) }
    }

    #[test]
    fn what_is_spliced_is_a_copy_of_the_moment() {
        let (mut out, into) = joined_pipe();
        let mut bytes = std::vec![7u8; 8192];
        assert_eq!(splice(&into, &bytes, 0), Ok(8192));
        bytes.fill(9);
        let mut got = std::vec![0; 8192];
        out.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_pipe_takes_what_it_has_room_for() {
        let (mut out, into) = joined_pipe();
        let bytes = std::vec![5u8; 1 << 20];
        let taken = splice(&into, &bytes, 0).unwrap();
        assert!((4096..1 << 20).contains(&taken), "{taken}");
        assert_eq!(splice(&into, &bytes, NONBLOCK), Err(Errno::AGAIN));
        let mut got = std::vec![0; 4096];
        out.read_exact(&mut got).unwrap();
        assert_eq!(splice(&into, &bytes, NONBLOCK), Ok(4096));
        // Full again: the next waits until somebody reads.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| splice(&into, &bytes, 0));
            while !waiting.is_finished() {
                out.read_exact(&mut got).unwrap();
                std::thread::yield_now();
            }
            assert!(waiting.join().unwrap().is_ok_and(|taken| taken >= 4096));
        });
    }

    #[test]
    fn without_word_from_the_kernel_a_little_is_written() {
        let (mut out, into) = joined_pipe();
        let bytes = std::vec![3u8; 10_000];
        let parts = [[0, 0], [bytes.as_ptr().expose_provenance(), bytes.len()]];
        assert_eq!(writable(into.as_raw_fd() as usize, false), Ok(true));
        // SAFETY: the parts live as long as the call.
        let taken = unsafe { write_little(into.as_raw_fd() as usize, parts.as_ptr().expose_provenance(), 2) };
        assert_eq!(taken, Ok(4096));
        let mut got = std::vec![0; 4096];
        out.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == 3));
        while splice(&into, &bytes, NONBLOCK).is_ok() {}
        assert_eq!(writable(into.as_raw_fd() as usize, false), Ok(false));
    }

    #[test]
    fn reading_ends_and_files_are_the_kernels_business() {
        let (out, mut into) = joined_pipe();
        into.write_all(b"abcd").unwrap();
        let mut got = [0u8; 4];
        let part = [[got.as_mut_ptr().expose_provenance(), 4]];
        // SAFETY: the part lives as long as the call.
        let read = unsafe { vmsplice(out.as_raw_fd() as usize, part.as_ptr().expose_provenance(), 1, 0) };
        assert_eq!((read, &got), (Ok(4), b"abcd"));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(splice(&file, b"x", 0), Err(Errno(9)));
    }

    #[test]
    fn sockets_do_not_send_without_copies() {
        join_session();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let set = |name: usize, value: i32| {
            let place = (&raw const value).expose_provenance();
            // SAFETY: the value lives as long as the call.
            unsafe { setsockopt(socket.as_raw_fd() as usize, 1, name, place, 4) }
        };
        assert_eq!(set(60, 1), Err(EOPNOTSUPP));
        assert_eq!(set(60, 0), Ok(()));
        // SO_RCVBUF.
        assert_eq!(set(8, 65_536), Ok(()));
    }
}
