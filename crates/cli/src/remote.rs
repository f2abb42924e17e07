//! Memory servers, as their client: who both sides are, the lease of a session, and what a server says of itself.

use crate::failure::{Failure, reason};
use crate::own_directory;
use crate::place::Place;
use crate::settings::{Given, Settings};
use ream_options::show_size;
use ream_server::client::{Caller, Calling, Lease, hold as hold_lease};
use ream_server::keys::{self, Pair};
use ream_stats::{Remote, Text};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// Longest that it may take to call a server and be answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user's file of this name, or the one that an option names.
fn file(given: Option<&PathBuf>, name: &str) -> Result<PathBuf, Failure> {
    let usual = || own_directory().map(|directory| directory.join(name));
    given.cloned().or_else(usual).ok_or_else(|| Failure::new(format!("--{name}: no file given, and no $HOME is set")))
}

/// Where the own key is.
pub fn key_file(given: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    file(given, "key")
}

/// Reads the own key.
pub fn own_key(given: Option<&PathBuf>) -> Result<Pair, Failure> {
    let path = key_file(given)?;
    Pair::load(&path).map_err(|error| {
        let mend = match error.kind() {
            io::ErrorKind::NotFound => format!("; make one by ream keys {}", path.display()),
            _ => String::new(),
        };
        Failure::new(format!("--key: {}: {}{mend}", path.display(), reason(&error)))
    })
}

/// How this user calls a server.
fn caller(settings: &Settings, server: &str) -> Result<Caller, Failure> {
    if settings.insecure {
        return Ok(Caller::Anybody);
    }
    let path = file(settings.servers.as_ref(), "servers")?;
    let shown = path.display();
    let known = match keys::server(&path, server) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::new(format!("--servers: {shown}: {}", reason(&error)))),
    };
    let Some(public) = known else {
        return Err(Failure::new(format!(
            "tcp://{server}: its public key is not known; put \"{server} PUBLIC-KEY\" into {shown}; the server prints its key when it starts"
        )));
    };
    Ok(Caller::Known(Box::new(own_key(settings.key.as_ref())?), public))
}

fn call(settings: &Settings, server: &str) -> Result<Calling, Failure> {
    let caller = caller(settings, server)?;
    Calling::new(server, &caller, PATIENCE).map_err(|error| refused(server, &error))
}

fn refused(server: &str, error: &io::Error) -> Failure {
    let mend = match error.kind() {
        io::ErrorKind::ConnectionRefused => "; is ream serve running there?",
        _ => "",
    };
    Failure::new(format!("memory server tcp://{server}: {}{mend}", reason(error)))
}

/// A lease, and the connection that keeps it until somebody else does.
pub struct Leased {
    server: String,
    address: SocketAddr,
    lease: Lease,
    _calling: Calling,
}

/// Gets memory for a session.
///
/// # Errors
/// What is wrong with keys, server or the way there.
pub fn lease(settings: &Settings, server: &str) -> Result<Leased, Failure> {
    let mut calling = call(settings, server)?;
    let lease = calling.lease().map_err(|error| refused(server, &error))?;
    Ok(Leased { server: server.to_owned(), address: calling.address(), lease, _calling: calling })
}

impl Leased {
    /// Where pages go.
    pub fn place(&self, settings: &Settings) -> Place {
        let limit = settings.store_limit.map_or(self.lease.quota, |limit| limit.min(self.lease.quota));
        Place { directory: PathBuf::from(format!("tcp://{}", self.server)), limit }
    }

    /// What processes of the session have to know.
    pub fn config(&self, settings: &Settings) -> Result<Remote, Failure> {
        let mut address = [0; 16];
        let (family, scope) = match self.address {
            SocketAddr::V4(four) => {
                address[..4].copy_from_slice(&four.ip().octets());
                (4, 0)
            }
            SocketAddr::V6(six) => {
                address = six.ip().octets();
                (6, six.scope_id())
            }
        };
        let name = Text::new(self.server.as_bytes());
        Ok(Remote {
            name: name.ok_or_else(|| Failure::new(format!("--store: {}: longer than 255 bytes", self.server)))?,
            family,
            port: self.address.port().into(),
            address,
            scope,
            sealed: (!settings.insecure).into(),
            lease: self.lease.id,
            secret: self.lease.secret,
            deadline_ms: u64::from(settings.store_deadline) * 1000,
        })
    }
}

/// What is said at every start without security.
pub fn unsafe_words(place: &Place) -> String {
    format!(
        "--insecure: pages go to {} unencrypted; whoever is on the way, or there, can read and change them",
        place.directory.display()
    )
}

/// Keeps a lease alive as long as the connection is open.
pub fn hold(remote: &Remote) -> io::Result<TcpStream> {
    let port = u16::try_from(remote.port).map_err(io::Error::other)?;
    let address = match (remote.family, remote.address.first_chunk::<4>()) {
        (4, Some(four)) => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*four)), port),
        _ => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(remote.address), port, 0, remote.scope)),
    };
    hold_lease(address, remote.lease, &remote.secret, PATIENCE)
}

/// Asks a server for its figures.
///
/// # Errors
/// What is wrong with keys, server or the way there.
pub fn status(flags: Vec<Given>, json: bool) -> Result<String, Failure> {
    let wanted = flags.iter().rfind(|given| given.spec.name == "server").cloned();
    let settings = Settings::settle("status", flags, &|name| std::env::var_os(name), Vec::new())?;
    let wanted = wanted.ok_or_else(|| Failure::new("--server: no server is named"))?;
    let server = wanted.server(wanted.text.as_deref().unwrap_or_default())?;
    let server = server.ok_or_else(|| wanted.refuse("not tcp://HOST:PORT"))?;
    let mut calling = call(&settings, &server)?;
    let text = calling.status().map_err(|error| refused(&server, &error))?;
    let figures: Vec<(&str, u64)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    if json {
        let lines: Vec<_> = figures.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
        return Ok(format!("{{\n{}\n}}\n", lines.join(",\n")));
    }
    let figure = |name: &str| figures.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
    let server_s = |name: &str| figure(&format!("ream_server_{name}"));
    let mut out = format!(
        "tcp://{server}{}\n  memory       {} of {} taken, by {} sessions\n  ours         {} of {}\n",
        if server_s("ending") > 0 { " (about to end)" } else { "" },
        show_size(server_s("used_bytes")),
        show_size(server_s("memory_bytes")),
        server_s("leases"),
        show_size(figure("ream_client_used_bytes")),
        show_size(figure("ream_client_quota_bytes")),
    );
    out += &format!(
        "  connections  {} now, {} so far\n  pages        {} received, {} sent\n  refused      {} strangers, {} not genuine, {} late, {} too many; pages: {} full, {} over quota, {} not there\n",
        server_s("connections"),
        server_s("connections_total"),
        server_s("pages_received_total"),
        server_s("pages_sent_total"),
        server_s("strangers_total"),
        server_s("forged_total"),
        server_s("late_total"),
        server_s("crowded_total"),
        server_s("full_total"),
        server_s("quota_total"),
        server_s("refused_total"),
    );
    Ok(out)
}
