//! Whoever is not a client of a memory server, or is on the way between both: refused, logged, counted.

use ream_tests::{Meddle, MemoryServer, Outcome, Proxy, Run, Scratch, compiled, make_key};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn checksum(arguments: [&str; 4]) -> Option<Run> {
    Some(Run::of(compiled("c/checksum.c", &[])?).args(arguments))
}

/// A proper client is served as ever.
fn still_serves(server: &MemoryServer) {
    let (Some(plain), Some(paged)) = (checksum(["32", "2", "2", "0"]), checksum(["32", "2", "2", "0"])) else { return };
    server.store(paged.memory(8)).finish().same_as(&plain.finish());
}

/// Sends bytes; what comes back until the server closes, which it must.
fn sent(server: &MemoryServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&server.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
    // It may be closed in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it keeps the connection"),
    }
    answer
}

#[test]
fn other_protocols_and_random_bytes_cost_the_sender_its_connection() {
    let server = MemoryServer::start("256M", &[]);
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let preamble = |kind: u8| [&b"ReamWire\x01\x00"[..], &[kind, 0, 0, 0, 0, 0]].concat();
    let mut all: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 something like TLS".to_vec(),
        b"ReamWire\x02\x00\x01\0\0\0\0\0".to_vec(),
        // Huge lengths, a greeting of zeros, plain control where there is security, no such connection.
        [preamble(1), vec![0xff; 70_000]].concat(),
        [preamble(1), vec![96, 0], vec![0; 96]].concat(),
        [preamble(3), vec![1, 0, 1]].concat(),
        preamble(9),
        [preamble(2), vec![0; 80]].concat(),
        [preamble(2), vec![0xff; 200]].concat(),
    ];
    for round in 0..60 {
        let start = if round % 3 == 0 { Vec::new() } else { preamble(1 + (round % 3) as u8) };
        let random = (0..96 + next() % 4000).map(|_| next() as u8).collect();
        all.push([start, random].concat());
    }
    for bytes in &all {
        assert_eq!(sent(&server, bytes), b"", "an answer to a stranger");
    }
    server.until("strangers_total", |count| count >= all.len() as u64);
    server.until_written("event=stranger");
    assert_eq!(server.figure("leases_total"), 0);
    still_serves(&server);
}

#[test]
fn who_drips_or_says_nothing_is_sent_away_and_nobody_waits_for_it() {
    let server = MemoryServer::start("256M", &[]);
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&server.address).expect("a connection")).collect();
    // (They have some seconds; a machine that stands still takes its own.)
    const LONGEST: Duration = Duration::from_secs(120);
    let begun = Instant::now();
    let address = server.address.clone();
    let dripping = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // A byte now and then: never whole, never silent.
        let bytes = b"ReamWire\x01\x00\x01\0\0\0\0\0\x60\x00xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() || begun.elapsed() > LONGEST {
                return begun.elapsed();
            }
            std::thread::sleep(Duration::from_millis(150));
        }
        begun.elapsed()
    });
    still_serves(&server);
    server.until("strangers_total", |count| count >= 21);
    assert!(dripping.join().expect("the one that drips") < LONGEST);
    for mut stream in silent {
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}

#[test]
fn without_a_key_or_with_another_nobody_is_served() {
    let server = MemoryServer::start("256M", &[]);
    let Some(run) = checksum(["32", "1", "1", "0"]) else { return };
    let scratch = Scratch::new("keys");
    let (other, none) = (scratch.file("other"), scratch.file("none"));
    make_key(&other);
    let store = format!("tcp://{}", server.address);
    let with = |key: &std::path::Path, servers: &std::path::Path| -> Outcome {
        let Some(run) = checksum(["32", "1", "1", "0"]) else { unreachable!("compiled above") };
        let run = run.memory(8).store(std::path::Path::new(&store)).option("--key").option(key);
        run.option("--servers").option(servers).finish()
    };
    let refused = |outcome: &Outcome, words: &str| {
        outcome.exited(125).says(words);
        assert!(outcome.stdout.is_empty() && outcome.err().lines().count() == 1, "{}", outcome.describe());
    };
    refused(&with(&none, &server.file("servers")), "make one by ream keys");
    refused(&with(&server.file("client.key"), &none), "its public key is not known");
    let before = server.figure("strangers_total");
    refused(&with(&other, &server.file("servers")), "it does not know our key");
    server.until("strangers_total", |count| count > before);
    server.until_written("unknown_key");
    // A server that is another one than we know.
    let wrong = scratch.file("wrong");
    std::fs::write(&wrong, format!("{} {}\n", server.address, make_key(&other))).expect("a list of servers");
    refused(&with(&server.file("client.key"), &wrong), "it ended the conversation");
    // A private key that others may read.
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("a mode");
    refused(&with(&other, &server.file("servers")), "others may read or write it");
    // No security where it is wanted.
    let outcome = run.memory(8).store(std::path::Path::new(&store)).option("--insecure").finish();
    outcome.exited(125).says("it ended the conversation");
    assert_eq!(server.figure("leases_total"), 0);
}

