//! `ream noise`: what it shows and writes, and that what it looks with would find out that it is blind.

use ream_tests::{Scratch, is_root, ream_binary, skip};
use serde_json::Value;
use std::process::{Command, Output};

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

/// A process that takes the only processor now and then is seen.
#[test]
fn what_disturbs_is_seen() {
    if !is_root() {
        return skip("noise of a process of higher priority", "not root");
    }
    let lost = |disturbed: bool| {
        // On the first processor that this process may use, with a priority that none of the others has.
        let script = "cpu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//'); \
                      if [ $1 = yes ]; then taskset -c $cpu nice -n -20 sh -c 'while :; do i=0; \
                      while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.02; done' & fi; pid=$!; \
                      taskset -c $cpu \"$2\" 8 0.6; status=$?; [ $1 = yes ] && kill $pid; exit $status";
        let output = Command::new("/bin/sh")
            .args(["-c", script, "sh", if disturbed { "yes" } else { "no" }])
            .arg(ream_binary().with_file_name("ream-bench-noise"))
            .output()
            .expect("running it");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("detours")).expect("detours").to_owned();
        let words: Vec<f64> = line.split(' ').skip(2).filter_map(|word| word.parse().ok()).collect();
        words[4] / words[0]
    };
    // The quietest of some looks: the machine may have others.
    let quiet = (0..3).map(|_| lost(false)).fold(1.0, f64::min);
    let disturbed = lost(true);
    assert!(disturbed > quiet + 0.05, "{disturbed} of the time, and {quiet} without");
}
