//! The places for a store: whether they can be used, how much room they have, how fast they are.

use super::{Finding, Verdict};
use crate::machine::Machine;
use crate::place::{self, Place};
use crate::remote;
use crate::settings::Settings;
use ream_options::show_size;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are written and read to measure a store.
const MEASURED: u64 = 64 << 20;
/// Bytes of one read or write in order.
const LARGE: usize = 2 << 20;
/// Bytes of one read at random.
const SMALL: usize = 4096;
/// A measurement ends after this time, finished or not.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at each candidate. Returns the findings, and whether one of them will do.
pub fn look(settings: &Settings, variable: &dyn Fn(&str) -> Option<OsString>) -> (Vec<Finding>, bool) {
    let mut usable = false;
    let findings = place::candidates(settings, variable)
        .iter()
        .map(|directory| {
            let name = format!("store {}", directory.display());
            match place::examine(directory, settings.store_limit) {
                Ok(place) => {
                    let first = !std::mem::replace(&mut usable, true);
                    let text = describe(&place, first);
                    Finding::ok(name, text)
                }
                // Another candidate may do; that there is none is said at the end.
                Err(why) => Finding::new(name, Verdict::Warn, why.to_string()),
            }
        })
        .collect();
    let mut findings: Vec<Finding> = findings;
    if settings.zip > 0 {
        findings.push(compressed(settings));
    }
    if settings.memory_servers.is_empty() {
        return (findings, usable || settings.zip_alone);
    }
    let mut there = 0;
    for server in &settings.memory_servers {
        let name = format!("store tcp://{server}");
        findings.push(match remote::examine(settings, server) {
            Ok((left, latency)) => {
                there += 1;
                Finding::ok(
                    name,
                    format!("reachable, {} left for us, answers in {} us", show_size(left), latency.as_micros()),
                )
            }
            Err(failure) => Finding::new(name, Verdict::Warn, failure.text),
        });
    }
    let copies = if settings.spill.is_some() { "one copy there and one here" } else { "each page at one" };
    let copies = if settings.replicas > 1 { "each page at two" } else { copies };
    let copies = if settings.parity { "each page at one, and sums of them at others" } else { copies };
    let copies = if settings.has_disk_below() { format!("{copies}, or on the disk below") } else { copies.to_owned() };
    let enough = there >= settings.least_servers();
    let verdict = if enough { Verdict::Ok } else { Verdict::Warn };
    let all = settings.memory_servers.len();
    findings.push(Finding::new("memory servers", verdict, format!("{there} of {all} can be had, {copies}")));
    let below = !settings.has_disk_below() || usable;
    (findings, enough && below)
}

/// Whether compressed memory and the budget fit side by side.
fn compressed(settings: &Settings) -> Finding {
    let name = "store zip:";
    let machine = match Machine::look() {
        Ok(machine) => machine,
        Err(why) => return Finding::new(name, Verdict::Warn, why),
    };
    let most = machine.cap().map_or(machine.total, |cap| cap.min(machine.total));
    let (zip, left) = (show_size(settings.zip), show_size(most.saturating_sub(settings.zip)));
    if settings.zip >= most {
        let text = format!("{zip} of compressed pages are more than the {} that there is here", show_size(most));
        return Finding::new(name, Verdict::Bad, text);
    }
    Finding::ok(name, format!("{zip} of compressed pages, which leave {left} for --memory"))
}

fn describe(place: &Place, first: bool) -> String {
    let speed = match place.limit >= MEASURED {
        true => {
            measure(&place.directory).map_or_else(|error| crate::failure::reason(&error), |speed| speed.to_string())
        }
        false => "too small to be measured".to_owned(),
    };
    let chosen = if first { "; a run will use it" } else { "" };
    format!("up to {}; {speed}{chosen}", show_size(place.limit))
}

/// What was measured, each operation after the other.
#[derive(Clone, Copy, Debug)]
struct Speed {
    write: u64,
    read: u64,
    latency: Duration,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Speed { write, read, latency } = self;
        write!(f, "writes {write} MB/s, reads {read} MB/s, 4 KiB at random in {} us", latency.as_micros())
    }
}

/// Measures a store as a run would use it: direct I/O on a file without a name.
fn measure(directory: &Path) -> io::Result<Speed> {
    let file = place::open_store(directory).map_err(|why| io::Error::other(why.to_string()))?;
    let mut memory = Aligned::new(LARGE);
    memory.fill();
    let write = in_order(|offset, buffer| file.write_at(buffer, offset), &mut memory)?;
    let read = in_order(|offset, buffer| file.read_at(buffer, offset), &mut memory)?;
    Ok(Speed { write: write.1, read: read.1, latency: at_random(&file, &mut memory, write.0.min(read.0))? })
}

/// Transfers large pieces one after the other; returns bytes done and MB/s.
fn in_order(
    mut transfer: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    memory: &mut Aligned,
) -> io::Result<(u64, u64)> {
    let begun = Instant::now();
    let mut done = 0;
    while done < MEASURED && begun.elapsed() < PATIENCE {
        match transfer(done, memory.bytes(LARGE)) {
            Ok(LARGE) => done += LARGE as u64,
            Ok(_) => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((done, (u128::from(done) * 1000 / begun.elapsed().as_nanos().max(1)) as u64))
}

/// The median time of small reads at random places below `bytes`.
fn at_random(file: &File, memory: &mut Aligned, bytes: u64) -> io::Result<Duration> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 200 && begun.elapsed() < PATIENCE {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let offset = seed % (bytes / SMALL as u64).max(1) * SMALL as u64;
        let before = Instant::now();
        file.read_at(memory.bytes(SMALL), offset)?;
        times.push(before.elapsed());
    }
    times.sort();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Memory at an address that direct I/O takes.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(bytes: usize) -> Aligned {
        let memory = vec![0; bytes + SMALL];
        let start = memory.as_ptr().align_offset(SMALL);
        Aligned { memory, start }
    }
    fn bytes(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes]
    }
    /// Fills it with what no device can compress.
    fn fill(&mut self) {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for eight in self.bytes(LARGE).chunks_exact_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            eight.copy_from_slice(&(seed ^ seed >> 29).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_a_real_directory_and_leaves_nothing() {
        let directory = std::path::PathBuf::from("/var/tmp").join(format!("ream-stores-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let speed = measure(&directory).unwrap();
        assert!(speed.write > 0 && speed.read > 0 && speed.latency > Duration::ZERO, "{speed}");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir(&directory).unwrap();
        assert!(measure(&directory).is_err());
    }

    #[test]
    fn short_transfers_are_failures() {
        let mut memory = Aligned::new(LARGE);
        assert!(in_order(|_, _| Ok(1), &mut memory).is_err());
        assert_eq!(memory.bytes(SMALL).as_ptr() as usize % SMALL, 0);
    }
}
