//! Ream loaded into a process that runs already, by dlopen: its allocations are taken over and given back, and it begins a
//! session of its own.

use ream_tests::{Build, NOBODY, Outcome, Reachable, Run, Scratch, build, make_runnable, ream_binary, skip};
use std::path::{Path, PathBuf};

/// The library, beside the command.
fn library() -> PathBuf {
    ream_binary().with_file_name("libream_inside.so")
}

/// Programs that bind when they start, when they call, and at a fixed place.
const WAYS: [&[&str]; 4] = [&["-Wl,-z,now"], &["-Wl,-z,lazy"], &["-no-pie", "-Wl,-z,lazy"], &["-no-pie", "-Wl,-z,now"]];

fn compiled(source: &str, flags: &[&str]) -> Option<PathBuf> {
    match build(source, flags) {
        Build::Ready(path) => Some(path),
        Build::Missing(why) => {
            skip(source, &why);
            None
        }
    }
}

/// The program, run in a way.
fn run(flags: &[&str], library: &Path, way: &str, argument: &Path) -> Option<Run> {
    let program = compiled("c/inside.c", flags)?;
    Some(Run::of(program).arg(way).arg(library).arg(argument).unmeasured())
}

fn went_well(outcome: &Outcome) {
    outcome.exited(0);
    assert_eq!(outcome.out(), "well\n", "{}", outcome.describe());
}

#[test]
fn blocks_of_every_kind_in_every_order() {
    for flags in WAYS {
        let Some(run) = run(flags, &library(), "kinds", Path::new("")) else { return };
        went_well(&run.finish());
    }
}

#[test]
fn libc_resizes_what_it_is_given() {
    let scratch = Scratch::new("inside");
    let lines = scratch.file("lines");
    std::fs::write(&lines, "a".repeat(5 << 20)).expect("a file with a long line");
    for flags in WAYS {
        let Some(run) = run(flags, &library(), "libc", &lines) else { return };
        went_well(&run.finish());
    }
}

/// Also one that is loaded lazily, from where its loader's RUNPATH says.
#[test]
fn libraries_that_are_loaded_later() {
    let scratch = Scratch::new("inside");
    let inner = compiled("c/inside_late.c", &["-shared", "-fPIC", "-DINNER"]);
    let late = compiled(
        "c/inside_late.c",
        &["-shared", "-fPIC", "-Wl,-z,lazy", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/beside"],
    );
    let (Some(inner), Some(late)) = (inner, late) else { return };
    let beside = scratch.directory("beside");
    std::fs::copy(inner, beside.join("libinside-inner.so")).expect("a copy of the library");
    let copy = scratch.file("liblate.so");
    std::fs::copy(late, &copy).expect("a copy of the library");
    for flags in WAYS {
        let Some(run) = run(flags, &library(), "later", &copy) else { return };
        went_well(&run.finish());
    }
}

/// Some of which the linker is still at when the slots of others are led here.
#[test]
fn libraries_that_threads_load_at_once() {
    let scratch = Scratch::new("inside");
    let plugin = scratch.file("plugin.so");
    for flags in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let Some(library) = compiled("c/inside_plugin.c", &["-shared", "-fPIC", "-Wl,-z,relro", flags]) else { return };
        for thread in 0..4 {
            let copy = format!("{}-{thread}", plugin.display());
            std::fs::copy(&library, copy).expect("a copy of the library");
        }
        let Some(run) = run(WAYS[0], &self::library(), "together", &plugin) else { return };
        went_well(&run.finish());
    }
}

#[test]
fn switched_a_thousand_times_while_threads_allocate() {
    let Some(run) = run(WAYS[0], &library(), "toggled", Path::new("")) else { return };
    went_well(&run.finish());
}

#[test]
fn four_times_a_budget_that_the_program_gives_itself() {
    for flags in WAYS {
        let scratch = Scratch::new("inside");
        let store = scratch.directory("store");
        let Some(run) = run(flags, &library(), "session", &store) else { return };
        let outcome = run.finish();
        if outcome.err().contains("cannot page here") {
            return skip("a session from inside", &outcome.err());
        }
        went_well(&outcome);
        let errors = outcome.err();
        let lines: Vec<&str> = errors.lines().collect();
        assert!(lines.len() == 1 && lines[0].contains("/dev/null"), "{}", outcome.describe());
    }
}

/// Where libream.so is in the process, its functions are to be used.
#[test]
fn under_ream_run_the_other_library_has_it() {
    let Some(run) = run(WAYS[0], &library(), "there", Path::new("")) else { return };
    went_well(&run.memory(64).finish());
}

