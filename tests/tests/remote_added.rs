//! Memory servers that are added to a session while its programs run.

use ream_tests::{
    Build, MemoryServer, Proxy, Run, Running, Scratch, build, compiled, is_root, make_key, ream_binary, tool,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that anything may take which is a matter of moments.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client's key, the list of its servers, and the files by which a program is led.
struct Client {
    scratch: Scratch,
}

impl Client {
    fn new() -> Client {
        let scratch = Scratch::new("added");
        let public = make_key(&scratch.file("key"));
        std::fs::write(scratch.file("clients"), format!("{public} tester\n")).expect("the list of clients");
        std::fs::write(scratch.file("servers"), "").expect("the list of servers");
        Client { scratch }
    }

    /// A server that serves this client.
    fn server(&self, memory: &str) -> MemoryServer {
        let clients = self.scratch.file("clients").display().to_string();
        let server = MemoryServer::start(memory, &["--clients", &clients]);
        self.knows(&server);
        server
    }

    /// The server's key is known from now on.
    fn knows(&self, server: &MemoryServer) {
        let list = self.scratch.file("servers");
        let known = std::fs::read_to_string(&list).expect("the list of servers");
        std::fs::write(list, format!("{known}{} {}\n", server.address, server.public)).expect("the list of servers");
    }

    fn store(&self, run: Run, servers: &[&MemoryServer]) -> Run {
        let names: Vec<String> = servers.iter().map(|server| format!("tcp://{}", server.address)).collect();
        let run = run.store(Path::new(&names.join(","))).option("--key").option(self.scratch.file("key"));
        run.option("--servers").option(self.scratch.file("servers")).unmeasured()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// A program that fills so many MiB, and more when it is told to, with children or without; it has filled the first.
    fn grows(
        &self,
        first: &str,
        second: &str,
        forks: bool,
        options: &[&str],
        servers: &[&MemoryServer],
    ) -> Option<Running> {
        let run =
            Run::of(compiled("c/added.c", &[])?).args([first, second]).arg(self.file("ready")).arg(self.file("go"));
        let run = if forks { run } else { run.arg("alone") };
        let running = options.iter().fold(self.store(run.memory(8), servers), |run, option| run.option(option)).start();
        until("it has filled the first part", || self.file("ready").exists());
        Some(running)
    }

    /// A program that fills, checks and writes anew for as long as it is let.
    fn busy(&self, mebibytes: &str, forks: &str, options: &[&str], servers: &[&MemoryServer]) -> Option<Running> {
        let Build::Ready(program) = build("c/steadfast.c", &[]) else { return None };
        let run = Run::of(program).arg(mebibytes).arg(self.file("waits")).arg(forks).memory(8);
        let running = options.iter().fold(self.store(run, servers), |run, option| run.option(option)).start();
        until("it pages", || store(&running).is_some_and(|store| number(&store, "pages") > 1000));
        Some(running)
    }

    /// A proxy that lets nothing pass until it is told to: how many pieces wait there, and the word.
    fn held_back(&self, server: &MemoryServer) -> (Proxy, Arc<AtomicU32>, Arc<AtomicBool>) {
        let (called, let_go) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (calls, goes) = (called.clone(), let_go.clone());
        let meddle = move |_: usize, _: bool, _: usize, _: &mut [u8]| {
            calls.fetch_add(1, Ordering::SeqCst);
            while !goes.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let proxy = Proxy::before(&server.address, Arc::new(meddle));
        let list = self.file("servers");
        let known = std::fs::read_to_string(&list).expect("the list of servers");
        std::fs::write(&list, format!("{known}{} {}\n", proxy.address, server.public)).expect("the list of servers");
        (proxy, called, let_go)
    }

    fn go(&self) {
        std::fs::write(self.file("go"), "").expect("a file");
    }
}

fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < deadline, "it never is so that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn add(running: &Running, address: &str) -> Output {
    ask(running.pid, address)
}

fn ask(pid: i32, address: &str) -> Output {
    let mut command = Command::new(ream_binary());
    command.args(["add-store", &pid.to_string(), &format!("tcp://{address}")]);
    // Whoever asks needs no key, and knows no server.
    command.env("HOME", "/nonexistent").env_remove("REAM_KEY").env_remove("REAM_SERVERS");
    command.output().expect("starting ream")
}

fn added(running: &Running, server: &MemoryServer) {
    let output = add(running, &server.address);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with(&format!("tcp://{} is used from now on: ", server.address)), "{text}");
}

/// It was refused, with one line that says this.
fn refused(output: &Output, words: &str) {
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(output.stdout.is_empty() && line.lines().count() == 1 && line.starts_with("ream: "), "{output:?}");
    assert!(line.contains(words), "{line}");
}

/// What `ream status` says of its store.
fn store(running: &Running) -> Option<serde_json::Value> {
    let output = Command::new(ream_binary()).args(["status", "--json", &running.pid.to_string()]).output();
    let all: serde_json::Value = serde_json::from_slice(&output.ok()?.stdout).ok()?;
    all.get("store").cloned()
}

fn number(value: &serde_json::Value, name: &str) -> u64 {
    value.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Pages that each server has.
fn held(store: &serde_json::Value) -> Vec<u64> {
    store["servers"].as_array().map_or(Vec::new(), |all| all.iter().map(|one| number(one, "pages")).collect())
}

/// Nothing is left at the servers: no lease, no byte. Asked by the client.
fn left_nothing(client: &Client, servers: &[&MemoryServer]) {
    for server in servers {
        until("nothing is left", || {
            let mut command = Command::new(ream_binary());
            command.args(["status", "--json", "--server", &format!("tcp://{}", server.address), "--key"]);
            command.arg(client.file("key")).arg("--servers").arg(client.file("servers"));
            let output = command.output().expect("starting ream");
            let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("figures");
            (number(&all, "ream_server_leases"), number(&all, "ream_server_used_bytes")) == (0, 0)
        });
    }
}

#[test]
fn a_server_alone_gets_company_and_pages_go_there() {
    let client = Client::new();
    let (first, second) = (client.server("64M"), client.server("1G"));
    let Some(running) = client.busy("48", "0", &[], &[&first]) else { return };
    assert_eq!(held(&store(&running).expect("a store")).len(), 1);
    added(&running, &second);
    until("pages are at the second", || store(&running).is_some_and(|store| held(&store).get(1) > Some(&100)));
    let now = store(&running).expect("a store");
    assert_eq!(now["servers"][1]["name"], format!("tcp://{}", second.address));
    assert_eq!((&now["servers"][1]["used"], number(&now, "copies")), (&serde_json::Value::Bool(true), 1));
    // The first is asked, too, from now on, what it has left: all of it, by what was known, though it has pages.
    let left = |store: serde_json::Value| number(&store["servers"][0], "free");
    until("the first has less left", || store(&running).is_some_and(|store| left(store) < 62 << 20));
    running.signal(libc::SIGTERM);
    let outcome = running.finish();
    outcome.exited(0);
    assert!(outcome.out().contains("all right"), "{}", outcome.describe());
    let line = format!("the memory server tcp://{} is used from now on", second.address);
    assert_eq!(outcome.err().matches(&line).count(), 1, "{}", outcome.describe());
    left_nothing(&client, &[&first, &second]);
}

#[test]
fn with_a_local_copy_the_first_may_be_lost_when_another_was_added() {
    let client = Client::new();
    let (first, second) = (client.server("256M"), client.server("256M"));
    let Some(running) = client.busy("32", "200", &["--spill", "/var/tmp"], &[&first]) else { return };
    added(&running, &second);
    until("pages are at the second", || store(&running).is_some_and(|store| held(&store).get(1) > Some(&0)));
    first.signal(libc::SIGKILL);
    until("all are there", || {
        store(&running).is_some_and(|store| number(&store, "copies_missing") == 0 && held(&store)[1] > 1000)
    });
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&second]);
}

