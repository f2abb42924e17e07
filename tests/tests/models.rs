//! The models of `ream bench all`: right results, plain, paged and in a file, and that a single wrong value is found; the same
//! of the programs that are run as they are, and of walks through data.

use ream_tests::{Run, Scratch, ream_binary, skip, tool};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MODELS: [(&str, &str); 6] = [
    ("adi", "160"),
    ("ocean", "256"),
    ("table-read", "16"),
    ("table-write", "16"),
    ("table-change", "16"),
    ("stream", "16"),
];

fn beside(name: &str) -> PathBuf {
    let program = ream_binary().with_file_name(name);
    assert!(program.is_file(), "{}: not there; build it first (make)", program.display());
    program
}

fn ran(words: &[&str]) -> Output {
    Command::new(beside("ream-bench-models")).args(words).env("OMP_NUM_THREADS", "2").output().expect("running it")
}

fn right(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (figure, sum) = text.trim().split_once(' ').unwrap_or_else(|| panic!("{output:?}"));
    assert!(output.status.success() && figure.parse::<f64>().is_ok_and(|figure| figure > 0.0), "{output:?}");
    sum.to_owned()
}

#[test]
fn results_are_right_and_the_same_in_a_file() {
    let scratch = Scratch::new("models");
    let directory = scratch.directory("files");
    for (model, size) in MODELS {
        let plain = right(&ran(&[model, size]));
        let in_a_file = right(&ran(&[model, size, "--file", &directory.to_string_lossy()]));
        assert_eq!(plain, in_a_file, "{model}");
    }
    assert!(std::fs::read_dir(&directory).expect("the directory").next().is_none());
}

#[test]
fn one_spoilt_value_is_found() {
    for (model, size) in MODELS {
        let output = ran(&[model, size, "--corrupt"]);
        assert_eq!(output.status.code(), Some(1), "{model}: {output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("WRONG RESULT") && output.stdout.is_empty(), "{model}: {output:?}");
    }
}

#[test]
fn other_words_are_refused() {
    for words in [&[][..], &["adi"], &["adi", "x"], &["adi", "1"], &["wind", "64"], &["adi", "64", "--spoil"]] {
        assert_eq!(ran(words).status.code(), Some(125), "{words:?}");
    }
}

/// Each with about half of its data in RAM.
#[test]
fn results_are_right_when_paged() {
    for (model, size, budget) in
        [("adi", "160", 16), ("ocean", "640", 12), ("table-change", "32", 16), ("stream", "48", 24)]
    {
        let ran = Run::of(beside("ream-bench-models")).args([model, size]).memory(budget).finish();
        let ran = ran.exited(0);
        assert!(ran.out().contains("verified:"), "{model}: {}", ran.describe());
        assert!(ran.summary().number("bytes_in") > 0, "{model}: {}", ran.describe());
    }
}

#[test]
fn whole_programs_are_checked() {
    for (program, command, count) in [("compile", "c++", "3"), ("redis", "redis-server", "2000")] {
        if tool(command).is_none() {
            skip(program, &format!("no {command}"));
            continue;
        }
        let run = |corrupt: &[&str]| {
            let mut command = Command::new(beside("ream-bench-worker"));
            command.args([program, count]).args(corrupt).output().expect("running it")
        };
        assert_eq!(right(&run(&[])), right(&run(&[])), "{program} comes to the same twice");
        let output = run(&["--corrupt"]);
        assert_eq!(output.status.code(), Some(1), "{program}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("WRONG RESULT"), "{program}: {output:?}");
    }
}

/// Every walk finds it, in its own accesses or, where it only writes, in those of whoever looks afterwards.
#[test]
fn one_spoilt_value_is_found_by_walks() {
    const WALKS: [(&str, bool); 15] = [
        ("slice sequential 0 0 1 0 64", false),
        ("slice overwrite 0 0 1 0 64", true),
        ("slice change 0 0 1 0 64", false),
        ("slice reverse 0 0 1 0 64", false),
        ("slice strided 1 16 1 0 64", false),
        ("slice strided 4 64 1 0 64", false),
        ("slice streams 0 0 1 0 64", false),
        ("slice random 0 0 4 0 4096", false),
        ("slice random-change 0 0 4 0 4096", false),
        ("slice zipf 0 0 1 0 4096", false),
        ("slice hot 64 0 1 0 4096", false),
        ("slice phases 0 0 1 0 64", false),
        ("slice lines 0 0 1 0 64", false),
        ("slice renew 0 0 1 0 64", true),
        ("touches 4096", false),
    ];
    // How it ended, how many lines it has answered with, and what it has complained of.
    let run = |walk: &str, more: &[&str]| {
        let mut command = Command::new(beside("ream-bench-worker"));
        command.args(["data", "64"]).args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starting it");
        let lines = format!("fill\n{walk}\nslice sequential 0 0 1 0 64\n");
        // It may have ended before it has read all.
        let _ = child.stdin.take().map(|mut input| input.write_all(lines.as_bytes()));
        let output = child.wait_with_output().expect("its end");
        let answers = String::from_utf8_lossy(&output.stdout).lines().count();
        (output.status, answers, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (walk, only_writes) in WALKS {
        let (status, answers, said) = run(walk, &[]);
        assert!(status.success() && answers == 3, "{walk}: {status}, {answers} answers, {said}");
        let (status, answers, said) = run(walk, &["--corrupt"]);
        assert!(!status.success() && answers == 1 + usize::from(only_writes), "{walk}: {status}, {answers} answers");
        assert!(said.contains("holds wrong data"), "{walk}: {said}");
    }
}

/// Of walks through data that fit, small blocks, and the computations of `ream bench pages`.
#[test]
fn one_spoilt_value_is_found_in_computations() {
    let run = |program: &str, words: &[&str]| Command::new(beside(program)).args(words).output().expect("running it");
    let kernels =
        ["chase", "gather", "update", "copy", "scale", "add", "triad", "sparse", "smooth", "transform", "sort"];
    let kernels = kernels.into_iter().chain(["transpose"]).map(|kernel| [kernel, "heap", "4", "plain"]);
    let places = [["copy", "bss", "4", "plain"], ["copy", "stack", "4", "hand"]];
    let kernels = kernels.chain(places).map(|words| ("ream-bench-kernels", words.to_vec(), "WRONG RESULT"));
    let others = [
        ("ream-bench-worker", vec!["fits", "512", "1"], "holds wrong data"),
        ("ream-bench-worker", vec!["malloc", "2", "1000"], "WRONG RESULT"),
    ];
    for (program, mut words, why) in kernels.chain(others) {
        let output = run(program, &words);
        assert!(output.status.success() && !output.stdout.is_empty(), "{words:?}: {output:?}");
        // Same seeds, same results: what a computation prints after its time.
        let result = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().split_once(' ').map(|(_, sum)| sum.to_owned())
        };
        if program == "ream-bench-kernels" {
            let first = result(&output);
            assert!(first.is_some() && first == result(&run(program, &words)), "{words:?} comes to the same twice");
        }
        words.push("--corrupt");
        let output = run(program, &words);
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{words:?}: {output:?}");
    }
}
