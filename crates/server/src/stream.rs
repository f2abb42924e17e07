//! Connections. Who has not shown who it is has deadlines, however slowly its bytes drip in. Who has may stand still in the
//! middle of a message for ever, as programs do that are stopped, as long as its host answers.

use ream_sys::{Errno, tcp};
use ream_wire::PAGE;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// How long a client may stand still before its host is looked at.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// For how long nothing has come from a host that is gone, and how often it was asked in vain whether it takes more: how
/// often that is asked is not always in our hands, so time alone does not tell.
const GONE: u32 = 25_000;
const IN_VAIN: u32 = 3;
/// How often it is asked, where the kernel lets us say that; also how soon an idle one is.
const ASKED: Duration = Duration::from_secs(10);
/// Longest that a stranger may take to show who it is.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// Sets what every connection has: no delay, and an end some 25 s after the other host has vanished.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(GREETING))?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(ASKED).with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive.with_retries(3))?;
    socket.set_tcp_user_timeout(Some(Duration::from_millis(GONE.into())))
}

fn failed(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.0.into())
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
    /// Of whom has shown who it is: how long it may stand still before its host is looked at.
    patience: Option<Duration>,
}

impl Incoming {
    pub(crate) fn new(stream: TcpStream) -> Incoming {
        Incoming { stream, buffer: Vec::new(), start: 0, end: 0, limited: true, wakes_at: 1, patience: None }
    }

    /// The other end has shown who it is: from now on no deadline holds, as long as its host answers.
    pub(crate) fn trust(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = Some(patience);
        self.stream.set_read_timeout(self.patience)?;
        self.stream.set_write_timeout(self.patience)?;
        // This would end a connection also where the host answers, but its process takes nothing.
        SockRef::from(&self.stream).set_tcp_user_timeout(None)?;
        let _ = tcp::ask_within(self.stream.as_raw_fd(), ASKED.as_millis() as u32);
        Ok(())
    }

    /// Nothing has moved for a while: an error where that is too long.
    fn stands_still(&self) -> io::Result<()> {
        if self.patience.is_none() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pulse = tcp::pulse(self.stream.as_raw_fd()).map_err(failed)?;
        // One that takes nothing is asked by the kernel now and then, an idle one by keepalive; one that has not
        // acknowledged what it was sent was sent it again and again.
        let gone = pulse.silent_ms >= GONE && (pulse.takes || pulse.unanswered >= IN_VAIN);
        if gone { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
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
                // Set once and for all.
                _ if self.patience.is_some() => {}
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
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stands_still()?,
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
        let left = self.patience.unwrap_or_else(|| deadline.saturating_duration_since(Instant::now()));
        match tcp::wait(fd, i32::try_from(left.as_millis()).unwrap_or(i32::MAX)) {
            Ok(false) => return self.stands_still(),
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

    /// The next `count` bytes; before the deadline where it is a stranger.
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
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => rest = rest.get(sent..).unwrap_or(&[]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stands_still()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