#[test]
fn above_a_disk_pages_go_to_a_server_that_is_added() {
    let client = Client::new();
    let (first, second) = (client.server("16M"), client.server("256M"));
    let Some(running) = client.busy("48", "0", &["--store", "/var/tmp"], &[&first]) else { return };
    until("pages are on the disk", || store(&running).is_some_and(|store| number(&store, "spilled") > 1000));
    added(&running, &second);
    until("pages are at the second", || store(&running).is_some_and(|store| held(&store).get(1) > Some(&1000)));
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&first, &second]);
}

#[test]
fn copies_that_were_lost_are_made_again_at_a_server_that_is_added() {
    let client = Client::new();
    let servers: Vec<MemoryServer> = (0..3).map(|_| client.server("256M")).collect();
    let Some(running) = client.busy("32", "0", &[], &[&servers[0], &servers[1]]) else { return };
    added(&running, &servers[2]);
    until("it is used", || store(&running).is_some_and(|store| store["servers"][2]["used"] == true));
    servers[0].signal(libc::SIGKILL);
    until("no page lacks a copy", || {
        store(&running).is_some_and(|store| {
            let held = held(&store);
            number(&store, "copies_missing") == 0
                && held[0] == 0
                && held[2] > 1000
                && store["servers"][0]["used"] == false
        })
    });
    // What the third has counts: without it the second's loss would be the end.
    servers[1].signal(libc::SIGKILL);
    until("the second is lost", || store(&running).is_some_and(|store| store["servers"][1]["used"] == false));
    running.signal(libc::SIGTERM);
    let outcome = running.finish();
    outcome.exited(0);
    assert!(outcome.out().contains("all right"), "{}", outcome.describe());
    left_nothing(&client, &[&servers[2]]);
}

