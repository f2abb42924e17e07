//! Any one memory server may be lost, in any way, at any moment: no byte is lost, and nothing hangs. The copies that are
//! left are always there: the next server is harmed when `ream status` says that all copies are whole again.
//!
//! `REAM_FAULTS` sets how many faults each run gets, `REAM_FAULTS_SEED` which, `REAM_FAULTS_KIND` all of one kind.

use ream_tests::{Build, Fleet, Steadfast, build, skip, tool};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One at a time: each has the machine's two processors busy.
static ALONE: Mutex<()> = Mutex::new(());

fn fleet(count: usize) -> Option<(MutexGuard<'static, ()>, Fleet)> {
    fleet_of(count, "256M")
}

/// Servers with so much memory each, and nobody else with others.
fn fleet_of(count: usize, memory: &'static str) -> Option<(MutexGuard<'static, ()>, Fleet)> {
    let what = "servers that are lost";
    if !ream_tests::is_root() || tool("ip").is_none() {
        skip(what, "needs root and ip (iproute2)");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Fleet::new(count, memory) {
        Ok(fleet) => Some((alone, fleet)),
        Err(error) => {
            skip(what, &format!("hosts cannot be made: {error}"));
            None
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn now_ms() -> u64 {
    // SAFETY: the kernel fills in the structure.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

const KINDS: [&str; 16] = [
    "killed, restarted",
    "killed, restarted when copies are whole",
    "killed, restarted",
    "stopped",
    "stopped for a moment",
    "cut off",
    "cut off for a moment",
    "connections reset",
    "connections silent",
    "connections half open",
    "network slow",
    "a connection closed",
    "filled up",
    "told to end, restarted",
    "bytes changed",
    "filled up, another killed",
];

const BOTH: usize = 15;

/// What harms a server, and what is put right afterwards.
struct Harm<'a> {
    fleet: &'a mut Fleet,
    program: &'a mut Steadfast,
    random: &'a mut Random,
    waits: BTreeMap<&'static str, (u64, u64)>,
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

impl Harm<'_> {
    fn losses(&self, server: usize) -> u64 {
        let condition = self.program.condition();
        condition.and_then(|condition| condition.servers.get(server).map(|server| server.1)).unwrap_or(0)
    }

    fn lost(&mut self, server: usize, before: u64) {
        self.program.until("the loss is noticed", |now| now.servers[server].1 > before || !now.servers[server].0);
    }

    /// What need not be a loss may be noticed as one some time later.
    fn perhaps_lost(&mut self, server: usize, before: u64, longest: Duration) {
        let end = std::time::Instant::now() + longest;
        while self.losses(server) == before && std::time::Instant::now() < end {
            pause(20);
        }
    }

    fn whole(&mut self) {
        self.program.until("all copies are whole", |now| now.missing == 0);
    }

    fn all_used(&mut self) {
        self.program.until("all servers are used, and copies whole", |now| {
            now.missing == 0 && now.servers.iter().all(|server| server.0)
        });
    }

    fn kill_another(&mut self, server: usize) {
        let count = self.fleet.members.len();
        let other = (server + 1 + self.random.below(count as u64 - 1) as usize) % count;
        let before = self.losses(other);
        self.fleet.signal(other, libc::SIGKILL);
        self.lost(other, before);
        self.fleet.gone(other);
        pause(self.random.below(300));
        self.fleet.start(other);
    }

    /// Several servers at least hold copies where one is away.
    fn fault(&mut self, kind: usize, server: usize) {
        let before = self.losses(server);
        let begun = now_ms();
        let name = KINDS[kind];
        match kind {
            0..3 | 13 => {
                self.fleet.signal(server, if kind == 13 { libc::SIGTERM } else { libc::SIGKILL });
                self.lost(server, before);
                self.fleet.gone(server);
                if kind == 1 && self.fleet.members.len() > 2 {
                    self.whole();
                }
                self.fleet.start(server);
            }
            3 => {
                self.fleet.signal(server, libc::SIGSTOP);
                self.lost(server, before);
                self.fleet.signal(server, libc::SIGCONT);
            }
            4 => {
                self.fleet.signal(server, libc::SIGSTOP);
                pause(50 + self.random.below(300));
                self.fleet.signal(server, libc::SIGCONT);
            }
            5 => {
                self.fleet.cable(server, false);
                self.lost(server, before);
                self.fleet.cable(server, true);
            }
            6 => {
                self.fleet.cable(server, false);
                pause(50 + self.random.below(300));
                self.fleet.cable(server, true);
            }
            7 => {
                self.fleet.members[server].gate.reset();
                self.lost(server, before);
            }
            8 => {
                self.fleet.members[server].gate.hold();
                self.lost(server, before);
                self.fleet.members[server].gate.open();
            }
            9 => {
                self.fleet.members[server].gate.halve();
                self.lost(server, before);
                self.fleet.members[server].gate.open();
            }
            10 => {
                self.fleet.members[server].gate.slow(1 + self.random.below(20) as u32);
                pause(400);
                self.fleet.members[server].gate.open();
            }
            11 => {
                let which = self.random.below(8) as usize;
                self.fleet.members[server].gate.close_one(which);
                pause(50);
            }
            14 => {
                self.fleet.members[server].gate.lie(true);
                pause(200);
                self.fleet.members[server].gate.lie(false);
            }
            _ => {
                let Some(mut filler) = self.fleet.fill(server) else { return };
                pause(500 + self.random.below(500));
                if kind == BOTH {
                    self.kill_another(server);
                }
                let _ = filler.kill();
                let _ = filler.wait();
            }
        }
        match kind {
            // A connection that is not used is looked after every two seconds.
            11 => self.perhaps_lost(server, before, Duration::from_millis(3500)),
            4 | 6 | 10 | 14 => self.perhaps_lost(server, before, Duration::from_millis(1200)),
            _ => {}
        }
        self.all_used();
        let longest = self.program.waits().into_iter().filter(|(end, _)| *end >= begun).map(|(_, wait)| wait).max();
        let entry = self.waits.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1.max(longest.unwrap_or(0)));
    }
}

fn survive(count: usize, options: &[&str], forks: &str, faults: u64) {
    survive_with(count, "256M", options, forks, faults);
}

/// The same with so much memory at each server.
fn survive_with(count: usize, memory: &'static str, options: &[&str], forks: &str, faults: u64) {
    let Some((_alone, mut fleet)) = fleet_of(count, memory) else { return };
    let seed = number("REAM_FAULTS_SEED", u64::from(std::process::id()) * 0x9e37_79b9 + 1);
    let mut random = Random(seed | 1);
    let all: Vec<usize> = (0..count).collect();
    let store = fleet.store(&all);
    let options = [&["--memory", "16M", "--store", &store], options].concat();
    let Some(mut program) = fleet.run(&options, "48", forks) else { return };
    eprintln!("{faults} faults with {options:?}, REAM_FAULTS_SEED={seed}");
    let begun = std::time::Instant::now();
    let mut harm = Harm { fleet: &mut fleet, program: &mut program, random: &mut random, waits: BTreeMap::new() };
    harm.all_used();
    for fault in 0..faults {
        // Each kind in turn, so that few faults are of different kinds too, at servers and moments by chance.
        let kind = ((fault * 5 + seed) % KINDS.len() as u64) as usize;
        let server = harm.random.below(count as u64) as usize;
        let kind = if fault + 1 == faults { BOTH } else { number("REAM_FAULTS_KIND", kind as u64) as usize };
        pause(harm.random.below(100));
        let started = std::time::Instant::now();
        harm.fault(kind, server);
        eprintln!("fault {fault}: server {server} {}: whole after {} ms", KINDS[kind], started.elapsed().as_millis());
    }
    let waits = std::mem::take(&mut harm.waits);
    let told = program.finish();
    eprintln!("{faults} faults in {} s", begun.elapsed().as_secs());
    for (kind, (times, longest)) in waits {
        eprintln!("{kind}: {times} times, longest pause of the program {longest} ms");
    }
    for line in told.lines().filter(|line| line.contains("all right") || line.contains("copied again;")) {
        eprintln!("{line}");
    }
}

#[test]
fn with_replicas_no_server_is_missed() {
    survive(3, &[], "0", number("REAM_FAULTS", 8));
}

#[test]
fn with_a_local_copy_no_server_is_missed() {
    survive(2, &["--spill", "/var/tmp"], "0", number("REAM_FAULTS", 6));
}

/// Servers that have no room for all: some of it is on the disk below, and goes to and fro.
#[test]
fn with_a_disk_below_no_server_is_missed() {
    survive_with(3, "20M", &["--store", "/var/tmp"], "0", number("REAM_FAULTS", 6));
}

/// With room at the servers, but where one is filled up: what a child has of its parent's can be copied again only there.
#[test]
fn with_a_disk_below_forks_go_on_while_servers_are_lost() {
    survive_with(3, "64M", &["--store", "/var/tmp"], "400", number("REAM_FAULTS", 3));
}

#[test]
fn with_parity_no_server_is_missed() {
    survive(4, &["--parity"], "0", number("REAM_FAULTS", 8));
}

/// What servers cannot hold twice they hold with sums, also when all of it was written anew several times, and by children
/// that share it.
#[test]
fn sums_take_less_room_than_copies() {
    let Some((_alone, fleet)) = fleet_of(3, "128M") else { return };
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
    let (status, _, err) = run(&[], &alone);
    assert!(status == Some(125) && err.contains("has no room left for this program"), "{status:?}: {err}");
}

#[test]
fn forks_go_on_while_servers_are_lost() {
    survive(3, &[], "400", number("REAM_FAULTS", 4));
}

#[test]
fn with_parity_forks_go_on_while_servers_are_lost() {
    survive(3, &["--parity"], "400", number("REAM_FAULTS", 4));
}

#[test]
fn what_nobody_has_any_more_ends_the_program_with_a_line() {
    let Some((_alone, fleet)) = fleet(2) else { return };
    let store = fleet.store(&[0, 1]);
    let Some(mut program) = fleet.run(&["--memory", "16M", "--store", &store], "48", "0") else { return };
    fleet.signal(0, libc::SIGKILL);
    program.until("the loss is noticed", |now| now.servers[0].1 > 0);
    fleet.signal(1, libc::SIGKILL);
    assert_eq!(program.stopped(), Some(125), "{}", program.told());
    let told = program.told();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("the program is stopped")).collect();
    let second = fleet.store(&[1]);
    assert!(lines.len() == 1 && lines[0].contains(&second), "{told}");
    assert_eq!(told.matches("the program goes on with the other copies").count(), 1, "{told}");
}

#[test]
fn sums_do_not_help_against_the_loss_of_two_at_once() {
    let Some((_alone, fleet)) = fleet(3) else { return };
    let store = fleet.store(&[0, 1, 2]);
    let options = ["--memory", "16M", "--store", &store, "--parity"];
    let Some(mut program) = fleet.run(&options, "48", "0") else { return };
    fleet.signal(0, libc::SIGKILL);
    fleet.signal(1, libc::SIGKILL);
    assert_eq!(program.stopped(), Some(125), "{}", program.told());
    assert_eq!(program.told().matches("the program is stopped").count(), 1, "{}", program.told());
}

#[test]
fn a_server_that_is_not_there_is_named_and_used_later() {
    let Some((_alone, mut fleet)) = fleet(3) else { return };
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
