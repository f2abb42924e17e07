//! Ordinary users, without root and without any setting of the machine: a small set of the programs, as nobody.

use ream_tests::{Build, Run, Scratch, build, is_root, openable_by_all, ream_binary, ream_calls, ream_library, skip};
use std::fs;
use std::path::PathBuf;

const NOBODY: u32 = 65534;

/// Copies of the command, its library and a program, where nobody can reach them.
struct Reachable {
    scratch: Scratch,
    ream: PathBuf,
}

impl Reachable {
    fn new() -> Option<Reachable> {
        if !is_root() {
            // Then all other tests have run as an ordinary user already.
            skip("ordinary users", "the tests do not run as root, so every test is one of these");
            return None;
        }
        let scratch = Scratch::for_everybody("users");
        let ream = scratch.file("ream");
        fs::copy(ream_binary(), &ream).expect("copying ream");
        let library = scratch.file("libream.so");
        fs::copy(ream_library(), &library).expect("copying libream.so");
        let calls = scratch.file("libream_calls.so");
        fs::copy(ream_calls(), &calls).expect("copying libream_calls.so");
        [&ream, &library, &calls].into_iter().for_each(|path| openable_by_all(path));
        Some(Reachable { scratch, ream })
    }

    fn run(&self, source: &str) -> Option<impl Fn() -> Run + use<>> {
        let built = match build(source, &[]) {
            Build::Ready(path) => path,
            Build::Missing(reason) => {
                skip(source, &reason);
                return None;
            }
        };
        let program = self.scratch.file("program");
        fs::copy(built, &program).expect("copying the program");
        openable_by_all(&program);
        let (ream, directory) = (self.ream.clone(), self.scratch.path().to_owned());
        Some(move || Run::of(&program).ream(&ream).user(NOBODY).within(&directory))
    }

    fn compare(&self, source: &str, arguments: &[&str]) {
        let Some(run) = self.run(source) else { return };
        let plain = run().args(arguments).finish();
        plain.exited(0);
        let paged = run().args(arguments).memory(64).finish();
        paged.same_as(&plain);
        let summary = paged.summary();
        assert!(summary.number("bytes_in") > 0, "{}\n{}", summary.0, paged.describe());
    }
}

/// Compares a program whose second argument is a directory for its files.
fn compare_with_files(source: &str, size: &str) {
    let Some(reachable) = Reachable::new() else { return };
    let directory = Scratch::for_everybody("files");
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("giving a directory to nobody");
    reachable.compare(source, &[size, &directory.path().to_string_lossy()]);
}

#[test]
fn threads_and_a_fork() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/large_threads.c", &["256"]);
}

#[test]
fn generations_of_forks() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/fork_deep.c", &["256"]);
}

#[test]
fn growing_blocks() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/realloc_grow.c", &["256"]);
}

#[test]
fn system_calls_into_absent_pages() {
    compare_with_files("c/syscalls.c", "256");
}

#[test]
fn whatever_libc_hands_to_the_kernel_is_there() {
    compare_with_files("c/borrowed.c", "160");
}

#[test]
fn an_unwritable_store_is_named() {
    let Some(reachable) = Reachable::new() else { return };
    let Some(run) = reachable.run("c/endless.c") else { return };
    let closed = Scratch::for_everybody("closed");
    let outcome = run().memory(64).store(closed.path()).finish();
    outcome.exited(125).says("ream: ").says(&closed.path().to_string_lossy());
    assert_eq!(outcome.err().trim_end().lines().count(), 1, "{}", outcome.describe());
}

#[test]
fn status_of_another_users_process_is_refused_in_one_line() {
    let Some(reachable) = Reachable::new() else { return };
    let mut command = std::process::Command::new(&reachable.ream);
    std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    let output = command.arg("status").arg(std::process::id().to_string()).output().expect("running ream status");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("another user's process"), "{said}");
}
