//! What a client that has a lease may do on a lane, and what costs it the lane.

use ream_server::client::{Caller, Calling, Lease};
use ream_server::{Config, Server};
use ream_wire::hello::{ANSWER, Answer, Connection, Hello, NEW_STORE, Purpose, directions};
use ream_wire::message::{HEADER, Kind, Reply, Request, SLOTS, Status, between};
use ream_wire::seal::Direction;
use ream_wire::{PAGE, SEAL};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client stands still, which is longer than the server is patient for.
const STILL: Duration = Duration::from_secs(1);

/// A server without security; its threads end with the test.
fn server(memory: u64) -> SocketAddr {
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        metrics: None,
        memory,
        quota: memory,
        large: false,
        identity: None,
        drain: Duration::ZERO,
        patience: STILL / 5,
    };
    let server = Server::bind(config).unwrap_or_else(|(address, error)| panic!("{address}: {error}"));
    let address = server.addresses().unwrap().0;
    std::thread::spawn(move || {
        server.run(|| {
            loop {
                std::thread::park();
            }
        })
    });
    address
}

fn lease(address: SocketAddr) -> (Calling, Lease) {
    let mut calling = Calling::new(&address.to_string(), &Caller::Anybody, PATIENCE).unwrap();
    let lease = calling.lease().unwrap();
    (calling, lease)
}

struct Lane {
    stream: TcpStream,
    to: Direction,
    from: Direction,
    store: u32,
}

impl Lane {
    fn open(address: SocketAddr, lease: &Lease, store: u32, purpose: Purpose) -> Lane {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = Hello { lease: lease.id, store, purpose, random: [store as u8; 32] };
        stream.write_all(&Connection::Lane.preamble()).unwrap();
        stream.write_all(&hello.to_bytes(&lease.secret)).unwrap();
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer).unwrap();
        let answer = Answer::parse(&answer, &hello, &lease.secret).unwrap();
        let (to, from) = directions(&hello, &answer, &lease.secret).unwrap();
        let mut lane = Lane { stream, to, from, store: answer.store };
        assert_eq!(lane.ask(Kind::Ping, 0, 0, &[]).unwrap().0, Status::Done);
        lane
    }

    fn message(&mut self, request: &Request, pages: &[u8]) -> Vec<u8> {
        let mut bytes = request.to_bytes().to_vec();
        bytes.extend(std::iter::repeat_n(7, request.body() as usize * SEAL));
        let tag = self.to.sign(&bytes);
        bytes.extend_from_slice(&tag);
        bytes.extend_from_slice(pages);
        bytes
    }

    /// Sends a request; its reply and pages, or `None` when the server ends the lane.
    fn ask(&mut self, kind: Kind, slot: u32, pages: u16, body: &[u8]) -> Option<(Status, Vec<u8>)> {
        let request = Request { kind, store: self.store, slot, pages, number: self.to.next() };
        let bytes = self.message(&request, body);
        let _ = self.stream.write_all(&bytes);
        self.reply(&request)
    }

    fn reply(&mut self, request: &Request) -> Option<(Status, Vec<u8>)> {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).ok()?;
        let reply = Reply::parse(&header, request).unwrap();
        let mut seals = vec![0; between(reply.body())];
        self.stream.read_exact(&mut seals).ok()?;
        let (signed, tag) = seals.split_at(seals.len() - SEAL);
        let message = [&header[..], signed].concat();
        self.from.verify(&message, tag.try_into().unwrap()).unwrap();
        let mut pages = vec![0; reply.body() as usize * PAGE];
        self.stream.read_exact(&mut pages).ok()?;
        Some((reply.status, pages))
    }
}

#[test]
fn pages_come_back_and_others_never_see_them() {
    let address = server(64 << 20);
    let (first, held) = lease(address);
    let mut lane = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    let mut read = Lane::open(address, &held, lane.store, Purpose::Demand);
    let body = [[1; PAGE], [2; PAGE], [3; PAGE]].concat();
    assert_eq!(lane.ask(Kind::Write, 511, 3, &body).unwrap().0, Status::Done);
    assert_eq!(read.ask(Kind::Read, 511, 3, &[]).unwrap(), (Status::Done, body));
    // Beyond what was written, up to the last slot there can be: zeros.
    assert_eq!(read.ask(Kind::Read, SLOTS - 2, 2, &[]).unwrap(), (Status::Done, vec![0; 2 * PAGE]));
    assert_eq!(lane.ask(Kind::Free, 512, 1, &[]).unwrap().0, Status::Done);
    let now = [[1; PAGE], [0; PAGE], [3; PAGE]].concat();
    assert_eq!(read.ask(Kind::Read, 511, 3, &[]).unwrap().1, now);
    // Another session, while the first lives, and in memory that the first has given back.
    for round in 0..2 {
        let (_second, other) = lease(address);
        let mut write = Lane::open(address, &other, NEW_STORE, Purpose::Write);
        assert_eq!(write.store, lane.store, "numbers of stores are each lease's own");
        assert_eq!(write.ask(Kind::Read, 511, 3, &[]).unwrap().1, vec![0; 3 * PAGE], "round {round}");
        assert_eq!(write.ask(Kind::Write, 0, 1, &[9; PAGE]).unwrap().0, Status::Done);
        assert_eq!(write.ask(Kind::Read, 0, 512, &[]).unwrap().1[PAGE..], vec![0; 511 * PAGE], "round {round}");
        if round == 0 {
            drop((lane.stream.shutdown(std::net::Shutdown::Both), read.stream.shutdown(std::net::Shutdown::Both)));
        }
    }
    drop(first);
}

