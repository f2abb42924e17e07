//! `ream bench all` as its users see it: what is measured and what is left out, interruptions of every kind, and what is
//! compared afterwards.

use ream_tests::{
    Cgroup, Left, NOBODY, Scratch, is_root, make_runnable, openable_by_all, program, ream_binary, skip, tool,
};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Two benchmarks at a time are refused.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Bench {
    scratch: Scratch,
    store: PathBuf,
    mark: String,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let scratch = Scratch::new(name);
        let store = scratch.directory("store");
        let mark = format!("{name}-{}", std::process::id());
        Bench { scratch, store, mark }
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out")
    }

    fn file(&self) -> PathBuf {
        self.out().join("ream-bench.json")
    }

    fn results(&self) -> Value {
        let text = fs::read_to_string(self.file()).expect("results");
        serde_json::from_str(&text).expect("JSON")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ream_binary());
        command.args(["bench", "all", "--store"]).arg(&self.store).args(words).env("BENCH_TEST", &self.mark);
        command.current_dir(self.scratch.path()).stdin(Stdio::null());
        command
    }

    /// With results in the scratch directory, on whatever machine; again while one of somebody else's runs.
    fn run(&self, words: &[&str]) -> Output {
        self.run_with(words, &[])
    }

    fn run_with(&self, words: &[&str], environment: &[(&str, &str)]) -> Output {
        let out = self.out();
        let begun = Instant::now();
        loop {
            let mut command = self.command(words);
            command.arg("--anyway").arg("--out").arg(&out).envs(environment.iter().copied());
            let output = command.output().expect("running it");
            let busy = String::from_utf8_lossy(&output.stderr).contains("another ream bench is running");
            if !busy || begun.elapsed() > Duration::from_secs(600) {
                return output;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.arg("--anyway").arg("--out").arg(self.out());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starting it")
    }

    fn left(&self) -> Left {
        Left::of(format!("BENCH_TEST={}", self.mark))
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn series<'a>(row: &'a Value, name: &str) -> &'a Value {
    let all = row["series"].as_array().expect("series");
    all.iter().find(|series| series["name"] == name).unwrap_or_else(|| panic!("no {name}: {row:#}"))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn swap_is_on(store: &Path) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.contains(&*store.canonicalize().expect("the store").to_string_lossy())
}

#[test]
fn steps_are_listed_and_unknown_ones_refused() {
    let bench = Bench::new("bench-list");
    let output = bench.command(&["--list", "--only", "NAS: "]).output().expect("running it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("NAS: CG W") && text.contains("5 steps"), "{text}");
    for words in [&["--only", "no such step"][..], &["--resume"], &["--fast"]] {
        let output = bench.command(words).output().expect("running it");
        assert_eq!(output.status.code(), Some(125), "{words:?}: {output:?}");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = bench.command(&["--list"]).stdout(full).output().expect("running it");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(errors(&output).starts_with("ream: bench: standard output: No space left on device"), "{output:?}");
    let (reader, writer) = UnixStream::pair().expect("two ends");
    drop(reader);
    let output = bench.command(&["--list"]).stdout(OwnedFd::from(writer)).output().expect("running it");
    assert_eq!((output.status.signal(), errors(&output).as_str()), (Some(libc::SIGPIPE), ""), "{output:?}");
    assert!(!bench.out().exists());
}

#[test]
fn rows_are_measured_in_turns_and_reported() {
    let _alone = alone();
    let bench = Bench::new("bench-rows");
    let output = bench.run(&["--only", "NAS: EP", "--only", "NAS: IS", "--rounds", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = bench.results();
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &results["finished"]), (2, &Value::Bool(true)));
    for row in rows {
        for under in ["plain", "Ream"] {
            let one = series(row, under);
            for figures in ["values", "cpu_seconds", "peak_mib"] {
                assert_eq!(one[figures].as_array().map(Vec::len), Some(2), "{under}: {figures}: {row:#}");
            }
        }
        let other = series(row, "glibc hugetlb=1");
        assert!(other["absent"].is_string() != (other["values"].as_array().map(Vec::len) == Some(2)), "{other:#}");
        assert!(row["speeds"][0]["median"].as_f64() > Some(0.0), "{row:#}");
    }
    assert!(results["machine"]["kernel"].is_string());
    let page = fs::read_to_string(bench.out().join("report.html")).expect("the page");
    let text = fs::read_to_string(bench.out().join("report.txt")).expect("the text");
    assert!(
        page.contains("EP S") && text.contains("again: ream bench all --quick --only 'NAS: IS A' --store"),
        "{text}"
    );
    // What is there is not overwritten.
    let again = bench.run(&["--only", "NAS: EP", "--rounds", "2"]);
    assert!(again.status.code() == Some(125) && errors(&again).contains("is there already"), "{again:?}");
}

#[test]
fn what_was_interrupted_goes_on() {
    let _alone = alone();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let bench = Bench::new("bench-resume");
        let words = ["--only", "NAS: EP", "--only", "NAS: IS", "--only", "NAS: CG", "--rounds", "1"];
        let mut child = bench.start(&words);
        wait("the first step is done", || {
            // (Of one that begins just now the kernel shows no environment yet.)
            fs::read_to_string(bench.file()).is_ok_and(|text| text.contains("\"NAS: EP S\""))
                || child.try_wait().expect("looking").is_some()
        });
        // SAFETY: only sends a signal, to a child that is not waited for yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().expect("waiting");
        let expected = if signal == libc::SIGINT { Some(128 + signal) } else { None };
        assert_eq!(status.code(), expected, "{status}");
        assert!(bench.left().gone_within(Duration::from_secs(60)).is_empty(), "nothing runs on");
        let before = bench.results();
        assert_eq!(before["finished"], Value::Bool(false));
        let fresh = bench.run(&words);
        assert!(errors(&fresh).contains("--resume goes on with it"), "{fresh:?}");
        let other = bench.run(&["--only", "NAS: EP", "--rounds", "1", "--resume"]);
        assert!(other.status.code() == Some(125) && errors(&other).contains("other settings"), "{other:?}");
        let resumed = bench.run(&[&words[..], &["--resume"]].concat());
        assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
        let after = bench.results();
        assert_eq!(after["rows"][0], before["rows"][0], "what was measured stays");
        assert_eq!((after["rows"].as_array().map(Vec::len), &after["finished"]), (Some(3), &Value::Bool(true)));
    }
}

/// Swap is taken down by whoever is left: the benchmark, its keepers, or the next start.
#[test]
fn swap_goes_whoever_is_killed() {
    let _alone = alone();
    if !is_root() {
        return skip("swap of ream bench all", "not root");
    }
    for keepers_too in [false, true] {
        let bench = Bench::new("bench-swap");
        let mut child = bench.start(&["--only", "within a budget: MG W, 50", "--rounds", "50"]);
        wait("swap is on", || swap_is_on(&bench.store) || child_ended(child.id()));
        if child_ended(child.id()) {
            let _ = child.wait();
            return skip("swap of ream bench all", "no memory cgroup, or no swap on this file system");
        }
        let own = child.id() as i32;
        let doomed: Vec<i32> = if keepers_too { bench.left().alive() } else { vec![own] };
        for pid in doomed.into_iter().filter(|pid| *pid != own).chain([own]) {
            // SAFETY: only sends a signal; the process carries this test's mark.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        child.wait().expect("waiting");
        if keepers_too {
            assert!(swap_is_on(&bench.store), "nobody is left to take it down");
            // The next start, with another store.
            let next = Bench::new("bench-swap-next");
            let output = next.run(&["--only", "NAS: EP", "--rounds", "1"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        wait("swap is off", || !swap_is_on(&bench.store));
        wait("its files are gone", || fs::read_dir(&bench.store).expect("the store").next().is_none());
        assert!(bench.left().gone_within(Duration::from_secs(60)).is_empty());
        for place in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
            let group = Path::new(place).join(format!("ream-bench-swap-{own}"));
            assert!(!group.exists(), "{}", group.display());
        }
    }
}

/// What the kernel is set to, and which of its devices of compressed memory there are.
fn kernel() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut devices: Vec<String> = devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    devices.retain(|name| name.starts_with("zram"));
    devices.sort();
    let settings = ["/proc/sys/vm/page-cluster", "/sys/module/zswap/parameters/enabled", "/proc/swaps"];
    settings.map(read).into_iter().chain(devices).collect()
}

/// Compressed memory, too, and settings of the kernel, at the end and at the next start.
#[test]
fn what_was_set_is_set_back() {
    let _alone = alone();
    if !is_root() || !Path::new("/sys/class/zram-control/hot_add").exists() {
        return skip("settings of ream bench all", "not root, or no zram");
    }
    let before = kernel();
    let bench = Bench::new("bench-settings");
    let output = bench.run(&["--only", "table: write on disk", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(kernel(), before);
    let results = bench.results();
    if series(&results["rows"][0], "zram")["absent"].is_string() {
        return skip("settings of ream bench all", "no memory cgroup, or no swap on this file system");
    }
    let bench = Bench::new("bench-settings-kill");
    let mut child = bench.start(&["--only", "table: write on disk", "--rounds", "50"]);
    wait("zram is on", || kernel().iter().any(|line| line.contains("/dev/zram")) || child_ended(child.id()));
    let own = child.id() as i32;
    for pid in bench.left().alive().into_iter().filter(|pid| *pid != own).chain([own]) {
        // SAFETY: only sends a signal; the process carries this test's mark.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    child.wait().expect("waiting");
    assert_ne!(kernel(), before, "nobody is left to take it down");
    let next = Bench::new("bench-settings-next").run(&["--only", "NAS: EP", "--rounds", "1"]);
    assert_eq!(next.status.code(), Some(0), "{next:?}");
    wait("all is as it was", || kernel() == before);
    assert!(fs::read_dir(&bench.store).expect("the store").next().is_none());
}

#[test]
fn a_time_limit_is_kept_by_fewer_rounds() {
    let _alone = alone();
    let bench = Bench::new("bench-minutes");
    let output = bench.run(&["--only", "NAS: ", "--minutes", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = bench.results();
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &results["finished"]), (5, &Value::Bool(true)), "{results:#}");
    let cut = |row: &&Value| row["notes"].to_string().contains("for the time limit");
    let out = |row: &&Value| row["unavailable"].as_str().is_some_and(|why| why.contains("the time limit came first"));
    assert!(rows.iter().any(|row| cut(&row) || out(&row)), "{results:#}");
    for row in rows.iter().filter(|row| !out(row)) {
        let count = series(row, "Ream")["values"].as_array().map_or(0, Vec::len);
        assert!(count >= 1 && series(row, "plain")["values"].as_array().map(Vec::len) == Some(count), "{row:#}");
    }
    // What was left out stays to be done, and is once.
    let left = rows.iter().filter(out).count();
    assert_eq!(errors(&output).contains(&format!("no time for {left} rows")), left > 0, "{output:?}");
    let again = bench.run(&["--only", "NAS: ", "--minutes", "0.1", "--resume"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(bench.results()["rows"].as_array().map(Vec::len), Some(5), "{again:?}");
}

/// Whether a child that is not waited for has ended.
fn child_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn an_ordinary_user_gets_what_needs_no_root() {
    let _alone = alone();
    let bench = Bench::new("bench-user");
    let words = [
        "--only",
        "within a budget: MG W, 50",
        "--only",
        "paging: random-read-4",
        "--only",
        "NAS: IS",
        "--rounds",
        "1",
    ];
    let out = if is_root() {
        let place = Scratch::for_everybody("bench-user");
        for name in
            ["ream", "libream.so", "libream_calls.so", "ream-bench-worker", "ream-bench-nas", "ream-bench-coverage"]
        {
            fs::copy(ream_binary().with_file_name(name), place.file(name)).expect("a copy");
            make_runnable(&place.file(name), 0o755);
        }
        let (store, out) = (place.directory("store"), place.directory("out"));
        for directory in [&store, &out] {
            openable_by_all(directory);
            std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).expect("giving it away");
        }
        let mut command = Command::new(place.file("ream"));
        command.args(["bench", "all", "--anyway", "--store"]).arg(&store).arg("--out").arg(&out).args(words);
        let output = command.uid(NOBODY).gid(NOBODY).current_dir(place.path()).output().expect("running it");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        fs::create_dir_all(bench.out()).expect("a directory");
        fs::copy(out.join("ream-bench.json"), bench.file()).expect("results");
        output
    } else {
        bench.run(&words)
    };
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let results = bench.results();
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "{results:#}");
    for (row, missing) in [(&rows[0], "swap"), (&rows[1], "THP always"), (&rows[2], "swap")] {
        let why = series(row, missing)["absent"].as_str().unwrap_or_default();
        assert!(why.contains("needs root") || why.contains("is how this machine is set"), "{row:#}");
        assert_eq!(series(row, "Ream")["values"].as_array().map(Vec::len), Some(1), "{row:#}");
    }
}

#[test]
fn a_busy_machine_is_refused_and_the_report_of_one_says_so() {
    let _alone = alone();
    let bench = Bench::new("bench-busy");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spinning: Vec<Child> = (0..processors)
        .map(|_| Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().expect("a busy loop"))
        .collect();
    let refused = bench.command(&["--only", "NAS: EP", "--rounds", "1"]).output();
    let taken = bench.run(&["--only", "NAS: EP", "--rounds", "1"]);
    for mut child in spinning {
        child.kill().expect("ending a busy loop");
        child.wait().expect("waiting");
    }
    let refused = refused.expect("running it");
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(errors(&refused).contains("it is busy") && errors(&refused).contains("--anyway"), "{refused:?}");
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    assert!(bench.results()["warnings"].to_string().contains("it is busy"));
    let page = fs::read_to_string(bench.out().join("report.html")).expect("the page");
    assert!(page.contains("Measured all the same:"));
}

/// Too little RAM, by a cgroup's limit, and too little room in the store.
#[test]
fn a_machine_that_is_too_small_is_refused() {
    let _alone = alone();
    let bench = Bench::new("bench-small");
    let words = ["--only", "NAS: EP", "--rounds", "1"];
    let refused = |output: Output, why: &[&str]| {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(why.iter().all(|why| errors(&output).contains(why)), "{why:?}: {output:?}");
        assert!(errors(&output).contains("--anyway") && !bench.out().exists(), "{output:?}");
    };
    match Cgroup::new().filter(|group| group.limit(600 << 20)) {
        Some(group) => {
            let entrance = fs::OpenOptions::new().write(true).open(group.entrance()).expect("the list of processes");
            let mut command = bench.command(&words);
            // SAFETY: writes a byte to an open file, which a forked child may do.
            unsafe { command.pre_exec(move || (&entrance).write_all(b"0")) };
            refused(command.output().expect("running it"), &["it is too small", "MiB of RAM are available"]);
        }
        None => skip("too little RAM", "no cgroup can be made here"),
    }
    // The store's directory is a file system of 16 MiB, in a mount namespace.
    let script = "mount -t tmpfs -o size=16m tmpfs \"$1\" && shift && exec \"$@\"";
    let inner = bench.command(&words);
    let mut command = Command::new("unshare");
    command.args(if is_root() { &["--mount"][..] } else { &["--map-root-user", "--mount"] });
    command.args(["sh", "-c", script, "sh"]).arg(&bench.store).arg(inner.get_program()).args(inner.get_args());
    let output = command.current_dir(bench.scratch.path()).stdin(Stdio::null()).output().expect("running it");
    if errors(&output).contains("unshare: ") || errors(&output).contains("mount: ") {
        return skip("too little room in the store", errors(&output).trim());
    }
    refused(output, &["16 MiB are free", "name another by --store"]);
}

/// Whatever runs a program hears that its result is wrong; R's and Python's own computations are checked, too.
#[test]
fn a_wrong_result_is_found_in_every_chapter() {
    let _alone = alone();
    let rows: [(&str, &[&str]); 3] = [
        (
            "sh",
            &[
                "paging: sequential-write",
                "large pages: chase heap 64M",
                "NAS: EP",
                "fits: 128",
                "malloc: 1",
                "table: read in memory",
                "noise",
                "memory server: stream",
                "MPI ranks: kmeans",
            ],
        ),
        ("Rscript", &["R qr(hilbert(100))", "R lm 500x100", "R fft 1e5", "R sort 1e6"]),
        ("python3", &["programs: Python dict"]),
    ];
    for (interpreter, rows) in rows {
        if tool(interpreter).is_none() {
            skip("a wrong result of an interpreter", &format!("no {interpreter}"));
            continue;
        }
        let bench = Bench::new("bench-wrong");
        let words: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).chain(["--rounds", "1"]).collect();
        let output = bench.run_with(&words, &[("BENCH_CORRUPT", "1")]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let failed = bench.results()["rows"].as_array().expect("rows").clone();
        let key = |row: &Value| format!("{}: {}", row["chapter"].as_str().unwrap(), row["name"].as_str().unwrap());
        for wanted in rows {
            assert!(failed.iter().any(|row| key(row).contains(wanted)), "{wanted}: {output:?}");
        }
        for row in failed {
            match row["unavailable"].as_str() {
                Some(why) => skip(&key(&row), why),
                // Who goes over data ends at once, and says why on standard error, which is the benchmark's.
                None => assert!(
                    row["failed"].as_str().is_some_and(|why| {
                        ["WRONG RESULT", "holds wrong data", "SIGABRT"].iter().any(|words| why.contains(words))
                    }),
                    "{row:#}"
                ),
            }
        }
        assert!(interpreter != "sh" || errors(&output).contains("holds wrong data"), "{output:?}");
    }
}

/// The rows of ranks: turns, no turns and plain, and what is said of swap.
#[test]
fn ranks_are_measured_in_turns() {
    let _alone = alone();
    let bench = Bench::new("bench-ranks");
    let output = bench.run(&["--only", "MPI ranks: kmeans", "--only", "MPI ranks: mpich-kmeans", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = bench.results();
    let row = &results["rows"][0];
    if let Some(why) = row["unavailable"].as_str() {
        return skip("ranks in ream bench all", why);
    }
    for under in ["plain", "Ream", "no turns"] {
        assert_eq!(series(row, under)["values"].as_array().map(Vec::len), Some(1), "{row:#}");
    }
    // Twelve ranks have what they compute on, and a processor was needed for it.
    for (under, least) in [("plain", 12.0 * 16.0), ("Ream", 12.0)] {
        let one = series(row, under);
        assert!(one["cpu_seconds"][0].as_f64() > Some(0.0) && one["peak_mib"][0].as_f64() > Some(least), "{row:#}");
    }
    let swap = series(row, "swap");
    assert!(swap["absent"].is_string() != (swap["values"].as_array().map(Vec::len) == Some(1)), "{swap:#}");
    let page = fs::read_to_string(bench.out().join("report.html")).expect("the page");
    assert!(page.contains("What do turns of MPI ranks bring?"), "the question");
    // The other implementation's, beside it.
    let row = &results["rows"][1];
    let both = ["mpirun.openmpi", "mpiexec.mpich"].iter().all(|name| tool(name).is_some());
    match row["unavailable"].as_str() {
        Some(why) => assert!(!both && why.contains("MPI"), "{row:#}"),
        None => {
            for under in ["plain", "Ream", "no turns"] {
                assert_eq!(series(row, under)["values"].as_array().map(Vec::len), Some(1), "{row:#}");
            }
            assert!(row["notes"].to_string().contains("ranks started by mpiexec.mpich"), "{row:#}");
            assert!(series(row, "swap")["absent"].is_string(), "{row:#}");
        }
    }
}

/// The original suite, by programs that say what it says.
#[test]
fn what_fails_its_own_check_is_a_failure() {
    let _alone = alone();
    let bench = Bench::new("bench-suite");
    let suite = bench.scratch.directory("bin");
    for (name, verified) in [("cg.S.x", "SUCCESSFUL"), ("mg.S.x", "UNSUCCESSFUL")] {
        let script = format!("#!/bin/sh\necho ' Time in seconds =  0.25'\necho ' Verification    =  {verified}'\n");
        fs::write(suite.join(name), script).expect("a program");
        make_runnable(&suite.join(name), 0o755);
    }
    let root = bench.scratch.path().display().to_string();
    let output = bench.run(&["--only", "NPB", "--rounds", "1", "--npb", &root]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(errors(&output).contains("NPB: mg.S: plain: verification: 'UNSUCCESSFUL'"), "{output:?}");
    let results = bench.results();
    assert_eq!(series(&results["rows"][0], "plain")["values"][0], 0.25);
    let failed = results["rows"][1]["failed"].as_str();
    assert!(failed.is_some_and(|why| why.contains("UNSUCCESSFUL")), "{results:#}");
}

#[test]
fn changes_beyond_noise_are_named() {
    let scratch = Scratch::new("bench-compare");
    let old = program("bench/example.json");
    let compare = |old: &Path, new: &Path| {
        let output =
            Command::new(ream_binary()).args(["bench", "compare"]).arg(old).arg(new).output().expect("running it");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output))
    };
    let (status, text) = compare(&old, &old);
    assert!(status == Some(0) && text.contains("0 worse, 0 better"), "{text}");
    let mut results: Value = serde_json::from_str(&fs::read_to_string(&old).expect("the example")).expect("JSON");
    let rows = results["rows"].as_array_mut().expect("rows");
    let row = rows.iter_mut().find(|row| row["chapter"] == "malloc").expect("a row");
    let name = row["name"].as_str().expect("a name").to_owned();
    for speed in row["speeds"].as_array_mut().expect("speeds") {
        for ratio in speed["ratios"].as_array_mut().expect("ratios") {
            *ratio = Value::from(ratio.as_f64().expect("a number") / 3.0);
        }
    }
    let slower = scratch.file("slower.json");
    fs::write(&slower, results.to_string()).expect("writing");
    let (status, text) = compare(&old, &slower);
    assert!(status == Some(1) && text.contains(&format!("worse  malloc: {name}: ")), "{text}");
    let (status, text) = compare(&slower, &old);
    assert!(status == Some(0) && text.contains(&format!("better malloc: {name}: ")), "{text}");
    fs::write(&slower, "{}").expect("writing");
    let (status, text) = compare(&old, &slower);
    assert!(status == Some(125) && text.contains("not what this version"), "{text}");
}