#[test]
fn a_server_that_is_added_after_a_loss_gets_the_missing_copies() {
    let client = Client::new();
    let servers: Vec<MemoryServer> = (0..3).map(|_| client.server("256M")).collect();
    let Some(running) = client.busy("32", "200", &[], &[&servers[0], &servers[1]]) else { return };
    servers[1].signal(libc::SIGKILL);
    until("pages lack a copy", || store(&running).is_some_and(|store| number(&store, "copies_missing") > 1000));
    added(&running, &servers[2]);
    until("no page lacks a copy", || store(&running).is_some_and(|store| number(&store, "copies_missing") == 0));
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&servers[0], &servers[2]]);
}

#[test]
fn pages_with_sums_go_to_a_server_that_is_added() {
    let client = Client::new();
    let servers: Vec<MemoryServer> = (0..4).map(|_| client.server("256M")).collect();
    let begun: Vec<&MemoryServer> = servers[..3].iter().collect();
    let Some(running) = client.busy("32", "200", &["--parity"], &begun) else { return };
    added(&running, &servers[3]);
    until("pages are at the fourth", || store(&running).is_some_and(|store| held(&store).get(3) > Some(&500)));
    servers[0].signal(libc::SIGKILL);
    until("all is whole again", || {
        store(&running)
            .is_some_and(|store| number(&store, "copies_missing") == 0 && store["servers"][0]["used"] == false)
    });
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&servers[1], &servers[2], &servers[3]]);
}

#[test]
fn children_from_before_and_after_use_it() {
    for count in [1, 2] {
        let client = Client::new();
        let servers: Vec<MemoryServer> = (0..count).map(|_| client.server("256M")).collect();
        let more = client.server("1G");
        let begun: Vec<&MemoryServer> = servers.iter().collect();
        let Some(running) = client.grows("32", "48", true, &[], &begun) else { return };
        added(&running, &more);
        // All processes: the one that was forked before, too.
        let all = [&begun[..], &[&more]].concat();
        until("all processes use it", || store(&running).is_some_and(|store| store["servers"][count]["used"] == true));
        client.go();
        let outcome = running.finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "all right\n", "{}", outcome.describe());
        // By one of them, for all.
        let line = format!("the memory server tcp://{} is used from now on", more.address);
        assert_eq!(outcome.err().matches(&line).count(), 1, "{}", outcome.describe());
        left_nothing(&client, &all);
    }
}

/// Runs a program that needs more than its servers have; the outcome, when another was added or not.
fn outgrows(count: usize, second: &str, more: Option<&str>, options: &[&str]) -> Option<ream_tests::Outcome> {
    let client = Client::new();
    let servers: Vec<MemoryServer> = (0..count).map(|_| client.server("40M")).collect();
    let begun: Vec<&MemoryServer> = servers.iter().collect();
    let first = if count == 1 { "24" } else { "16" };
    let running = client.grows(first, second, false, options, &begun)?;
    let more = more.map(|memory| client.server(memory));
    if let Some(more) = &more {
        added(&running, more);
    }
    client.go();
    let outcome = running.finish();
    left_nothing(&client, &[&begun[..], &more.iter().collect::<Vec<_>>()].concat());
    Some(outcome)
}

