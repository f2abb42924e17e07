//! Memory servers, as their client: who both sides are, the lease of a session, and what a server says of itself.

use crate::failure::{Failure, reason};
use crate::own_directory;
use crate::place::Place;
use crate::settings::{Given, Settings};
use ream_options::show_size;
use ream_server::client::{Caller, Calling, Lease, hold as hold_lease};
use ream_server::keys::{self, Pair, Public};
use ream_server::usable;
use ream_stats::{Config, Remote, Text};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// How the owner of a key calls a server.
pub fn caller(insecure: bool, server: &str, key: &Path, servers: &Path) -> Result<Caller, Failure> {
    if insecure {
        return Ok(Caller::Anybody);
    }
    let shown = servers.display();
    let known = match keys::server(servers, server) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::new(format!("--servers: {shown}: {}", reason(&error)))),
    };
    let Some(public) = known else {
        return Err(Failure::new(format!(
            "tcp://{server}: its public key is not known; put \"{server} PUBLIC-KEY\" into {shown}; the server prints its key when it starts"
        )));
    };
    Ok(Caller::Known(Box::new(own_key(Some(&key.to_owned()))?), public))
}

/// Files of the own key, and of the servers'.
fn files(settings: &Settings) -> Result<(PathBuf, PathBuf), Failure> {
    if settings.insecure {
        return Ok((PathBuf::new(), PathBuf::new()));
    }
    Ok((key_file(settings.key.as_ref())?, file(settings.servers.as_ref(), "servers")?))
}

fn call(settings: &Settings, server: &str) -> Result<Calling, Failure> {
    let (key, servers) = files(settings)?;
    let caller = caller(settings.insecure, server, &key, &servers)?;
    Calling::new(server, &caller, PATIENCE).map_err(|error| refused(server, &error))
}

fn refused(server: &str, error: &io::Error) -> Failure {
    let mend = match error.kind() {
        io::ErrorKind::ConnectionRefused => " (is ream serve running there?)",
        _ => "",
    };
    Failure::new(format!("memory server tcp://{server}: {}{mend}", reason(error)))
}

/// A server that was called: its lease, and the connection that keeps it until somebody else does.
struct Called {
    address: SocketAddr,
    lease: Lease,
    free: u64,
    instance: u64,
    _calling: Calling,
}

/// What the rules for a session's store are, where that is at memory servers.
pub struct Rules {
    /// Whether one of them has sums.
    pub parity: bool,
    /// Whether a disk is below them, on which each page has its place, wherever it is.
    pub below: bool,
    /// Most bytes that the user, and the local copy, leave it.
    pub ceiling: u64,
}

impl From<&Config> for Rules {
    fn from(config: &Config) -> Rules {
        let ceiling = if config.store_ceiling_bytes == 0 { u64::MAX } else { config.store_ceiling_bytes };
        Rules { parity: config.parity != 0, below: config.below != 0, ceiling }
    }
}

/// How many bytes a session may store at servers with these quotas. With two copies that is what there is room for once: second
/// copies are given up before anything is refused.
pub fn limit_of(quotas: &[u64], rules: &Rules) -> u64 {
    if rules.below {
        return rules.ceiling;
    }
    let all = quotas.iter().fold(0u64, |all, quota| all.saturating_add(usable(*quota)));
    let mut limit = all;
    if rules.parity {
        let largest = quotas.iter().copied().map(usable).max().unwrap_or(0);
        // One of them has sums only, and as much as an eighth of what is stored may be gaps.
        limit = ((all - largest) / 9 * 8).saturating_sub(8 << 20);
    }
    limit.min(rules.ceiling)
}

fn lease_at(settings: &Settings, server: &str) -> Result<Called, Failure> {
    lease_of(call(settings, server)?, server)
}

/// Gets a lease, and what is left there, from a server that was called.
fn lease_of(mut calling: Calling, server: &str) -> Result<Called, Failure> {
    let lease = calling.lease().map_err(|error| refused(server, &error))?;
    let status = calling.status().map_err(|error| refused(server, &error))?;
    let figures = figures(&status);
    let instance = figure(&figures, "ream_server_instance");
    Ok(Called { address: calling.address(), lease, free: left(&figures), instance, _calling: calling })
}

