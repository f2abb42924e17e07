//! `ream bench pages` and `inside` as their users see them: what is measured, what is missing and why, and the exit status.

use ream_tests::{Scratch, ream_binary, skip, tool};
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn pages(scratch: &Scratch, arguments: &[&str]) -> (Output, Option<Value>) {
    let json = scratch.file("pages.json");
    let mut command = Command::new(ream_binary());
    command.args(["bench", "pages", "--quick"]).args(arguments).arg("--json").arg(&json);
    // No R and no Python but the system's.
    let output = command.env("PATH", "/nonexistent").output().expect("running ream bench");
    let text = std::fs::read_to_string(json).ok();
    (output, text.map(|text| serde_json::from_str(&text).expect("JSON")))
}

#[test]
fn rows_are_measured_under_each_setting_or_named_with_the_reason() {
    let scratch = Scratch::new("benchmarks");
    let rows = ["--rounds", "2", "--against", "none", "--rows", "copy heap", "--rows", "R fft 1e5"];
    let (output, json) = pages(&scratch, &rows);
    let (out, json) = (String::from_utf8_lossy(&output.stdout), json.expect("figures"));
    // A loaded machine may well fall short, but whatever is there is measured.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let times = json["rows"][0]["times"].as_array().expect("times");
    for under in ["plain", "Ream", "by hand"] {
        let time = times.iter().find(|time| time["under"] == under).expect(under);
        let seconds = time["seconds"].as_array().expect(under);
        assert!(seconds.len() == 2 && seconds.iter().all(|time| time.as_f64() > Some(0.0)), "{time}");
    }
    let absent = json["absent"].as_array().expect("what is left out");
    assert!(absent.iter().any(|one| one["under"] == "glibc hugetlb=1" && one["why"] == "not asked for"), "{absent:?}");
    assert!(out.contains("left out: jemalloc thp:always: not asked for"), "{out}");
    let short = json["rows"][0]["verdicts"].as_array().expect("verdicts").iter().any(|one| one["met"] == false);
    assert_eq!(output.status.code(), Some(i32::from(short)), "{json}");
    assert!(out.contains(if short { "SHORT (" } else { "pass (" }), "{out}");
    // What is not there is said in both.
    assert_eq!(json["rows"][1]["not_available_here"], "there is no Rscript in PATH");
    assert!(out.contains("NOT AVAILABLE HERE: there is no Rscript in PATH"), "{out}");
}

#[test]
fn rows_that_are_not_there_are_an_error() {
    let (output, json) = pages(&Scratch::new("benchmarks"), &["--rows", "no such row"]);
    assert_eq!((output.status.code(), json), (Some(125), None));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are chase heap 64M"), "{output:?}");
}

/// An implementation of MPI that is not there is said, and that there are no figures of it.
#[test]
fn what_is_not_there_of_mpi_is_said() {
    let Some(launcher) = tool("mpirun.openmpi") else { return skip("ream bench mpi", "no mpirun.openmpi") };
    let scratch = Scratch::new("benchmarks");
    let (bin, store, json) = (scratch.directory("bin"), scratch.directory("store"), scratch.file("mpi.json"));
    std::os::unix::fs::symlink(launcher, bin.join("mpirun.openmpi")).expect("a link");
    let mut command = Command::new(ream_binary());
    command.args(["bench", "mpi", "--quick", "--only", "mpich-kmeans", "--json"]).arg(&json);
    let output = command.arg("--store").arg(store).env("PATH", &bin).output().expect("running ream bench");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let why = "no ream-bench-mpi-mpich with its launcher";
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("mpich-kmeans skipped: {why}")), "{output:?}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("figures")).expect("JSON");
    let row = &figures["rows"][0];
    assert!(row["skipped"].as_str().is_some_and(|said| said.contains(why)) && row["plain"].is_null(), "{figures}");
}

/// Each loop of R and Python whose result is spoilt says so.
#[test]
fn a_spoilt_loop_of_an_interpreter_is_found() {
    const PYTHON: [&str; 7] = ["calls", "lists", "dictionaries", "strings", "objects", "texts", "buffers"];
    const R: [&str; 8] = ["calls", "scalars", "growth", "lists", "strings", "vectors", "matrices", "models"];
    let languages: [(&str, &[&str], &str, &[&str]); 2] = [
        ("python3", &["-I", "-"], include_str!("../../bench/inside/loops.py"), &PYTHON),
        ("R", &["--no-echo", "--no-restore", "--no-save"], include_str!("../../bench/inside/loops.R"), &R),
    ];
    for (interpreter, words, script, loops) in languages {
        let Some(program) = tool(interpreter) else {
            skip("spoilt loops", &format!("no {interpreter}"));
            continue;
        };
        let run = |spoilt: &str| {
            let mut command = Command::new(&program);
            command.args(words).env("BENCH_CORRUPT", spoilt).stdin(Stdio::piped());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starting it");
            child.stdin.take().expect("its input").write_all(script.as_bytes()).expect("writing the script");
            child.wait_with_output().expect("its end")
        };
        let output = run("");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<&str> = out.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(output.status.success() && names == loops, "{output:?}");
        for name in loops {
            let output = run(name);
            assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("{name}: WRONG RESULT")), "{output:?}");
        }
    }
}

/// Every loop is measured with Ream switched on and without; a language that is not there is named with the reason.
#[test]
fn loops_of_interpreters_are_measured_switched_on_and_off() {
    let Some(python) = tool("python3") else { return skip("ream bench inside", "no python3") };
    // What is found may be a script that chooses one, and needs others to run.
    let chosen =
        Command::new(python).args(["-c", "import sys; print(sys.executable)"]).output().expect("running Python");
    let python = String::from_utf8_lossy(&chosen.stdout).trim().to_owned();
    let scratch = Scratch::new("benchmarks");
    let bin = scratch.directory("bin");
    std::os::unix::fs::symlink(python, bin.join("python3")).expect("a link");
    let json = scratch.file("inside.json");
    let mut command = Command::new(ream_binary());
    command.args(["bench", "inside", "--pairs", "1", "--json"]).arg(&json).env("PATH", &bin);
    let output = command.output().expect("running ream bench");
    // One pair on a loaded machine says nothing of the cost, but it is there.
    assert!(matches!(output.status.code(), Some(0 | 1 | 125)), "{output:?}");
    let text = std::fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let figures: Value = serde_json::from_str(&text).expect("JSON");
    let rows = figures["languages"][0]["rows"].as_array().unwrap_or_else(|| panic!("{figures}"));
    assert!(rows.len() == 8 && rows.iter().all(|row| row["ratio"].as_f64() > Some(0.0)), "{figures}");
    assert!(figures["languages"][1]["left_out"].is_string(), "{figures}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("R                        left out: "), "{output:?}");
}
