//! In the session's agent: keeps the leases of several memory servers, asks how much memory each has left, and gets a new
//! lease from one that has lost the old one. One thread a server, asleep but for a glance now and then.

mod add;

use crate::remote;
use ream_server::client::{Calling, Lease};
use ream_stats::{Config, Remote, Server, Session};
use std::io;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a server is asked for what it has left.
const ASK: Duration = Duration::from_secs(5);
/// How often it is looked whether a process was refused, while a server is there, and how often one that is not is called.
const GLANCE: Duration = Duration::from_millis(100);
/// Longest that it may take to call a server and be answered.
const PATIENCE: Duration = Duration::from_secs(1);

/// The leases of a session, as long as the agent lives. What it goes by lies in its own memory: the session's can be changed by
/// programs with less rights.
pub struct Kept {
    session: &'static Session,
    config: &'static Config,
    list: Mutex<List>,
    /// Held by whoever adds a server.
    adding: Mutex<()>,
}

struct List {
    /// All servers, with the quotas of their last leases.
    remotes: Vec<Remote>,
    /// What holds the lease of the only server. Nothing is renewed there, since its loss is the end, until another is added.
    alone: Option<TcpStream>,
}

/// Takes over the leases of a session.
///
/// # Errors
/// The only lease cannot be held.
pub fn keep(session: &'static Session, config: &'static Config) -> io::Result<&'static Kept> {
    let remotes: Vec<Remote> = config.remotes.iter().take_while(|remote| remote.is_some()).copied().collect();
    let alone = config.copies() < 2 && config.below == 0 && remotes.len() < 2;
    let list = Mutex::new(List { remotes: remotes.clone(), alone: None });
    let kept: &Kept = Box::leak(Box::new(Kept { session, config, list, adding: Mutex::new(()) }));
    for (index, remote) in remotes.into_iter().enumerate() {
        let held = if remote.lease == 0 {
            None
        } else {
            remote::hold(&remote).map(Some).or_else(|error| if alone { Err(error) } else { Ok(None) })?
        };
        if alone {
            kept.list().alone = held;
        } else {
            kept.look_after(index, remote, held)?;
        }
    }
    Ok(kept)
}

impl Kept {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread keep a lease from now on.
    fn look_after(&'static self, index: usize, remote: Remote, hold: Option<TcpStream>) -> io::Result<()> {
        let Some(server) = self.session.servers().get(index) else { return Ok(()) };
        server.set_away(hold.is_none());
        let lease = Lease { id: remote.lease, secret: remote.secret, quota: remote.quota };
        let mut keeper = Keeper { kept: self, index, server, remote, lease, hold, calling: None };
        std::thread::Builder::new().stack_size(256 << 10).spawn(move || keeper.run())?;
        Ok(())
    }

    /// A server gives so much by its last lease: the session may store what all together give.
    fn has_quota(&self, index: usize, quota: u64) {
        let mut list = self.list();
        if let Some(remote) = list.remotes.get_mut(index) {
            remote.quota = quota;
        }
        let quotas: Vec<u64> = list.remotes.iter().map(|remote| remote.quota).filter(|quota| *quota > 0).collect();
        drop(list);
        self.session.servers().raise_limit(remote::limit_of(&quotas, &self.config.into()));
    }

    /// Files of the user's key, and of the servers'.
    fn files(&self) -> (PathBuf, PathBuf) {
        let path = |text: &[u8]| Path::new(std::ffi::OsStr::from_bytes(text)).to_owned();
        (path(self.config.key_path.as_bytes()), path(self.config.servers_path.as_bytes()))
    }
}

struct Keeper {
    kept: &'static Kept,
    index: usize,
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
                if self.hold.take().is_some() {
                    // Processes that ask nothing of it just now would hear of that late.
                    self.server.alarm();
                }
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
        self.kept.has_quota(self.index, lease.quota);
        Ok(())
    }

    fn call(&self) -> io::Result<Calling> {
        let name = std::str::from_utf8(self.remote.name.as_bytes()).map_err(io::Error::other)?;
        let (key, servers) = self.kept.files();
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
