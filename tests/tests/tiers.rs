//! Stores that are encrypted, and stores of several tiers: the same results, and nothing to be found or changed from outside.

use ream_tests::{Case, MIB, Run, Running, compiled};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// The store's file of a program that runs, as whoever may look into its process finds it.
fn store_of(running: &Running) -> PathBuf {
    let store = running.directory().join("store");
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.pid)).expect("its threads");
    for thread in threads.flatten() {
        for fd in std::fs::read_dir(thread.path().join("fd")).into_iter().flatten().flatten() {
            let link = std::fs::read_link(fd.path()).unwrap_or_default();
            if link.starts_with(&store) {
                return fd.path();
            }
        }
    }
    panic!("no store in {}", store.display());
}

fn pattern(children: &str) -> Option<Run> {
    Some(Run::of(compiled("c/pattern.c", &[])?).args(["64", children]).memory(16))
}

/// How often pages of the program begin like that in its store.
fn found(file: &File) -> usize {
    const TEXT: &[u8] = b"the known pattern of page ";
    let (mut page, mut at, mut found) = (vec![0; 1 << 20], 0, 0);
    while let Ok(bytes @ 1..) = file.read_at(&mut page, at) {
        found += page[..bytes].windows(TEXT.len()).filter(|window| *window == TEXT).count();
        at += bytes as u64;
    }
    found
}

#[test]
fn nothing_of_an_encrypted_store_can_be_read() {
    for (options, readable) in [(&[][..], true), (&["--encrypt"], false), (&["--encrypt", "--io=threads"], false)] {
        let Some(run) = pattern("2") else { return };
        let running = options.iter().fold(run, |run, option| run.option(option)).start();
        running.until_paused();
        let file = File::open(store_of(&running)).expect("the store");
        let found = found(&file);
        assert_eq!(found > 10_000, readable, "{options:?}: found {found} times");
        assert!(readable || found == 0, "{options:?}: found {found} times");
        drop(file);
        running.signal(libc::SIGUSR1);
        let outcome = running.finish();
        outcome.exited(0).paged_within(16 * MIB, 64 * MIB);
        assert_eq!(outcome.out(), "right\n");
    }
}

#[test]
fn a_changed_page_stops_the_program() {
    // One bit of each page; and all pages by their neighbours, which are genuine at their own places.
    for exchange in [false, true] {
        let Some(run) = pattern("0") else { return };
        let running = run.option("--encrypt").start();
        running.until_paused();
        let file = OpenOptions::new().read(true).write(true).open(store_of(&running)).expect("the store");
        let pages = file.metadata().expect("its length").len() / 4096;
        for page in 0..pages {
            let mut content = [0; 4096];
            let from = if exchange { page ^ 1 } else { page };
            if file.read_at(&mut content, from * 4096).is_ok_and(|bytes| bytes == 4096) {
                content[1234] ^= u8::from(!exchange);
                if !exchange || page & 1 == 0 {
                    file.write_all_at(&content, page * 4096).expect("changing it");
                }
            }
        }
        drop(file);
        running.signal(libc::SIGUSR1);
        let outcome = running.finish();
        outcome.exited(125).says("is not what was sealed for that place");
        assert_eq!(outcome.out(), "");
    }
}

#[test]
fn encrypted_programs_and_their_children_give_the_same_results() {
    for (source, arguments, memory) in [
        ("c/realloc_grow.c", &["96"][..], 32),
        ("c/madvise_storm.c", &["96"], 32),
        ("c/fork_deep.c", &["64"], 24),
        ("c/fork_storm.c", &["64"], 24),
        ("c/fork_exec_mix.c", &["64"], 32),
    ] {
        Case::new(source, arguments, memory).compare_with(|run, _| run.option("--encrypt"));
    }
}
