//! Any one memory server may be lost, in any way, at any moment: no byte is lost, and nothing hangs. The copies that are
//! left are always there: the next server is harmed when `ream status` says that all copies are whole again.
//!
//! How many faults there are can be set (`tests/src/harm.rs`).

use ream_tests::{Build, Condition, Fleet, Harm, MemoryServer, Proxy, Run, build, tool};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn now_ms() -> u64 {
    // SAFETY: the kernel fills in the structure.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

fn survive(count: usize, options: &[&str], forks: &str, faults: u64) {
    survive_with(count, "256M", options, forks, faults);
}

/// The same with so much memory at each server.
fn survive_with(count: usize, memory: &'static str, options: &[&str], forks: &str, faults: u64) {
    let Some((_alone, mut fleet)) = Fleet::alone(count, memory) else { return };
    let mut harm = Harm::new(faults);
    let all: Vec<usize> = (0..count).collect();
    let store = fleet.store(&all);
    let options = [&["--memory", "16M", "--store", &store], options].concat();
    let Some(mut program) = fleet.run(&options, "48", forks) else { return };
    let faults = harm.name();
    eprintln!("{faults}, with {options:?}");
    let begun = std::time::Instant::now();
    // By kind: how many, and the longest pause of the program.
    let mut pauses: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    while harm.left() > 0 {
        program.until("all servers are used, and copies whole", Condition::is_whole);
        harm.pause(100);
        let since = now_ms();
        let kind = harm.deal(&mut fleet, &mut program);
        let longest = program.waits().into_iter().filter(|(end, _)| *end >= since).map(|(_, wait)| wait).max();
        let entry = pauses.entry(kind).or_default();
        *entry = (entry.0 + 1, entry.1.max(longest.unwrap_or(0)));
    }
    program.until("all servers are used, and copies whole", Condition::is_whole);
    let told = program.finish();
    eprintln!("{faults}, in {} s", begun.elapsed().as_secs());
    for (kind, (times, longest)) in pauses {
        eprintln!("{kind}: {times} times, longest pause of the program {longest} ms");
    }
    for line in told.lines().filter(|line| line.contains("all right") || line.contains("copied again;")) {
        eprintln!("{line}");
    }
}

#[test]
fn with_replicas_no_server_is_missed() {
    survive(3, &[], "0", 8);
}

#[test]
fn with_a_local_copy_no_server_is_missed() {
    survive(2, &["--spill", "/var/tmp"], "0", 6);
}

/// Servers that have no room for all: some of it is on the disk below, and goes to and fro.
#[test]
fn with_a_disk_below_no_server_is_missed() {
    survive_with(3, "20M", &["--store", "/var/tmp"], "0", 6);
}

/// With room at the servers, but where one is filled up: what a child has of its parent's can be copied again only there.
#[test]
fn with_a_disk_below_forks_go_on_while_servers_are_lost() {
    survive_with(3, "64M", &["--store", "/var/tmp"], "400", 3);
}

#[test]
fn with_parity_no_server_is_missed() {
    survive(4, &["--parity"], "0", 8);
}

/// What servers cannot hold twice they hold with sums, also when all of it was written anew several times, and by children
/// that share it.
#[test]
fn sums_take_less_room_than_copies() {
    let Some((_alone, fleet)) = Fleet::alone(3, "128M") else { return };
    let Build::Ready(program) = build("c/checksum.c", &["-pthread"]) else { return };
    let store = fleet.store(&[0, 1, 2]);
    let run = |options: &[&str], work: &[&str]| {
        let mut command = fleet.ream("client.key");
        command.args(["run", "--memory", "16M", "--store", &store]).args(options).arg("--").arg(&program).args(work);
        let output = command.output().expect("ream");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (alone, with_children) = (["210", "4", "2", "0"], ["32", "4", "2", "3"]);
    for work in [&alone, &with_children] {
        let plain = std::process::Command::new(&program).args(work).output().expect("the program");
        let (status, out, err) = run(&["--parity"], work);
        assert_eq!((status, out.as_bytes()), (Some(0), plain.stdout.as_slice()), "{err}");
    }
    // Of some of that there is no second copy, of more than servers have none at all.
    let (status, _, err) = run(&[], &alone);
    assert!(status == Some(0) && err.contains("have no room for all copies of pages"), "{status:?}: {err}");
    let (status, _, err) = run(&[], &["420", "4", "2", "0"]);
    assert!(status == Some(125) && err.contains("has no room left for this program"), "{status:?}: {err}");
}

#[test]
fn forks_go_on_while_servers_are_lost() {
    survive(3, &[], "400", 4);
}

#[test]
fn with_parity_forks_go_on_while_servers_are_lost() {
    survive(3, &["--parity"], "400", 4);
}

#[test]
fn what_nobody_has_any_more_ends_the_program_with_a_line() {
    let Some((_alone, fleet)) = Fleet::alone(2, "256M") else { return };
    let store = fleet.store(&[0, 1]);
    let Some(mut program) = fleet.run(&["--memory", "16M", "--store", &store], "48", "0") else { return };
    fleet.signal(0, libc::SIGKILL);
    program.until("the loss is noticed", |now| now.servers[0].1 > 0);
    fleet.signal(1, libc::SIGKILL);
    assert_eq!(program.end().code(), Some(125), "{}", program.told());
    let told = program.told();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("the program is stopped")).collect();
    let second = fleet.store(&[1]);
    assert!(lines.len() == 1 && lines[0].contains(&second), "{told}");
    assert_eq!(told.matches("the program goes on with the other copies").count(), 1, "{told}");
}

#[test]
fn sums_do_not_help_against_the_loss_of_two_at_once() {
    let Some((_alone, fleet)) = Fleet::alone(3, "256M") else { return };
    let store = fleet.store(&[0, 1, 2]);
    let options = ["--memory", "16M", "--store", &store, "--parity"];
    let Some(mut program) = fleet.run(&options, "48", "0") else { return };
    fleet.signal(0, libc::SIGKILL);
    fleet.signal(1, libc::SIGKILL);
    assert_eq!(program.end().code(), Some(125), "{}", program.told());
    assert_eq!(program.told().matches("the program is stopped").count(), 1, "{}", program.told());
}

#[test]
fn one_server_by_two_names_is_refused() {
    let Some(program) = tool("true") else { return };
    for options in [&[][..], &["--insecure"]] {
        let server = MemoryServer::start("64M", options);
        let proxy = Proxy::before(&server.address, Arc::new(|_, _, _, _: &mut [u8]| {}));
        let name = format!("{},tcp://{}", server.address, proxy.address);
        let list = server.file("servers");
        let known = format!("{} {public}\n{} {public}\n", server.address, proxy.address, public = server.public);
        std::fs::write(&list, known).expect("the list of servers");
        let run = Run::of(&program).memory(64).store(Path::new(&format!("tcp://{name}")));
        let run = match options {
            [] => run.option("--key").option(server.file("client.key")).option("--servers").option(list),
            _ => run.option("--insecure"),
        };
        let outcome = run.unmeasured().finish();
        outcome.exited(125).says(&format!("tcp://{} is tcp://{}, by another name", proxy.address, server.address));
        server.until("leases", |leases| leases == 0);
    }
}

#[test]
fn a_name_that_nobody_knows_is_said_and_left_out() {
    let Some(program) = tool("true") else { return };
    let server = MemoryServer::start("64M", &[]);
    let name = format!("{},tcp://nowhere.invalid:7400", server.address);
    let list = server.file("servers");
    let known = format!(
        "{} {public}\nnowhere.invalid:7400 {other}\n",
        server.address,
        public = server.public,
        other = "ab".repeat(32)
    );
    std::fs::write(&list, known).expect("the list of servers");
    let run = |options: &[&'static str]| {
        let run = Run::of(&program).memory(64).store(Path::new(&format!("tcp://{name}"))).unmeasured();
        let run = run.option("--key").option(server.file("client.key")).option("--servers").option(&list);
        options.iter().fold(run, |run, option| run.option(option)).finish()
    };
    run(&["--replicas", "1"])
        .exited(0)
        .says("tcp://nowhere.invalid:7400: ")
        .says("the program begins without it; ream add-store");
    // Where copies are to be at two there are too few.
    run(&[]).exited(125).says("1 of 2 memory servers can be had");
}

#[test]
fn a_server_that_is_not_there_is_named_and_used_later() {
    let Some((_alone, mut fleet)) = Fleet::alone(3, "256M") else { return };
    fleet.signal(2, libc::SIGKILL);
    fleet.gone(2);
    let store = fleet.store(&[0, 1, 2]);
    let Some(mut program) = fleet.run(&["--memory", "16M", "--store", &store], "48", "0") else { return };
    assert!(program.told().contains("the program begins without it"), "{}", program.told());
    fleet.start(2);
    program.until("it is used", |now| now.servers.iter().all(|server| server.0));
    program.finish();
    // Fewer than each page needs: not started.
    for server in [1, 2] {
        fleet.signal(server, libc::SIGKILL);
        fleet.gone(server);
    }
    let mut command = fleet.ream("client.key");
    let output = command.args(["run", "--memory", "16M", "--store", &store, "true"]).output().expect("ream");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(told.contains("1 of 3 memory servers can be had") && told.lines().count() == 1, "{told}");
}