/// A program in which a library's constructor has begun a session of 64 MiB, with the engine for ordinary users. `preload`
/// are other libraries before it, beside the command at `ream`.
fn begun(run: Run, ream: &Path, first: &Path, preload: &[&str], library: &str) -> Run {
    let beside = |name: &str| ream.with_file_name(name).display().to_string();
    let all: Vec<String> = preload.iter().map(|name| beside(name)).chain([first.display().to_string()]).collect();
    let run = run.env("LD_PRELOAD", all.join(" ")).env("REAM_INSIDE", beside(library)).env("REAM_ENGINE", "usermode");
    run.unmeasured()
}

/// Begins a session in every program that it is loaded into.
fn first() -> Option<PathBuf> {
    compiled("c/inside_first.c", &["-shared", "-fPIC"])
}

/// Where the kernel's accesses are not served, all that libc hands to it is there: locks, streams, paths, vectors, forks.
#[test]
fn ordinary_users_have_a_session_too() {
    let (Some(reachable), Some(first)) = (Reachable::new(), first()) else { return };
    let copy = reachable.ream().with_file_name("first.so");
    std::fs::copy(first, &copy).expect("a copy of the library");
    make_runnable(&copy, 0o755);
    for (source, size) in [("c/syscalls.c", "160"), ("c/borrowed.c", "128"), ("c/large_threads.c", "160")] {
        let files = Scratch::for_everybody("files");
        std::os::unix::fs::chown(files.path(), Some(NOBODY), Some(NOBODY)).expect("giving a directory to nobody");
        let Some(run) = reachable.run(source) else { return };
        let run = || run().arg(size).arg(files.path());
        let plain = run().unmeasured().finish();
        plain.exited(0);
        let store = Scratch::for_everybody("store");
        std::os::unix::fs::chown(store.path(), Some(NOBODY), Some(NOBODY)).expect("giving a directory to nobody");
        let run = run().env("REAM_INSIDE_STORE", store.path());
        begun(run, reachable.ream(), &copy, &[], "libream_inside.so").finish().same_as(&plain);
    }
}

/// The same as whoever runs the tests, in a program of every kind of binding.
#[test]
fn without_a_whole_userfaultfd() {
    for flags in WAYS {
        let store = Scratch::new("inside");
        let Some(run) = run(flags, &library(), "session", store.path()) else { return };
        went_well(&run.env("REAM_ENGINE", "usermode").finish());
    }
}

/// What interpreters ask dlsym for leads to the same functions, and what is not there has a line and a code of its own.
#[test]
fn functions_that_a_program_asks_for_by_name() {
    let Some(run) = run(WAYS[0], &library(), "asked", Path::new("")) else { return };
    went_well(&run.env("REAM_ENGINE", "usermode").finish());
}

#[test]
fn a_linked_program_needs_the_other_library_for_it() {
    let Some(first) = first() else { return };
    let ream = ream_binary();
    let run = || Run::of("/bin/true");
    let alone = begun(run(), &ream, &first, &["libream.so"], "libream.so").finish();
    alone.exited(97).says("whole userfaultfd").says("no session: Operation not permitted");
    assert_eq!(alone.err().lines().count(), 2, "{}", alone.describe());
    let both = begun(run(), &ream, &first, &["libream.so", "libream_calls.so"], "libream.so").finish();
    both.exited(0);
    assert!(both.err().is_empty(), "{}", both.describe());
}

#[test]
fn without_the_library_of_calls() {
    let Some(first) = first() else { return };
    let scratch = Scratch::new("inside");
    for name in ["ream", "libream_inside.so"] {
        std::fs::copy(ream_binary().with_file_name(name), scratch.file(name)).expect("a copy");
    }
    make_runnable(&scratch.file("ream"), 0o755);
    let outcome = begun(Run::of("/bin/true"), &scratch.file("ream"), &first, &[], "libream_inside.so").finish();
    outcome.exited(97).says("libream_calls.so beside libream_inside.so").says("no session: No such file");
}

#[test]
fn without_the_command() {
    let scratch = Scratch::new("inside");
    let directory = scratch.directory("alone");
    let copy = directory.join("libream_inside.so");
    std::fs::copy(library(), &copy).expect("a copy of the library");
    let Some(run) = run(WAYS[0], &copy, "nowhere", Path::new("")) else { return };
    went_well(&run.env("PATH", "/nowhere").finish());
}
