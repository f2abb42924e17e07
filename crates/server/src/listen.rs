//! The server itself: accepts connections, learns what each is for and whose, and ends in good order.

use crate::control::{Control, DONE, ENDING, LEASE, STATUS};
use crate::keys::{Client, Pair, Public};
use crate::leases::{Hex, Leases, Owner, Whose};
use crate::places::{Crowd, Member, Place};
use crate::stream::{GREETING, Incoming};
use crate::{STACK, lane, log, metrics, stream};
use ream_wire::hello::{Connection, PREAMBLE};
use socket2::SockRef;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Connections at a time; of those, ones that have not shown who they are; and of these, ones from one address.
const MOST: usize = 8192;
const MOST_STRANGERS: usize = 1024;
const MOST_OF_ONE: usize = 256;
/// Connections of one client: half of all, so that whoever opens as many as it can leaves as many to others. A process has four
/// at most, three lanes and one that keeps its parent's store: a thousand processes of one client may page.
const MOST_OF_CLIENT: usize = MOST / 2;
/// How long a server waits that could not accept a connection: twice as long each time, up to the longer, of which nothing more
/// is said.
const SHORT_PAUSE: Duration = Duration::from_millis(10);
const LONG_PAUSE: Duration = Duration::from_millis(320);

/// What a server is made of.
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it shows its figures, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Memory that clients may have together, in bytes.
    pub memory: u64,
    /// Most of it for one client, in bytes.
    pub quota: u64,
    /// Whether to ask the kernel for large pages.
    pub large: bool,
    /// Who it is, and whom it serves; `None`: anybody, without security.
    pub identity: Option<(Pair, Vec<Client>)>,
    /// How long clients have to go away once the server is told to end.
    pub drain: Duration,
    /// How long a client may stand still in the middle of a message before its host is looked at: [`crate::PATIENCE`].
    pub patience: Duration,
}

/// Why a connection is ended by the server.
pub(crate) enum Refused {
    /// It has not shown who it is.
    Stranger(String),
    /// A message was not what its client can have sent.
    Forged(String),
    /// Its client has too many connections.
    Crowded(String),
    /// Its host answers nothing any more.
    Late,
    /// The connection failed.
    Io(io::Error),
}

impl Refused {
    /// What an error means before anybody is known.
    pub(crate) fn greeting(error: io::Error) -> Refused {
        Refused::Stranger(error.to_string())
    }
    /// What an error means within a message.
    pub(crate) fn message(error: io::Error) -> Refused {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Refused::Late,
            _ => Refused::Io(error),
        }
    }
}

/// Random bytes.
pub(crate) fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    ream_sys::process::random(&mut bytes).map_err(|error| io::Error::from_raw_os_error(error.0.into()))?;
    Ok(bytes)
}

/// A memory server that listens.
pub struct Server {
    listener: TcpListener,
    metrics: Option<TcpListener>,
    state: Arc<State>,
    drain: Duration,
}

struct State {
    leases: Arc<Leases>,
    pair: Option<Pair>,
    owners: HashMap<Public, Arc<Owner>>,
    /// All clients of a server without security.
    anybody: Option<Arc<Owner>>,
    strangers: AtomicUsize,
    /// The same by address.
    addresses: Crowd<IpAddr>,
    /// Those who have shown who they are.
    clients: Crowd<Whose>,
    patience: Duration,
    /// By which a client without keys sees that two names are this server's.
    instance: u64,
}

/// One of those who have not shown who they are, as long as it lives.
pub(crate) struct Stranger<'a> {
    state: &'a State,
    address: IpAddr,
    _place: Place<'a>,
    _member: Member<'a, IpAddr>,
}

/// One of those who have, as long as it lives.
pub(crate) type Guest<'a> = Member<'a, Whose>;

impl State {
    fn stranger(&self, address: IpAddr) -> Option<Stranger<'_>> {
        let place = Place::take(&self.strangers, MOST_STRANGERS)?;
        let member = self.addresses.enter(address)?;
        Some(Stranger { state: self, address, _place: place, _member: member })
    }
}