/// What one server by two names has twice.
struct Identity {
    public: Option<Public>,
    address: Option<SocketAddr>,
    instance: u64,
}

impl Identity {
    fn of(settings: &Settings, server: &str, called: Option<&Called>) -> Identity {
        // What is wrong with the list was said when it was called.
        let list = files(settings).ok().filter(|_| !settings.insecure);
        let public = list.and_then(|(_, servers)| keys::server(&servers, server).ok().flatten());
        let (address, instance) = called.map_or((None, 0), |called| (Some(called.address), called.instance));
        Identity { public, address, instance }
    }

    fn is(&self, other: &Identity) -> bool {
        self.public.is_some() && self.public == other.public
            || self.address.is_some() && self.address == other.address
            || self.instance != 0 && self.instance == other.instance
    }
}

/// Refuses one server by two names: copies there are lost together.
fn check_different(settings: &Settings, servers: &[(String, Result<Called, Failure>)]) -> Result<(), Failure> {
    let all: Vec<_> =
        servers.iter().map(|(server, called)| (server, Identity::of(settings, server, called.as_ref().ok()))).collect();
    for (index, (server, identity)) in all.iter().enumerate() {
        if let Some((first, _)) = all.iter().take(index).find(|(_, other)| identity.is(other)) {
            return Err(Failure::new(format!(
                "--store: tcp://{server} is tcp://{first}, by another name or with the same key; name each server once"
            )));
        }
    }
    Ok(())
}

/// Memory for a session, at one server or at several.
pub struct Leased {
    servers: Vec<(String, Result<Called, Failure>)>,
    /// Why those are not among them whose names nobody knows.
    nameless: Vec<Failure>,
}

/// Gets memory for a session.
///
/// # Errors
/// What is wrong with keys, servers or the way there: where not as many can be had as each page needs.
pub fn lease(settings: &Settings) -> Result<Leased, Failure> {
    let servers: Vec<(String, Result<Called, Failure>)> = std::thread::scope(|scope| {
        let call = |server: &String| {
            let name = server.clone();
            (server.clone(), scope.spawn(move || lease_at(settings, &name)))
        };
        let calls: Vec<_> = settings.memory_servers.iter().map(call).collect();
        let lost = || Err(Failure::new("a thread that called a memory server has ended"));
        calls.into_iter().map(|(server, call)| (server, call.join().unwrap_or_else(|_| lost()))).collect()
    });
    check_different(settings, &servers)?;
    let there = servers.iter().filter(|(_, called)| called.is_ok()).count();
    let mut leased = Leased { servers, nameless: Vec::new() };
    if there < settings.least_servers() {
        let first =
            leased.servers.iter_mut().find_map(|(_, called)| called.as_mut().err().map(|failure| failure.text.clone()));
        let why = first.unwrap_or_default();
        let more = match settings.memory_servers.len() {
            1 => String::new(),
            _ => format!(
                "; {there} of {} memory servers can be had, and each page goes to {}",
                settings.memory_servers.len(),
                settings.least_servers()
            ),
        };
        return Err(Failure::new(format!("{why}{more}")));
    }
    // With sums it matters how many there are.
    if !settings.parity {
        leased.leave_out_nameless();
    }
    Ok(leased)
}

