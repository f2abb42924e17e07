//! Calls by which the kernel keeps plain references to the program's pages: it would go on reading the frames, which
//! hold other pages by then, since a move does not see such references. They are turned into copies.

use crate::heap::in_session;
use ream_sys::Errno;
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
    const NO_WAIT: usize = 8;
    /// What a pipe that can be written takes at once, whatever its mode.
    const ATOMIC: usize = 4096;
    if !in_session() || flags & !KNOWN != 0 || !is_pipe_to_write(fd) {
        // SAFETY: the caller's promise. Out of a pipe the kernel copies by itself.
        return unsafe { call4(number::__NR_vmsplice, fd, parts, count, flags) };
    }
    loop {
        // SAFETY: the caller's promise; a position of -1 is that of the file, which a pipe has not.
        match unsafe { call6(number::__NR_pwritev2, fd, parts, count, usize::MAX, usize::MAX, NO_WAIT) } {
            Err(Errno::AGAIN) => {}
            Err(EOPNOTSUPP) => {
                if writable(fd, flags & NONBLOCK == 0)? {
                    // SAFETY: the caller's promise: so many pairs of address and length.
                    let list = unsafe {
                        core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<[usize; 2]>(parts), count)
                    };
                    let first = list.iter().find(|[_, bytes]| *bytes > 0);
                    let [address, bytes] = first.copied().unwrap_or([0, 0]);
                    // SAFETY: the caller's promise.
                    return unsafe { call3(number::__NR_write, fd, address, bytes.min(ATOMIC)) };
                }
            }
            done => return done,
        }
        if flags & NONBLOCK != 0 {
            return Err(Errno::AGAIN);
        }
        writable(fd, true)?;
    }
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
    // SAFETY: the caller's promise.
    unsafe { call5(number::__NR_setsockopt, fd, level, name, value, bytes) }.map(drop)
}
