//! Connections with deadlines: a message that has begun must be whole in time, however slowly its bytes drip in; between
//! messages a connection may be silent for ever, since the kernel finds out when the other end is gone.

use ream_sys::{Errno, tcp};
use ream_wire::PAGE;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// Longest that a message may take from its first byte to its last.
pub(crate) const MESSAGE: Duration = Duration::from_secs(20);
/// Longest that a stranger may take to show who it is.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// Sets what every connection has: no delay, and an end some 25 s after the other host has vanished.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(MESSAGE))?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive.with_retries(3))?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(25)))
}

/// A connection's reading half, with what has come and is not taken yet.
pub(crate) struct Incoming {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether reads of the stream end by themselves at the moment.
    limited: bool,
    /// With how many bytes the kernel wakes who reads.
    wakes_at: u32,
}

impl Incoming {
    pub(crate) fn new(stream: TcpStream) -> Incoming {
        Incoming { stream, buffer: Vec::new(), start: 0, end: 0, limited: true, wakes_at: 1 }
    }

    /// Waits until `count` bytes have come, no more than the buffer holds. The end of the stream is an error.
    fn await_bytes(&mut self, count: usize, deadline: Option<Instant>) -> io::Result<()> {
        if self.end - self.start >= count {
            return Ok(());
        }
        if self.buffer.is_empty() {
            // 16 KiB suffice for whoever sends requests only.
            self.buffer.resize(BUFFER / 16, 0);
        }
        if self.buffer.len() < count {
            self.buffer.resize(BUFFER.max(count), 0);
        }
        if self.buffer.len() - self.start < count || self.start == self.end {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < count {
            let missing = count - (self.end - self.start);
            if let (true, Some(deadline)) = (missing >= PAGE, deadline) {
                self.fill(missing, deadline)?;
                continue;
            }
            self.wake_at(1);
            match deadline {
                None if self.limited => {
                    self.stream.set_read_timeout(None)?;
                    self.limited = false;
                }
                None => {}
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.stream.set_read_timeout(Some(left))?;
                    self.limited = true;
                }
            }
            match self.stream.read(self.buffer.get_mut(self.end..).unwrap_or(&mut [])) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.end += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes what has come when as much as is missing has, or the stream has ended. (A read that may wait would take a part,
    /// and then wait for as much again.)
    fn fill(&mut self, missing: usize, deadline: Instant) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        self.wake_at(missing as u32);
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let failed = |error: Errno| io::Error::from_raw_os_error(error.0.into());
        match tcp::wait(fd, i32::try_from(left).unwrap_or(i32::MAX)) {
            Ok(false) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(true) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        match tcp::receive_now(fd, self.buffer.get_mut(self.end..).unwrap_or(&mut [])) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                self.end += got;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// One wake-up for many pages instead of one for each segment that comes.
    fn wake_at(&mut self, bytes: u32) {
        // Where that is refused, the wake-ups are many.
        if bytes != self.wakes_at && tcp::wake_at(self.stream.as_raw_fd(), bytes).is_ok() {
            self.wakes_at = bytes;
        }
    }

    /// Looks for the first byte of a message for a moment, without going to sleep.
    pub(crate) fn look(&self, moment: Duration) {
        let until = Instant::now() + moment;
        while self.start == self.end && tcp::arrived(self.stream.as_raw_fd()) == Ok(0) && Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    /// Waits for the first byte of a message, for ever. False when the other end has closed the connection before one.
    pub(crate) fn message(&mut self) -> io::Result<bool> {
        match self.await_bytes(1, None) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize, deadline: Instant) -> io::Result<&[u8]> {
        self.await_bytes(count, Some(deadline))?;
        let start = self.start;
        self.start += count;
        Ok(self.buffer.get(start..start + count).unwrap_or(&[]))
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, deadline: Instant) -> io::Result<[u8; N]> {
        let bytes = self.take(N, deadline)?;
        bytes.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    /// The writing half.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
}
