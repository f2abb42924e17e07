//! What stands around a program and reaches into it: limits on its addresses, core dumps, other preloaded libraries, its own
//! handlers of faults, destructors after all others, tens of thousands of regions, and calls of the kernel that fail.

use ream_tests::{
    Case, MIB, Run, Scratch, UNMANAGED, compare, compiled, core_in, dumped, installed, make_runnable, ream_binary, skip,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The core dump of a run in a directory of its own, which ends by SIGABRT, and what it has of the program's data.
fn core_dump(run: Run) -> Option<(ream_tests::Dumped, ream_tests::Outcome)> {
    let scratch = Scratch::new("core");
    let outcome = run.within(scratch.path()).finish();
    outcome.signalled(libc::SIGABRT);
    let said = outcome.out();
    let (address, words) = said.trim().split_once(' ').expect("an address and a number");
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address");
    let Some(core) = core_in(scratch.path()) else {
        skip("core dumps", "they are not written to the program's directory here (kernel.core_pattern)");
        return None;
    };
    Some((dumped(&core, address, words.parse().expect("a number"), 3), outcome))
}

/// A dump has what is in RAM; what is in the store is zeros in it.
#[test]
fn core_dumps_have_what_is_in_ram() {
    let Some(program) = compiled("c/dumped.c", &[]) else { return };
    let run = || Run::of(&program).arg("192").unmeasured();
    let Some((plain, _)) = core_dump(run()) else { return };
    assert!(plain.absent == 0 && plain.wrong == 0 && plain.whole >= 192 << 8, "{plain:?}");
    let (fits, outcome) = core_dump(run().memory(1024)).expect("a dump, as before");
    assert_eq!(fits.absent + fits.wrong, 0, "{fits:?}\n{}", outcome.describe());
    let (paged, outcome) = core_dump(run().memory(64)).expect("a dump, as before");
    assert!(paged.wrong == 0 && paged.whole >= 24 << 8, "{paged:?}\n{}", outcome.describe());
    assert!(paged.absent >= 96 << 8, "what is in the store is in the dump: say so in the docs; {paged:?}");
}

/// malloc and mmap say so when there is no more, all of it is had again, and what Ream needs is there all the time.
#[test]
fn a_limit_on_addresses_is_met_as_by_a_plain_program() {
    let Some(program) = compiled("c/limited_space.c", &[]) else { return };
    let limited = |run: fn(Run) -> Run| {
        let limit = "ulimit -v 800000 && exec \"$@\"";
        let outcome = run(Run::of("/bin/sh").args(["-c", limit, "sh"]).arg(&program)).finish();
        let said = outcome.exited(0).out();
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("MiB")).collect();
        (numbers, outcome)
    };
    let (plain, _) = limited(|run| run);
    let (fits, outcome) = limited(|run| run.memory(2048));
    assert!(fits[0] + 128 >= plain[0], "{fits:?} MiB, plain {plain:?}\n{}", outcome.describe());
    let (paged, outcome) = limited(|run| run.memory(64));
    outcome.paged_within(64 * MIB, UNMANAGED);
    assert!(paged[0] + 320 >= plain[0], "{paged:?} MiB, plain {plain:?}\n{}", outcome.describe());
}

/// Where there are not even addresses for the pager the program runs all the same, and that is said.
#[test]
fn a_limit_that_leaves_no_room_for_the_pager_is_said() {
    let Some(program) = compiled("c/limited_space.c", &[]) else { return };
    let limit = "ulimit -v 300000 && exec \"$@\"";
    let outcome = Run::of("/bin/sh").args(["-c", limit, "sh"]).arg(&program).memory(160).finish();
    outcome.exited(0).says("ream: cannot page this program: ").says("(errno 12): its memory is not limited");
}

/// With hardly any descriptors there is no agent; the program does not begin, and is told which limit that is.
#[test]
fn a_limit_on_files_that_leaves_no_agent_is_named() {
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 8 && exec \"$@\"", "sh"]).arg(ream_binary());
    command.args(["run", "--memory", "64M", "--", "/bin/echo", "began"]);
    let output = command.output().expect("running it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("ream: session: agent: ") && said.contains("(ulimit -n)"), "{said}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{said}");
}

/// The second page of every other one lies in its second block. What stays in RAM for each block that is touched is the program's
/// page table of 4 KiB, and 8 KiB that the pager knows of its pages (a word and a hash for each): 60 and 122 MiB for all of them, in
/// the parent and in the child. One had 139 MiB and its tables; both had 374 MiB together.
#[test]
fn ten_thousand_regions() {
    const TOUCHED: u64 = 10_000 * 3 / 2;
    const KNOWN: u64 = TOUCHED * (8 * 1024 + 256);
    const TABLES: u64 = TOUCHED * 4096;
    let Some(program) = compiled("c/many_regions.c", &[]) else { return };
    Run::of(&program).arg("10000").finish().exited(0);
    let outcome = Run::of(&program).arg("10000").memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB + 2 * (KNOWN + TABLES), UNMANAGED);
    // Also without what a run may have beside and beyond its budget: of that this one has nothing.
    assert!(outcome.peak_rss <= 64 * MIB + KNOWN, "{}", outcome.describe());
    assert!(outcome.peak_cgroup.is_none_or(|peak| peak <= 64 * MIB + 2 * (KNOWN + TABLES)), "{}", outcome.describe());
    let lines: u64 = outcome.out().trim().parse().expect("a number");
    assert!(lines < 10_000, "{lines} mappings\n{}", outcome.describe());
}