impl Leased {
    /// Servers that cannot be reached now: the session begins without them.
    pub fn absent(&self) -> impl Iterator<Item = String> + '_ {
        let absent = self.servers.iter().filter_map(|(_, called)| called.as_ref().err());
        let absent = absent
            .map(|failure| format!("{}; the program begins without it, and uses it when it is there", failure.text));
        let nameless = self.nameless.iter().map(|failure| {
            format!("{}; the program begins without it; ream add-store adds it when its name is known", failure.text)
        });
        absent.chain(nameless)
    }

    /// Where a server is without an address cannot be told to processes, now or later.
    fn leave_out_nameless(&mut self) {
        let (servers, nameless): (Vec<_>, Vec<_>) =
            self.servers.drain(..).partition(|(server, called)| called.is_ok() || address_of(server).is_some());
        self.servers = servers;
        self.nameless = nameless.into_iter().filter_map(|(_, called)| called.err()).collect();
    }

    /// Where pages go, and how many bytes of them there may be. `local`: where the local copy, or the tier below, is.
    pub fn place(&self, settings: &Settings, local: Option<&Place>) -> Place {
        let quotas: Vec<u64> =
            self.servers.iter().filter_map(|(_, called)| Some(called.as_ref().ok()?.lease.quota)).collect();
        let rules =
            Rules { parity: settings.parity, below: settings.has_disk_below(), ceiling: ceiling(settings, local) };
        let limit = limit_of(&quotas, &rules);
        let names: Vec<String> = self.servers.iter().map(|(server, _)| format!("tcp://{server}")).collect();
        let names = names.join(",");
        match local.filter(|_| settings.has_disk_below()) {
            Some(below) => {
                Place { directory: PathBuf::from(format!("{names} and {}", below.directory.display())), limit }
            }
            None => Place { directory: PathBuf::from(names), limit },
        }
    }

    /// What processes of the session have to know.
    pub fn settle(&self, settings: &Settings, local: Option<&Place>, config: &mut Config) -> Result<(), Failure> {
        fn text<const N: usize>(path: &Path) -> Result<Text<N>, Failure> {
            let text = Text::new(path.as_os_str().as_bytes());
            text.ok_or_else(|| Failure::new(format!("{}: longer than {} bytes", path.display(), N - 1)))
        }
        let (key, servers) = files(settings)?;
        (config.key_path, config.servers_path) = (text(&key)?, text(&servers)?);
        (config.replicas, config.parity) = (settings.replicas, settings.parity.into());
        config.store_ceiling_bytes = Some(ceiling(settings, local)).filter(|bytes| *bytes != u64::MAX).unwrap_or(0);
        if let Some(local) = local {
            config.spill_directory = text(&local.directory)?;
            (config.spill, config.below) = if settings.has_disk_below() { (0, 1) } else { (1, 0) };
        }
        for (place, (server, called)) in config.remotes.iter_mut().zip(&self.servers) {
            *place = remote_of(server, called.as_ref().ok(), settings.insecure, settings.store_deadline)?;
        }
        Ok(())
    }

    /// What each server has left, in the order in which they were named.
    pub fn free(&self) -> impl Iterator<Item = u64> + '_ {
        self.servers.iter().map(|(_, called)| called.as_ref().map_or(0, |called| called.free))
    }
}

/// Most bytes that the user, and the local copy or the disk below, leave a store at memory servers.
fn ceiling(settings: &Settings, local: Option<&Place>) -> u64 {
    local.map_or(u64::MAX, |local| local.limit).min(settings.store_limit.unwrap_or(u64::MAX))
}

/// A server that is added to a session: what its processes have to know, and how many bytes are left there.
///
/// # Errors
/// What is wrong with keys, server or the way there.
pub fn lease_more(
    server: &str,
    caller: &Caller,
    first: &Remote,
    patience: Duration,
) -> Result<(Remote, u64, impl Sized), Failure> {
    let calling = Calling::new(server, caller, patience).map_err(|error| refused(server, &error))?;
    let called = lease_of(calling, server)?;
    let remote = remote_of(server, Some(&called), first.sealed == 0, 0)?;
    Ok((Remote { deadline_ms: first.deadline_ms, ..remote }, called.free, called))
}

fn address_of(server: &str) -> Option<SocketAddr> {
    server.to_socket_addrs().ok()?.next()
}

fn remote_of(server: &str, called: Option<&Called>, insecure: bool, deadline: u32) -> Result<Remote, Failure> {
    let mut address = [0; 16];
    // Of one that is not there the name must do.
    let found = match called {
        Some(called) => Some(called.address),
        None => address_of(server),
    };
    let Some(found) = found else {
        return Err(Failure::new(format!("memory server tcp://{server}: no address for that name")));
    };
    let (family, scope) = match found {
        SocketAddr::V4(four) => {
            address[..4].copy_from_slice(&four.ip().octets());
            (4, 0)
        }
        SocketAddr::V6(six) => {
            address = six.ip().octets();
            (6, six.scope_id())
        }
    };
    let name = Text::new(server.as_bytes());
    Ok(Remote {
        name: name.ok_or_else(|| Failure::new(format!("--store: {server}: longer than 255 bytes")))?,
        family,
        port: found.port().into(),
        address,
        scope,
        sealed: (!insecure).into(),
        lease: called.map_or(0, |called| called.lease.id),
        secret: called.map_or([0; 32], |called| called.lease.secret),
        deadline_ms: u64::from(deadline) * 1000,
        quota: called.map_or(0, |called| called.lease.quota),
        instance: called.map_or(0, |called| called.instance),
    })
}

