//! `--pages` with `:require`: what cannot be had keeps a program from being started, with status 125 and one line, also the
//! programs that one of the session starts.

use ream_tests::{Outcome, Run, Scratch, compiled, is_root, large_pages, make_runnable, ream_binary, skip};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

const HUGE: &str = "--pages=huge:require";

/// Refused before the program did anything, with one line of Ream's that says why.
fn refused(outcome: &Outcome, why: &str) {
    outcome.exited(125);
    let err = outcome.err();
    assert!(outcome.out().is_empty() && err.starts_with("ream: ") && err.contains(why), "{}", outcome.describe());
    assert_eq!(err.lines().count(), 1, "{}", outcome.describe());
}

/// A program that no library can enter, nor anything from outside: another's with his rights; `None` where we cannot make one.
fn another_users(scratch: &Scratch, program: &Path) -> Option<PathBuf> {
    if !is_root() {
        skip("a program with other rights", "not root");
        return None;
    }
    let copy = scratch.file("setuid");
    fs::copy(program, &copy).expect("a copy");
    chown(&copy, Some(65534), None).expect("giving it away");
    make_runnable(&copy, 0o4755);
    Some(copy)
}

/// A program of another C library, as its file says.
fn foreign(scratch: &Scratch, program: &Path) -> PathBuf {
    let mut bytes = fs::read(program).expect("the program");
    let at = bytes.windows(9).position(|nine| nine == b"/ld-linux").expect("its linker");
    bytes[at..at + 9].copy_from_slice(b"/ld-musl-");
    let copy = scratch.file("foreign");
    fs::write(&copy, bytes).expect("a copy");
    make_runnable(&copy, 0o755);
    copy
}

fn required(program: &Path) -> Run {
    Run::of(program).under_ream().option(HUGE)
}

#[test]
fn programs_that_cannot_be_entered() {
    let (Some(dynamic), Some(fixed)) = (compiled("c/brief.c", &[]), compiled("c/stdout_exit.c", &["-static"])) else {
        return;
    };
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let scratch = Scratch::new("promises");
    let foreign = foreign(&scratch, &dynamic);
    refused(&required(&foreign).finish(), "another C library (musl)");
    let script = scratch.file("script");
    fs::write(&script, format!("#!{}\n", foreign.display())).expect("a script");
    make_runnable(&script, 0o755);
    refused(&required(&script).finish(), "another C library (musl)");
    // Its own malloc does not take large pages, or is told not to.
    let told = required(&fixed).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0").finish();
    refused(&told, "statically linked, so its heap keeps small pages: GLIBC_TUNABLES says so");
    let flags =
        ["-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    if let Some(bare) = compiled("c/bare.c", &flags) {
        refused(&required(&bare).finish(), "its malloc is not that of glibc");
    }
    // Since the pool is empty, or, where a test beside this one has filled it, since it cannot have any of it.
    let pooled = Run::of(&fixed).under_ream().option("--pages=bss=hugetlb:require,heap=small").finish();
    refused(&pooled, "must have them");
    // What can be had, and what is only preferred.
    let plain = Run::of(&fixed).finish();
    required(&fixed).finish().same_as(&plain);
    let others = Run::of(&fixed).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0").under_ream();
    others.option("--pages=heap=huge,bss=huge:require,stack=huge:require").finish().same_as(&plain);
    if let Some(program) = another_users(&scratch, &dynamic) {
        refused(&required(&program).finish(), "set-user-id");
        Run::of(&program)
            .under_ream()
            .option("--pages=huge")
            .option("--summary=no")
            .finish()
            .exited(plain.status.code().expect("a status"));
    }
}

/// Whoever started us has switched large pages off, or traces what we start.
#[test]
fn what_others_have_decided() {
    let Some(launcher) = large_pages(&["always", "madvise"]).then(|| compiled("c/launcher.c", &[])).flatten() else {
        return;
    };
    for flags in [&[][..], &["-static"]] {
        let Some(program) = compiled("c/brief.c", flags) else { return };
        let plain = Run::of(&program).finish();
        let under = |how: &str, pages: &str| {
            Run::of(&launcher).arg(how).arg(ream_binary()).args(["run", pages, "--"]).arg(&program).finish()
        };
        refused(&under("small", HUGE), "switched off for this process (PR_SET_THP_DISABLE)");
        let preferred = under("small", "--pages=huge");
        assert_eq!((preferred.out(), preferred.status.code()), (plain.out(), plain.status.code()));
        assert_eq!(preferred.err().matches("PR_SET_THP_DISABLE").count(), 1, "{}", preferred.describe());
        let by_default = under("small", "--pages=auto");
        assert!(!by_default.err().contains("PR_SET"), "{}", by_default.describe());
        // From inside: the launcher belongs to the session.
        let within = || Run::of(&launcher).arg("small").arg(&program).under_ream();
        refused(&within().option(HUGE).finish(), "switched off for this process (PR_SET_THP_DISABLE)");
        within().option("--pages=huge").finish().exited(plain.status.code().expect("a status"));
        if !flags.is_empty() {
            refused(&under("traced", HUGE), "cannot be traced for a moment");
        }
    }
}