impl<'a> Stranger<'a> {
    /// It has shown who it is.
    pub(crate) fn show_itself(self, incoming: &mut Incoming, owner: &Owner) -> Result<Guest<'a>, Refused> {
        let guest = self.state.clients.enter(owner.whose(self.address));
        let guest = guest.ok_or_else(|| Refused::Crowded(owner.name.clone()))?;
        incoming.trust(self.state.patience).map_err(Refused::Io)?;
        Ok(guest)
    }
}

impl Server {
    /// Binds its addresses.
    ///
    /// # Errors
    /// The address that cannot be had, and why.
    pub fn bind(config: Config) -> Result<Server, (SocketAddr, io::Error)> {
        let bind = |address: SocketAddr| TcpListener::bind(address).map_err(|error| (address, error));
        let listener = bind(config.listen)?;
        let metrics = config.metrics.map(bind).transpose()?;
        let leases = Arc::new(Leases::new(config.memory, config.large));
        let owner =
            |name: &str, key: Option<Public>, quota: u64| Arc::new(Owner::new(name, key, quota.min(config.memory)));
        let (pair, clients) = match config.identity {
            Some((pair, clients)) => (Some(pair), clients),
            None => (None, Vec::new()),
        };
        let owners = clients
            .iter()
            .map(|client| {
                let quota = client.quota.unwrap_or(config.quota);
                (client.public, owner(&client.name, Some(client.public), quota))
            })
            .collect();
        let anybody = pair.is_none().then(|| owner("anybody", None, config.quota));
        let state = State {
            leases,
            pair,
            owners,
            anybody,
            strangers: AtomicUsize::new(0),
            addresses: Crowd::new(MOST_OF_ONE),
            clients: Crowd::new(MOST_OF_CLIENT),
            patience: config.patience,
            instance: random().map_or(0, |[a, b, c, d, e, f, g, ..]| u64::from_le_bytes([a, b, c, d, e, f, g, 0])),
        };
        Ok(Server { listener, metrics, state: Arc::new(state), drain: config.drain })
    }

    /// Where it listens, and where it shows its figures.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn addresses(&self) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        Ok((self.listener.local_addr()?, self.metrics.as_ref().map(TcpListener::local_addr).transpose()?))
    }

    /// Serves until `told` returns, which it does when the server is to end; then until no client has a store any more, or
    /// the time for that is over, or `told` returns again. Until the very end connections are accepted: sessions that are there fork,
    /// and ask how things stand.
    ///
    /// # Errors
    /// A thread cannot be had.
    pub fn run(self, told: impl Fn() + Send + 'static) -> io::Result<()> {
        let Server { listener, metrics, state, drain } = self;
        let address = listener.local_addr()?;
        let limit = state.leases.memory.limit();
        log::event(
            "info",
            "listening",
            &[("address", &address), ("memory", &limit), ("secure", &state.pair.is_some())],
        );
        if let Some(metrics) = metrics {
            let leases = state.leases.clone();
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn(move || metrics::serve(metrics, leases, metrics::PATIENCE))?;
        }
        let (sender, signals) = std::sync::mpsc::channel();
        std::thread::Builder::new().stack_size(STACK).spawn(move || {
            for _ in 0..2 {
                told();
                let _ = sender.send(());
            }
        })?;
        let (closing, ending, over) = (listener.try_clone()?, state.clone(), Arc::new(AtomicBool::new(false)));
        let is_over = over.clone();
        std::thread::Builder::new().stack_size(STACK).spawn(move || {
            // Who tells has gone when this fails, and so nobody says when to end.
            if signals.recv().is_err() {
                return;
            }
            ending.drain(drain, &signals);
            over.store(true, Ordering::SeqCst);
            // Accepting ends with an error.
            let _ = SockRef::from(&closing).shutdown(Shutdown::Both);
        })?;
        let mut pause = SHORT_PAUSE;
        while !is_over.load(Ordering::SeqCst) {
            match listener.accept() {
                Ok((stream, peer)) => {
                    pause = SHORT_PAUSE;
                    state.welcome(stream, peer)?;
                }
                Err(_) if is_over.load(Ordering::SeqCst) => break,
                Err(error) => {
                    if pause < LONG_PAUSE {
                        log::stranger("accept", &[("error", &error)]);
                    }
                    // Most probably too many open files; they become fewer.
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONG_PAUSE);
                }
            }
        }
        log::event("info", "ended", &[("in_use", &state.leases.in_use())]);
        Ok(())
    }
}

