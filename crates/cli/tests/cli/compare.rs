//! `ream compare` from outside: what it says of settings that fail, what it saves and `ream run` finds, and that nothing
//! is left when it is interrupted.

use crate::common::{Scratch, ended, ream, refuses};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn script(scratch: &Scratch, text: &str) -> PathBuf {
    scratch.write("script", format!("#!/bin/sh\n{text}\n"), 0o755)
}

/// `ream compare` with these options of a script.
fn compare(options: &[&str], script: &Path) -> Command {
    let mut arguments = vec!["compare"];
    arguments.extend(options);
    arguments.extend(["--", script.to_str().unwrap()]);
    ream(&arguments)
}

#[test]
fn settings_under_which_it_ends_otherwise_fail_and_are_not_saved() {
    for (unlike, why) in [
        (
            "echo dying >&2; kill -9 $$",
            "killed by signal 9 (SIGKILL; perhaps for want of memory) instead of exit status 3",
        ),
        ("echo dying >&2; exit 4", "exit status 4 instead of exit status 3"),
        ("echo other", "another output than plain"),
    ] {
        let scratch = Scratch::new();
        let script = script(
            &scratch,
            &format!("if [ \"$REAM_SESSION\" ]; then {unlike}; else echo same; sleep 0.1; fi; exit 3"),
        );
        let file = scratch.path("programs.toml");
        let mut command = compare(&["--with=--pages=huge", "--save", "--runs=6"], &script);
        let (status, out, err) = ended(&command.env("REAM_PROGRAMS", &file).output().unwrap());
        assert_eq!((status, err.as_str()), (1, ""), "{out}");
        assert!(out.contains(why) && out.contains("All settings failed: run it without Ream."), "{out}");
        assert_eq!(out.contains("    dying\n"), unlike.contains("dying"), "{out}");
        assert!(out.contains("Nothing was saved") && !file.exists(), "{out}");
    }
}

#[test]
fn what_is_saved_is_what_run_uses() {
    let scratch = Scratch::new();
    let script = script(&scratch, "[ \"$REAM_SESSION\" ] || sleep 0.5");
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&script, &link).unwrap();
    let file = scratch.path("programs.toml");
    // What was saved before does not count while settings are compared: with this nothing would run.
    let before = format!("[program.\"{}\"]\nthreshold = \"1k\"\n", script.canonicalize().unwrap().display());
    scratch.write("programs.toml", before, 0o600);
    let mut command = compare(&["--with", "--pages=huge --memory 123M", "--save", "--json"], &link);
    let (status, out, err) = ended(&command.env("REAM_PROGRAMS", &file).output().unwrap());
    assert_eq!(status, 0, "{out}{err}");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["use"], "--pages=huge --memory 123M", "{out}");
    assert_eq!(value["variants"][1]["verdict"], "faster");
    assert_eq!(value["saved"]["program"], script.canonicalize().unwrap().to_str().unwrap());
    let said = |variables: &[(&str, &str)]| {
        let mut command = ream(&["run", "--log=info", "--", link.to_str().unwrap()]);
        ended(&command.env("REAM_PROGRAMS", &file).envs(variables.iter().copied()).output().unwrap()).2
    };
    let named = format!("ream: {}: {}: pages: huge\n", file.display(), script.canonicalize().unwrap().display());
    let text = said(&[]);
    assert!(text.contains(&named) && text.contains("budget 123 MiB"), "{text}");
    let text = said(&[("REAM_MEMORY", "99M")]);
    assert!(text.contains(&named) && text.contains("budget 99 MiB") && !text.contains(": memory:"), "{text}");
    assert!(!said(&[("REAM_PROGRAMS", "")]).contains(": pages: "));
    // Another program has none of it.
    let other = ream(&["run", "--log=info", "true"]).env("REAM_PROGRAMS", &file).output().unwrap();
    assert!(!ended(&other).2.contains(": pages: "));
}