/// Ways in which the program `starter` executes another.
const WAYS: [&str; 6] = ["execve", "execv", "execvp", "vfork", "spawn", "spawnp"];

#[test]
fn programs_that_one_of_the_session_starts() {
    let (Some(starter), Some(dynamic), Some(fixed)) =
        (compiled("c/starter.c", &[]), compiled("c/brief.c", &[]), compiled("c/static_start.c", &["-static"]))
    else {
        return;
    };
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let scratch = Scratch::new("promises");
    let script = |name: &str, first: &str| {
        let path = scratch.file(name);
        fs::write(&path, format!("#!{first}\nexit 7\n")).expect("a script");
        make_runnable(&path, 0o755);
        path
    };
    let foreign = foreign(&scratch, &dynamic);
    let by_foreign = script("by_foreign", foreign.to_str().expect("a path"));
    let scripts = [script("by_sh", "/bin/sh"), script("by_env", "/usr/bin/env sh")];
    let other_rights = another_users(&scratch, &dynamic);
    let no_program = PathBuf::from("/no/such/program");
    for way in WAYS {
        let run = |program: &Path| Run::of(&starter).arg(way).arg(program);
        refused(&run(&foreign).under_ream().option(HUGE).finish(), "another C library (musl)");
        if way != "execve" && way != "spawn" {
            continue;
        }
        for program in [&dynamic, &fixed, &scripts[0], &scripts[1], &no_program] {
            let plain = run(program).finish();
            run(program).under_ream().option(HUGE).finish().same_as(&plain);
        }
        refused(&run(&by_foreign).under_ream().option(HUGE).finish(), "another C library (musl)");
        if let Some(program) = &other_rights {
            refused(&run(program).under_ream().option(HUGE).finish(), "set-user-id");
        }
    }
    // A shell's, one that it looks up, and one of which nothing is promised.
    let in_shell = |text: &str| Run::of("/bin/sh").args(["-c", text]).arg(&foreign).under_ream();
    let outcome = in_shell("\"$0\"; echo $?").option(HUGE).finish();
    outcome.exited(0);
    assert!(outcome.out() == "125\n" && outcome.err().contains("(musl)"), "{}", outcome.describe());
    in_shell("\"$0\"").option("--pages=huge").finish().exited(127);
    in_shell("\"$0\"").option("--pages=text=huge").finish().exited(127);
}

/// A session that is full, or gone, refuses whoever comes; both are told in one place.
#[test]
fn a_session_that_cannot_be_joined() {
    let Some(program) = compiled("c/brief.c", &[]) else { return };
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let plain = Run::of(&program).finish();
    let other = "REAM_SESSION=${REAM_SESSION%:*}:1-${REAM_SESSION##*-}; exec \"$0\"";
    let run = |pages: &str| Run::of("/bin/sh").args(["-c", other]).arg(&program).under_ream().option(pages).finish();
    refused(&run(HUGE), "its session is gone, and another file is in its place; the program is not started");
    let preferred = run("--pages=huge");
    assert_eq!((preferred.out(), preferred.status.code()), (plain.out(), plain.status.code()));
    assert!(preferred.err().contains("this program runs without Ream"), "{}", preferred.describe());
}

/// Address space is limited to less than the stack may become.
#[test]
fn a_stack_that_cannot_be_mapped() {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let limited = "ulimit -S -s 65664 && ulimit -S -v 60000 || exit 77; exec \"$@\"";
    for flags in [&[][..], &["-static"]] {
        let Some(program) = compiled("c/brief.c", flags) else { return };
        let run = |pages: &str| {
            let run = Run::of("/bin/sh").args(["-c", limited, "sh"]).arg(ream_binary());
            run.args(["run", "--store=/var/tmp", pages, "--"]).arg(&program).finish()
        };
        if run("--pages=stack=huge").status.code() != Some(7) {
            return skip("a stack that cannot be mapped", "these limits are not to be had");
        }
        refused(&run("--pages=stack=huge:require"), "main stack");
    }
}
