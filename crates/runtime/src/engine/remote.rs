//! A memory server as the store of this process: where it is, and what is said when it is lost.

use super::ENGINE;
use super::message::{tell, warn};
use super::pager::{Failure, end};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use ream_pager::{Fatal, Shard};
use ream_stats::{Remote, Session};
use ream_sys::{Address, Errno, LinuxMachine, Lost, RemoteConfig};

/// The user was told that the server is about to end.
static TOLD: AtomicBool = AtomicBool::new(false);

/// What a machine needs to use the session's memory server; `None` when its store is a directory.
pub(super) fn config(session: &Session, slots: u32, io_limit: u32) -> Result<Option<RemoteConfig>, Failure> {
    let remote = &session.config().remote;
    if !remote.is_some() {
        return Ok(None);
    }
    let server = Address::new(remote.family, &remote.address, remote.port as u16, remote.scope);
    let server = server.ok_or(Failure { what: "reading the memory server's address", errno: Errno::INVAL })?;
    Ok(Some(RemoteConfig {
        server,
        lease: remote.lease,
        secret: remote.secret,
        sealed: remote.sealed != 0,
        deadline_us: remote.deadline_ms.saturating_mul(1000),
        slots,
        io_limit,
    }))
}

fn server() -> Option<&'static Remote> {
    ENGINE.session().map(|session| &session.config().remote).filter(|remote| remote.is_some())
}

/// The server's name, for messages, where there is one.
pub(super) struct Name(Option<&'static Remote>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(remote) = self.0 else { return Ok(()) };
        write!(f, ", tcp://{}", core::str::from_utf8(remote.name.as_bytes()).unwrap_or("?"))
    }
}

/// The server's name behind a comma, or nothing.
pub(super) fn name() -> Name {
    Name(server())
}

fn named(f: impl FnOnce(&str)) {
    f(server().and_then(|remote| core::str::from_utf8(remote.name.as_bytes()).ok()).unwrap_or("?"))
}

/// Stops the program when its memory server was lost; says once when that is about to end.
pub(super) fn look(machine: &LinuxMachine) {
    if let Some(lost) = machine.lost() {
        stop(lost);
    }
    if machine.ending() && !TOLD.swap(true, SeqCst) {
        named(|name| {
            warn(format_args!(
                "the memory server tcp://{name} is about to end; the program will be stopped when it does"
            ))
        });
    }
}

fn stop(lost: Lost) -> ! {
    const WHY: &str = "the program is stopped, since its memory there cannot be had back";
    named(|name| match lost {
        Lost::Closed => tell(format_args!("the memory server tcp://{name} closed the connection: {WHY}")),
        Lost::Failed(errno) => {
            tell(format_args!("the connection to the memory server tcp://{name} failed (errno {}): {WHY}", errno.0))
        }
        Lost::Late => {
            let seconds = server().map_or(0, |remote| remote.deadline_ms / 1000);
            tell(format_args!(
                "the memory server tcp://{name} has not answered for {seconds} s (--store-deadline): {WHY}"
            ))
        }
        Lost::Forged => tell(format_args!("what came from the memory server tcp://{name} is not genuine: {WHY}")),
        Lost::Refused => tell(format_args!("the memory server tcp://{name} does not know what it keeps for us: {WHY}")),
    });
    end()
}

/// Says what only a memory server can be the cause of, and ends; returns when it is something else.
pub(super) fn explain(why: Fatal, shard: &mut Shard<LinuxMachine>) {
    if server().is_none() {
        return;
    }
    match why {
        Fatal::Corrupt(..) => {
            let forged = shard.machine_mut().forged();
            named(|name| {
                tell(format_args!(
                    "the memory server tcp://{name} returned a page that {}: the program is stopped, since its memory there cannot be had back",
                    if forged {
                        "is not what was sealed for that place (changed, exchanged or outdated)"
                    } else {
                        "was changed"
                    },
                ))
            });
        }
        Fatal::StoreFull(errno) => {
            let errno = errno.map_or(28, |errno| errno.0);
            named(|name| {
                tell(format_args!(
                    "the memory server tcp://{name} has no room left for this program (errno {errno}): it holds {} MiB, and {} MiB more are managed; the program is stopped; raise --quota or --memory there",
                    shard.slots_in_use() / 256,
                    shard.used() / 256,
                ))
            });
        }
        Fatal::Read(_) | Fatal::Internal(_) => return,
    }
    end()
}
