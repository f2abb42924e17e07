//! How runs end: killed, interrupted, with a full store, or before they have begun.

use ream_tests::{Build, Run, Scratch, build, dumped, installed, is_root, mpi, ream_binary, skip, tool};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A program that has its memory paged for as long as one likes, and says so.
fn endless() -> Option<Run> {
    match build("c/endless.c", &[]) {
        Build::Ready(path) => Some(Run::of(path).arg("256").memory(64)),
        Build::Missing(reason) => {
            skip("c/endless.c", &reason);
            None
        }
    }
}

fn until(what: &str, so: impl Fn() -> bool) {
    mpi::until(what, || so().then_some(()));
}

/// What a session of Ream's could have left there. Tests that run beside this one have names of their own.
fn shared_memory() -> Vec<String> {
    let others = ["ream-test", "vader_segment."];
    let list = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let mut names: Vec<String> = list.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.contains("ream") && !others.iter().any(|other| name.starts_with(other)));
    names
}

#[test]
fn killed_in_the_middle_nothing_is_left() {
    for round in 0..6 {
        let Some(run) = endless() else { return };
        let running = run.start();
        running.until_resident(40);
        std::thread::sleep(Duration::from_millis(37 * round));
        running.signal(libc::SIGKILL);
        // finish() fails when a process or a file of the store is left.
        running.finish().signalled(libc::SIGKILL);
        assert_eq!(shared_memory(), Vec::<String>::new());
    }
}

#[test]
fn a_family_is_killed_and_nothing_is_left() {
    let Some(run) = endless() else { return };
    let running = run.arg("3").start();
    // Whom it forks when these have been counted nobody kills.
    until("a family of three", || running.processes().len() == 3);
    std::thread::sleep(Duration::from_millis(200));
    for pid in running.processes().into_iter().chain([running.agent()]) {
        // SAFETY: kill only sends a signal; the processes carry this run's mark, and the agent is that of its session.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    running.finish().signalled(libc::SIGKILL);
}

#[test]
fn programs_go_on_when_the_agent_is_killed() {
    let Build::Ready(program) = build("c/realloc_grow.c", &[]) else { return };
    let plain = Run::of(&program).arg("256").finish();
    let running = Run::of(&program).arg("256").memory(64).start();
    running.until_resident(32);
    running.kill_agent();
    running.finish().same_as(&plain);
}

#[test]
fn interrupted_it_dies_of_the_signal() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let Some(run) = endless() else { return };
        let running = run.start();
        running.until_resident(40);
        running.signal(signal);
        running.finish().signalled(signal);
    }
}

#[test]
fn stopped_and_continued_it_goes_on() {
    let Build::Ready(program) = build("c/realloc_grow.c", &[]) else { return };
    let plain = Run::of(&program).arg("256").finish();
    let running = Run::of(&program).arg("256").memory(64).start();
    running.until_resident(32);
    for _ in 0..20 {
        running.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(10));
        running.signal(libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(10));
    }
    running.finish().same_as(&plain);
}

/// It is the last process of a session that writes the summary, or the agent where that was killed: whoever reads standard error
/// to its end has it, once, also where the command returned before.
#[test]
fn the_summary_comes_with_the_end_of_the_last_process() {
    let killed = "sh -c 'sleep 0.2; kill -9 $$' & exit 3";
    let scripts = ["(sleep 0.2) & exit 3", killed, "(exit 0) & exit 3"];
    for script in scripts {
        let arguments = ["run", "--memory", "64M", "--summary", "--", "sh", "-c", script];
        let output = Command::new(ream_binary()).args(arguments).output().expect("ream");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.matches("budget 64 MiB").count()), (Some(3), 1), "{script}: {said}");
    }
}

/// Runs a program that needs more store than there is: it must stop, name the cause, and not have found wrong data
/// (the program itself would end with 99).
fn needs_more_than_there_is(run: Run) {
    let outcome = run.finish();
    assert!(!outcome.status.success(), "it cannot have finished\n{}", outcome.describe());
    assert_ne!(outcome.status.code(), Some(99), "it read wrong data\n{}", outcome.describe());
    outcome.says("ream: ").says("store");
    assert_eq!(outcome.status.code(), Some(125), "the status for Ream's own failures\n{}", outcome.describe());
}

#[test]
fn a_store_at_its_limit_stops_the_program() {
    let Build::Ready(program) = build("c/large_threads.c", &[]) else { return };
    needs_more_than_there_is(Run::of(&program).arg("256").memory(64).option("--store-limit=96M"));
}

/// What was read back needs its place in the store no more: 60 MiB fit in 16 of RAM and 50 there.
#[test]
fn store_and_budget_hold_different_pages_when_the_store_is_full() {
    let Build::Ready(program) = build("c/checksum.c", &[]) else { return };
    let run = || Run::of(&program).args(["60", "4", "2", "0"]);
    let plain = run().finish();
    run().memory(16).option("--store-limit=50M").finish().exited(0).same_as(&plain);
}

