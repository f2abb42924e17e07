//! In the session's agent: keeps the leases of several memory servers, asks how much memory each has left, and gets a new
//! lease from one that has lost the old one. One thread a server, asleep but for a glance now and then.

use crate::remote;
use ream_server::client::{Calling, Lease};
use ream_stats::{Remote, SERVERS, Server, Session};
use std::io;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a server is asked for what it has left.
const ASK: Duration = Duration::from_secs(5);
/// How often it is looked whether a process was refused, while a server is there, and how often one that is not is called.
const GLANCE: Duration = Duration::from_millis(100);
/// Longest that it may take to call a server and be answered.
const PATIENCE: Duration = Duration::from_secs(1);

/// What lives as long as the agent does.
pub struct Kept {
    _holds: Vec<Option<TcpStream>>,
}

/// Takes over the leases of a session. With one server alone there is nothing to be renewed: its loss is the end.
///
/// # Errors
/// The only lease cannot be held.
pub fn keep(session: &'static Session, remotes: &[Remote; SERVERS], alone: bool) -> io::Result<Kept> {
    let mut holds = Vec::new();
    for (index, remote) in remotes.iter().enumerate().take_while(|(_, remote)| remote.is_some()) {
        let held = if remote.lease == 0 {
            None
        } else {
            remote::hold(remote).map(Some).or_else(|error| if alone { Err(error) } else { Ok(None) })?
        };
        if alone {
            holds.push(held);
            continue;
        }
        let (Some(server), remote) = (session.servers().get(index), *remote) else { continue };
        server.set_away(held.is_none());
        let lease = Lease { id: remote.lease, secret: remote.secret, quota: 0 };
        let mut keeper = Keeper { session, server, remote, lease, hold: held, calling: None };
        std::thread::Builder::new().stack_size(256 << 10).spawn(move || keeper.run())?;
    }
    Ok(Kept { _holds: holds })
}

struct Keeper {
    session: &'static Session,
    server: &'static Server,
    remote: Remote,
    lease: Lease,
    /// A connection that keeps the lease.
    hold: Option<TcpStream>,
    /// The control connection.
    calling: Option<Calling>,
}

impl Keeper {
    fn run(&mut self) {
        let mut asked: Option<Instant> = None;
        loop {
            let there = self.hold.as_ref().is_some_and(|hold| !has_ended(hold));
            if !there {
                self.hold = None;
                self.calling = None;
                asked = None;
                match self.renew() {
                    Ok(()) => self.server.set_away(false),
                    Err(_) => self.server.set_away(true),
                }
            } else if self.server.take_doubts() && !self.is_good() {
                // It knows the lease no more.
                self.hold = None;
                continue;
            } else if asked.is_none_or(|asked| asked.elapsed() > ASK) {
                asked = Some(Instant::now());
                if self.ask().is_err() {
                    self.calling = None;
                }
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Whether connections of the lease are accepted.
    fn is_good(&mut self) -> bool {
        match self.hold_again() {
            Ok(hold) => {
                self.hold = Some(hold);
                true
            }
            // It does not answer, and may have kept it.
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                self.server.doubt();
                true
            }
            Err(_) => false,
        }
    }

    fn hold_again(&self) -> io::Result<TcpStream> {
        let remote = Remote { lease: self.lease.id, secret: self.lease.secret, ..self.remote };
        remote::hold_within(&remote, PATIENCE)
    }

    /// Holds the lease again, or another one.
    fn renew(&mut self) -> io::Result<()> {
        if self.lease.id != 0 {
            if let Ok(hold) = self.hold_again() {
                self.hold = Some(hold);
                return Ok(());
            }
        }
        let mut calling = self.call()?;
        let lease = calling.lease()?;
        self.lease = lease;
        self.hold = Some(self.hold_again()?);
        self.server.grant(lease.id, &lease.secret);
        Ok(())
    }

    fn call(&self) -> io::Result<Calling> {
        let config = self.session.config();
        let path = |text: &[u8]| Path::new(std::ffi::OsStr::from_bytes(text)).to_owned();
        let name = std::str::from_utf8(self.remote.name.as_bytes()).map_err(io::Error::other)?;
        let (key, servers) = (path(config.key_path.as_bytes()), path(config.servers_path.as_bytes()));
        let caller = remote::caller(self.remote.sealed == 0, name, &key, &servers);
        Calling::new(name, &caller.map_err(|failure| io::Error::other(failure.text))?, PATIENCE)
    }

    fn ask(&mut self) -> io::Result<()> {
        let mut calling = match self.calling.take() {
            Some(calling) => calling,
            None => self.call()?,
        };
        let figures = remote::figures(&calling.status_within(PATIENCE)?);
        self.server.set_free(remote::left(&figures));
        self.calling = Some(calling);
        Ok(())
    }
}

/// Whether the other end has closed a connection on which it never says anything.
fn has_ended(stream: &TcpStream) -> bool {
    let mut byte = [0];
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    match stream.peek(&mut byte) {
        Ok(got) => got == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}