#[test]
fn a_program_outgrows_its_servers_when_one_is_added() {
    for options in [&["--store-deadline=20"][..], &["--io=threads"]] {
        let Some(outcome) = outgrows(1, "96", Some("1G"), options) else { return };
        outcome.exited(0);
        assert_eq!(outcome.out(), "all right\n", "{}", outcome.describe());
    }
    for (second, options) in [("128", &["--replicas", "1"][..]), ("70", &["--parity"])] {
        let Some(outcome) = outgrows(3, second, Some("40M"), options) else { return };
        outcome.exited(0);
    }
}

#[test]
fn without_another_server_it_is_stopped_and_with_a_limit_as_well() {
    let Some(outcome) = outgrows(1, "96", None, &[]) else { return };
    outcome.exited(125).says("has no room left").says("ream add-store");
    let Some(outcome) = outgrows(1, "96", Some("1G"), &["--store-limit", "64M"]) else { return };
    outcome.exited(125).says("may store no more (--store-limit)");
    for (second, options) in [("128", &["--replicas", "1"][..]), ("70", &["--parity"])] {
        let Some(outcome) = outgrows(3, second, None, options) else { return };
        outcome.exited(125).says("has no room left");
    }
}

#[test]
fn a_server_that_was_away_gives_its_room_too() {
    let address = MemoryServer::start("16M", &["--insecure"]).address.clone();
    let server = MemoryServer::start("40M", &["--insecure"]);
    let client = Client::new();
    let Some(program) = compiled("c/added.c", &[]) else { return };
    let run = Run::of(program).args(["24", "96"]).arg(client.file("ready")).arg(client.file("go")).arg("alone");
    let names = format!("tcp://{},tcp://{address}", server.address);
    let run = run.memory(8).store(Path::new(&names)).option("--insecure").option("--replicas=1").unmeasured();
    let running = run.start();
    until("it has filled the first part", || client.file("ready").exists());
    let late = MemoryServer::start_in(Command::new(ream_binary()), &address, "256M", &["--insecure"]);
    until("the other is used", || store(&running).is_some_and(|store| store["servers"][1]["used"] == true));
    // Without security there is no key to be known either.
    let more = MemoryServer::start("16M", &["--insecure"]);
    added(&running, &more);
    client.go();
    running.finish().exited(0);
    for server in [&server, &late, &more] {
        server.until("leases", |leases| leases == 0);
    }
}

#[test]
fn what_cannot_be_added_is_refused_with_a_line() {
    let client = Client::new();
    let server = client.server("256M");
    let Some(running) = client.busy("32", "0", &[], &[&server]) else { return };
    refused(&add(&running, &server.address), "it is one of the session's memory servers already");
    let port = server.address.rsplit(':').next().expect("a port");
    let again = format!("localhost:{port}");
    // By another name it is the same.
    let known = std::fs::read_to_string(client.file("servers")).expect("the list");
    std::fs::write(client.file("servers"), format!("{known}{again} {}\n", server.public)).expect("the list");
    refused(&add(&running, &again), &format!("it is tcp://{}, which the session has already", server.address));
    // So it is at another address.
    let other = format!("127.0.0.2:{port}");
    let proxy = Proxy::before(&server.address, Arc::new(|_, _, _, _: &mut [u8]| {}));
    for again in [&other, &proxy.address] {
        let known = std::fs::read_to_string(client.file("servers")).expect("the list");
        std::fs::write(client.file("servers"), format!("{known}{again} {}\n", server.public)).expect("the list");
        refused(&add(&running, again), &format!("it is tcp://{}, which the session has already", server.address));
    }
    // Nobody there.
    let gone = {
        let nobody = client.server("16M");
        nobody.address.clone()
    };
    refused(&add(&running, &gone), "Connection refused");
    // A server of which we do not know the key, and one that does not know ours.
    let strange = MemoryServer::start("16M", &[]);
    refused(&add(&running, &strange.address), &client.file("servers").display().to_string());
    client.knows(&strange);
    refused(&add(&running, &strange.address), "it does not know our key");
    let insecure = MemoryServer::start("16M", &["--insecure"]);
    refused(&add(&running, &insecure.address), "its public key is not known");
    refused(&add(&running, "127.0.0.1"), "not tcp://HOST:PORT");
    // No more than seven.
    let six: Vec<MemoryServer> = (0..6).map(|_| client.server("16M")).collect();
    six.iter().for_each(|one| added(&running, one));
    let eighth = client.server("16M");
    refused(&add(&running, &eighth.address), "the session has 7 memory servers already");
    assert_eq!(held(&store(&running).expect("a store")).len(), 7);
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&server, &eighth]);
}

