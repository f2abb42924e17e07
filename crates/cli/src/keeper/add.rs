//! A memory server more for a session that runs: called with the session's own keys, and told to all its processes at once.

use super::Kept;
use crate::failure::{Failure, reason};
use crate::remote;
use ream_options::show_size;
use ream_server::client::Caller;
use ream_server::keys;
use ream_stats::{Remote, SERVERS};
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long it is waited for others that add servers, for the server's answer, and for the connection that holds its lease:
/// together less than whoever asked waits.
const TURN: Duration = Duration::from_secs(4);
const CALL: Duration = Duration::from_secs(6);
const HOLD: Duration = Duration::from_secs(3);

impl Kept {
    /// Adds `HOST:PORT`, if whoever asked for it `stays` until all is ready. What is to be said then.
    ///
    /// # Errors
    /// One line that says why not; nothing has changed.
    pub fn add(&'static self, name: &str, stays: impl Fn() -> bool) -> Result<String, Failure> {
        let _mine = self.turn()?;
        let refuse = |why: &str| Failure::new(format!("tcp://{name}: {why}"));
        let known = self.list().remotes.clone();
        check(&known, |remote| remote.name.as_bytes() == name.as_bytes())
            .map_err(|_| refuse("it is one of the session's memory servers already"))?;
        if known.len() >= SERVERS {
            return Err(refuse(&format!(
                "the session has {SERVERS} memory servers already, which are as many as can be"
            )));
        }
        let first = self.config.remotes.first().copied().unwrap_or(Remote::NONE);
        let (key, servers) = self.files();
        let caller = remote::caller(first.sealed == 0, name, &key, &servers)?;
        let has = |known: Vec<u8>| {
            refuse(&format!(
                "it is tcp://{}, which the session has already, by another name or with the same key",
                String::from_utf8_lossy(&known)
            ))
        };
        if let Caller::Known(_, public) = &caller {
            let its = |remote: &Remote| keys::server(&servers, &String::from_utf8_lossy(remote.name.as_bytes()));
            check(&known, |remote| its(remote).is_ok_and(|key| key == Some(*public))).map_err(has)?;
        }
        let (remote, free, _calling) = remote::lease_more(name, &caller, &first, CALL)?;
        let place = |remote: &Remote| (remote.family, remote.address, remote.port, remote.scope);
        let drawn = remote.instance;
        check(&known, |known| place(known) == place(&remote) || drawn != 0 && known.instance == drawn).map_err(has)?;
        let failed = |error: std::io::Error| refuse(&reason(&error));
        let hold = remote::hold_within(&remote, HOLD).map_err(failed)?;
        if !stays() {
            // Nobody would know of it.
            return Err(refuse("whoever asked for it has gone"));
        }
        // From here on the first is one of several, whose lease is renewed.
        let alone = self.list().alone.take();
        if let (Some(hold), Some(first)) = (alone, known.first()) {
            self.look_after(0, *first, Some(hold)).map_err(failed)?;
        }
        let index = known.len();
        self.list().remotes.push(remote);
        self.look_after(index, remote, Some(hold)).map_err(|error| {
            self.list().remotes.pop();
            failed(error)
        })?;
        if let Some(server) = self.session.servers().get(index) {
            server.set_free(free);
        }
        if !self.session.servers().add(&remote, true) {
            return Err(refuse("the session's memory is not as it should be"));
        }
        // Who may store more finds where.
        self.has_quota(index, remote.quota);
        let limit = self.session.servers().limit();
        Ok(format!(
            "tcp://{name} is used from now on: {} are left there, and the session may store {} in all",
            show_size(free),
            show_size(limit)
        ))
    }

    /// Waits until no other server is being added.
    fn turn(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let begun = Instant::now();
        loop {
            match self.adding.try_lock() {
                Ok(mine) => return Ok(mine),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(PoisonError::into_inner(poisoned)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < TURN => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::new("another memory server is being added to the session; try again"));
                }
            }
        }
    }
}

/// Fails with the name of a server of which that is so.
fn check(known: &[Remote], is: impl Fn(&Remote) -> bool) -> Result<(), Vec<u8>> {
    known.iter().find(|remote| is(remote)).map_or(Ok(()), |remote| Err(remote.name.as_bytes().to_vec()))
}
