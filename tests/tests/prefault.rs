//! `--prefault`: what is there before it is touched costs no page fault; what is reserved in a pool is the program's.

use ream_tests::{Case, Outcome, Pool, Run};
use std::collections::HashMap;
use std::path::PathBuf;

fn program() -> Option<PathBuf> {
    Case::new("c/ready.c", &[], 512).build()
}

/// What the program counted.
fn counts(outcome: &Outcome) -> HashMap<String, u64> {
    let pair = |line: &str| line.split_once(' ').and_then(|(word, rest)| Some((word.to_owned(), rest.parse().ok()?)));
    outcome.err().lines().filter_map(pair).collect()
}

fn run(options: &[&str], memory: u64, mebibytes: u64) -> Option<Outcome> {
    let run = Run::of(program()?).arg(mebibytes.to_string()).memory(memory);
    Some(options.iter().fold(run, Run::option).finish())
}

/// Large pages take few faults as it is, so this is looked at with small ones.
#[test]
fn what_is_populated_is_touched_without_faults() {
    let Some(plain) = run(&["--pages=small"], 512, 32) else { return };
    let ready = run(&["--pages=small", "--prefault=heap,bss,stack,shm,text"], 512, 32).expect("built above");
    plain.exited(0);
    ready.exited(0);
    assert_eq!((plain.out().as_str(), ready.out().as_str()), ("right\n", "right\n"));
    let (plain, ready, said) = (counts(&plain), counts(&ready), ready.describe());
    for (region, pages) in
        [("bss", 1800), ("stack", 1000), ("thread", 1000), ("shared", 1000), ("mapped", 1000), ("block", 8000)]
    {
        assert!(plain[region] >= pages, "{region} without: {plain:?}");
        assert!(ready[region] <= 16, "{region}: {said}");
    }
}

#[test]
fn only_what_is_named_is_populated() {
    let Some(some) = run(&["--pages=small", "--prefault=bss,stack=1M"], 512, 32) else { return };
    some.exited(0);
    let found = counts(&some);
    assert!(found["bss"] <= 16 && found["mapped"] >= 1000 && found["block"] >= 8000, "{found:?}");
    // Of 5 MiB of the stack one was there.
    assert!((900..=1100).contains(&found["thread"]), "{found:?}");
    // Without a value: what counts against the budget.
    let general = counts(&run(&["--pages=small", "--prefault"], 512, 32).expect("built above"));
    assert!(general["bss"] <= 16 && general["block"] <= 16 && general["shared"] >= 1000, "{general:?}");
    // Only the first so many bytes of the heap.
    let part = counts(&run(&["--pages=small", "--prefault=heap=24M"], 512, 64).expect("built above"));
    assert!(part["bss"] >= 1800 && part["block"] >= 8000, "{part:?}");
}

/// With large pages under `auto`, what is populated is all zeros, and must not be taken for waste.
#[test]
fn nothing_is_given_back_that_is_not_used_yet() {
    let Some(outcome) = run(&["--prefault=heap,bss", "--bloat=0", "--bloat-age=4"], 1024, 192) else { return };
    outcome.exited(0);
    let found = counts(&outcome);
    assert!(found["bss"] <= 16 && found["block"] <= 16, "{found:?}");
}

#[test]
fn never_more_than_the_budget() {
    let Some(refused) = run(&["--prefault=heap=65M"], 64, 8) else { return };
    refused.exited(125);
    assert_eq!(
        refused.err(),
        "ream: --prefault: heap=65 MiB: the budget of 64 MiB (--memory) has room for 64 MiB of it; give less, or a larger \
         budget\n"
    );
    // As much as fits, and then it is said.
    let outcome = run(&["--prefault=heap"], 64, 96).expect("built above");
    outcome.exited(0);
    assert!(outcome.err().contains("MiB more of the heap than the budget has room for"), "{}", outcome.describe());
    assert!(outcome.summary().number("peak_resident") <= (64 << 20) * 102 / 100, "{}", outcome.describe());
    let strict = run(&["--prefault=heap:require"], 64, 96).expect("built above");
    strict.exited(125);
    assert!(strict.err().contains("; the program is stopped"), "{}", strict.describe());
}

/// The pages are the program's from its start on, and those of freed blocks stay its own.
#[test]
fn a_pool_s_pages_are_reserved_before_the_program_begins() {
    let Some(pool) = Pool::with_free(150) else { return };
    let Some(outcome) = run(&["--pages=heap=hugetlb:require,bss=huge", "--prefault=heap=128M:require"], 512, 32) else {
        return;
    };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    let found = counts(&outcome);
    // 128 MiB are 64 pages; those of the chunk of small blocks that it has used already are no longer reserved, but its own.
    let used = 150 - found["free"];
    assert_eq!(found["reserved"] + used, 64, "{}", outcome.describe());
    assert!(used <= 34 && found["block"] <= 1, "{}", outcome.describe());
    // The block is free again, and its 16 pages are still the program's.
    assert!(found["again"] + 2 >= found["reserved"], "{}", outcome.describe());
    assert_eq!(pool.until_free(150), 150, "pages of the pool are missing");
    // More than the rest of the budget allows.
    let refused = run(&["--pages=heap=hugetlb", "--prefault=heap=100M"], 128, 32).expect("built above");
    refused.exited(125);
    assert!(refused.err().contains("has room for 96 MiB of it"), "{}", refused.describe());
}

#[test]
fn a_pool_that_is_short_at_the_start_is_said_or_stops() {
    let Some(pool) = Pool::with_free(40) else { return };
    let Some(outcome) = run(&["--pages=heap=hugetlb", "--prefault=heap=128M"], 512, 32) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert!(
        outcome.err().contains("--prefault: 48 MiB of the heap cannot be reserved: the pool has too few left"),
        "{}",
        outcome.describe()
    );
    let strict = run(&["--pages=heap=hugetlb", "--prefault=heap=128M:require"], 512, 32).expect("built above");
    strict.exited(125);
    assert!(
        strict.err().contains("the program is not started (as root: ream setup --hugetlb SIZE)"),
        "{}",
        strict.describe()
    );
    assert_eq!((strict.out().as_str(), strict.err().lines().count()), ("", 1), "{}", strict.describe());
    assert_eq!(pool.until_free(40), 40);
}

/// What others take, or an administrator takes back, while the program runs: what is reserved is its own.
#[test]
fn what_is_reserved_is_there_when_the_pool_has_run_dry() {
    let Some(pool) = Pool::with_free(120) else { return };
    let Some(program) = program() else { return };
    let pages = "--pages=heap=hugetlb:require,bss=huge";
    for reserved in [true, false] {
        let run = Run::of(&program).args(["64", "wait"]).memory(512).option(pages);
        let run = if reserved { run.option("--prefault=heap=160M:require") } else { run }.start();
        run.until_paused();
        let promised = pool.promised();
        assert!(pool.leave_free(promised), "{promised} pages are promised");
        run.signal(libc::SIGUSR1);
        let outcome = run.finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        // Without, the program's block of 64 MiB finds too few. What its child says of its own comes later.
        let err = outcome.err();
        let (said, _) = err.split_once("\nblock ").expect("a line of the program");
        let short = said.contains("do not come to lie on pages of a pool");
        assert_eq!(short, !reserved, "{}", outcome.describe());
        assert!(pool.leave_free(120));
    }
}
