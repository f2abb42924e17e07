//! `ream add-store`: one memory server more for a session that runs. The session's agent adds it, with the session's own keys; what
//! is asked of it goes by its socket, which says when it is gone and forgets whoever is.

use crate::failure::{Failure, reason};
use crate::os;
use crate::settings::server_of;
use crate::status;
use ream_stats::{Address, Need, Request, SERVER_NAME, socket_name};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// Longest that the agent may take: more than it waits itself for others, and for the server.
const PATIENCE: Duration = Duration::from_secs(15);

/// Adds the server to the session of the process; what is to be printed then.
///
/// # Errors
/// One line that says why not.
pub fn add(rest: &[OsString]) -> Result<String, Failure> {
    let [process, server] = rest else {
        return Err(match rest {
            [] => Failure::new("add-store: no process given; write ream add-store PID tcp://HOST:PORT"),
            [_] => Failure::new("add-store: no server given; write ream add-store PID tcp://HOST:PORT"),
            [_, _, more, ..] => Failure::new(format!("{}: one argument too many", more.to_string_lossy())),
            _ => Failure::new("add-store: write ream add-store PID tcp://HOST:PORT"),
        });
    };
    let id = status::process_id(process)?;
    let wrong = || Failure::new(format!("{}: not tcp://HOST:PORT", server.to_string_lossy()));
    let name = server_of(server).ok_or_else(wrong)?;
    let variables = std::fs::read(format!("/proc/{id}/environ")).map_err(|error| status::cannot(id, &error))?;
    let value = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"REAM_SESSION="));
    let address = value.and_then(Address::parse).ok_or_else(|| {
        Failure::new(format!("{id}: it is in no session of Ream; ream run --store tcp://HOST:PORT begins one to which servers can be added"))
    })?;
    let agent = agent_of(id, &address)?;
    let mut socket = call(id, agent, &address)?;
    let gone =
        |error: io::Error| Failure::new(format!("{id}: the agent of its session, process {agent}: {}", reason(&error)));
    let request = Request { nonce: address.nonce, need: Need::Server };
    let mut padded = [0; SERVER_NAME];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    socket.write_all(&[&request.to_bytes()[..], &padded].concat()).map_err(gone)?;
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            return Err(Failure::new(format!(
                "{id}: the agent of its session, process {agent}, has not answered for {} s; tcp://{name} was not added",
                PATIENCE.as_secs()
            )));
        }
        Err(error) => return Err(gone(error)),
        Ok(_) => {}
    }
    let Some((number, line)) = answer.split_first_chunk::<4>() else {
        return Err(Failure::new(format!(
            "{id}: the agent of its session, process {agent}, has just ended; tcp://{name} was not added"
        )));
    };
    let line = String::from_utf8_lossy(line).into_owned();
    match i32::from_ne_bytes(*number) {
        0 => Ok(line + "\n"),
        _ if line.starts_with("its session ") => Err(Failure::new(format!("{id}: {line}"))),
        _ => Err(Failure::new(line)),
    }
}

/// The number of the session's agent, which has the session's memory open.
fn agent_of(id: u32, address: &Address) -> Result<u32, Failure> {
    let path = OsStr::from_bytes(address.path);
    let number = path.to_str().and_then(|text| text.strip_prefix("/proc/")?.split('/').next()?.parse().ok());
    let agent = number.ok_or_else(|| Failure::new(format!("{id}: its session has no agent")))?;
    match File::open(path) {
        Ok(_) => Ok(agent),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(status::cannot(id, &error)),
        Err(_) => Err(ended(id, agent)),
    }
}

fn ended(id: u32, agent: u32) -> Failure {
    Failure::new(format!(
        "{id}: the agent of its session, process {agent}, has ended; without it no memory server can be added"
    ))
}

/// Connects to the agent's socket, and makes sure that it is the agent's.
fn call(id: u32, agent: u32, address: &Address) -> Result<UnixStream, Failure> {
    let elsewhere = || {
        Failure::new(format!(
            "{id}: the agent of its session, process {agent}, is in another network namespace; call ream there: nsenter --net=/proc/{agent}/ns/net ream add-store ..."
        ))
    };
    let name = socket_name(address.door);
    let connected = SocketAddr::from_abstract_name(&name[1..]).and_then(|name| UnixStream::connect_addr(&name));
    let socket = match connected {
        Ok(socket) => socket,
        Err(_) if !is_near(agent) => return Err(elsewhere()),
        Err(_) => return Err(ended(id, agent)),
    };
    let ready = socket.set_read_timeout(Some(PATIENCE)).and_then(|()| os::peer(&socket));
    match ready {
        Ok((peer, _)) if peer == agent => Ok(socket),
        _ => Err(Failure::new(format!("{id}: what answers is not the agent of its session, process {agent}"))),
    }
}

/// Whether a process has the same network as this one, as far as can be seen.
fn is_near(process: u32) -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    match (network("self"), network(&process.to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        add(&words).unwrap_err().text
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(failure(&[]), "add-store: no process given; write ream add-store PID tcp://HOST:PORT");
        assert_eq!(failure(&["1"]), "add-store: no server given; write ream add-store PID tcp://HOST:PORT");
        assert_eq!(failure(&["1", "tcp://x:1", "y"]), "y: one argument too many");
        assert_eq!(failure(&["x", "tcp://x:1"]), "x: not the number of a process");
        for server in ["x:1", "/scratch", "tcp://x", "tcp://:1", "tcp://x:0", "tcp://x:70000", "tcp://a:1,tcp://b:2"] {
            assert_eq!(failure(&["1", server]), format!("{server}: not tcp://HOST:PORT"));
        }
        assert_eq!(failure(&["4194304", "tcp://x:1"]), "4194304: no such process");
    }
}
