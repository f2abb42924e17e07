//! How a session gets memory from a server: a lease, by the control connection, and a connection that holds it.

use crate::control::{Control, DONE, ENDING, LEASE, STATUS};
use crate::keys::{Pair, Public};
use crate::stream::{self, Incoming};
use ream_wire::hello::{ANSWER, Answer, Connection, Hello, NEW_STORE, Purpose, directions};
use ream_wire::message::{HEADER, Kind, Reply, Request};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How a client calls.
pub enum Caller {
    /// Showing who it is, to the server with this key alone.
    Known(Box<Pair>, Public),
    /// Without security.
    Anybody,
}

/// A lease, as long as a connection of it lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its number.
    pub id: u64,
    /// What connections of it show that they know.
    pub secret: [u8; 32],
    /// Most memory that it can have, in bytes.
    pub quota: u64,
}

/// A control connection.
pub struct Calling {
    control: Control,
    address: SocketAddr,
    deadline: Instant,
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Says plainly what an end of the conversation means.
fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => io::Error::new(
            error.kind(),
            "it ended the conversation: it does not know our key, has another key than we know, speaks another version, has too many connections, or only one side is --insecure",
        ),
        io::ErrorKind::InvalidData => {
            io::Error::new(error.kind(), "its answer is not genuine: it has another key than we know")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
        }
        _ => error,
    }
}

fn connect(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    let stream = TcpStream::connect_timeout(&address, left)?;
    stream::prepare(&stream)?;
    Ok(stream)
}

impl Calling {
    /// Connects to `HOST:PORT`; all of it, and each request, ends within `patience`.
    ///
    /// # Errors
    /// What is wrong, in plain words.
    pub fn new(address: &str, caller: &Caller, patience: Duration) -> io::Result<Calling> {
        let deadline = Instant::now() + patience;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address for that name");
        for address in address.to_socket_addrs()? {
            match connect(address, deadline) {
                Ok(stream) => {
                    let control = Calling::greet(stream, caller, deadline).map_err(explain)?;
                    return Ok(Calling { control, address, deadline });
                }
                Err(error) => last = error,
            }
        }
        Err(explain(last))
    }

    fn greet(stream: TcpStream, caller: &Caller, deadline: Instant) -> io::Result<Control> {
        let mut incoming = Incoming::new(stream);
        match caller {
            Caller::Known(pair, server) => {
                incoming.send(&Connection::Control.preamble())?;
                Control::call(incoming, pair, *server, deadline)
            }
            Caller::Anybody => {
                incoming.send(&Connection::Plain.preamble())?;
                Ok(Control::plain(incoming))
            }
        }
    }

    /// The address that answered.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn ask(&mut self, request: u8) -> io::Result<Vec<u8>> {
        self.control.send(&[request]).map_err(explain)?;
        let mut answer = self.control.receive(self.deadline).map_err(explain)?;
        match answer.first() {
            Some(&DONE) => Ok(answer.split_off(1)),
            Some(&ENDING) => Err(io::Error::other("it is about to end")),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of another version")),
        }
    }

    /// Asks for a lease. It lives at least as long as this connection.
    ///
    /// # Errors
    /// What is wrong, in plain words.
    pub fn lease(&mut self) -> io::Result<Lease> {
        let answer = self.ask(LEASE)?;
        let part = |at: usize, bytes: usize| answer.get(at..at + bytes);
        let number = |at: usize| part(at, 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let secret = part(8, 32).and_then(|bytes| bytes.try_into().ok());
        match (number(0), secret, number(40)) {
            (Some(id), Some(secret), Some(quota)) => Ok(Lease { id, secret, quota }),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of another version")),
        }
    }

    /// The same as [`Calling::status`], within this time.
    ///
    /// # Errors
    /// What is wrong, in plain words.
    pub fn status_within(&mut self, patience: Duration) -> io::Result<String> {
        self.deadline = Instant::now() + patience;
        self.status()
    }

    /// Asks for the server's figures: lines of a name and a number, and comments.
    ///
    /// # Errors
    /// What is wrong, in plain words.
    pub fn status(&mut self) -> io::Result<String> {
        String::from_utf8(self.ask(STATUS)?).map_err(io::Error::other)
    }
}

/// Opens a connection that keeps a lease alive while it is open.
///
/// # Errors
/// What is wrong, in plain words.
pub fn hold(address: SocketAddr, id: u64, secret: &[u8; 32], patience: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let stream = connect(address, deadline)?;
    let mut incoming = Incoming::new(stream.try_clone()?);
    let random = crate::listen::random()?;
    let hello = Hello { lease: id, store: NEW_STORE, purpose: Purpose::Hold, random };
    incoming.send(&[&Connection::Lane.preamble()[..], &hello.to_bytes(secret)].concat())?;
    let answer: [u8; ANSWER] = incoming.array(deadline)?;
    let forged = || io::Error::new(io::ErrorKind::InvalidData, "its answer is not genuine");
    let answer = Answer::parse(&answer, &hello, secret).ok_or_else(forged)?;
    let (mut to, mut from) = directions(&hello, &answer, secret).ok_or_else(forged)?;
    let ping = Request { kind: Kind::Ping, store: NEW_STORE, slot: 0, pages: 0, number: to.next() };
    let header = ping.to_bytes();
    incoming.send(&[&header[..], &to.sign(&header)].concat())?;
    let header: [u8; HEADER] = incoming.array(deadline)?;
    let tag = incoming.array(deadline)?;
    from.verify(&header, &tag).map_err(|_| forged())?;
    Reply::parse(&header, &ping).map_err(|_| forged())?;
    Ok(stream)
}
