//! A connection to a memory server: connecting, and what is said on it before pages are, each within a deadline. What is
//! sent later goes through the pager's ring.

use crate::Errno;
use crate::file::{self, Fd};
use crate::process;
use crate::syscall::{call2, call3, call5, call6, number};

const STREAM: usize = 1;
const MSG_DONTWAIT: usize = 0x40;
/// No SIGPIPE when the other end is gone.
pub(crate) const MSG_NOSIGNAL: usize = 0x4000;
/// All that was asked for, unless the stream ends.
pub(crate) const MSG_WAITALL: usize = 0x100;
const SOL_SOCKET: usize = 1;
const SO_KEEPALIVE: usize = 9;
const SO_RCVLOWAT: usize = 18;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const IPPROTO_TCP: usize = 6;
const TCP_NODELAY: usize = 1;
const TCP_KEEPIDLE: usize = 4;
const TCP_KEEPINTVL: usize = 5;
const TCP_KEEPCNT: usize = 6;
const TCP_INFO: usize = 11;
/// Since Linux 6.15.
const TCP_RTO_MAX_MS: usize = 44;
/// How long a thread may sleep in one call for a lane, in microseconds, where there is no ring.
const SLICE: u64 = 1_000_000;

/// Where a server is: a socket address as the kernel takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    bytes: [u8; 28],
    length: usize,
}

impl Address {
    /// An address of kind 4 or 6, whose bytes come most significant first.
    pub fn new(family: u32, address: &[u8; 16], port: u16, scope: u32) -> Option<Address> {
        let mut bytes = [0; 28];
        let (number, from, count, length) = match family {
            4 => (2u16, 4, 4, 16),
            6 => (10u16, 8, 16, 28),
            _ => return None,
        };
        bytes.get_mut(..2)?.copy_from_slice(&number.to_ne_bytes());
        bytes.get_mut(2..4)?.copy_from_slice(&port.to_be_bytes());
        bytes.get_mut(from..from + count)?.copy_from_slice(address.get(..count)?);
        if family == 6 {
            bytes.get_mut(24..28)?.copy_from_slice(&scope.to_ne_bytes());
        }
        Some(Address { bytes, length })
    }
}

/// struct msghdr.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) name: usize,
    pub(crate) name_length: usize,
    pub(crate) parts: usize,
    pub(crate) count: usize,
    pub(crate) control: usize,
    pub(crate) control_length: usize,
    pub(crate) flags: usize,
}

/// A connection that is being set up.
pub(crate) struct Stream {
    pub(crate) fd: Fd,
    deadline: u64,
}

impl Stream {
    /// Connects before a point in time, in microseconds.
    pub(crate) fn connect(address: &Address, deadline: u64) -> Result<Stream, Errno> {
        let family = u16::from_ne_bytes([address.bytes[0], address.bytes[1]]) as usize;
        let kind = STREAM | linux_raw_sys::general::O_CLOEXEC as usize;
        // SAFETY: no memory is touched.
        let fd = Fd(unsafe { call3(number::__NR_socket, family, kind, 0) }? as i32);
        let stream = Stream { fd, deadline };
        stream.begin(address).inspect_err(|_| file::close(fd))?;
        Ok(stream)
    }

    fn begin(&self, address: &Address) -> Result<(), Errno> {
        self.option(IPPROTO_TCP, TCP_NODELAY, 1)?;
        // The other host is gone: seen within 25 s, though nothing is asked of it.
        self.option(SOL_SOCKET, SO_KEEPALIVE, 1)?;
        self.option(IPPROTO_TCP, TCP_KEEPIDLE, 10)?;
        self.option(IPPROTO_TCP, TCP_KEEPINTVL, 5)?;
        self.option(IPPROTO_TCP, TCP_KEEPCNT, 3)?;
        self.limit()?;
        let place = address.bytes.as_ptr().expose_provenance();
        // SAFETY: the kernel reads the address, of this length.
        unsafe { call3(number::__NR_connect, self.fd.arg(), place, address.length) }.map(|_| ()).map_err(|error| {
            const INPROGRESS: Errno = Errno(115);
            if error == INPROGRESS || error == Errno::AGAIN { Errno::TIMEDOUT } else { error }
        })
    }

    fn option(&self, level: usize, name: usize, value: u32) -> Result<(), Errno> {
        let place = (&raw const value).expose_provenance();
        // SAFETY: the kernel reads a word.
        unsafe { call5(number::__NR_setsockopt, self.fd.arg(), level, name, place, size_of::<u32>()) }.map(|_| ())
    }

    fn patience(&self, us: u64) -> Result<(), Errno> {
        let time = [us / 1_000_000, us % 1_000_000];
        let place = time.as_ptr().expose_provenance();
        for name in [SO_RCVTIMEO, SO_SNDTIMEO] {
            // SAFETY: the kernel reads a struct timeval of 16 bytes.
            unsafe { call5(number::__NR_setsockopt, self.fd.arg(), SOL_SOCKET, name, place, size_of_val(&time)) }?;
        }
        Ok(())
    }