/// What clients sent, by connection.
type Recorded = Arc<Mutex<BTreeMap<usize, Vec<u8>>>>;

#[test]
fn a_recorded_conversation_is_of_no_use() {
    let server = MemoryServer::start("256M", &[]);
    let recorded = Recorded::default();
    let kept = recorded.clone();
    let record = move |number: usize, there: bool, _: usize, bytes: &mut [u8]| {
        if there {
            kept.lock().expect("the record").entry(number).or_default().extend_from_slice(bytes);
        }
    };
    let proxy = Proxy::before(&server.address, Arc::new(record));
    let Some(run) = checksum(["32", "2", "2", "0"]) else { return };
    let running = server.store_at(run.memory(8), &proxy.address).start();
    server.until("pages_received_total", |pages| pages > 500);
    // While the lease lives, and when it has ended.
    for _ in 0..2 {
        let conversations: Vec<Vec<u8>> = recorded.lock().expect("the record").values().cloned().collect();
        assert!(conversations.len() >= 5, "control, the agent's, and three lanes");
        let (before, leases) = (server.figure("strangers_total"), server.figure("leases_total"));
        for bytes in &conversations {
            sent(&server, bytes);
        }
        server.until("strangers_total", |count| count >= before + conversations.len() as u64);
        assert_eq!(server.figure("leases_total"), leases);
        if running_ended(&running) {
            continue;
        }
        server.until("leases", |count| count <= 1);
    }
    let Some(plain) = checksum(["32", "2", "2", "0"]) else { return };
    running.finish().same_as(&plain.finish());
    still_serves(&server);
}

fn running_ended(running: &ream_tests::Running) -> bool {
    !std::path::Path::new(&format!("/proc/{}/maps", running.pid)).exists()
}

/// Changes one byte in each direction's data once it is switched on.
fn changed_on_the_way(insecure: bool, to_server: bool) {
    let options: &[&str] = if insecure { &["--insecure"] } else { &[] };
    let server = MemoryServer::start("256M", options);
    let on = Arc::new(AtomicBool::new(false));
    let switch = on.clone();
    let meddle: Arc<Meddle> = Arc::new(move |_, there, before, bytes: &mut [u8]| {
        // Somewhere in the pages, most probably; never in the greetings.
        if switch.load(Ordering::Relaxed) && there == to_server && before > 4096 && bytes.len() > 3000 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
        }
    });
    let proxy = Proxy::before(&server.address, meddle);
    let Some(run) = checksum(["64", "100000", "2", "0"]) else { return };
    let running = server.store_at(run.memory(16), &proxy.address).start();
    server.until("pages_received_total", |pages| pages > 3000);
    on.store(true, Ordering::Relaxed);
    let outcome = running.finish();
    // Never a wrong byte: it does not come to its own check.
    outcome.exited(125).says(&format!("tcp://{}", proxy.address)).says("the program is stopped");
    assert!(outcome.stdout.is_empty(), "{}", outcome.describe());
    still_serves(&server);
}

#[test]
fn a_page_changed_on_its_way_back_stops_the_program() {
    changed_on_the_way(false, false);
}

#[test]
fn a_page_changed_on_its_way_there_stops_the_program() {
    changed_on_the_way(false, true);
}

#[test]
fn even_without_security_changed_pages_are_seen() {
    changed_on_the_way(true, false);
}

#[test]
fn secrets_are_in_no_list_and_no_environment() {
    let server = MemoryServer::start("256M", &[]);
    let Some(run) = checksum(["64", "100000", "2", "0"]) else { return };
    let running = server.store(run.memory(16)).start();
    server.until("pages_received_total", |pages| pages > 500);
    let mut secrets = Vec::new();
    for file in ["client.key", "server.key"] {
        let text = std::fs::read_to_string(server.file(file)).expect("a key");
        secrets.extend(text.lines().find_map(|line| line.strip_prefix("private ")).map(str::to_owned));
    }
    assert_eq!(secrets.len(), 2);
    let mut seen = vec![server.log()];
    for pid in running.processes().into_iter().chain([running.agent(), server.pid()]) {
        for what in ["cmdline", "environ", "comm"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            // Raw or in digits.
            seen.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    running.signal(libc::SIGKILL);
    let outcome = running.finish();
    seen.push(outcome.err());
    for text in &seen {
        assert!(secrets.iter().all(|secret| !text.contains(secret.as_str())), "a secret in {text}");
    }
}
