//! Under a limit on the size of files (`ulimit -f`): what is the program's is as without Ream, and what ends because of it says so.

use ream_tests::{MIB, Run, Scratch, UNMANAGED, compiled, ream_binary};
use std::process::{Command, Output};

/// What a shell gives out that runs `ream run` with these words under limits, in KiB.
fn under(limits: &str, words: &str) -> Output {
    let script = format!("{limits}; exec '{}' run {words}", ream_binary().display());
    let scratch = Scratch::new("sizes");
    Command::new("bash").args(["-c", &script]).current_dir(scratch.path()).output().expect("bash")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Ream's shared memory is larger than that; the program has its limit, and its signal, as they were.
#[test]
fn a_small_limit_keeps_no_program_from_running() {
    let program = "sh -c 'ulimit -f; dd if=/dev/zero of=large bs=1024 count=9000 2>/dev/null; echo $?'";
    let script = format!("ulimit -S -f 8192; exec {program}");
    let scratch = Scratch::new("sizes");
    let plain = Command::new("bash").args(["-c", &script]).current_dir(scratch.path()).output().expect("bash");
    let plain = said(&plain);
    assert_eq!(plain.0, Some(0), "{plain:?}");
    let run = |limits| said(&under(limits, &format!("--store . --memory 64M -- {program}")));
    assert_eq!(run("ulimit -S -f 8192"), plain);
    // Where even the hard limit is lower that is said, and nothing is started.
    let (status, out, err) = run("ulimit -f 8192");
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(125), "", 1), "{err}");
    assert!(err.starts_with("ream: ") && err.contains("ulimit -H -f"), "{err}");
}

/// A store that fits the limit is used up to it.
#[test]
fn a_store_within_the_limit_is_enough() {
    let Some(program) = compiled("c/realloc_grow.c", &[]) else { return };
    let plain = Run::of(&program).arg("64").finish();
    let script = "ulimit -f $((160 << 10)); exec \"$0\" 64";
    let run = Run::of("/bin/bash").args(["-c", script]).arg(&program).memory(32);
    run.finish().same_as(&plain).paged_within(32 * MIB, UNMANAGED);
}

/// One that is too small is named, whether the command or a program of the session has set it.
#[test]
fn a_limit_below_the_store_is_named() {
    let Some(program) = compiled("c/realloc_grow.c", &[]) else { return };
    for limit in [1024, 16 << 10] {
        let script = format!("ulimit -f {limit}; exec \"$0\" 128");
        let outcome = Run::of("/bin/bash").args(["-c", &script]).arg(&program).memory(32).finish();
        outcome.exited(125).says("ream: the store ").says("(ulimit -f)").says("raise");
    }
    let words = format!("--store . --memory 32M -- '{}' 128", program.display());
    let (status, _, err) = said(&under("ulimit -S -f 16384", &words));
    assert!(status == Some(125) && err.contains("(ulimit -f)"), "{status:?}: {err}");
}

/// The summary's file is written by who is not ended by the limit.
#[test]
fn the_summary_is_there() {
    let scratch = Scratch::new("sizes");
    let path = scratch.file("summary.json");
    let words = format!("--store . --memory 64M --summary={} -- true", path.display());
    let (status, _, err) = said(&under("ulimit -S -f 1", &words));
    assert_eq!(status, Some(0), "{err}");
    let text = std::fs::read_to_string(&path).expect("a summary");
    assert!(text.len() > 1024 && text.ends_with("}\n"), "{text}");
}