#[test]
fn handlers_of_faults_and_stacks_of_their_own() {
    Case::new("c/own_faults.c", &["256"], 64).compare();
}

/// A library of this source with `flags`.
fn library(source: &str, flags: &[&str]) -> Option<PathBuf> {
    compiled(source, &[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat())
}

#[test]
fn destructors_after_all_others() {
    let Some(library) = library("c/last_words.c", &["-Wl,-z,initfirst"]) else { return };
    let flags = ["-Wl,--no-as-needed", library.to_str().expect("a path")];
    Case { status: 5, flags: &flags, ..Case::new("c/last_words.c", &["128"], 64) }.compare();
}

/// They pass libc's calls on, have memory of their own, and stand behind us.
#[test]
fn libraries_that_others_preload() {
    let Some(library) = library("c/preloaded.c", &[]) else { return };
    let Some(program) = compiled("c/preloaded.c", &[]) else { return };
    let outcome = compare(64, 0, || Run::of(&program).arg("128").env("LD_PRELOAD", &library));
    assert_eq!(outcome.out(), "time 4711\n17 reads, 16 writes, 2 opens\n");
    // In the program that one of the session starts, too.
    let preload = format!("LD_PRELOAD={}", library.display());
    compare(64, 0, || Run::of("/usr/bin/env").arg(&preload).arg(&program).arg("128"));
}

/// Its library is preloaded by a command of its own, and its constructor reads what that has set.
#[test]
fn a_command_that_preloads() {
    let (Some(stdbuf), Some(program)) = (installed("stdbuf"), compiled("c/realloc_grow.c", &[])) else { return };
    compare(64, 0, || Run::of(&stdbuf).arg("-o0").arg(&program).arg("192"));
    let script = format!("exec stdbuf -oL \"$0\" run --memory 64M --store . -- '{}' 192", program.display());
    let scratch = Scratch::new("stdbuf");
    let outcome = Run::of("/bin/sh").args(["-c", &script]).arg(ream_binary()).within(scratch.path()).finish();
    outcome.exited(0).same_as(&Run::of(&program).arg("192").finish());
}

/// `ream` with some of the pager's calls failing, as strace makes them.
fn failing(scratch: &Scratch, inject: &[&str]) -> Option<PathBuf> {
    let strace = installed("strace")?;
    let words: String = inject.iter().map(|what| format!(" -e inject={what}")).collect();
    let path = scratch.file("failing");
    let (strace, ream) = (strace.display(), ream_binary());
    let trace = "--seccomp-bpf -f -qq -o /dev/null -e trace=preadv,pwritev";
    fs::write(&path, format!("#!/bin/sh\nexec '{strace}' {trace}{words} '{}' \"$@\"\n", ream.display()))
        .expect("a script");
    make_runnable(&path, 0o755);
    Some(path)
}

fn run(ream: &Path, program: &Path) -> Run {
    Run::of(program).arg("64").memory(24).ream(ream).option("--io=threads").unmeasured()
}

/// Of the store's transfers each third is interrupted, each fifth to be tried again, each seventh fails: nobody notices.
#[test]
fn calls_that_fail_now_and_then() {
    let Some(program) = compiled("c/realloc_grow.c", &[]) else { return };
    let plain = Run::of(&program).arg("64").finish();
    for (error, step) in [("EINTR", 3), ("EAGAIN", 5), ("EIO", 7)] {
        let scratch = Scratch::new("failing");
        let inject = ["preadv", "pwritev"].map(|call| format!("{call}:error={error}:when=2+{step}"));
        let Some(ream) = failing(&scratch, &[&inject[0], &inject[1]]) else { return };
        let outcome = run(&ream, &program).finish();
        outcome.same_as(&plain);
        assert!(outcome.summary().number("bytes_in") > 0, "{}", outcome.describe());
    }
}

/// A store that is full from some time on, or that cannot be read any more, stops the program; it never reads wrong data.
#[test]
fn calls_that_fail_for_good() {
    let Some(program) = compiled("c/realloc_grow.c", &[]) else { return };
    for inject in ["pwritev:error=ENOSPC:when=20+", "pwritev:error=EIO:when=20+", "preadv:error=EIO:when=20+"] {
        let scratch = Scratch::new("failing");
        let Some(ream) = failing(&scratch, &[inject]) else { return };
        let outcome = run(&ream, &program).finish();
        outcome.exited(125).says("ream: ").says("store");
    }
}

/// Programs that shut themselves in before they execute others do so on purpose: each of those runs without Ream, and without a
/// line unless it is asked for.
#[test]
fn a_filter_of_the_programs_own_is_said_to_who_asks() {
    let Some(program) = compiled("c/shut_in.c", &[]) else { return };
    let run = || Run::of(&program).args(["/bin/echo", "word"]).unmeasured();
    let outcome = run().memory(64).finish();
    assert_eq!((outcome.exited(0).out(), outcome.err()), ("word\n".into(), "".into()), "{}", outcome.describe());
    run().memory(64).env("REAM_LOG", "info").finish().exited(0).says("a filter of system calls (seccomp) refuses it");
}