#[test]
fn what_no_client_sends_costs_the_lane_and_nobody_else_anything() {
    let address = server(64 << 20);
    let (_calling, held) = lease(address);
    let mut good = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    assert_eq!(good.ask(Kind::Write, 3, 1, &[5; PAGE]).unwrap().0, Status::Done);
    let store = good.store;
    let lane = || Lane::open(address, &held, store, Purpose::Demand);
    type Misdeed = Box<dyn Fn(&mut Lane, Request) -> Vec<u8>>;
    let misdeeds: Vec<(&str, Misdeed)> = vec![
        ("another's store", Box::new(|lane, request| lane.message(&Request { store: 99, ..request }, &[]))),
        ("slots beyond the last", Box::new(|lane, request| lane.message(&Request { slot: u32::MAX, ..request }, &[]))),
        ("no pages", Box::new(|lane, request| lane.message(&Request { pages: 0, ..request }, &[]))),
        ("too many pages", Box::new(|lane, request| lane.message(&Request { pages: u16::MAX, ..request }, &[]))),
        ("a number that is not next", Box::new(|lane, request| lane.message(&Request { number: 9, ..request }, &[]))),
        (
            "the same twice",
            Box::new(|lane, request| {
                let bytes = lane.message(&Request { kind: Kind::Ping, slot: 0, pages: 0, ..request }, &[]);
                [&bytes[..], &bytes[..]].concat()
            }),
        ),
        (
            "a changed bit",
            Box::new(|lane, request| {
                let mut bytes = lane.message(&request, &[]);
                bytes[12] ^= 1;
                bytes
            }),
        ),
        (
            "a huge length",
            Box::new(|lane, request| {
                let mut bytes = lane.message(&Request { kind: Kind::Write, ..request }, &[]);
                bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
                bytes
            }),
        ),
        ("half a message", Box::new(|lane, request| lane.message(&request, &[])[..20].to_vec())),
        (
            "random bytes",
            Box::new(|_, _| (0..5000u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        ),
    ];
    for (what, misdeed) in misdeeds {
        let mut bad = lane();
        let request = Request { kind: Kind::Read, store: bad.store, slot: 3, pages: 1, number: bad.to.next() };
        let bytes = misdeed(&mut bad, request);
        let _ = bad.stream.write_all(&bytes);
        if what == "half a message" {
            bad.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut rest = Vec::new();
        match bad.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.len() <= HEADER + SEAL, "{what}: answered with {} bytes", rest.len()),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}: the lane goes on"),
        }
        assert_eq!(good.ask(Kind::Read, 3, 1, &[]).unwrap(), (Status::Done, vec![5; PAGE]), "after {what}");
    }
    // Writing and forgetting in a sibling's store is refused, and changes nothing.
    let mut sibling = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    sibling.store = good.store;
    assert_eq!(sibling.ask(Kind::Write, 3, 1, &[6; PAGE]).unwrap().0, Status::Foreign);
    assert_eq!(sibling.ask(Kind::Free, 3, 1, &[]).unwrap().0, Status::Foreign);
    assert_eq!(sibling.ask(Kind::Read, 3, 1, &[]).unwrap(), (Status::Done, vec![5; PAGE]));
}

#[test]
fn memory_is_refused_when_it_is_used_up_and_there_again_afterwards() {
    let address = server(5 << 20);
    let (_calling, held) = lease(address);
    let mut lane = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    assert_eq!(lane.ask(Kind::Write, 0, 1, &[1; PAGE]).unwrap().0, Status::Done);
    assert_eq!(lane.ask(Kind::Write, 600, 1, &[1; PAGE]).unwrap().0, Status::Done);
    // The body is taken all the same: the lane goes on.
    assert_eq!(lane.ask(Kind::Write, 1200, 2, &[1; 2 * PAGE]).unwrap().0, Status::Quota);
    assert_eq!(lane.ask(Kind::Free, 0, 512, &[]).unwrap().0, Status::Done);
    assert_eq!(lane.ask(Kind::Write, 1200, 2, &[1; 2 * PAGE]).unwrap().0, Status::Done);
}

