//! The models of `ream bench all`: right results, plain, paged and in a file, and that a single wrong value is found; the same
//! of the programs that are run as they are.

use ream_tests::{Run, Scratch, ream_binary, skip, tool};
use std::path::PathBuf;
use std::process::{Command, Output};

const MODELS: [(&str, &str); 6] = [
    ("adi", "96"),
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
