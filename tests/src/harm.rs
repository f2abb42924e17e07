//! What may happen to a memory server of a [`Fleet`] while a program pages to it, one after the other, at moments by chance.
//!
//! `REAM_FAULTS` sets how many faults each run gets, `REAM_FAULTS_SEED` which, `REAM_FAULTS_KIND` all of one kind.

use crate::fleet::Fleet;
use crate::paged::{Condition, Paged};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
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

/// Faults that are still to be dealt.
pub struct Harm {
    random: Random,
    seed: u64,
    faults: u64,
    dealt: u64,
}

/// The fault that is dealt just now.
struct Fault<'a> {
    fleet: &'a mut Fleet,
    program: &'a mut Paged,
    random: &'a mut Random,
}

impl Harm {
    /// So many faults, if no other number is asked for.
    pub fn new(usual: u64) -> Harm {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let own = u64::from(std::process::id() + NUMBER.fetch_add(1, Ordering::Relaxed));
        let seed = number("REAM_FAULTS_SEED", own * 0x9e37_79b9 + 1);
        Harm { random: Random(seed | 1), seed, faults: number("REAM_FAULTS", usual), dealt: 0 }
    }

    /// What they are, to be repeated.
    pub fn name(&self) -> String {
        format!("{} faults, REAM_FAULTS_SEED={}", self.faults, self.seed)
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.faults - self.dealt
    }

    /// Waits for some time below this, in milliseconds.
    pub fn pause(&mut self, longest: u64) {
        pause(self.random.below(longest));
    }

    /// Deals the next one, and says which. Returns when each page has its copies and all servers are used again; or, with all put
    /// right, when the program has ended, which can be asked of that.
    ///
    /// # Panics
    /// When a server that is lost is not noticed, or copies do not become whole.
    pub fn deal(&mut self, fleet: &mut Fleet, program: &mut Paged) -> &'static str {
        // Each kind in turn, so that few faults are of different kinds too, at servers and moments by chance.
        let kind = (self.dealt * 5 + self.seed) % KINDS.len() as u64;
        let server = self.random.below(fleet.members.len() as u64) as usize;
        let kind = if self.left() == 1 { BOTH } else { number("REAM_FAULTS_KIND", kind) as usize };
        let begun = Instant::now();
        let mut fault = Fault { fleet, program, random: &mut self.random };
        fault.happens(kind, server);
        let outcome = if program.comes("all servers are used, and copies whole", Condition::is_whole) {
            "whole"
        } else {
            "the program had ended"
        };
        let number = self.dealt;
        self.dealt += 1;
        eprintln!(
            "fault {number}: server {server} {}: {outcome} after {} ms",
            KINDS[kind],
            begun.elapsed().as_millis()
        );
        KINDS[kind]
    }
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

impl Fault<'_> {
    fn losses(&self, server: usize) -> u64 {
        let condition = self.program.condition();
        condition.and_then(|condition| condition.servers.get(server).map(|server| server.1)).unwrap_or(0)
    }

    /// Waits until the loss is noticed, if the program does not end.
    fn lost(&mut self, server: usize, before: u64) {
        self.program.comes("the loss is noticed", |now| now.servers[server].1 > before || !now.servers[server].0);
    }

    /// What need not be a loss may be noticed as one some time later.
    fn perhaps_lost(&mut self, server: usize, before: u64, longest: Duration) {
        let end = Instant::now() + longest;
        while self.losses(server) == before && Instant::now() < end && self.program.ended().is_none() {
            pause(20);
        }
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

    /// Harms the server and puts it right. Several servers at least hold copies where one is away.
    fn happens(&mut self, kind: usize, server: usize) {
        let before = self.losses(server);
        match kind {
            0..3 | 13 => {
                self.fleet.signal(server, if kind == 13 { libc::SIGTERM } else { libc::SIGKILL });
                self.lost(server, before);
                self.fleet.gone(server);
                if kind == 1 && self.fleet.members.len() > 2 {
                    self.program.comes("all copies are whole", |now| now.missing == 0);
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
    }
}