#[test]
fn who_is_stopped_in_the_middle_of_a_message_goes_on_later() {
    let address = server(64 << 20);
    let (_calling, held) = lease(address);
    let mut lane = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    // A write of which a part has come: of its header, of its pages.
    let body: Vec<u8> = (0..64 * PAGE).map(|byte| (byte / PAGE) as u8).collect();
    for part in [20, 5000, 40 * PAGE] {
        let request = Request { kind: Kind::Write, store: lane.store, slot: 5, pages: 64, number: lane.to.next() };
        let bytes = lane.message(&request, &body);
        lane.stream.write_all(&bytes[..part]).unwrap();
        std::thread::sleep(STILL);
        lane.stream.write_all(&bytes[part..]).unwrap();
        assert_eq!(lane.reply(&request).expect("it was sent away").0, Status::Done, "after {part} bytes");
    }
    // Reads whose pages nobody takes: more than the kernel keeps on the way.
    let mut read = Lane::open(address, &held, lane.store, Purpose::Ahead);
    let mut asked = Vec::new();
    for _ in 0..32 {
        let request = Request { kind: Kind::Read, store: read.store, slot: 5, pages: 512, number: read.to.next() };
        let bytes = read.message(&request, &[]);
        read.stream.write_all(&bytes).unwrap();
        asked.push(request);
    }
    std::thread::sleep(STILL);
    for request in &asked {
        let (status, pages) = read.reply(request).expect("it was sent away");
        assert!(status == Status::Done && pages[..64 * PAGE] == body);
    }
}

#[test]
fn a_lane_that_was_left_in_the_middle_of_a_message_keeps_its_store() {
    let address = server(64 << 20);
    let (_calling, held) = lease(address);
    let mut lane = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    assert_eq!(lane.ask(Kind::Write, 7, 1, &[5; PAGE]).unwrap().0, Status::Done);
    let request = Request { kind: Kind::Write, store: lane.store, slot: 8, pages: 64, number: lane.to.next() };
    let bytes = lane.message(&request, &[6; 64 * PAGE]);
    lane.stream.write_all(&bytes[..30 * PAGE]).unwrap();
    // What a child has when its parent is killed.
    let copy = lane.stream.try_clone().unwrap();
    let (store, mut child) = (lane.store, Lane::open(address, &held, NEW_STORE, Purpose::Write));
    drop(lane);
    std::thread::sleep(STILL);
    child.store = store;
    assert_eq!(child.ask(Kind::Read, 7, 1, &[]).expect("the store is gone"), (Status::Done, vec![5; PAGE]));
    // Without the copy it ends.
    drop(copy);
    for _ in 0..6000 {
        let mut other = Lane::open(address, &held, NEW_STORE, Purpose::Write);
        other.store = store;
        match other.ask(Kind::Read, 7, 1, &[]) {
            Some((Status::Foreign, _)) | None => return,
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("the store outlives its lanes");
}

/// Says a hello that was said before; whether it is answered. The connection stays open, and nothing more is said on it.
fn replayed(address: SocketAddr, hello: &[u8]) -> (TcpStream, bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&Connection::Lane.preamble()).unwrap();
    stream.write_all(hello).unwrap();
    let answered = stream.read_exact(&mut [0; ANSWER]).is_ok();
    (stream, answered)
}

/// In a machine that stood still for seconds it is looked at once more: what is kept alive is so each time.
#[test]
fn who_says_a_recorded_hello_again_keeps_nothing_alive() {
    let late: Vec<String> = (0..4).map_while(|_| recorded_hellos().err()).collect();
    assert!(late.len() < 4, "it lives on: {late:?}");
}

/// The figures, when all was not given back in less than the time that strangers have, whatever was said again meanwhile.
fn recorded_hellos() -> Result<(), String> {
    let address = server(64 << 20);
    let (calling, held) = lease(address);
    let mut lane = Lane::open(address, &held, NEW_STORE, Purpose::Write);
    assert_eq!(lane.ask(Kind::Write, 7, 1, &[5; PAGE]).unwrap().0, Status::Done);
    let hello = |store: u32, purpose: Purpose| {
        Hello { lease: held.id, store, purpose, random: [store as u8; 32] }.to_bytes(&held.secret)
    };
    let recorded =
        [hello(NEW_STORE, Purpose::Write), hello(lane.store, Purpose::Demand), hello(NEW_STORE, Purpose::Hold)];
    let open = recorded.map(|hello| replayed(address, &hello));
    assert!(open.iter().all(|(_, answered)| *answered));
    drop((lane, calling));
    let mut observer = Calling::new(&address.to_string(), &Caller::Anybody, PATIENCE).unwrap();
    let begun = std::time::Instant::now();
    loop {
        let figures = observer.status_within(PATIENCE).unwrap();
        if ["ream_server_leases 0\n", "ream_server_used_bytes 0\n"].iter().all(|line| figures.contains(line)) {
            break;
        }
        if begun.elapsed() > Duration::from_secs(3) {
            return Err(figures);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(recorded.iter().all(|hello| !replayed(address, hello).1));
    Ok(())
}
