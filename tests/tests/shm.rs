//! Shared memory of every kind on transparent large pages, on pages of the pool and on small ones: its content, what forks,
//! attaching and pieces do to it, where it lies, and that it is neither paged nor counted.

use ream_tests::{Case, MIB, Outcome, Pool, Run, Scratch, Shmem, is_root, make_runnable, ream_binary, skip, tool};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Not a multiple of a block, nor of a page: four whole blocks, and a part of a fifth.
const KIB: &str = "9001";
const WHOLE: u64 = 8 << 10;
const ROUNDED: u64 = 10 << 10;
const KINDS: [&str; 5] = ["anon", "memfd", "shm_open", "sysv", "key"];

fn program() -> Option<PathBuf> {
    Case::new("c/shm.c", &[], 512).build()
}

/// The `ream` command, for a run that sees a /dev/shm of its own with such options.
fn with_dev_shm(options: &str) -> Option<(Scratch, PathBuf)> {
    let (Some(unshare), true) = (tool("unshare"), is_root()) else {
        skip("a /dev/shm of one's own", "needs root and unshare");
        return None;
    };
    let scratch = Scratch::new("dev-shm");
    let script = scratch.path().join("ream");
    let text = format!(
        "#!/bin/sh\nexec {} --mount sh -c 'mount -t tmpfs -o {options} tmpfs /dev/shm && exec \"$0\" \"$@\"' {} \"$@\"\n",
        unshare.display(),
        ream_binary().display()
    );
    std::fs::write(&script, text).expect("writing a script");
    make_runnable(&script, 0o755);
    Some((scratch, script))
}

fn run(ream: &Path, pages: &str, kind: &str, more: &[&str]) -> Option<Outcome> {
    let run = Run::of(program()?).args([kind, KIB]).args(more).memory(512).ream(ream);
    Some(run.option(format!("--pages={pages}")).finish())
}

/// KiB on transparent large pages and on the pool's, by who has looked.
fn amounts(outcome: &Outcome, who: &str) -> [u64; 2] {
    let out = outcome.out();
    let line = out.lines().find_map(|line| line.strip_prefix(who)).expect("a line of the program");
    let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
    core::array::from_fn(|_| numbers.next().expect("two numbers"))
}

/// Whoever looked at it found so much of it on pages of either kind.
#[track_caller]
fn lies(outcome: &Outcome, transparent: u64, pool: u64) {
    outcome.exited(0);
    assert!(outcome.out().ends_with("right\n"), "{}", outcome.describe());
    for who in ["filled", "attached"].into_iter().filter(|who| outcome.out().contains(who)) {
        assert_eq!(amounts(outcome, who), [transparent, pool], "{who}: {}", outcome.describe());
    }
}

#[test]
fn every_kind_lies_on_transparent_large_pages() {
    let Some(_shmem) = Shmem::set("advise") else { return };
    let Some((_scratch, ream)) = with_dev_shm("huge=advise") else { return };
    // Where all else is to be small, too.
    for pages in ["shm=huge:require", "small,shm=huge"] {
        for kind in KINDS {
            let Some(outcome) = run(&ream, pages, kind, &[]) else { return };
            lies(&outcome, WHOLE, 0);
            assert!(!outcome.err().contains("--pages"), "{}", outcome.describe());
        }
    }
}

#[test]
fn small_unless_asked_for() {
    let Some(_shmem) = Shmem::set("advise") else { return };
    for kind in KINDS {
        let Some(outcome) = run(&ream_binary(), "huge", kind, &[]) else { return };
        lies(&outcome, 0, 0);
    }
}

#[test]
fn where_the_kernel_has_none_that_is_said_or_stops() {
    let Some(_shmem) = Shmem::set("never") else { return };
    for kind in KINDS {
        let Some(outcome) = run(&ream_binary(), "shm=huge", kind, &[]) else { return };
        lies(&outcome, 0, 0);
        let said = outcome.err().matches("shmem_enabled never); as root: ream setup").count();
        assert_eq!(said, 1, "{}", outcome.describe());
    }
    let strict = run(&ream_binary(), "shm=huge:require", "anon", &[]).expect("built above");
    strict.exited(125);
    assert_eq!(strict.out(), "");
    assert!(strict.err().contains("; shm must have them"), "{}", strict.describe());
}

/// Files below /dev/shm go by its mount's options: they keep small pages, and all else does not.
#[test]
fn files_are_told_apart() {
    let Some(_shmem) = Shmem::set("advise") else { return };
    let Some((_scratch, ream)) = with_dev_shm("huge=never") else { return };
    for (kind, transparent) in [("shm_open", 0), ("memfd", WHOLE)] {
        let Some(outcome) = run(&ream, "shm=huge", kind, &[]) else { return };
        outcome.exited(0);
        assert_eq!(amounts(&outcome, "filled"), [transparent, 0], "{}", outcome.describe());
        if kind == "shm_open" {
            // What is there when it is attached is made large all the same.
            assert_eq!(amounts(&outcome, "attached"), [WHOLE, 0], "{}", outcome.describe());
        }
        assert!(outcome.err().contains("mount -o remount,huge=advise /dev/shm; the rest gets them"));
    }
    let strict = run(&ream, "shm=huge:require", "anon", &[]).expect("built above");
    strict.exited(125);
}

