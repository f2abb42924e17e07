//! On which pages a program's memory lies, and what `ream status` says about it.

use ream_tests::{Case, Outcome, Run, compiled, is_root, large_pages, ream_binary, skip};
use std::process::Command;

/// Runs the program that looks at its own pages; `None`, loudly, where that is not possible.
fn coverage(flags: &[&str], pages: &str) -> Option<Outcome> {
    let case = Case { flags, ..Case::new("c/coverage.c", &[], 4096) };
    let program = case.build()?;
    let outcome = Run::of(&program).memory(case.memory).option(format!("--pages={pages}")).finish();
    if outcome.status.code() == Some(77) {
        skip("coverage", &outcome.err());
        return None;
    }
    outcome.exited(0);
    Some(outcome)
}

/// Name, whole blocks, those on large pages, KiB in RAM, those on large pages.
fn rows(outcome: &Outcome) -> Vec<(String, [u64; 4])> {
    let row = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name").to_owned();
        (name, core::array::from_fn(|_| words.next().expect("four numbers").parse().expect("a number")))
    };
    outcome.out().lines().map(row).collect()
}

/// The kernel gives large pages only where it is allowed to.
fn everything_is_large(flags: &[&str], pages: &str) {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let Some(outcome) = coverage(flags, pages) else { return };
    let rows = rows(&outcome);
    assert_eq!(rows.len(), 14, "{}", outcome.describe());
    for (name, [blocks, large, resident, on_large]) in rows {
        let where_ = format!("{name}, --pages={pages}, {flags:?}: {}", outcome.out());
        // Under auto a stack's uppermost blocks may keep small pages: most threads never leave them.
        let spared = u64::from(pages == "auto" && name.starts_with("stack"));
        assert!((large + spared) * 100 >= blocks * 95, "{where_}");
        // Where Ream chose the address, and where ends do not count.
        if name.starts_with("heap") || name == "bss_64m" {
            assert!(on_large * 100 >= resident * 95, "{where_}");
        }
    }
}

#[test]
fn heap_static_data_and_stacks_lie_on_large_pages() {
    everything_is_large(&[], "auto");
}

#[test]
fn also_in_a_program_at_a_fixed_place() {
    everything_is_large(&["-no-pie", "-fno-pie"], "auto");
}

#[test]
fn stacks_from_their_first_page_on_when_asked_for() {
    everything_is_large(&[], "huge");
}

#[test]
fn none_where_small_ones_are_asked_for() {
    let Some(outcome) = coverage(&[], "small") else { return };
    for (name, [.., on_large]) in rows(&outcome) {
        assert_eq!(on_large, 0, "{name}: {}", outcome.describe());
    }
}

/// Threads made and ended in numbers, with all kinds of stacks, and forks among them.
#[test]
fn threads_with_all_kinds_of_stacks() {
    for pages in ["auto", "huge", "small"] {
        let case = Case::new("c/stacks.c", &[], 256);
        let Some(program) = case.build() else { return };
        let plain = Run::of(&program).finish();
        plain.exited(0);
        Run::of(&program).memory(case.memory).option(format!("--pages={pages}")).finish().same_as(&plain);
    }
}

/// Nothing is mapped in reserve where address space is limited.
#[test]
fn small_mappings_under_a_limit_on_address_space() {
    let Some(program) = Case::new("c/limited_pieces.c", &[], 1024).build() else { return };
    let plain = Run::of(&program).finish();
    plain.exited(0);
    Run::of(&program).memory(1024).finish().same_as(&plain);
}