/// The figures of a server, by name.
pub fn figures(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

fn figure(figures: &[(String, u64)], name: &str) -> u64 {
    figures.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
}

/// Bytes that a server has left for us, by its figures.
pub fn left(figures: &[(String, u64)]) -> u64 {
    let figure = |name: &str| figure(figures, name);
    let server = figure("ream_server_memory_bytes").saturating_sub(figure("ream_server_used_bytes"));
    server.min(figure("ream_client_quota_bytes").saturating_sub(figure("ream_client_used_bytes")))
}

/// A server as `ream doctor` finds it: what it has left, and how long it takes to answer.
///
/// # Errors
/// Why it cannot be used.
pub fn examine(settings: &Settings, server: &str) -> Result<(u64, Duration), Failure> {
    let mut calling = call(settings, server)?;
    let text = calling.status().map_err(|error| refused(server, &error))?;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        calling.status().map_err(|error| refused(server, &error))?;
        best = best.min(begun.elapsed());
    }
    Ok((left(&figures(&text)), best))
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
    hold_within(remote, PATIENCE)
}

/// The same, within this time.
pub fn hold_within(remote: &Remote, patience: Duration) -> io::Result<TcpStream> {
    let port = u16::try_from(remote.port).map_err(io::Error::other)?;
    let address = match (remote.family, remote.address.first_chunk::<4>()) {
        (4, Some(four)) => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*four)), port),
        _ => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(remote.address), port, 0, remote.scope)),
    };
    hold_lease(address, remote.lease, &remote.secret, patience)
}

/// Asks a server for its figures.
///
/// # Errors
/// What is wrong with keys, server or the way there.
pub fn status(flags: Vec<Given>, json: bool) -> Result<String, Failure> {
    let wanted = flags.iter().rfind(|given| given.spec.name == "server").cloned();
    let settings = crate::settle("status", flags)?;
    let wanted = wanted.ok_or_else(|| Failure::new("--server: no server is named"))?;
    let server = wanted.server(wanted.text.as_deref().unwrap_or_default())?;
    let server = server.ok_or_else(|| wanted.refuse("not tcp://HOST:PORT"))?;
    let mut calling = call(&settings, &server)?;
    let text = calling.status().map_err(|error| refused(&server, &error))?;
    let figures = figures(&text);
    if json {
        let lines: Vec<_> = figures.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
        return Ok(format!("{{\n{}\n}}\n", lines.join(",\n")));
    }
    let figure = |name: &str| figure(&figures, name);
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
        "  connections  {} now, {} so far\n  pages        {} received, {} sent\n  refused      {} strangers, {} not genuine, {} late, {} too many; requests: {} full, {} over quota, {} not there\n",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_stored_by_quotas_and_copies() {
        let limit = |quotas: &[u64], parity, ceiling| limit_of(quotas, &Rules { parity, below: false, ceiling });
        let (mib, all) = (1 << 20, u64::MAX);
        // Of segments of 2 MiB the last has no room, since their seals take some.
        assert_eq!(limit(&[40 * mib, 101 * mib], false, all), (38 + 100) * mib);
        assert_eq!(limit(&[46 * mib + 1, 47 * mib, 91 * mib], true, all), 72 * mib);
        assert_eq!(limit(&[u64::MAX, 5], false, 9), 9);
        assert_eq!(limit(&[], false, all), 0);
        assert_eq!(limit_of(&[5], &Rules { parity: false, below: true, ceiling: 9 }), 9);
        let mut config = Config::new();
        assert_eq!(Rules::from(&config).ceiling, all);
        (config.parity, config.store_ceiling_bytes) = (1, 7);
        let rules = Rules::from(&config);
        assert_eq!((rules.parity, rules.ceiling), (true, 7));
    }
}
