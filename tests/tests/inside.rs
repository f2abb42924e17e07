//! Ream loaded into a process that runs already, by dlopen: its allocations are taken over and given back, and it begins a
//! session of its own.

use ream_tests::{Build, Outcome, Reachable, Run, Scratch, build, ream_binary, skip};
use std::os::unix::fs::PermissionsExt as _;
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

/// Who has no whole userfaultfd is told so, and has large pages all the same.
#[test]
fn ordinary_users_are_told_what_is_missing() {
    let allowed = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1");
    let device = std::fs::metadata("/dev/userfaultfd").is_ok_and(|file| file.permissions().mode() & 0o006 != 0);
    if allowed || device {
        return skip("a session from inside", "ordinary users have a whole userfaultfd here");
    }
    let Some(reachable) = Reachable::new() else { return };
    let Some(run) = reachable.run("c/inside.c") else { return };
    let library = reachable.ream().with_file_name("libream_inside.so");
    let outcome = run().arg("refused").arg(library).unmeasured().finish();
    went_well(&outcome);
    assert!(
        outcome.err().lines().count() == 1 && outcome.err().contains("whole userfaultfd"),
        "{}",
        outcome.describe()
    );
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