impl State {
    /// No more leases are given. Returns when nobody has a store, when the time is over, or when this is said again.
    fn drain(&self, drain: Duration, again: &Receiver<()>) {
        self.leases.counters.ending.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + drain;
        log::event("info", "ending", &[("leases", &self.leases.count()), ("seconds", &drain.as_secs())]);
        while self.leases.in_use() > 0 && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
            if again.recv_timeout(left).is_ok() {
                break;
            }
        }
    }

    /// A thread for a new connection, or its end.
    fn welcome(self: &Arc<State>, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        self.leases.counters.connections.add(1);
        let state = self.clone();
        let served = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            let counters = &state.leases.counters;
            let open = Place::take(&counters.open, MOST);
            let stranger = state.stranger(peer.ip());
            let (Some(_open), Some(stranger)) = (open, stranger) else {
                counters.crowded.add(1);
                log::stranger("crowded", &[("peer", &peer)]);
                return;
            };
            match state.serve(stream, peer, stranger) {
                Ok(()) => {}
                Err(Refused::Stranger(why)) => {
                    counters.strangers.add(1);
                    log::stranger("stranger", &[("peer", &peer), ("why", &why)]);
                }
                Err(Refused::Forged(why)) => {
                    counters.forged.add(1);
                    log::stranger("forged", &[("peer", &peer), ("why", &why)]);
                }
                Err(Refused::Crowded(client)) => {
                    counters.crowded.add(1);
                    log::stranger("crowded", &[("peer", &peer), ("client", &client)]);
                }
                Err(Refused::Late) => {
                    counters.late.add(1);
                    log::stranger("late", &[("peer", &peer)]);
                }
                Err(Refused::Io(error)) => log::stranger("lost", &[("peer", &peer), ("error", &error)]),
            }
        });
        if served.is_err() {
            // No thread is to be had: the connection is closed, and those that have one go on.
            self.leases.counters.crowded.add(1);
        }
        Ok(())
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, stranger: Stranger) -> Result<(), Refused> {
        stream::prepare(&stream).map_err(Refused::greeting)?;
        let mut incoming = Incoming::new(stream);
        let deadline = Instant::now() + GREETING;
        let preamble: [u8; PREAMBLE] = incoming.array(deadline).map_err(Refused::greeting)?;
        let connection = Connection::parse(&preamble).map_err(|version| {
            Refused::Stranger(match version {
                Some(version) => format!("version {version}"),
                None => "another protocol".to_owned(),
            })
        })?;
        match (connection, &self.pair, &self.anybody) {
            (Connection::Lane, ..) => lane::serve(incoming, &self.leases, stranger),
            (Connection::Control, Some(pair), _) => {
                let known = |public: Public| self.owners.get(&public).cloned();
                let (control, owner) = Control::answer(incoming, pair, known, deadline).map_err(Refused::greeting)?;
                self.control(control, &owner, peer, stranger)
            }
            (Connection::Plain, None, Some(owner)) => self.control(Control::plain(incoming), owner, peer, stranger),
            (Connection::Plain, ..) => Err(Refused::Stranger("it wants no security".to_owned())),
            (Connection::Control, ..) => Err(Refused::Stranger("it wants security, and there is none".to_owned())),
        }
    }

    /// A control connection: one request after the other. A lease given on it lives at least as long as it does.
    fn control(
        &self,
        mut control: Control,
        owner: &Arc<Owner>,
        peer: SocketAddr,
        stranger: Stranger,
    ) -> Result<(), Refused> {
        let mut unknown = Some(stranger);
        let (mut held, mut _guest) = (None, None);
        // The first request shows that this is no replay: within the time that strangers have.
        let deadline = Instant::now() + GREETING;
        loop {
            if unknown.is_none() && !control.incoming.message().map_err(Refused::Io)? {
                return Ok(());
            }
            let request = match control.receive(deadline) {
                Ok(request) => request,
                Err(error) if unknown.is_some() => return Err(Refused::greeting(error)),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Refused::Forged(error.to_string()));
                }
                Err(error) => return Err(Refused::message(error)),
            };
            if let Some(stranger) = unknown.take() {
                _guest = Some(stranger.show_itself(&mut control.incoming, owner)?);
            }
            let ending = self.leases.counters.ending.load(Ordering::SeqCst);
            let answer = match request.as_slice() {
                [LEASE] if ending => vec![ENDING],
                [LEASE] if held.is_none() => {
                    let secret = random().map_err(Refused::Io)?;
                    let [a, b, c, d, e, f, g, h, ..] = random().map_err(Refused::Io)?;
                    let id = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                    let holding = self.leases.make(id, secret, owner.clone());
                    let holding =
                        holding.ok_or_else(|| Refused::Io(io::Error::other("a lease's number came twice")))?;
                    held = Some(holding);
                    self.leases.counters.leases.add(1);
                    log::event("info", "lease", &[("lease", &Hex(id)), ("client", &owner.name), ("peer", &peer)]);
                    let limit = owner.account.limit();
                    [&[DONE][..], &id.to_le_bytes(), &secret, &limit.to_le_bytes()].concat()
                }
                [STATUS] => {
                    let own = format!(
                        "ream_client_used_bytes {}\nream_client_quota_bytes {}\nream_client_pages_sent_total {}\nream_server_instance {}\n",
                        owner.account.used(),
                        owner.account.limit(),
                        owner.sent.get(),
                        self.instance
                    );
                    [&[DONE][..], metrics::text(&self.leases).as_bytes(), own.as_bytes()].concat()
                }
                _ => return Err(Refused::Forged("no such request".to_owned())),
            };
            control.send(&answer).map_err(Refused::message)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{self, Caller, Calling};

    #[test]
    fn who_opens_too_many_connections_leaves_those_of_others() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let [own, first, second] = [(); 3].map(|()| Pair::generate().unwrap());
        let clients = [&first, &second].map(|pair| Client { public: pair.public, name: "x".to_owned(), quota: None });
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            metrics: None,
            memory: 64 << 20,
            quota: 64 << 20,
            large: false,
            identity: Some((own.clone(), clients.to_vec())),
            drain: Duration::ZERO,
            patience: PATIENCE,
        };
        let mut server = Server::bind(config).unwrap_or_else(|(address, error)| panic!("{address}: {error}"));
        Arc::get_mut(&mut server.state).unwrap().clients = Crowd::new(3);
        let address = server.addresses().unwrap().0;
        std::thread::spawn(move || {
            server.run(|| {
                loop {
                    std::thread::park();
                }
            })
        });
        let lease = |pair: &Pair| {
            let caller = Caller::Known(Box::new(pair.clone()), own.public);
            let mut calling = Calling::new(&address.to_string(), &caller, PATIENCE).unwrap();
            let lease = calling.lease().unwrap();
            (calling, lease)
        };
        let hold = |lease: &client::Lease| client::hold(address, lease.id, &lease.secret, PATIENCE);
        let (_calling, greedy) = lease(&first);
        let held: Vec<_> = (0..2).map(|_| hold(&greedy).unwrap()).collect();
        assert!(hold(&greedy).is_err());
        let (_other, modest) = lease(&second);
        assert!(hold(&modest).is_ok());
        drop(held);
        let begun = Instant::now();
        while hold(&greedy).is_err() {
            assert!(begun.elapsed() < PATIENCE, "its places do not come back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