#[test]
fn a_full_disk_stops_the_program() {
    let Build::Ready(program) = build("c/large_threads.c", &[]) else { return };
    let Some(disk) = SmallDisk::new(128) else { return };
    needs_more_than_there_is(
        Run::of(&program).arg("256").memory(64).store(&disk.mounted()).option("--store-limit=10G"),
    );
}

/// The disk below the file system is gone: what is read is not what was written, or an error.
#[test]
fn a_file_system_that_vanishes_stops_the_program() {
    let Some(disk) = SmallDisk::new(512) else { return };
    let Some(run) = endless() else { return };
    // (A file of holes, in which blocks are those that have been written.)
    let written = || fs::metadata(disk.0.file("image")).expect("the image").blocks() * 512;
    let before = written();
    let running = run.store(&disk.mounted()).option("--store-limit=10G").start();
    // Else nothing is lost, and what is written later is there. The file system's own are a few MiB.
    until("pages on the disk", || written() > before + (64 << 20));
    fs::File::options()
        .write(true)
        .open(disk.0.file("image"))
        .and_then(|file| file.set_len(0))
        .expect("losing the disk");
    let outcome = running.finish();
    outcome.exited(125).says("ream: ").says("store");
}

/// A file system of its own in a file, mounted.
struct SmallDisk(Scratch);

impl SmallDisk {
    fn new(mebibytes: u64) -> Option<SmallDisk> {
        let missing = |reason: &str| {
            skip("a full disk", reason);
            None
        };
        if !is_root() {
            return missing("needs root to mount a small file system");
        }
        let (Some(make), Some(mount)) = (tool("mkfs.ext4"), tool("mount")) else {
            return missing("no mkfs.ext4 or mount");
        };
        let scratch = Scratch::new("disk");
        let image = scratch.file("image");
        let file = fs::File::create(&image).expect("the image");
        file.set_len(mebibytes << 20).expect("the image's size");
        let directory = scratch.directory("mounted");
        let made = Command::new(make).args(["-q", "-F", "-m", "0"]).arg(&image).status().expect("mkfs.ext4");
        let mounted = Command::new(mount).args(["-o", "loop"]).args([&image, &directory]).status().expect("mount");
        if !made.success() || !mounted.success() {
            return missing("the small file system cannot be mounted here");
        }
        Some(SmallDisk(scratch))
    }

