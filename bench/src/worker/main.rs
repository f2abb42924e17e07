//! The worker of `ream bench`: an ordinary program with one large allocation, which does slices of work as its standard
//! input tells it, verifies everything it reads, and reports on standard output. Run plain, under a memory cgroup or
//! under `ream run`, it is the same program.

mod counters;
mod data;
mod peer;
mod programs;
mod small;
mod walks;

use ream_bench::work::{Done, Slice, Times};
use std::io::{BufRead as _, Write as _};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["data", pages, rest @ ..] => match (pages.parse(), rest) {
            (Ok(pages), [] | ["--corrupt"]) => serve(pages, !rest.is_empty()),
            _ => usage(),
        },
        ["fits", pages, passes, rest @ ..] => match (pages.parse(), passes.parse(), rest) {
            (Ok(pages), Ok(passes), [] | ["--corrupt"]) => fits(pages, passes, !rest.is_empty()),
            _ => usage(),
        },
        ["malloc", threads, rounds, rest @ ..] => match (threads.parse(), rounds.parse(), rest) {
            (Ok(threads), Ok(rounds), [] | ["--corrupt"]) => small::run(threads, rounds, !rest.is_empty()),
            _ => usage(),
        },
        ["peer", address] => peer::answer(address),
        ["call", address, "ping", count] => peer::ping(address, count),
        ["call", address, "swap", bytes, seconds] => peer::swap(address, bytes, seconds),
        ["call", address, way @ ("send" | "receive"), connections, seconds] => {
            peer::bulk(address, *way == "send", connections, seconds)
        }
        ["hold"] => peer::hold(),
        ["compile" | "redis", count, rest @ ..] => match (count.parse::<u32>(), rest) {
            (Ok(count), [] | ["--corrupt"]) => program(words[0], count, !rest.is_empty()),
            _ => usage(),
        },
        ["clean-swap", directory] => ream_bench::swap::clean_when_orphaned(std::path::Path::new(directory)),
        ["keep-journal"] => ream_bench::journal::keep(),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!(
        "usage: ream-bench-worker data PAGES [--corrupt] | fits PAGES PASSES [--corrupt] | malloc THREADS ROUNDS [--corrupt] | compile FUNCTIONS [--corrupt] | \
         redis ENTRIES [--corrupt] | peer ADDR:PORT | call ADDR:PORT ping COUNT | \
         call ADDR:PORT swap BYTES SECONDS | call ADDR:PORT send|receive CONNECTIONS SECONDS | hold | clean-swap DIRECTORY | keep-journal"
    );
    eprintln!("(it is started by ream bench)");
    std::process::exit(125)
}

/// Runs a program as a child; ends with 1 when what it made is wrong, and with 125 when it could not be run.
fn program(name: &str, count: u32, corrupt: bool) {
    let made = match name {
        "compile" => programs::compile(count, corrupt),
        _ => programs::redis(u64::from(count), corrupt),
    };
    match made {
        Ok((seconds, sum)) => println!("{seconds} verified:{sum:016x}"),
        Err(why) => {
            eprintln!("ream-bench-worker: {name}: {why}");
            std::process::exit(if why.starts_with("WRONG") { 1 } else { 125 })
        }
    }
}

/// Does what the lines of standard input say until they end. `corrupt` spoils a value after all that writes without reading.
fn serve(pages: usize, corrupt: bool) {
    let session = counters::session();
    let mut walks = walks::Walks::new(data::Data::new(pages));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        if let Some(touches) = line.strip_prefix("touches ").and_then(|number| number.parse().ok()) {
            let before = usage_now();
            let times = walks.touches(touches, &|| counters::of(session).refaults);
            let now = usage_now();
            let (cpu_seconds, peak_kib) = (now.cpu_seconds - before.cpu_seconds, now.peak_kib);
            println!("{}", Times { cpu_seconds, peak_kib, ..Times::of(&times) });
            if std::io::stdout().flush().is_err() {
                return;
            }
            continue;
        }
        let begun = Instant::now();
        let before = (counters::of(session), usage_now());
        let accesses = match line.as_str() {
            "fill" => walks.fill(),
            "counters" => 0,
            command => match command.parse::<Slice>() {
                Ok(slice) => walks.slice(&slice),
                Err(error) => {
                    eprintln!("ream-bench-worker: {error}");
                    std::process::exit(125)
                }
            },
        };
        let seconds = begun.elapsed().as_secs_f64();
        let now = usage_now();
        let done = Done {
            accesses,
            seconds,
            cpu_seconds: now.cpu_seconds - before.1.cpu_seconds,
            major_faults: now.major_faults - before.1.major_faults,
            peak_kib: now.peak_kib,
            ream: counters::difference(before.0, counters::of(session)),
        };
        if corrupt {
            walks.spoil();
        }
        println!("{done}");
        if std::io::stdout().flush().is_err() {
            return;
        }
    }
}

/// What the process has taken so far.
struct Usage {
    /// Processor time of all threads.
    cpu_seconds: f64,
    major_faults: u64,
    /// KiB in RAM at most.
    peak_kib: u64,
}

fn usage_now() -> Usage {
    // SAFETY: all-zero bytes are a valid rusage, which outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let (major_faults, peak_kib) = (usage.ru_majflt as u64, usage.ru_maxrss as u64);
    Usage { cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime), major_faults, peak_kib }
}

/// Data that fit: prints the seconds of the first touch of every page and of the passes after it.
fn fits(pages: usize, passes: u64, corrupt: bool) {
    let begun = Instant::now();
    let mut walks = walks::Walks::new(data::Data::new(pages));
    walks.fill();
    let first = begun.elapsed().as_secs_f64();
    if corrupt {
        walks.spoil();
    }
    let begun = Instant::now();
    for _ in 0..passes {
        for walk in [ream_bench::work::Walk::Sequential, ream_bench::work::Walk::Change, ream_bench::work::Walk::Random]
        {
            walks.slice(&Slice { walk, threads: 1, seconds: 0.0, accesses: pages as u64 });
        }
    }
    println!("{first} {}", begun.elapsed().as_secs_f64());
}
