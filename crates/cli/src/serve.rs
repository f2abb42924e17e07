//! `ream serve` and `ream keys`: the memory server, and the keys of servers and clients.

use crate::failure::{Failure, reason};
use crate::machine::Machine;
use crate::settings::{Given, Layers};
use crate::{os, remote};
use ream_options::pages::{HEAP, HUGE};
use ream_options::{Memory, parse_memory, parse_pages, parse_size, show_size};
use ream_server::keys::{self, Pair};
use ream_server::{Config, Server};
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// The least memory that a server can lend, in bytes.
const LEAST: u64 = 4 << 20;

/// Serves until it is told to end.
///
/// # Errors
/// What is missing or cannot be had.
pub fn serve(flags: Vec<Given>) -> Result<i32, Failure> {
    os::lift_size_limit();
    let files = vec![crate::configuration()?.general];
    let layers = Layers { command: "serve", flags, variable: &|name| std::env::var_os(name), files };
    let last = |name: &str| layers.last(name);
    let needed = |name: &str| {
        last(name).ok_or_else(|| {
            Failure::new(format!("serve: --{name} is missing; write ream serve --listen ADDR:PORT --memory SIZE"))
        })
    };
    let path = |name: &str| last(name).map(|given| given.path(given.text.as_deref().unwrap_or_default())).transpose();
    let listen = needed("listen")?;
    let listen = address(&listen)?;
    let given = needed("memory")?;
    let memory = match parse_memory(given.word()?).map_err(|error| given.refuse(error))? {
        Memory::Bytes(bytes) if bytes < LEAST => return Err(given.refuse("too little to lend; at least 4M")),
        Memory::Bytes(bytes) => bytes,
        _ => return Err(given.refuse("not a size; a server lends a fixed amount")),
    };
    if let Some(most) = Machine::look().ok().and_then(|machine| exceeded(memory, &machine)) {
        return Err(given.refuse(format!("{} is more than {most}; give less", show_size(memory))));
    }
    let quota = last("quota").map(|given| given.size()).transpose()?.unwrap_or(memory);
    let large = match last("pages") {
        Some(given) => parse_pages(given.word()?).map_err(|error| given.refuse(error))?[HEAP].size == HUGE,
        None => false,
    };
    let insecure = last("insecure").map(|given| given.switch()).transpose()?.unwrap_or(false);
    let identity = if insecure {
        None
    } else {
        let pair = remote::own_key(path("key")?.as_ref())?;
        let file = path("clients")?.ok_or_else(|| {
            Failure::new("serve: --clients is missing: a file with the public keys of those who are served")
        })?;
        let clients = keys::clients(&file, &|text| parse_size(text).ok())
            .map_err(|error| Failure::new(format!("--clients: {}: {}", file.display(), reason(&error))))?;
        Some((pair, clients))
    };
    let drain = last("drain").map(|given| given.count()).transpose()?.unwrap_or(30);
    let public = identity.as_ref().map(|(pair, _)| pair.public);
    let config = Config {
        listen,
        metrics: last("metrics").map(|given| address(&given)).transpose()?,
        memory,
        quota,
        large,
        identity,
        drain: Duration::from_secs(drain.into()),
        patience: ream_server::PATIENCE,
    };
    // Whoever read its lines may go.
    os::ignore_broken_pipes();
    os::raise_descriptor_limit();
    let told = os::end_signals();
    let server = Server::bind(config).map_err(|(address, error)| {
        Failure::new(format!("serve: {address}: {}; name an address of this machine and a free port", reason(&error)))
    })?;
    let failed = |error: io::Error| Failure::new(format!("serve: {}", reason(&error)));
    let (at, metrics) = server.addresses().map_err(failed)?;
    let who = match public {
        Some(public) => format!("public key {public}"),
        None => "INSECURE: no keys, no encryption; whoever reaches it may use it".to_owned(),
    };
    let metrics = metrics.map_or_else(String::new, |address| format!(", metrics at http://{address}/metrics"));
    os::say(&format!("ream: serving {} at tcp://{at}{metrics}; {who}", show_size(memory)));
    server.run(told).map_err(failed)?;
    Ok(0)
}

/// What there is, in words, where that is less.
fn exceeded(bytes: u64, machine: &Machine) -> Option<String> {
    match &machine.cgroup {
        Some(limit) if bytes > limit.bytes && limit.bytes <= machine.total => {
            Some(format!("the cgroup allows ({} in {})", show_size(limit.bytes), limit.file.display()))
        }
        _ if bytes > machine.total => Some(format!("this machine's {} of RAM", show_size(machine.total))),
        _ => None,
    }
}

fn address(given: &Given) -> Result<SocketAddr, Failure> {
    let text = given.word()?;
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| given.refuse("not ADDR:PORT, such as 10.0.0.5:7400"))
}

/// Makes a key pair, unless there is one, and shows its public half.
///
/// # Errors
/// What the file system says.
pub fn keys(rest: &[OsString]) -> Result<String, Failure> {
    let path = match rest {
        [] => remote::key_file(None)?,
        [path] if path.is_empty() => {
            return Err(Failure::new("keys: no file given; name one, or leave it out for the usual place"));
        }
        [path] => PathBuf::from(path),
        [_, more, ..] => return Err(Failure::new(format!("{}: one argument too many", more.to_string_lossy()))),
    };
    let failed = |error: io::Error| {
        let mend = match error.kind() {
            io::ErrorKind::NotFound => "; make its directory first, or name a file elsewhere",
            io::ErrorKind::PermissionDenied if !path.exists() => "; name a file in a directory of yours",
            _ => "",
        };
        Failure::new(format!("keys: {}: {}{mend}", path.display(), reason(&error)))
    };
    if rest.is_empty() {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
    }
    os::lift_size_limit();
    let new = Pair::generate().map_err(failed)?;
    let pair = match new.save(&path) {
        Ok(()) => new,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Pair::load(&path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    Ok(format!("{}\n", pair.public))
}