#[test]
fn status_tells_what_a_running_program_has() {
    let Some(program) = compiled("c/endless.c", &[]) else { return };
    let running = Run::of(program).arg("256").memory(64).start();
    running.until_resident(40);
    let pid = running.pid;
    let ask = |arguments: &[&str]| {
        let output = Command::new(ream_binary()).arg("status").args(arguments).output().expect("running ream status");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output)
    };
    let paged = || {
        let (text, output) = ask(&[&pid.to_string()]);
        assert!(output.status.success(), "{output:?}");
        Some(text).filter(|text| text.contains("paged"))
    };
    let mut tries = 0..2400;
    let text = loop {
        match paged() {
            Some(text) => break text,
            None => assert!(tries.next().is_some(), "it is not paged"),
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    };
    for words in ["heap", "main stack", "code", "staging", "TLB: ", "on large pages"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (json, _) = ask(&[&pid.to_string(), "--json"]);
    assert!(json.contains("\"ream\": true") && json.contains("\"paged\": true"), "{json}");
    let (list, _) = ask(&[]);
    assert!(list.lines().any(|line| line.starts_with(&format!("{pid} "))), "{list}");
    running.signal(libc::SIGKILL);
    running.finish();
    let (_, output) = ask(&[&pid.to_string()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such process"), "{output:?}");
}

/// One page in 64 is touched, and in the end not much more than that is in RAM: large pages give back what they waste.
#[test]
fn what_large_pages_waste_is_given_back() {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let Some(program) = Case::new("c/bloated.c", &[], 1024).build() else { return };
    if let Some(reason) = cannot_give_back() {
        return skip("giving back", &reason);
    }
    // 4096 pages in use, page tables, and what Ream needs for itself; 256 MiB where nothing is given back.
    let outcome = Run::of(&program).args(["256", "16000", "30"]).memory(1024).finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    let kept = Run::of(&program).args(["256", "16000", "3"]).memory(1024).option("--bloat=100").finish();
    kept.exited(1);
}

/// After that a program has at most a tenth more in RAM than without Ream, of which most is Ream's own code, some 1 MiB: that the
/// kernel maps in steps of 64 KiB and more around what is used, so some steps more or less with each version and page cache.
#[test]
fn a_tenth_more_than_plain_at_most() {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let Some(program) = compiled("c/bloated.c", &[]) else { return };
    if let Some(reason) = cannot_give_back() {
        return skip("giving back", &reason);
    }
    for mebibytes in ["1024", "2048"] {
        let plain = Run::of(&program).args([mebibytes, "1000000000", "60"]).finish();
        plain.exited(0);
        let told = plain.err();
        let last = told.split_whitespace().rev().nth(1).and_then(|word| word.parse::<u64>().ok());
        let most = last.unwrap_or_else(|| panic!("{told}")) * 110 / 100;
        let outcome = Run::of(&program).args([mebibytes, &most.to_string(), "60"]).under_ream().finish();
        eprintln!("{mebibytes} MiB, {most} KiB: {}", outcome.err().trim());
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
    }
}

/// What is given back must be movable, by a whole userfaultfd.
fn cannot_give_back() -> Option<String> {
    let doctor = Command::new(ream_binary()).args(["doctor", "--json"]).output().expect("running ream doctor");
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    (!text.contains("pages can be moved")).then(|| "this user gets no engine that moves pages".to_owned())
}

/// Blocks of all kinds come and go, are used here and there, freed, zeroed, moved and forked, while large pages that they
/// waste are given back after some milliseconds.
#[test]
fn nothing_is_lost_while_waste_is_given_back() {
    let Some(program) = Case::new("c/wasteful.c", &[], 2048).build() else { return };
    let outcome = Run::of(&program).args(["8", "3"]).memory(2048).option("--bloat=0").option("--bloat-age=4").finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
}

/// A program that says itself what children inherit, and one that gives up root's rights, have no thread of ours that would
/// undo the one or keep the other.
#[test]
fn programs_that_are_left_alone() {
    let Some(program) = Case::new("c/left_alone.c", &[], 2048).build() else { return };
    if let Some(reason) =
        cannot_give_back().or_else(|| (!large_pages(&["always", "madvise"])).then(|| "large pages are off".to_owned()))
    {
        return skip("giving back", &reason);
    }
    for what in ["dontfork", "setuid"] {
        if what == "setuid" && !is_root() {
            skip("giving up root's rights", "needs root");
            continue;
        }
        let outcome = Run::of(&program).arg(what).memory(2048).option("--bloat=0").option("--bloat-age=4").finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "left alone\n", "{}", outcome.describe());
    }
}

/// KiB of heap and static data on large pages at most, under a budget of so many MiB.
fn regions(pages: &str, memory: u64, rounds: u32, wait: u32) -> Option<[u64; 2]> {
    let program = compiled("c/regions.c", &[])?;
    let run = Run::of(program).args(["96".to_owned(), rounds.to_string(), wait.to_string()]).memory(memory);
    let outcome = run.option(format!("--pages={pages}")).option("--bloat-age=4").finish();
    outcome.exited(0);
    let out = outcome.out();
    let mut words = out.split_whitespace().map(|word| word.parse().expect("a number"));
    Some([words.next().expect("two numbers"), words.next().expect("two numbers")])
}

/// Memory that is to have small pages keeps them when its blocks are full, and when they come back whole from the store, though
/// other memory has large ones.
#[test]
fn full_blocks_stay_small_where_that_is_asked_for() {
    if !large_pages(&["madvise"]) {
        return;
    }
    for (memory, rounds, wait) in [(1024, 0, 700), (64, 1, 0)] {
        let Some([heap, statics]) = regions("heap=small", memory, rounds, wait) else { return };
        assert!(heap == 0 && (memory < 1024 || statics > 0), "{memory}: {heap} {statics}");
        let [heap, statics] = regions("bss=small", memory, rounds, wait).expect("built above");
        assert!((memory < 1024 || heap > 0) && statics == 0, "{memory}: {heap} {statics}");
    }
}

/// Blocks that come and go stay on large pages, and come back on them after single pages were read all over.
#[test]
fn blocks_that_come_and_go_keep_large_pages() {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let Some(program) = compiled("c/recurring.c", &[]) else { return };
    let outcome = Run::of(&program).args(["512", "12"]).memory(128).option("--pages=huge").finish();
    outcome.exited(0);
    let out = outcome.out();
    let mut words = out.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    let (resident, large) = (words.next().expect("two numbers"), words.next().expect("two numbers"));
    assert!(resident > 64 << 10 && large > resident * 17 / 20, "{large} of {resident} KiB");
}
