//! Stores that are encrypted, and stores of several tiers: the same results, and nothing to be found or changed from outside.

use ream_tests::{Case, MIB, MemoryServer, Run, Running, Scratch, compiled};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The store's file of a program that runs, as whoever may look into its process finds it.
fn store_of(running: &Running) -> PathBuf {
    file_in(running, &running.directory().join("store"))
}

/// The same, in this directory.
fn file_in(running: &Running, store: &Path) -> PathBuf {
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.pid)).expect("its threads");
    for thread in threads.flatten() {
        for fd in std::fs::read_dir(thread.path().join("fd")).into_iter().flatten().flatten() {
            let link = std::fs::read_link(fd.path()).unwrap_or_default();
            if link.starts_with(store) {
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

/// The same, once most pages are there: they are still being written when the program waits already.
fn found_in_all(file: &File, readable: bool) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = found(file);
        // (Blocks of 512 bytes.)
        let written = if readable { found } else { file.metadata().expect("its size").blocks() as usize / 8 };
        if written > 10_000 || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_of_an_encrypted_store_can_be_read() {
    for (options, readable) in [(&[][..], true), (&["--encrypt"], false), (&["--encrypt", "--io=threads"], false)] {
        let Some(run) = pattern("2") else { return };
        let running = options.iter().fold(run, |run, option| run.option(option)).start();
        running.until_paused();
        let file = File::open(store_of(&running)).expect("the store");
        let found = found_in_all(&file, readable);
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

/// The pattern at a memory server, with a local copy in a directory.
fn with_a_copy(server: &MemoryServer, directory: &Path, children: &str) -> Option<Run> {
    Some(server.store(pattern(children)?).option("--spill").option(directory))
}

#[test]
fn nothing_of_an_encrypted_local_copy_can_be_read() {
    for (options, readable) in [(&[][..], true), (&["--encrypt"], false), (&["--encrypt", "--io=threads"], false)] {
        let mut server = MemoryServer::start("1G", &[]);
        let scratch = Scratch::new("copy");
        let Some(run) = with_a_copy(&server, scratch.path(), "1") else { return };
        let running = with(run, options).start();
        running.until_paused();
        let found = found_in_all(&File::open(file_in(&running, scratch.path())).expect("the copy"), readable);
        assert_eq!(found > 10_000, readable, "{options:?}: found {found} times");
        assert!(readable || found == 0, "{options:?}: found {found} times");
        // All comes from the copy from now on, for a child as well.
        server.signal(libc::SIGKILL);
        server.wait();
        running.signal(libc::SIGUSR1);
        let outcome = running.finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n", "{options:?}");
    }
}

#[test]
fn a_changed_local_copy_matters_only_when_nobody_else_has_the_page() {
    for alone in [false, true] {
        let mut server = MemoryServer::start("1G", &[]);
        let scratch = Scratch::new("copy");
        let Some(run) = with_a_copy(&server, scratch.path(), "0") else { return };
        let running = run.option("--encrypt").start();
        running.until_paused();
        let path = file_in(&running, scratch.path());
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the copy");
        for page in 0..file.metadata().expect("its length").len() / 4096 {
            let mut byte = [0];
            if file.read_at(&mut byte, page * 4096 + 1234).is_ok_and(|bytes| bytes == 1) {
                file.write_all_at(&[byte[0] ^ 1], page * 4096 + 1234).expect("changing it");
            }
        }
        drop(file);
        if alone {
            server.signal(libc::SIGKILL);
            server.wait();
        }
        running.signal(libc::SIGUSR1);
        let outcome = running.finish();
        if alone {
            outcome.exited(125).says("the local copy (--spill) returned a page that is not what was sealed");
        } else {
            outcome.exited(0);
        }
        assert_eq!(outcome.out(), if alone { "" } else { "right\n" });
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

/// A program with pages of all kinds, which change.
fn compressible(memory: u64, arguments: [&str; 4]) -> Option<Run> {
    Some(Run::of(compiled("c/compressible.c", &[])?).args(arguments).memory(memory))
}

fn with(run: Run, options: &[&str]) -> Run {
    options.iter().fold(run, |run, option| run.option(option))
}

#[test]
fn pages_of_all_kinds_come_back_from_all_tiers() {
    for options in [&[][..], &["--encrypt", "--io=threads"]] {
        let Some(run) = compressible(16, ["80", "8", "0", "25"]) else { return };
        let outcome = with(run.zip(16), options).finish();
        outcome.exited(0).paged_within(32 * MIB, 64 * MIB);
        assert_eq!(outcome.out(), "right\n", "{options:?}");
        let summary = outcome.summary();
        for name in ["zip_reads", "below_reads", "zip_kept", "zip_passed", "zip_sunk"] {
            assert!(summary.number(name) > 0, "{options:?}: {name}");
        }
        let tiers = summary.0["tiers"].as_array().expect("tiers");
        assert_eq!((tiers.len(), tiers[1]["name"].as_str()), (2, Some("file")));
        assert!(tiers[0]["hit_rate"].as_f64().is_some_and(|rate| rate > 0.0 && rate < 1.0), "{tiers:?}");
    }
}

#[test]
fn compressed_memory_alone_is_a_store() {
    let Some(run) = compressible(16, ["64", "8", "2", "10"]) else { return };
    let outcome = run.store("zip:192M".as_ref()).finish();
    outcome.exited(0);
    assert_eq!((outcome.out().as_str(), outcome.summary().number("below_reads")), ("right\n", 0));
}

#[test]
fn a_full_store_of_compressed_pages_stops_the_program() {
    let Some(run) = compressible(16, ["96", "8", "0", "100"]) else { return };
    run.store("zip:16M".as_ref()).finish().exited(125).says("is full").says("make zip: larger");
    let Some(run) = compressible(16, ["96", "8", "0", "50"]) else { return };
    run.zip(16).option("--store-limit=24M").finish().exited(125).says("is full");
}

#[test]
fn families_share_what_is_compressed() {
    for (zip, options) in [(16, &[][..]), (64, &["--encrypt"])] {
        let Some(run) = compressible(24, ["64", "4", "2", "25"]) else { return };
        let outcome = with(run.zip(zip), options).finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n", "{options:?}");
    }
    for (source, arguments, memory) in [("c/fork_deep.c", &["48"][..], 24), ("c/fork_killed.c", &["64"], 32)] {
        Case::new(source, arguments, memory).compare_with(|run, _| run.zip(16));
    }
}

#[test]
fn compressed_pages_sink_to_a_memory_server() {
    let server = MemoryServer::start("1G", &[]);
    let Some(run) = compressible(16, ["64", "6", "1", "25"]) else { return };
    let outcome = server.store(run.zip(16)).finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert!(outcome.summary().number("zip_sunk") > 0 && outcome.summary().number("below_reads") > 0);
}

#[test]
fn compressed_pages_that_do_not_fit_are_refused() {
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    for (store, why) in [("zip:9T", "there is here"), ("zip:1M", "at least 16M"), ("zip:x", "zip:x")] {
        let run = Run::of(&program).args(["8", "1", "1"]).memory(64).store(store.as_ref());
        run.finish().exited(125).says(why);
    }
    let twice = Run::of(&program).memory(64).zip(64).store("zip:64M".as_ref()).finish();
    twice.exited(125).says("the first tier only");
}