/// Sections that the user wrote count before what was saved, by the script's name before its interpreter's; the file lies
/// beside the configuration file.
#[test]
fn settings_of_a_program_in_both_files() {
    let scratch = Scratch::new();
    let script = script(&scratch, "exit 0");
    let own = script.canonicalize().unwrap();
    let shell = Path::new("/bin/sh").canonicalize().unwrap();
    let config = format!("memory = \"100M\"\nio = \"threads\"\n[program.\"{}\"]\nmemory = \"200M\"\n", own.display());
    let config = scratch.write("config.toml", config, 0o600);
    let section = |path: &Path, memory: u32, pages: &str| {
        format!("[program.\"{}\"]\nmemory = \"{memory}M\"\npages = \"{pages}\"\n", path.display())
    };
    let saved = section(&own, 300, "small") + &section(&shell, 400, "huge");
    scratch.write("programs.toml", saved, 0o600);
    let said = |program: &Path| {
        let mut command = ream(&["run", "--log=info", program.to_str().unwrap()]);
        command.arg("-c").arg("exit");
        ended(&command.env("REAM_CONFIG", &config).output().unwrap()).2
    };
    let text = said(&script);
    assert!(text.contains("budget 200 MiB") && text.contains("pages: small") && text.contains("io threads"), "{text}");
    let text = said(Path::new("/bin/sh"));
    assert!(text.contains("budget 400 MiB") && text.contains("pages: huge") && text.contains("io threads"), "{text}");
    scratch.write("programs.toml", "[program.\"/x\"]\n\nmemroy = 1\n", 0o600);
    let line = "programs.toml: line 3: memroy: no such key; did you mean memory?\n";
    assert!(said(&script).ends_with(line), "{}", said(&script));
}

#[test]
fn outputs_of_a_program_that_never_prints_the_same_are_not_compared() {
    let scratch = Scratch::new();
    let script = script(&scratch, "cat /proc/sys/kernel/random/uuid");
    let (status, out, _) = ended(&compare(&["--with=--pages=huge", "--runs=2"], &script).output().unwrap());
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("Plain runs differ in what they print") && out.contains("too few rounds to tell"), "{out}");
}

#[test]
fn every_run_reads_its_input_from_the_beginning() {
    let scratch = Scratch::new();
    let script = script(&scratch, "read one; read two; [ $one$two = 12 ] || kill -9 $$; ! read three");
    let input = scratch.write("input", "1\n2\n", 0o600);
    let options = ["--with=--pages=huge", "--runs=2", "--stdin", input.to_str().unwrap()];
    let (status, out, err) = ended(&compare(&options, &script).output().unwrap());
    assert_eq!(status, 0, "{out}{err}");
    refuses(
        &["compare", "--stdin=/no/such", "true"],
        125,
        "ream: --stdin: /no/such: No such file or directory; name a file that can be read",
    );
}

#[test]
fn what_cannot_be_compared() {
    refuses(&["compare"], 125, "ream: compare: no program given; write ream compare -- PROGRAM ARGUMENT...");
    refuses(
        &["compare", "/no/such"],
        127,
        "ream: /no/such: cannot be executed: No such file or directory; check its path",
    );
    refuses(
        &["compare", "--with=--paegs=huge", "true"],
        125,
        "ream: --with: \"--paegs=huge\": --paegs: no such option; did you mean --pages?",
    );
    refuses(&["compare", "--runs=0", "true"], 125, "ream: --runs: \"0\": not a whole number from 1 to 1000");
    let scratch = Scratch::new();
    let program = script(&scratch, "echo at last >&2; kill -9 $$");
    let path = program.to_str().unwrap();
    let line = "killed by signal 9 (SIGKILL; perhaps for want of memory) without Ream; its last words: at last";
    refuses(&["compare", path], 125, &format!("ream: {path}: {line}"));
    let program = script(&scratch, "sleep 1.1");
    let (status, out, err) = ended(&compare(&["--seconds=1"], &program).output().unwrap());
    assert_eq!((status, out.as_str()), (125, ""));
    assert!(err.starts_with("ream: --seconds: too few for one round, which takes "), "{err}");
}

/// What is wrong with the settings is said before anything runs, in the words of `ream run`.
#[test]
fn mistakes_in_the_settings_are_none_of_the_program() {
    let scratch = Scratch::new();
    let ran = scratch.path("ran");
    let script = script(&scratch, &format!("echo >>{}", ran.display()));
    let config = scratch.write("config.toml", "\nmemroy = \"1G\"\n", 0o600);
    let typo = format!("ream: {}: line 2: memroy: no such key; did you mean memory?\n", config.display());
    let little = "ream: --with: \"--memory 5\": --memory: \"5\": 5 B is too little to work with";
    for (options, variable, line) in [
        (&["--runs=1"][..], ("REAM_MEMORY", "x"), "ream: REAM_MEMORY: \"x\": "),
        (&["--runs=1"], ("REAM_CONFIG", config.to_str().unwrap()), typo.as_str()),
        (&["--with=--pages=huge", "--with=--memory 5"], ("REAM_CONFIG", ""), little),
    ] {
        let (status, out, err) = ended(&compare(options, &script).env(variable.0, variable.1).output().unwrap());
        assert_eq!((status, out.as_str(), err.lines().count()), (125, "", 1), "{out}{err}");
        assert!(err.starts_with(line) && !ran.exists(), "{err}");
    }
    // What only a run finds out.
    let options = ["--with=--store=/no/such", "--runs=1"];
    let (status, out, err) = ended(&compare(&options, &script).output().unwrap());
    let line = "ream: compare: nothing could be compared: --store=/no/such: store: /no/such: No such file";
    assert!(status == 125 && out.is_empty() && err.starts_with(line) && err.lines().count() == 1, "{out}{err}");
}

