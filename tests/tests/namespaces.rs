//! Programs of a session that begin a namespace of process numbers: there they have numbers that are others' where the session's
//! agent is.

use ream_tests::{MIB, Outcome, Run, Running, Scratch, UNMANAGED, compiled, installed, is_root, ream_binary, skip};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How unshare begins one: with /proc of the namespace around it, with its own, and as an ordinary user may.
const WAYS: [&[&str]; 3] = [&["-pf"], &["-pf", "--mount-proc"], &["-Urpf", "--mount-proc"]];

/// The ways that work here, each as a command line.
fn ways() -> Vec<Vec<String>> {
    let Some(unshare) = installed("unshare") else { return Vec::new() };
    let line = |way: &&[&str]| {
        let words = way.iter().map(|word| (*word).to_owned());
        [unshare.display().to_string()].into_iter().chain(words).collect::<Vec<_>>()
    };
    let works = |line: &Vec<String>| {
        let tried = Command::new(&line[0]).args(&line[1..]).arg("true").output().expect("unshare");
        if !tried.status.success() {
            skip(&line.join(" "), String::from_utf8_lossy(&tried.stderr).trim());
        }
        tried.status.success()
    };
    WAYS.iter().map(line).filter(works).collect()
}

fn lives(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

fn until(what: &str, so: impl Fn() -> bool) {
    let late = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < late, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Also waits for the session's agent, which must end.
fn finish(running: Running) -> Outcome {
    running.agent();
    running.finish()
}

/// Paged, with threads and forked children; the agent ends with the last process.
#[test]
fn the_agent_ends_after_a_namespace_has() {
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let numbers = ["96", "2", "2", "2"];
    let plain = Run::of(&program).args(numbers).finish();
    for way in ways() {
        let run = Run::of(&way[0]).args(&way[1..]).arg(&program).args(numbers).memory(48);
        let outcome = finish(run.start());
        outcome.same_as(&plain).paged_within(48 * MIB, UNMANAGED);
    }
}

/// User namespaces are begun, and mount namespaces entered, only by who has one thread: ours make way, and are there afterwards.
/// With much reserved of a small budget there are two of them.
#[test]
fn one_that_begins_namespaces_itself_is_paged_all_the_same() {
    let Some(program) = compiled("c/own_namespaces.c", &[]) else { return };
    for arguments in [&["96"][..], &["96", "numbers"]] {
        let plain = Run::of(&program).args(arguments).finish();
        if plain.status.code() != Some(0) {
            skip("namespaces of users", plain.out().trim());
            continue;
        }
        for memory in [48, 200] {
            let outcome = finish(Run::of(&program).args(arguments).memory(memory).start());
            if memory > 96 || arguments.len() == 1 {
                outcome.same_as(&plain);
            } else {
                // The child is paged. Who began a namespace of process numbers cannot be, and has 96 MiB.
                assert_eq!(outcome.exited(0).out(), plain.out());
                assert!(outcome.err().contains("memory of this program is not limited"), "{}", outcome.describe());
            }
            if memory < 96 && arguments.len() == 1 {
                outcome.paged_within(memory * MIB, UNMANAGED);
            }
        }
    }
}

/// A process that was the first to end there is followed by a second namespace, whose first has the same number.
#[test]
fn two_namespaces_beside_each_other() {
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    for way in ways() {
        let line = way.join(" ");
        let script = format!("{line} \"$0\" 64 3 1 1 & {line} \"$0\" 64 3 1 1; wait; exec \"$0\" 64 3 1 1");
        let outcome = finish(Run::of("/bin/sh").args(["-c", &script]).arg(&program).memory(48).start());
        let lines: Vec<_> = outcome.exited(0).out().lines().map(str::to_owned).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| *line == lines[0]), "{}", outcome.describe());
    }
}

/// One that lives is not taken for dead, though nobody else of the session does, and others have come and gone; when it is
/// killed that is noticed, and what it held is given back: the agent ends when nothing is left in the session's table.
#[test]
fn who_lives_there_is_kept_and_who_is_killed_is_missed() {
    let Some(program) = compiled("c/idle.c", &[]) else { return };
    for way in ways() {
        let line = way.join(" ");
        // When the first process waits no more it is killed, so that nobody who is here waits for the one there.
        let script = format!("{line} \"$0\" 96 ready & wait");
        let directory = Scratch::new("namespace");
        let run = Run::of("/bin/sh").args(["-c", &script]).arg(&program).memory(32).within(directory.path());
        let running = run.unmeasured().start();
        let agent = running.agent();
        until("it is ready", || directory.file("ready").exists());
        let idle = idle(&running, &program);
        running.signal(libc::SIGKILL);
        for pid in running.processes().into_iter().filter(|pid| *pid != idle && *pid != running.pid) {
            // SAFETY: kill only sends a signal; these carry the run's mark.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // Without anybody in the table the agent waits for a second.
        std::thread::sleep(Duration::from_millis(3500));
        assert!(lives(idle) && lives(agent), "{line}: the process lives: {}, the agent: {}", lives(idle), lives(agent));
        // SAFETY: as before.
        unsafe { libc::kill(idle, libc::SIGKILL) };
        running.finish().signalled(libc::SIGKILL);
    }
}

/// The process of the run that executes this program.
fn idle(running: &Running, program: &Path) -> i32 {
    let program = program.canonicalize().expect("a path");
    let executes = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program);
    running.processes().into_iter().find(executes).expect("the program runs")
}

/// The command itself in a namespace with the /proc of the one around it.
#[test]
fn the_command_within_one() {
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    if !is_root() {
        skip("unshare -pf", "not root");
        return;
    }
    let line = "exec unshare -pf \"$0\" run --memory 48M --store . -- \"$1\" 96 2 2 2";
    let directory = Scratch::new("namespace");
    let ream = ream_binary();
    let outcome = Run::of("/bin/sh").args(["-c", line]).arg(ream).arg(&program).within(directory.path()).finish();
    outcome.same_as(&Run::of(&program).args(["96", "2", "2", "2"]).finish());
}

/// A program that is process 1 has no child but its own, whether it waits for any or is told of ends.
#[test]
fn process_1_does_not_meet_the_agent() {
    let Some(program) = compiled("c/init_waits.c", &[]) else { return };
    for way in ways().into_iter().filter(|way| way.iter().any(|word| word == "--mount-proc")) {
        let plain = Run::of(&way[0]).args(&way[1..]).arg(&program).finish();
        assert_eq!(plain.exited(0).out(), "1 children, 1 signals\n");
        let directory = Scratch::new("namespace");
        for options in [&[] as &[&str], &["--memory", "48M", "--store", "."]] {
            let run = Run::of(&way[0]).args(&way[1..]).arg(ream_binary()).arg("run").args(options.iter().copied());
            run.args(["--"]).arg(&program).within(directory.path()).finish().same_as(&plain);
        }
    }
}
