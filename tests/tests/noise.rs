//! `ream noise`: what it shows and writes, and that what it looks with would find out that it is blind.

use ream_tests::{Scratch, is_root, ream_binary, skip};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

fn noise(words: &[&str]) -> Output {
    let scratch = Scratch::new("noise");
    let store = scratch.directory("store");
    Command::new(ream_binary()).arg("noise").arg("--store").arg(&store).args(words).output().expect("running it")
}

fn looked(words: &[&str]) -> Output {
    Command::new(ream_binary().with_file_name("ream-bench-noise")).args(words).output().expect("running it")
}

/// Whether an idle pager can be told from none depends on what else this machine does: 1 says that it can.
fn measured(output: &Output) -> bool {
    matches!(output.status.code(), Some(0 | 1))
}

#[test]
fn both_histograms_calls_and_verdicts_are_shown() {
    let output = noise(&["--seconds", "0.2", "--rounds", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(measured(&output), "{output:?}");
    for words in [
        "fixed work, ms on average",
        "detours, by their length",
        "getppid, ns",
        "mmap+munmap, ns",
        "fixed work takes as long under Ream",
        "the idle pager takes at most 0.1 % of a processor",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn figures_are_written() {
    let output = noise(&["--seconds=0.1", "--rounds=1", "--json=-"]);
    assert!(measured(&output), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for under in ["plain", "under_ream"] {
        let run = &value[under][0];
        assert_eq!(run["processors"].as_u64(), Some(processors as u64), "{run:#}");
        assert_eq!(run["quanta_ns"].as_array().map(Vec::len), Some(51 * processors), "{run:#}");
        let shares = run["histogram_work"].as_array().expect("a histogram");
        let sum: f64 = shares.iter().filter_map(|class| class[1].as_f64()).sum();
        assert!((sum - 100.0).abs() < 1e-6 && run["calls_ns"]["read"].as_f64() > Some(0.0), "{run:#}");
    }
    assert!(value["machine"]["kernel"].is_string() && value["verdicts"].as_array().map(Vec::len) == Some(6));
}

#[test]
fn what_cannot_be_measured_is_said() {
    // So much memory that nothing is paged.
    let output = noise(&["--seconds", "0.1", "--rounds", "1", "--with", "--memory=1G"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && errors.contains("nothing was paged"), "{output:?}");
    for words in [&["--loud"][..], &["--seconds", "x"], &["--rounds"]] {
        assert_eq!(noise(words).status.code(), Some(125), "{words:?}");
    }
    let help = noise(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("usage: ream noise"), "{help:?}");
}

#[test]
fn who_looks_would_find_out_that_it_is_wrong() {
    for (what, words) in [("work", "the work came to another result"), ("detours", "was not seen")] {
        let output = looked(&["8", "0.05", "--corrupt", what]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(errors.contains("WRONG RESULT") && errors.contains(words), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("verified"), "{output:?}");
    }
    for words in [&[][..], &["8"], &["8", "0"], &["8", "1", "--corrupt", "x"]] {
        assert_eq!(looked(words).status.code(), Some(125), "{words:?}");
    }
}

/// Nanoseconds of the processor that a process has used.
fn used(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("its figures");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}

/// What a look on one processor saw, and what is known of it otherwise, in nanoseconds.
struct Look {
    looked: f64,
    lost: f64,
    elapsed: f64,
    own: f64,
}

/// Looks on this processor alone.
fn look(processor: &str) -> Look {
    let begun = Instant::now();
    let mut command = Command::new("taskset");
    command.args(["-c", processor]).arg(ream_binary().with_file_name("ream-bench-noise")).args(["8", "0.6"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("running it");
    let mut text = String::new();
    child.stdout.take().expect("its output").read_to_string(&mut text).expect("text");
    // SAFETY: all-zero bytes are a valid rusage.
    let (mut status, mut usage): (i32, libc::rusage) = (0, unsafe { std::mem::zeroed() });
    // SAFETY: waits for our own child, which nobody else waits for; both places outlive the call.
    let ended = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    // For the standard library it has not been waited for; there is nobody left.
    let _ = child.wait();
    assert!(ended == child.id() as i32 && status == 0, "{status}: {text}");
    let line = text.lines().find(|line| line.starts_with("detours")).expect("detours");
    let words: Vec<f64> = line.split(' ').skip(2).filter_map(|word| word.parse().ok()).collect();
    let time = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    let own = time(usage.ru_utime) + time(usage.ru_stime);
    Look { looked: words[0], lost: words[4], elapsed: begun.elapsed().as_nanos() as f64, own }
}

/// A process that takes the only processor now and then is seen, and what nobody took is not. What others on this machine do
/// to both meanwhile is in the kernel's account of them.
#[test]
fn what_disturbs_is_seen() {
    if !is_root() {
        return skip("noise of a process of higher priority", "not root");
    }
    let status = fs::read_to_string("/proc/self/status").expect("its figures");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("processors").trim();
    let processor = allowed.split([',', '-']).next().expect("a processor");
    let quiet = look(processor);
    // Interrupts are lost, too, and on the account of whom they meet.
    let most = quiet.elapsed - quiet.own + quiet.looked / 5.0;
    assert!(quiet.lost <= most, "{} ns lost of {}, {most} at most", quiet.lost, quiet.looked);
    // With a priority that none of the others has.
    let script = "while :; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.02; done";
    let mut command = Command::new("taskset");
    command.args(["-c", processor, "nice", "-n", "-20", "/bin/sh", "-c", script]);
    let mut disturbing = command.spawn().expect("running it");
    let before = used(disturbing.id());
    let disturbed = look(processor);
    let share = (used(disturbing.id()) - before) / disturbed.elapsed;
    disturbing.kill().expect("ending it");
    disturbing.wait().expect("waiting");
    let lost = disturbed.lost / disturbed.looked;
    assert!(lost >= share / 2.0, "{lost} of the time, of which it took {share}");
    if share < 0.02 {
        skip("noise of a process of higher priority", "others left it nothing of the processor");
    }
}