/// Where it cannot be saved nothing is run; and what was measured is shown when saving fails all the same.
#[test]
fn what_cannot_be_saved_is_said_first_or_after_the_table() {
    let scratch = Scratch::new();
    let ran = scratch.path("ran");
    let text = format!("echo >>{}; [ \"$REAM_SESSION\" ] || sleep 0.5", ran.display());
    let counting = script(&scratch, &text);
    let broken = scratch.write("broken.toml", "garbage\n", 0o600);
    for (place, words) in [(broken.as_path(), "broken.toml: line 1: "), (Path::new("/proc/1/x.toml"), "/proc/1: ")] {
        let mut command = compare(&["--with=--pages=huge", "--save", "--runs=6"], &counting);
        let (status, out, err) = ended(&command.env("REAM_PROGRAMS", place).output().unwrap());
        assert_eq!((status, out.as_str(), err.lines().count()), (125, "", 1), "{out}{err}");
        assert!(err.starts_with("ream: --save: ") && err.contains(words) && !ran.exists(), "{err}");
    }
    let file = scratch.path("programs.toml");
    let breaks = script(&scratch, &format!("echo garbage >{}; {text}", file.display()));
    let mut command = compare(&["--with=--pages=huge", "--save", "--runs=6"], &breaks);
    let (status, out, err) = ended(&command.env("REAM_PROGRAMS", &file).output().unwrap());
    assert!(status == 125 && err.contains("programs.toml: line 1: ") && err.lines().count() == 1, "{err}");
    assert!(out.contains("Use: ream run --pages=huge") && out.contains("Nothing was saved"), "{out}");
}

/// Whether a process is there and not a zombie.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Starts a comparison that has done two rounds and hangs in the third; returns it and the processes of that run.
fn hanging(scratch: &Scratch) -> (Child, Vec<String>) {
    let pids = scratch.path("pids");
    // The seventh run hangs, and something that it started does not let itself be asked to end.
    let text = "echo run >>FILE.runs; [ $(wc -l <FILE.runs) = 7 ] || exit 0\n\
                (trap '' TERM; while :; do sleep 1; done) & echo $$ $! >FILE.new; mv FILE.new FILE; wait";
    let script = script(scratch, &text.replace("FILE", pids.to_str().unwrap()));
    let mut command = compare(&["--with=--pages=huge"], &script);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..6000 {
        if pids.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&pids).expect("the seventh run");
    (running, text.split_whitespace().map(str::to_owned).collect())
}

fn send(signal: i32, process: &Child) {
    // SAFETY: a signal to a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(process.id() as i32, signal) }, 0);
}

#[test]
fn an_interrupted_comparison_shows_what_it_has_and_leaves_nothing() {
    let scratch = Scratch::new();
    let (running, processes) = hanging(&scratch);
    assert!(processes.iter().all(|pid| lives(pid)) && processes.len() == 2);
    send(libc::SIGINT, &running);
    let (status, out, err) = ended(&running.wait_with_output().unwrap());
    assert_eq!(status, 130, "{out}{err}");
    assert!(out.contains("2 of 9 rounds") && out.contains(", interrupted") && out.contains("--pages=huge"), "{out}");
    assert!(!processes.iter().any(|pid| lives(pid)), "{processes:?}");
}

#[test]
fn a_killed_comparison_takes_its_program_with_it() {
    let scratch = Scratch::new();
    let (mut running, processes) = hanging(&scratch);
    let group = std::fs::read_to_string(format!("/proc/{}/cgroup", processes[0])).unwrap();
    let grouped = group.contains("/ream-compare-");
    send(libc::SIGKILL, &running);
    running.wait().unwrap();
    let left = || {
        let looked_at = if grouped { &processes[..] } else { &processes[..1] };
        looked_at.iter().any(|pid| lives(pid))
    };
    for _ in 0..3000 {
        if !left() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let still = left();
    // Where no cgroup holds them together the program's own children are on their own.
    processes.iter().filter(|pid| lives(pid)).for_each(|pid| {
        // SAFETY: a signal to what this test started.
        unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    });
    assert!(!still, "{processes:?}");
}