    fn mounted(&self) -> std::path::PathBuf {
        self.0.file("mounted")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for _ in 0..200 {
            if Command::new("umount").arg(self.mounted()).status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn one_line(outcome: &ream_tests::Outcome, code: i32, words: &str) {
    outcome.exited(code).says("ream: ").says(words);
    assert_eq!(outcome.err().trim_end().lines().count(), 1, "one line\n{}", outcome.describe());
    assert!(outcome.stdout.is_empty(), "nothing on standard output\n{}", outcome.describe());
}

#[test]
fn a_wrong_option_is_named() {
    let run = || Run::of("/bin/true").memory(64);
    one_line(&run().option("--memry=3G").finish(), 125, "--memry");
    one_line(&run().option("--engine=steam").finish(), 125, "steam");
    one_line(&run().option("--memory=3X").finish(), 125, "3X");
    one_line(&run().option("--memory=0").finish(), 125, "memory");
    one_line(&run().option("--threshold").finish(), 125, "threshold");
}

#[test]
fn a_store_that_cannot_be_written_is_named() {
    let missing = Path::new("/nonexistent/store");
    one_line(&Run::of("/bin/true").memory(64).store(missing).finish(), 125, "/nonexistent/store");
    let scratch = Scratch::new("nodir");
    fs::write(scratch.file("file"), "").expect("a file");
    one_line(&Run::of("/bin/true").memory(64).store(&scratch.file("file")).finish(), 125, "file");
}

#[test]
fn a_program_that_is_not_there_or_not_executable() {
    one_line(&Run::of("/nonexistent/program").memory(64).finish(), 127, "/nonexistent/program");
    one_line(&Run::of("no-such-program-anywhere").memory(64).finish(), 127, "no-such-program-anywhere");
    let scratch = Scratch::new("noexec");
    fs::write(scratch.file("text"), "not a program").expect("a file");
    one_line(&Run::of(scratch.file("text")).memory(64).finish(), 126, "text");
    one_line(&Run::of(scratch.path()).memory(64).finish(), 126, "noexec");
}

#[test]
fn a_static_program_is_refused() {
    match build("c/malloc_semantics.c", &["-static"]) {
        Build::Ready(path) => one_line(&Run::of(path).memory(64).finish(), 125, "static"),
        Build::Missing(reason) => skip("static program", &reason),
    }
}

#[test]
fn a_program_that_fits_runs_as_if_alone() {
    let outcome = Run::of("/bin/sh").args(["-c", "echo out; echo err >&2; exit 7"]).memory(64).finish();
    outcome.exited(7);
    assert_eq!(outcome.out(), "out\n");
    assert!(outcome.err().starts_with("err\n"), "{}", outcome.describe());
    Run::of("/bin/sh").args(["-c", "kill -SEGV $$"]).memory(64).finish().signalled(libc::SIGSEGV);
}

#[test]
fn a_reader_that_goes_away_ends_it_by_sigpipe() {
    let Build::Ready(program) = build("c/endless.c", &[]) else { return };
    let script = format!(
        "'{}' run --memory 64M -- '{}' 256 1 | head -1",
        ream_tests::ream_binary().display(),
        program.display()
    );
    let store = Scratch::new("pipe");
    let outcome = Run::of("/bin/sh").args(["-c", &script]).env("REAM_STORE", store.path()).deadline(60).finish();
    outcome.exited(0);
}

/// A debugger sees what is in RAM, gets an error for what is not, and never hangs; the program goes on unharmed.
#[test]
fn a_debugger_looks_dumps_and_changes() {
    let Build::Ready(program) = build("c/debugged.c", &["-g"]) else { return };
    let Some(gdb) = installed("gdb") else { return };
    let scratch = Scratch::new("debugged");
    let filled = scratch.file("filled");
    let running = Run::of(&program).arg("160").arg(&filled).memory(48).start();
    // A page that is just being written is not as it was and not as it will be.
    until("all is written", || filled.exists());
    let dump = running.directory().join("core");
    let pid = running.pid;
    let output = Command::new("timeout")
        .args(["--signal=KILL", "200"])
        .arg(gdb)
        .args(["--nx", "--batch", "-p", &pid.to_string()])
        .args(
            ["area", "area[5] != 0", "area[10 << 20]", "area[20 << 20]"]
                .map(|what| format!("--eval-command=print {what}")),
        )
        .arg("-ex")
        .arg(format!("generate-core-file {}", dump.display()))
        .args(["-ex", "set var go = 1", "-ex", "detach"])
        .output()
        .expect("running gdb");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("ptrace: Operation not permitted") {
        skip("a debugger", "it may not attach here (kernel.yama.ptrace_scope)");
        running.signal(libc::SIGKILL);
        return;
    }
    assert!(output.status.success(), "gdb ended with {:?}: {said}", output.status);
    // A value or an error for each, and the dump is there.
    let answers = said.matches("$").count() + said.matches("Cannot access memory").count();
    assert!(answers >= 4, "{said}");
    assert!(fs::metadata(&dump).is_ok_and(|file| file.len() > 1 << 20), "no dump: {said}");
    // Zeros from the first page of a mapping that it could not read on.
    let address =
        said.split("(uint64_t *) 0x").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
    let held = dumped(&dump, u64::from_str_radix(address, 16).expect("an address"), 160 << 17, 3);
    assert_eq!(held.wrong, 0, "{held:?}: {said}");
    let outcome = running.finish();
    assert_eq!(outcome.exited(0).out(), "debugged\n", "{}", outcome.describe());
}

/// Shells end by _exit, without libc's handlers: what they ended is told all the same, and before they are gone.
#[test]
fn the_summary_is_there_when_the_program_has_ended() {
    let scratch = Scratch::new("summary");
    let file = scratch.file("summary.json");
    for round in 0..20 {
        let status = Command::new(ream_tests::ream_binary())
            .arg("run")
            .arg(format!("--summary={}", file.display()))
            .args(["--", "/bin/sh", "-c", "/bin/true; /bin/true | /bin/true"])
            .status()
            .expect("running ream");
        assert!(status.success());
        assert!(file.exists(), "round {round}");
        fs::remove_file(&file).expect("removing it");
    }
}

/// Paged, watched, and where only large pages are given back: threads of Ream's are left, and end the process.
#[test]
fn the_last_thread_ends_past_libc() {
    let Build::Ready(program) = build("c/last_exit.c", &["-pthread"]) else { return };
    for how in ["main", "strict", "other"] {
        let run = || Run::of(&program).args(["96", how]).deadline(40);
        assert_eq!(run().finish().exited(4).out(), "bye\n");
        let paged = run().memory(64).finish();
        assert_eq!(paged.exited(4).out(), "bye\n");
        assert!(paged.summary().number("evictions") > 0, "{}", paged.describe());
        for outcome in [run().memory(150).finish(), run().under_ream().finish()] {
            assert_eq!(outcome.exited(4).out(), "bye\n");
            outcome.summary();
        }
    }
}