#[test]
fn mappings_and_segments_lie_on_pages_of_the_pool() {
    let Some(pool) = Pool::with_free(12) else { return };
    let Some(_shmem) = Shmem::set("advise") else { return };
    for kind in ["anon", "sysv", "key"] {
        let Some(outcome) = run(&ream_binary(), "shm=hugetlb:require", kind, &[]) else { return };
        lies(&outcome, 0, ROUNDED);
        assert_eq!(pool.until_free(12), 12, "{kind}: pages of the pool are missing");
    }
    // Files would not be what they are; that is said.
    let Some((_scratch, ream)) = with_dev_shm("huge=advise") else { return };
    for kind in ["memfd", "shm_open"] {
        let outcome = run(&ream, "shm=hugetlb", kind, &[]).expect("built above");
        lies(&outcome, WHOLE, 0);
        let reason = "a file there cannot be written or have any length";
        assert!(
            outcome.err().contains(reason) && outcome.err().contains("it gets transparent"),
            "{}",
            outcome.describe()
        );
        let strict = run(&ream, "shm=hugetlb:require", kind, &[]).expect("built above");
        assert!(strict.out().contains("refused 12") && strict.err().contains("it is refused"), "{}", strict.describe());
    }
}

#[test]
fn a_short_pool_is_followed_by_large_and_then_small_pages() {
    let Some(pool) = Pool::with_free(3) else { return };
    for (word, next, transparent) in [("advise", "transparent large pages", WHOLE), ("never", "small pages", 0)] {
        let Some(_shmem) = Shmem::set(word) else { return };
        for kind in ["anon", "sysv", "key"] {
            let Some(outcome) = run(&ream_binary(), "shm=hugetlb", kind, &[]) else { return };
            lies(&outcome, transparent, 0);
            let said = outcome.err().matches(&format!("the pool has too few left; it gets {next}")).count();
            // The process that attaches does not make the segment.
            assert_eq!(said, 1, "{}", outcome.describe());
        }
    }
    let strict = run(&ream_binary(), "shm=hugetlb:require", "anon", &[]).expect("built above");
    strict.exited(3);
    assert!(strict.out().contains("refused 12") && strict.err().contains("it is refused"), "{}", strict.describe());
    let segment = run(&ream_binary(), "shm=hugetlb:require", "key", &[]).expect("built above");
    assert!(segment.err().contains("errno 12"), "{}", segment.describe());
    assert!(pool.leave_free(0));
    let empty = run(&ream_binary(), "shm=hugetlb:require", "anon", &[]).expect("built above");
    empty.exited(125);
    assert!(empty.err().contains("the pool of 2 MiB pages is empty; as root: ream setup"), "{}", empty.describe());
}

/// Twice the budget of shared memory beside memory that is paged: none of it goes, and none of it counts.
#[test]
fn neither_paged_nor_counted() {
    let Some(pool) = Pool::with_free(34) else { return };
    let Some(_shmem) = Shmem::set("advise") else { return };
    for (kind, pages) in [("anon", "shm=huge"), ("memfd", "shm=huge"), ("key", "shm=huge"), ("anon", "shm=hugetlb")] {
        let Some(program) = program() else { return };
        let arguments = [kind, "65537", "work", "96"];
        let outcome = Run::of(&program).args(arguments).memory(32).option(format!("--pages={pages}")).finish();
        outcome.exited(0);
        assert!(outcome.out().ends_with("right\n"), "{}", outcome.describe());
        let summary = outcome.summary();
        assert!(summary.number("bytes_out") >= 64 * MIB, "{}", outcome.describe());
        assert!(summary.number("peak_resident") <= (32 << 20) * 102 / 100, "{}", outcome.describe());
        let expected = if pages == "shm=huge" { [64 << 10, 0] } else { [0, 66 << 10] };
        assert_eq!(amounts(&outcome, "filled"), expected, "{}", outcome.describe());
        assert_eq!(pool.until_free(34), 34);

        let running = Run::of(&program).args([kind, "65537", "keep", "96"]).memory(32);
        let running = running.option(format!("--pages={pages}")).start();
        running.until_paused();
        let output = Command::new(ream_binary()).args(["status", "--json", &running.pid.to_string()]).output();
        let json: serde_json::Value = serde_json::from_slice(&output.expect("ream status").stdout).expect("JSON");
        let regions = json["regions"].as_array().expect("regions");
        let large =
            |kind: &str| regions.iter().find(|one| one["kind"] == kind && one["size"].as_u64() >= Some(64 * MIB));
        let shared = large("shared memory").unwrap_or_else(|| panic!("{kind}: no such region: {json}"));
        assert_eq!(shared["paged"], false, "{shared}");
        assert!(
            shared["resident"].as_u64() >= Some(64 * MIB) && shared["on_2m"].as_u64() >= Some(64 * MIB),
            "{shared}"
        );
        assert!(regions.iter().any(|one| one["paged"] == true), "{json}");
        running.signal(libc::SIGKILL);
        running.finish();
    }
}
