//! Many clients of one memory server: each gets its part, none more than its quota, and nobody who is idle costs anything.

use ream_tests::{MemoryServer, Run, Running, Scratch, compiled, make_key, ream_binary};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A client's own figure.
fn figure(server: &MemoryServer, key: &Path, name: &str) -> u64 {
    let mut command = Command::new(ream_binary());
    command.args(["status", "--json", "--server", &format!("tcp://{}", server.address), "--key"]).arg(key);
    let output = command.arg("--servers").arg(server.file("servers")).output().expect("ream");
    let text = String::from_utf8_lossy(&output.stdout);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no figures: {output:?}"));
    value.get(name).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn at(server: &MemoryServer, key: &Path, run: Run) -> Run {
    let store = format!("tcp://{}", server.address);
    run.store(Path::new(&store)).option("--key").option(key).option("--servers").option(server.file("servers"))
}

#[test]
fn four_clients_at_once_get_the_same_and_none_more_than_its_quota() {
    const QUOTA: u64 = 48 << 20;
    let scratch = Scratch::new("company");
    let keys: Vec<PathBuf> = (0..4).map(|number| scratch.file(&format!("key-{number}"))).collect();
    let lines: String = keys.iter().map(|key| format!("{} {} 48M\n", make_key(key), key.display())).collect();
    let clients = scratch.file("clients");
    std::fs::write(&clients, lines.replace(&format!("{}/", scratch.path().display()), "")).expect("the list");
    let server = MemoryServer::start("1G", &["--clients", &clients.display().to_string()]);
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let mut running: Vec<Running> = Vec::new();
    for key in &keys {
        let run = Run::of(&program).args(["32", "100000", "1", "0"]).memory(8);
        running.push(at(&server, key, run).start());
    }
    let sent = || -> Vec<u64> { keys.iter().map(|key| figure(&server, key, "ream_client_pages_sent_total")).collect() };
    let begun = Instant::now();
    while sent().iter().any(|pages| *pages < 4096) {
        assert!(begun.elapsed() < Duration::from_secs(60), "they do not begin: {:?}", sent());
        std::thread::sleep(Duration::from_millis(50));
    }
    // All are at it. What other programs on this machine do to one of them for a while evens out as time goes on.
    let (before, begun) = (sent(), Instant::now());
    loop {
        std::thread::sleep(Duration::from_secs(4));
        let got: Vec<u64> = sent().iter().zip(&before).map(|(now, before)| now - before).collect();
        let mean = got.iter().sum::<u64>() / got.len() as u64;
        let fair = got.iter().all(|pages| *pages * 10 >= mean * 8 && *pages * 10 <= mean * 12);
        if mean > 2048 && fair {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "not within 20 % of {mean} pages: {got:?}");
    }
    // One that wants more than its quota does not get it, and the others do not notice.
    let greedy = Run::of(&program).args(["64", "1", "1", "0"]).memory(8);
    let outcome = at(&server, &keys[0], greedy).finish();
    outcome.exited(125).says("has no room left for this program");
    assert!(figure(&server, &keys[1], "ream_server_quota_total") > 0);
    for key in &keys {
        let used = figure(&server, key, "ream_client_used_bytes");
        assert!(used <= QUOTA, "{used} bytes");
    }
    let before = sent();
    let begun = Instant::now();
    while sent().iter().zip(&before).skip(1).any(|(now, before)| now <= before) {
        assert!(begun.elapsed() < Duration::from_secs(60), "somebody is stuck");
        std::thread::sleep(Duration::from_millis(50));
    }
    for one in running {
        one.signal(libc::SIGKILL);
        one.finish().signalled(libc::SIGKILL);
    }
}

/// The server counts in segments of 2 MiB with what belongs to them: of 36 MiB it has room for 17, which hold the program's 34.
#[test]
fn a_quota_with_little_more_room_than_the_program_needs_is_enough() {
    let scratch = Scratch::new("enough");
    let key = scratch.file("key");
    let clients = scratch.file("clients");
    std::fs::write(&clients, format!("{} client 36M\n", make_key(&key))).expect("the list");
    let server = MemoryServer::start("1G", &["--clients", &clients.display().to_string()]);
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let run = || Run::of(&program).args(["32", "12", "2", "0"]);
    let plain = run().finish();
    at(&server, &key, run().memory(8)).finish().exited(0).same_as(&plain);
    assert_eq!(figure(&server, &key, "ream_server_quota_total"), 0, "pages were refused");
}

/// Clock ticks that a process has used.
fn ticks(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its figures");
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn sixty_four_idle_clients_cost_nothing() {
    let server = MemoryServer::start("2G", &[]);
    let Some(program) = compiled("c/idle.c", &[]) else { return };
    let scratch = Scratch::new("idle");
    let mut running: Vec<Running> = Vec::new();
    let begun = Instant::now();
    for numbers in (0..64).collect::<Vec<u32>>().chunks(8) {
        let ready: Vec<PathBuf> = numbers.iter().map(|number| scratch.file(&number.to_string())).collect();
        for ready in &ready {
            let run = Run::of(&program).args(["12".as_ref(), ready.as_os_str()]).memory(8);
            running.push(server.store(run).start());
        }
        while !ready.iter().all(|ready| ready.exists()) {
            assert!(begun.elapsed() < Duration::from_secs(240), "clients {numbers:?} do not get ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    server.until("leases", |leases| leases == 64);
    assert!(server.figure("used_bytes") > 64 << 20, "they have stored nothing");
    let begun = Instant::now();
    loop {
        let before = ticks(server.pid());
        std::thread::sleep(Duration::from_secs(3));
        let used = ticks(server.pid()) - before;
        if used <= 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{used} ticks of the processor in three seconds");
    }
    running.iter().for_each(|one| one.signal(libc::SIGKILL));
    for one in running {
        one.finish().signalled(libc::SIGKILL);
    }
    server.until("leases", |leases| leases == 0);
}