    /// Lets no call sleep beyond the deadline.
    fn limit(&self) -> Result<(), Errno> {
        let left = self.deadline.saturating_sub(process::now_us());
        if left == 0 { Err(Errno::TIMEDOUT) } else { self.patience(left) }
    }

    /// Sends all of it.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.limit()?;
            let place = rest.as_ptr().expose_provenance();
            // SAFETY: the kernel reads the bytes.
            let sent = unsafe { call6(number::__NR_sendto, self.fd.arg(), place, rest.len(), MSG_NOSIGNAL, 0, 0) };
            rest = rest.get(sent.map_err(late)?..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Receives as many bytes.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> Result<(), Errno> {
        const CONNRESET: Errno = Errno(104);
        let mut rest = bytes;
        while !rest.is_empty() {
            self.limit()?;
            let place = rest.as_mut_ptr().expose_provenance();
            // SAFETY: the kernel writes at most the length.
            let got = unsafe { call6(number::__NR_recvfrom, self.fd.arg(), place, rest.len(), 0, 0, 0) };
            match got.map_err(late)? {
                0 => return Err(CONNRESET),
                got => rest = rest.get_mut(got..).unwrap_or(&mut []),
            }
        }
        Ok(())
    }

    /// Set up: calls may now sleep for a while only.
    pub(crate) fn ready(&self) -> Result<(), Errno> {
        self.patience(SLICE)
    }
}

fn late(error: Errno) -> Errno {
    if error == Errno::AGAIN { Errno::TIMEDOUT } else { error }
}

/// Has whoever waits to receive sleep until so many bytes have come, or the stream has ended.
pub fn wake_at(fd: i32, bytes: u32) -> Result<(), Errno> {
    let place = (&raw const bytes).expose_provenance();
    let fd = Fd(fd);
    // SAFETY: the kernel reads a word.
    unsafe { call5(number::__NR_setsockopt, fd.arg(), SOL_SOCKET, SO_RCVLOWAT, place, size_of::<u32>()) }.map(|_| ())
}

/// What our kernel knows of a connection's other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// For how long nothing has come from its kernel, not even an acknowledgement, in milliseconds.
    pub silent_ms: u32,
    /// Whether it takes more than it has: its process reads.
    pub takes: bool,
    /// How often it was asked whether it takes more by now, since it answered last.
    pub unanswered: u32,
}

/// How it is about a connection's other end.
pub fn pulse(fd: i32) -> Result<Pulse, Errno> {
    // struct tcp_info, by its words; the field of the window is there since Linux 5.4.
    const PROBES: usize = 3;
    const LAST_DATA: usize = 52 / 4;
    const LAST_ACK: usize = 56 / 4;
    const WINDOW: usize = 228 / 4;
    let mut info = [0u32; WINDOW + 1];
    let mut length = size_of_val(&info) as u32;
    let fd = Fd(fd);
    let places = (info.as_mut_ptr().expose_provenance(), (&raw mut length).expose_provenance());
    // SAFETY: the kernel writes at most the length, and a word that says how much.
    unsafe { call5(number::__NR_getsockopt, fd.arg(), IPPROTO_TCP, TCP_INFO, places.0, places.1) }?;
    Ok(Pulse {
        silent_ms: info[LAST_DATA].min(info[LAST_ACK]),
        takes: info[WINDOW] != 0,
        unanswered: info[0].to_ne_bytes()[PROBES].into(),
    })
}

/// Has the kernel ask an end that takes nothing at least that often whether it takes more by now; otherwise the times
/// between grow to two minutes. Before Linux 6.15 it cannot.
pub fn ask_within(fd: i32, ms: u32) -> Result<(), Errno> {
    let place = (&raw const ms).expose_provenance();
    let fd = Fd(fd);
    // SAFETY: the kernel reads a word.
    unsafe { call5(number::__NR_setsockopt, fd.arg(), IPPROTO_TCP, TCP_RTO_MAX_MS, place, size_of::<u32>()) }
        .map(|_| ())
}

/// Bytes that have come and can be received at once.
pub fn arrived(fd: i32) -> Result<u32, Errno> {
    const FIONREAD: usize = 0x541b;
    let mut bytes = 0u32;
    let fd = Fd(fd);
    // SAFETY: the kernel writes a word.
    unsafe { call3(number::__NR_ioctl, fd.arg(), FIONREAD, (&raw mut bytes).expose_provenance()) }?;
    Ok(bytes)
}

/// Waits until what [`wake_at`] asked for has come, the stream has ended, or so many milliseconds are over (-1: for ever).
/// False when the time is over.
pub fn wait(fd: i32, ms: i32) -> Result<bool, Errno> {
    const POLLIN: u32 = 1;
    // struct pollfd: descriptor; events, and what has happened in the upper half.
    let mut wish = [fd as u32, POLLIN];
    if cfg!(target_endian = "big") {
        wish[1] = POLLIN << 16;
    }
    let mut limit = [ms.max(0) as u64 / 1000, ms.max(0) as u64 % 1000 * 1_000_000];
    let time = if ms < 0 { 0 } else { limit.as_mut_ptr().expose_provenance() };
    // SAFETY: the kernel writes to the record and to the struct timespec of 16 bytes.
    let ready = unsafe { call5(number::__NR_ppoll, wish.as_mut_ptr().expose_provenance(), 1, time, 0, 8) }?;
    Ok(ready > 0)
}

