//! Asking the session's agent, which has the rights of whoever started the session, for what this process may not open:
//! it has given rights up since, or it is a program that another user runs.

use crate::{identity, init};
use ream_stats::{Need, Request, Session, socket_name};
use ream_sys::file::Fd;
use ream_sys::socket::{Peer, Socket};
use ream_sys::user::{self, Closed};
use ream_sys::{Errno, process};

/// Longest that the agent may take, in seconds: it is a matter of a millisecond.
const PATIENCE: u64 = 10;

/// Asks the agent of the session that this process has joined.
pub fn ask(session: &Session, need: Need) -> Result<Option<Fd>, Errno> {
    let (agent, user) = (session.agent(), session.agent_user());
    // Nobody else can have that user's rights; others may listen under the name of an agent that has ended.
    call(session.door(), Request { nonce: session.nonce(), need }, |peer| {
        // In a namespace of our own it has no number.
        let known = peer.pid == agent || peer.pid == 0 && !identity::is_ours(session.space());
        known && peer.user == user
    })
}

/// Asks for the memory of a session that this process is about to join.
pub fn session(nonce: u64, door: u64) -> Result<Fd, Errno> {
    let me = user::effective();
    let request = Request { nonce, need: Need::Session };
    call(door, request, |peer| peer.user == 0 || peer.user == me)?.ok_or(Errno::IO)
}

/// What the engine may not open.
pub fn open(what: Closed) -> Result<Fd, Errno> {
    let need = match what {
        Closed::Userfaultfd => Need::Userfaultfd,
        Closed::Pagemap => Need::Pagemap,
        Closed::Memory => Need::Memory,
    };
    descriptor(need)
}

/// A new store file.
pub fn store() -> Result<Fd, Errno> {
    descriptor(Need::Store)
}

fn descriptor(need: Need) -> Result<Fd, Errno> {
    ask(init::session().ok_or(Errno::NOENT)?, need)?.ok_or(Errno::IO)
}

fn call(door: u64, request: Request, trusted: impl Fn(Peer) -> bool) -> Result<Option<Fd>, Errno> {
    // The agent answers a process that was not there when the socket was made; in a namespace of its own it has no
    // number, and there nobody can be told from others.
    let socket = Socket::connect(&socket_name(door), PATIENCE)?;
    if !trusted(socket.peer()?) {
        return Err(Errno::ACCES);
    }
    socket.send(&request.to_bytes())?;
    let (error, fd) = socket.receive()?;
    match u16::try_from(error) {
        Ok(0) => Ok(fd),
        Ok(error) => Err(Errno(error)),
        Err(_) => Err(Errno::IO),
    }
}

/// Has the agent write the closing summary where this process cannot.
pub fn summarise(session: &Session) -> bool {
    (process::process_id() != session.agent() || !identity::is_ours(session.space()))
        && ask(session, Need::Summary).is_ok()
}
