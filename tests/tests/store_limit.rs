//! `--store-limit` holds for all processes of a session together.

use ream_tests::{Build, Run, Running, Scratch, build, mpi, skip};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

const MIB: u64 = 1 << 20;

/// Two that fit hold their memory while a third one, which does not, is tried; it has its own turn when one has ended, and
/// what that leaves is had by the other, which goes on.
const SCRIPT: &str = r#"
"$0" a 24 0 & a=$!
"$0" b 24 36 & b=$!
until [ -e a.full ] && [ -e b.full ]; do sleep 0.05; done
touch c.go
"$0" c 60 0
echo c $?
touch tried
until [ -e a.go ]; do sleep 0.05; done
wait $a
echo a $?
touch b.go
wait $b
echo b $?
"#;

/// Bytes that the files without a name of a run's processes take on disk. Pagers have descriptors of their own.
fn on_disk(running: &Running) -> u64 {
    let mut files = BTreeMap::new();
    for process in running.processes() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let descriptors = tasks.flat_map(|task| fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten());
        for descriptor in descriptors {
            let store = fs::read_link(descriptor.path()).is_ok_and(|name| name.starts_with(running.directory()));
            let found =
                fs::metadata(descriptor.path()).ok().filter(|found| store && found.is_file() && found.nlink() == 0);
            if let Some(found) = found {
                files.insert(found.ino(), found.blocks() * 512);
            }
        }
    }
    files.values().sum()
}

#[test]
fn processes_of_a_session_share_the_limit() {
    let program = match build("c/shares_disk.c", &[]) {
        Build::Ready(program) => program,
        Build::Missing(reason) => return skip("c/shares_disk.c", &reason),
    };
    let scratch = Scratch::new("shares");
    let run = Run::of("/bin/sh").args(["-c", SCRIPT]).arg(&program).within(scratch.path());
    let running = run.memory(16).option("--store-limit=64M").start();
    let mut most = 0;
    mpi::until("the third one's end", || {
        most = on_disk(&running).max(most);
        scratch.file("tried").exists().then_some(())
    });
    fs::write(scratch.file("a.go"), "").expect("a.go");
    let outcome = running.finish();
    outcome.exited(0).says("ream: the store is full");
    assert_eq!(outcome.out(), "c 125\na 0\nb 0\n", "{}", outcome.describe());
    // Two segments are on their way back, at most.
    assert!((24 * MIB..=68 * MIB).contains(&most), "{} MiB were on disk at once", most / MIB);
    let stored = outcome.summary().number("store_bytes");
    assert!((32 * MIB..=64 * MIB).contains(&stored), "{} MiB were stored, says the summary", stored / MIB);
}