/// Receives what has come, which may be nothing yet ([`Errno::AGAIN`]); 0 at the stream's end.
pub fn receive_now(fd: i32, bytes: &mut [u8]) -> Result<usize, Errno> {
    let place = bytes.as_mut_ptr().expose_provenance();
    let fd = Fd(fd);
    // SAFETY: the kernel writes at most the length.
    unsafe { call6(number::__NR_recvfrom, fd.arg(), place, bytes.len(), MSG_DONTWAIT, 0, 0) }
}

/// Sends what the kernel takes at once; the number of bytes, which may be none.
pub(crate) fn send_now(fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
    let place = bytes.as_ptr().expose_provenance();
    let flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    // SAFETY: the kernel reads the bytes.
    match unsafe { call6(number::__NR_sendto, fd.arg(), place, bytes.len(), flags, 0, 0) } {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => other,
    }
}

/// Ends a connection both ways; whoever sleeps in it wakes.
pub(crate) fn shut(fd: Fd) {
    const BOTH: usize = 2;
    // SAFETY: no memory is touched.
    let _ = unsafe { call2(number::__NR_shutdown, fd.arg(), BOTH) };
}

/// sendmsg or recvmsg that may sleep.
///
/// # Safety
/// The header, its parts and their memory are good for what is done with them.
pub(crate) unsafe fn transfer(fd: Fd, header: usize, flags: usize, sends: bool) -> Result<usize, Errno> {
    let call = if sends { number::__NR_sendmsg } else { number::__NR_recvmsg };
    // SAFETY: the caller's promise.
    unsafe { call3(call, fd.arg(), header, flags) }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn who_waits_sleeps_until_as_much_has_come_or_the_end() {
        use std::os::fd::AsRawFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let fd = here.as_raw_fd();
        let mut bytes = [0; 100];
        assert_eq!((wait(fd, 0), receive_now(fd, &mut bytes)), (Ok(false), Err(Errno::AGAIN)));
        wake_at(fd, 50).unwrap();
        there.write_all(&[7; 20]).unwrap();
        while arrived(fd) != Ok(20) {}
        assert_eq!(wait(fd, 20), Ok(false));
        there.write_all(&[7; 40]).unwrap();
        assert_eq!(wait(fd, -1), Ok(true));
        assert_eq!(receive_now(fd, &mut bytes), Ok(60));
        there.write_all(&[7; 10]).unwrap();
        drop(there);
        assert_eq!(wait(fd, -1), Ok(true));
        assert_eq!((receive_now(fd, &mut bytes), receive_now(fd, &mut bytes)), (Ok(10), Ok(0)));
    }

    #[test]
    fn who_takes_nothing_and_who_does_are_told_apart() {
        use std::os::fd::AsRawFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut here, _) = listener.accept().unwrap();
        let fd = here.as_raw_fd();
        assert!(pulse(fd).unwrap().takes);
        let _ = ask_within(fd, 1000);
        here.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        while here.write(&[7; 65536]).is_ok() {}
        let held = pulse(fd).unwrap();
        assert!(!held.takes && held.silent_ms < 120_000 && held.unanswered < 3, "{held:?}");
        let mut bytes = std::vec![0; 1 << 20];
        for _ in 0..1000 {
            if pulse(fd).unwrap().takes {
                return;
            }
            let _ = there.read(&mut bytes).unwrap();
        }
        panic!("{:?}", pulse(fd));
    }

    #[test]
    fn connects_and_talks_within_its_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut ip = [0; 16];
        ip[..4].copy_from_slice(&[127, 0, 0, 1]);
        let address = Address::new(4, &ip, port, 0).unwrap();
        const LONG: u64 = 60_000_000;
        let stream = Stream::connect(&address, process::now_us() + LONG).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.send(b"hello").unwrap();
        let mut five = [0; 5];
        other.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"hello");
        other.write_all(b"world").unwrap();
        stream.receive(&mut five).unwrap();
        assert_eq!(&five, b"world");
        let stream = Stream { fd: stream.fd, deadline: process::now_us() + 20_000 };
        assert_eq!(stream.receive(&mut five), Err(Errno::TIMEDOUT));
        drop(other);
        let stream = Stream { fd: stream.fd, deadline: process::now_us() + LONG };
        assert_eq!(stream.receive(&mut five), Err(Errno(104)));
        file::close(stream.fd);
        assert_eq!(Address::new(5, &ip, port, 0), None);
        drop(listener);
        assert_eq!(Stream::connect(&address, process::now_us() + LONG).map(|_| ()), Err(Errno(111)));
    }
}
