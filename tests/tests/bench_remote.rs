//! `ream bench remote` as its users see it: rows are measured or skipped with the reason, wrong results are found, and nothing
//! is left behind.

use ream_tests::{Left, NOBODY, Scratch, is_root, make_runnable, openable_by_all, ream_binary, skip, tool};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TINY: &[&str] = &["--quick", "--data", "64M", "--memory", "16M", "--seconds", "0.1", "--rounds", "1"];

fn bench(ream: &Path, rows: &[&str], json: &Path) -> Command {
    let mut command = Command::new(ream);
    command.args(["bench", "remote"]).args(TINY).arg("--json").arg(json);
    rows.iter().for_each(|row| {
        command.args(["--only", row]);
    });
    command
}

fn measured(mut command: Command, json: &Path) -> (Output, Value) {
    let output = command.output().expect("running ream bench");
    // A loaded machine may well fall short, but whatever is there is measured.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    (output, serde_json::from_str(&fs::read_to_string(json).expect("figures")).expect("JSON"))
}

fn row<'a>(json: &'a Value, name: &str) -> &'a Value {
    let rows = json["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["row"] == name).unwrap_or_else(|| panic!("no {name}: {json:#}"))
}

fn has_figures(row: &Value) {
    for of in ["ream", "against"] {
        let values = row[of].as_array().expect(of);
        assert!(values.len() == 1 && values[0].as_f64() > Some(0.0), "{row:#}");
    }
}

#[test]
fn rows_are_measured_by_a_network_of_their_own() {
    if !is_root() || tool("ip").is_none() || tool("iperf3").is_none() {
        return skip("ream bench remote by a network of its own", "needs root, iproute2 and iperf3");
    }
    let scratch = Scratch::new("bench-remote");
    let json = scratch.file("figures.json");
    let rows = ["page-in-8g", "page-out-8g", "fault-sealed", "random-1", "stream-t1", "tiers"];
    let (output, figures) = measured(bench(&ream_binary(), &rows, &json), &json);
    assert_eq!((&figures["line"], &figures["connections"]), (&"iperf3".into(), &3.into()), "{output:?}");
    for name in [
        "page-in-8g",
        "page-out-8g",
        "fault-sealed",
        "random-1",
        "stream-t1-100%",
        "stream-t1-25%",
        "tiers-ordered",
        "tiers-random",
    ] {
        has_figures(row(&figures, name));
    }
    assert!(row(&figures, "page-in-8g")["cpu_seconds_per_gb"]["server"][0].as_f64() > Some(0.0), "{figures:#}");
    // Both the server and the disk below it had to answer.
    for name in ["tiers-ordered", "tiers-random"] {
        let what = row(&figures, name)["what"].as_str().expect("what it does");
        let share = what.split("answered ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(share.is_some_and(|share| (1.0..=99.0).contains(&share)), "{what}");
    }
    for name in ["page-in-8g", "fault-sealed", "random-1", "stream-t1-25%", "tiers-ordered"] {
        let spent = &row(&figures, name)["spent"];
        for who in ["client", "server", "peak_mib"] {
            assert!(spent[who][0].as_f64() > Some(0.0), "{name}: {who}: {figures:#}");
        }
    }
    // What goes through a queue of 8 Gbit/s is no faster.
    assert!(row(&figures, "page-in-8g")["against"][0].as_f64() < Some(1100.0), "{figures:#}");
    let short = figures["rows"].as_array().expect("rows").iter().any(|row| row["met"] == false);
    assert_eq!(output.status.code(), Some(i32::from(short)), "{figures:#}");
}

#[test]
fn without_rights_and_tools_what_can_be_measured_is() {
    let scratch = Scratch::new("bench-remote-user");
    let rows = ["page-in-8g", "page-in-clear", "random-1"];
    let (ream, json) = (ream_binary(), scratch.file("figures.json"));
    let mut command = bench(&ream, &rows, &json);
    if is_root() {
        let place = scratch.directory("programs");
        for name in ["ream", "libream.so", "libream_calls.so", "libream_inside.so", "ream-bench-worker"] {
            fs::copy(ream.with_file_name(name), place.join(name)).expect("copying it");
            make_runnable(&place.join(name), 0o755);
        }
        for directory in [scratch.path(), &place] {
            openable_by_all(directory);
        }
        let out = scratch.directory("out");
        std::os::unix::fs::chown(&out, Some(NOBODY), Some(NOBODY)).expect("giving it away");
        command = bench(&place.join("ream"), &rows, &out.join("figures.json"));
        command.uid(NOBODY).gid(NOBODY).arg("--store").arg(&out).current_dir(&out).env("HOME", &out);
    }
    let json = if is_root() { scratch.file("out").join("figures.json") } else { json };
    let (output, figures) = measured(
        {
            command.env("PATH", "/nonexistent");
            command
        },
        &json,
    );
    let why = row(&figures, "page-in-8g")["skipped"].as_str().unwrap_or_default();
    assert!(why.contains("needs root"), "{figures:#}");
    assert!(figures["line"].as_str().is_some_and(|line| line.contains("iperf3 is not installed")), "{figures:#}");
    has_figures(row(&figures, "page-in-clear"));
    has_figures(row(&figures, "random-1"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("skipped: needs root"), "{output:?}");
}

#[test]
fn a_wrong_result_is_found() {
    let scratch = Scratch::new("bench-remote-wrong");
    let programs = ream_binary().with_file_name("ream-bench-dlm");
    for (kernel, side) in [
        ("micro", "2"),
        ("stream", "1000"),
        ("matmul", "33"),
        ("blas", "33"),
        ("stencil", "9"),
        ("blocked", "9"),
        ("fft", "9"),
    ] {
        let run = |more: &[&str]| {
            let output = Command::new(&programs).args([kernel, side, "9", "2"]).args(more).output();
            output.unwrap_or_else(|error| panic!("{}: {error}; build it first (make)", programs.display()))
        };
        let (good, spoilt) = (run(&[]), run(&["--corrupt"]));
        if matches!(kernel, "fft" | "blas") && good.status.code() == Some(123) {
            skip(kernel, String::from_utf8_lossy(&good.stderr).trim());
            continue;
        }
        assert!(good.status.success() && String::from_utf8_lossy(&good.stdout).contains("verified:"), "{good:?}");
        assert!(spoilt.status.code() == Some(1) && spoilt.stdout.is_empty(), "{kernel}: {spoilt:?}");
        assert!(String::from_utf8_lossy(&spoilt.stderr).contains("WRONG RESULT"), "{kernel}: {spoilt:?}");
    }
    let json = scratch.file("figures.json");
    let output = bench(&ream_binary(), &["stream-t1"], &json).env("BENCH_CORRUPT", "1").output().expect("running");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("WRONG RESULT"), "{output:?}");
    assert!(!json.exists());
}

#[test]
fn rows_that_are_not_there_are_an_error() {
    let scratch = Scratch::new("bench-remote-none");
    let output = bench(&ream_binary(), &["no such row"], &scratch.file("json")).output().expect("running it");
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are page-in-8g"), "{output:?}");
}

/// Interrupted in the middle, or killed: no server, no program and no network is left. Keys are in a directory of the
/// temporary files, which a killed one leaves to the next.
#[test]
fn nothing_is_left_behind() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let scratch = Scratch::new("bench-remote-ends");
        let mark = format!("bench-remote-{}-{signal}", std::process::id());
        let start = |rows: &[&str]| {
            let mut command = bench(&ream_binary(), rows, &scratch.file("figures.json"));
            command.env("BENCH_TEST", &mark).env("TMPDIR", scratch.path());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut child = start(&["fault-clear", "random"]).args(["--rounds", "1000"]).spawn().expect("starting it");
        let left = Left::of(format!("BENCH_TEST={mark}"));
        let begun = Instant::now();
        // Itself, the server, a worker with its session's agent, and who answers bare TCP.
        while left.alive().len() < 5 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: sends a signal to a child of ours that was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().expect("its end");
        assert!(signal == libc::SIGKILL || status.code() == Some(125), "{status:?}");
        assert_eq!(left.gone_within(Duration::from_secs(60)), Vec::<i32>::new(), "signal {signal}");
        let keys = || fs::read_dir(scratch.path()).expect("the directory").flatten().count();
        assert_eq!(keys(), usize::from(signal == libc::SIGKILL), "signal {signal}");
        if signal == libc::SIGKILL {
            let output = start(&["fault-clear"]).output().expect("running it");
            assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
            assert_eq!(fs::read_dir(scratch.path()).expect("the directory").flatten().count(), 1, "only the figures");
        }
    }
}