#[test]
fn sessions_that_cannot_be_given_any_are_named() {
    let client = Client::new();
    let server = client.server("64M");
    let name = server.address.as_str();
    let Some(program) = compiled("c/endless.c", &[]) else { return };
    let plain = Run::of(&program).start();
    until("it runs", || Path::new(&format!("/proc/{}/environ", plain.pid)).exists());
    refused(&add(&plain, name), "it is in no session of Ream");
    plain.signal(libc::SIGKILL);
    plain.finish();
    let disk = Run::of(&program).memory(64).unmeasured().start();
    disk.agent();
    refused(&add(&disk, name), "its session does not page to memory servers");
    disk.signal(libc::SIGKILL);
    disk.finish();
    // From another network nobody reaches the agent.
    if let (true, Some(unshare)) = (is_root(), tool("unshare")) {
        let Some(running) = client.busy("32", "0", &[], &[&server]) else { return };
        let mut command = Command::new(unshare);
        command.arg("--net").arg(ream_binary()).args(["add-store", &running.pid.to_string(), "tcp://127.0.0.1:1"]);
        let output = command.output().expect("starting unshare");
        if !String::from_utf8_lossy(&output.stderr).starts_with("unshare") {
            refused(&output, "is in another network namespace");
        }
        running.signal(libc::SIGTERM);
        running.finish().exited(0);
    }
    // Its agent was killed: the program pages on.
    let Some(running) = client.busy("32", "0", &[], &[&server]) else { return };
    running.kill_agent();
    until("its agent has ended", || !Path::new(&format!("/proc/{}/fd/3", running.agent())).exists());
    refused(&add(&running, name), "has ended; without it no memory server can be added");
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
}

#[test]
fn several_at_once_and_whoever_goes_away() {
    let client = Client::new();
    let servers: Vec<MemoryServer> = (0..4).map(|_| client.server("64M")).collect();
    let Some(running) = client.busy("32", "0", &[], &[&servers[0]]) else { return };
    // Whoever asks for a server is killed while that is called: it is not added, though it can be had.
    let slow = client.server("64M");
    let (proxy, called, let_go) = client.held_back(&slow);
    let mut command = Command::new(ream_binary());
    command.args(["add-store", &running.pid.to_string(), &format!("tcp://{}", proxy.address)]);
    let mut asks = command.spawn().expect("starting ream");
    until("the server is called", || called.load(Ordering::SeqCst) > 0);
    asks.kill().expect("killing it");
    asks.wait().expect("its end");
    let_go.store(true, Ordering::SeqCst);
    // The next one waits for its turn, and no longer.
    added(&running, &servers[1]);
    let now = store(&running).expect("a store");
    assert_eq!((held(&now).len(), &now["servers"][1]["name"]), (2, &format!("tcp://{}", servers[1].address).into()));
    // Two that are asked for at once are both added.
    let pid = running.pid;
    std::thread::scope(|scope| {
        let both = [&servers[2], &servers[3]].map(|server| scope.spawn(move || ask(pid, &server.address)));
        for one in both {
            let output = one.join().expect("a thread");
            assert!(output.status.success(), "{output:?}");
        }
    });
    // The same one once, though the second asks while the first is still being served.
    let (proxy, called, let_go) = client.held_back(&slow);
    let outputs = std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| ask(pid, &proxy.address)));
        until("the server is called", || called.load(Ordering::SeqCst) > 0);
        // Time to make the mistake: long enough on any machine that is not too busy, and no harm done on one that is.
        std::thread::sleep(Duration::from_millis(300));
        let_go.store(true, Ordering::SeqCst);
        both.map(|one| one.join().expect("a thread"))
    });
    let (one, other) = if outputs[0].status.success() { (0, 1) } else { (1, 0) };
    assert!(outputs[one].status.success(), "{outputs:?}");
    refused(&outputs[other], "it is one of the session's memory servers already");
    assert_eq!(held(&store(&running).expect("a store")).len(), 5);
    running.signal(libc::SIGTERM);
    running.finish().exited(0);
    left_nothing(&client, &[&servers[0], &servers[1], &servers[2], &servers[3], &slow]);
}
