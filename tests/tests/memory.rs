//! Programs that use four times their budget through malloc, mmap and static arrays, in every order and by many
//! threads; and what malloc, mmap and their relatives promise.

use ream_tests::{Case, MIB, MemoryServer, Proxy, Run, Scratch, UNMANAGED, compare, compiled, is_root};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn eight_threads_in_every_order_and_a_fork_under_writes() {
    Case::new("c/large_threads.c", &["256"], 64).compare();
}

/// Each may fill all from one wire to the next before the watcher hears of it, and where they are more than the processors, to set
/// a wire takes as long as whoever is in a fault there waits for one. With wires from half of the budget on, these had 2 to 3.5 GiB.
#[test]
fn threads_that_fill_at_once_exceed_no_budget() {
    let Some(program) = Case::new("c/all_at_once.c", &[], 1024).build() else { return };
    for arguments in [["8", "384", "0"], ["50", "60", "0"]] {
        let outcome = Run::of(&program).args(arguments).memory(1024).finish();
        outcome.exited(0);
        let peak = outcome.summary().number("peak_resident");
        // On a busy machine the last to be counted come a little late.
        assert!(peak <= 1280 * MIB, "peak resident {} MiB of 1024\n{}", peak / MIB, outcome.describe());
        assert!(
            outcome.peak_rss <= 1408 * MIB,
            "one process had {} MiB\n{}",
            outcome.peak_rss / MIB,
            outcome.describe()
        );
    }
}

/// More streams than can be compared with every fault: each is found again where it goes on, waits for a block of frames rather
/// than going on with a page, and so is written and read in blocks. Nearly each page was a fault of its own.
#[test]
fn many_threads_are_read_ahead_for() {
    let Some(program) = Case::new("c/all_at_once.c", &[], 256).build() else { return };
    let outcome = Run::of(&program).args(["60", "12", "2"]).memory(256).finish();
    outcome.exited(0);
    let (faults, reads) = (outcome.summary().number("faults"), outcome.summary().number("reads"));
    let pages = 3 * 60 * 12 * MIB / 4096;
    assert!(faults < pages / 8 && reads < pages / 8, "{faults} faults, {reads} reads\n{}", outcome.describe());
}

/// A quarter more than the budget, read ten times over by one thread or two: each pass read all of it.
#[test]
fn a_part_of_what_comes_round_stays() {
    let Some(program) = Case::new("c/all_at_once.c", &[], 64).build() else { return };
    for arguments in [["1", "80", "10"], ["2", "40", "10"]] {
        let outcome = Run::of(&program).args(arguments).memory(64).finish();
        outcome.exited(0);
        let read = outcome.summary().number("bytes_in");
        assert!(read < 10 * 80 * MIB * 3 / 4, "read {} MiB\n{}", read / MIB, outcome.describe());
    }
}

/// A large page is an eighth of such a budget; and who has all that it reserved gives some up before others overdraw.
#[test]
fn newcomers_with_small_parts_exceed_no_budget() {
    let Some(program) = Case::new("c/newcomers.c", &[], 16).build() else { return };
    for mebibytes in ["5", "8", "8", "20"] {
        let outcome = Run::of(&program).args(["4", mebibytes]).memory(16).finish();
        outcome.exited(0);
        let peak = outcome.summary().number("peak_resident");
        // Up to 20 MiB before; on a busy machine those with too much may see that others starve a little late.
        assert!(peak <= 17 * MIB + MIB / 2, "peak resident {peak} of 16 MiB, {mebibytes} each\n{}", outcome.describe());
    }
}

/// Those that have all that they reserved, none of them half of the budget, give up some to who begins later.
#[test]
fn newcomers_get_their_part_of_those_that_are_not_paged() {
    let Some(program) = Case::new("c/newcomer.c", &[], 16).build() else { return };
    let outcome = Run::of(&program).args(["3", "5", "3"]).memory(16).finish();
    outcome.exited(0);
    assert!(outcome.summary().number("engagements") > 1, "nobody else gave anything up\n{}", outcome.describe());
}

/// Who was paged and has freed nearly all of it does not keep an equal part of the budget from who needs it.
#[test]
fn what_is_not_used_of_an_equal_part_is_had_by_others() {
    let Some(program) = Case::new("c/newcomer.c", &[], 64).build() else { return };
    let outcome = Run::of(&program).args(["1", "96", "44", "2"]).memory(64).finish();
    outcome.exited(0);
    assert_eq!(outcome.summary().number("engagements"), 2, "both are to be paged\n{}", outcome.describe());
}

/// Who waits for others leaves them nearly all of its part, whether it has been paged already (72 MiB do not fit), has more than its
/// part, or comes to be paged for that alone: the second of two with 20 MiB. (The first has no watcher.)
#[test]
fn who_waits_leaves_others_its_part() {
    let Some(program) = Case::new("c/newcomer.c", &[], 64).build() else { return };
    for arguments in [["1", "72", "52", "72", "72"], ["1", "44", "40", "44", "44"], ["2", "20", "35", "20", "50"]] {
        let outcome = Run::of(&program).args(arguments).memory(64).finish();
        outcome.exited(0);
        assert_eq!(outcome.summary().number("engagements"), 2, "both are to be paged\n{}", outcome.describe());
    }
}

#[test]
fn realloc_grows_and_shrinks() {
    Case::new("c/realloc_grow.c", &["256"], 64).compare();
}

#[test]
fn calloc_gives_zeros_where_memory_was_used_before() {
    Case::new("c/calloc_zero.c", &["256"], 64).compare();
}

#[test]
fn malloc_keeps_its_promises_and_what_cannot_be_is_refused() {
    for source in ["c/malloc_semantics.c", "c/too_large.c"] {
        let Some(program) = Case::new(source, &[], 64).build() else { return };
        let plain = Run::of(&program).finish();
        plain.exited(0);
        Run::of(&program).memory(64).finish().same_as(&plain);
    }
}

#[test]
fn parts_are_unmapped_moved_protected_and_discarded() {
    for seed in ["4", "5"] {
        Case::new("c/munmap_parts.c", &["256", "4000", seed], 48).compare();
    }
}

#[test]
fn edges_are_as_the_kernel_has_them() {
    Case::new("c/edges.c", &[], 64).compare();
}

#[test]
fn what_the_kernel_refuses_costs_nothing() {
    Case::new("c/refused.c", &["96"], 32).compare();
}

/// A program that leaves Ream no descriptor runs with all its data in RAM, and the summary does not say that they fitted.
#[test]
fn what_cannot_be_paged_is_said() {
    let Some(program) = Case::new("c/unpageable.c", &["48"], 16).build() else { return };
    let outcome = Run::of(program).arg("48").memory(16).finish();
    outcome.exited(0);
    assert_eq!(outcome.summary().number("engagements"), 0, "{}", outcome.describe());
    assert_eq!(outcome.summary().number("engagements_failed"), 1, "{}", outcome.describe());
}

/// Beyond what the pager's tables reach, on machines that have such addresses (`tests/kernels.sh`'s do).
#[test]
fn memory_at_addresses_of_fifty_bits() {
    Case::new("c/high.c", &["96"], 160).compare();
}

/// Wires, while nothing is paged yet, must not show in what mremap does.
#[test]
fn mappings_grow_before_paging_starts_and_after() {
    Case::new("c/grow_early.c", &["256"], 48).compare();
}

/// Allocators that are linked into a program take memory so.
#[test]
fn what_is_taken_by_sbrk_is_paged() {
    Case::new("c/own_break.c", &["256"], 64).compare();
}

#[test]
fn static_arrays_are_paged() {
    Case::new("c/bss_big.c", &[], 64).compare();
}

/// What was read before paging began is there as zeros that cost nothing, and no fault tells when it is written to.
#[test]
fn zeros_that_were_read_do_not_outrun_the_budget() {
    const PAGES: u64 = 768 << 8;
    for _ in 0..2 {
        let Some(outcome) = Case::new("c/read_first.c", &["768"], 48).compare() else { return };
        // Zeros that are there when paging begins are not moved out: each page leaves once for each time that it has come.
        let number = |name| outcome.summary().number(name);
        let extra = number("evictions").saturating_sub(number("bytes_in") / 4096);
        let holds = is_root() && ream_tests::kernel_is_at_least(6, 8) && std::env::var_os("REAM_TEST_ENGINE").is_none();
        assert!(!holds || extra < PAGES + PAGES / 4, "{extra} pages left that had not come\n{}", outcome.describe());
    }
    Case::new("c/read_first.c", &["768", "fork"], 48).compare();
}

/// Where the kernel tells of protected pages, those that were only read leave without being compared with the store.
#[test]
fn pages_are_read_at_random_and_changed_now_and_then() {
    let Some(outcome) = Case::new("c/random_reads.c", &["128"], 48).compare() else { return };
    let number = |name| outcome.summary().number(name);
    // All that comes in is hashed, and all that is moved out.
    let compared = number("hashes").saturating_sub(number("bytes_in") / 4096);
    let guards = ream_tests::kernel_is_at_least(6, 7) && std::env::var_os("REAM_TEST_ENGINE").is_none();
    if guards && number("evictions") < compared + 10_000 {
        panic!("{} pages were evicted, and {compared} compared\n{}", number("evictions"), outcome.describe());
    }
}

#[test]
fn fortran_common_blocks_are_paged() {
    Case::new("f90/common_big.f90", &[], 64).compare_with(|run, _| run.env("OMP_NUM_THREADS", "4"));
}

#[test]
fn containers_of_small_objects() {
    Case::new("cpp/containers.cpp", &["256"], 64).compare();
}

#[test]
fn threads_that_discard_parts() {
    Case::new("c/madvise_storm.c", &["256"], 48).compare();
}

#[test]
fn a_discard_that_is_held_up_while_paging_begins() {
    Case::new("c/late_discard.c", &["96"], 32).compare();
}

/// Two libraries with large arrays, in a directory of their own.
fn libraries(bytes: &str) -> Option<(Scratch, [PathBuf; 2])> {
    let library = compiled("c/opened.c", &["-DLIBRARY", bytes, "-shared", "-fPIC"])?;
    let scratch = Scratch::new("opened");
    let copies = ["one.so", "two.so"].map(|name| scratch.file(name));
    for copy in &copies {
        std::fs::copy(&library, copy).expect("a copy of the library");
    }
    Some((scratch, copies))
}

/// Their data without values is paged where it is; they are never unloaded then.
#[test]
fn libraries_with_large_arrays_that_are_opened_later() {
    let Some(program) = compiled("c/opened.c", &["-pthread"]) else { return };
    let Some((_scratch, libraries)) = libraries("-DBYTES=(96*MEGABYTE)") else { return };
    compare(48, 0, || Run::of(&program).args(libraries.iter()));
}

/// While the first thread waits until paging can begin, for which the way to the store takes its time here, the second one
/// does not fill the library that it asks for.
#[test]
fn libraries_that_two_threads_ask_for_at_once() {
    const MEMORY: u64 = 96;
    let Some(program) = compiled("c/opened_together.c", &["-pthread"]) else { return };
    let Some((_scratch, libraries)) = libraries("-DBYTES=(144*MEGABYTE)") else { return };
    let server = MemoryServer::start("1G", &[]);
    let held = Arc::new(AtomicBool::new(false));
    let holds = held.clone();
    let wait = move |_: usize, _: bool, _: usize, _: &mut [u8]| {
        while holds.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let proxy = Proxy::before(&server.address, Arc::new(wait));
    let run = Run::of(&program).args(libraries.iter()).memory(MEMORY);
    let running = server.store_at(run, &proxy.address).start();
    running.until_paused();
    held.store(true, SeqCst);
    running.signal(libc::SIGUSR1);
    // Longer than it takes to fill one.
    let end = Instant::now() + Duration::from_secs(2);
    while running.resident() < (MEMORY + 48) * MIB && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    held.store(false, SeqCst);
    let outcome = running.finish();
    assert_eq!(outcome.exited(0).out(), "well\n");
    outcome.paged_within(MEMORY * MIB, UNMANAGED);
}

#[test]
fn threads_that_map_and_unmap() {
    Case::new("c/mmap_storm.c", &["256", "300"], 48).compare();
}

/// Nothing is registered, and nothing paged, while a program reserves ten times the budget and touches half of it.
#[test]
fn reserving_much_and_touching_little_pages_nothing() {
    let case = Case::new("c/reserve.c", &["640", "32"], 64);
    let Some(program) = case.build() else { return };
    let plain = Run::of(&program).args(case.arguments).finish();
    let outcome = Run::of(&program).args(case.arguments).memory(64).finish();
    outcome.same_as(&plain);
    let summary = outcome.summary();
    assert_eq!(summary.number("bytes_in"), 0, "{}", summary.0);
    assert_eq!(summary.number("faults"), 0, "{}", summary.0);
}

/// A tebibyte touched here and there: what is kept about it must not grow with what is reserved.
#[test]
fn a_tebibyte_touched_here_and_there() {
    let case = Case::new("c/sparse.c", &["1024", "20000"], 64);
    let Some(program) = case.build() else { return };
    let outcome = Run::of(&program).args(case.arguments).memory(64).finish();
    // Each of the blocks touched has a page table of its own, which the kernel counts, and its pages' states and hashes:
    // 12 KiB for 2 MiB. That must stay, so the budget is exceeded by it and a little to work with.
    const TOUCHED: u64 = (20_000 + 5_000) * 12 * 1024;
    outcome.exited(0).paged_within(64 * MIB + TOUCHED, UNMANAGED);
}

/// One page is touched of an allocation that was driven out: how much of it comes is what `--fetch` says.
#[test]
fn how_much_of_an_allocation_comes_at_a_touch() {
    let case = Case::new("c/fetched.c", &["40", "96"], 80);
    let Some(program) = case.build() else { return };
    let percent = |fetch: &str| {
        let wanted = if fetch == "aggressive" { "95" } else { "0" };
        let run = Run::of(&program).args(case.arguments).arg(wanted).memory(80).option(format!("--fetch={fetch}"));
        let outcome = run.finish();
        outcome.exited(0).paged_within(80 * MIB, UNMANAGED);
        outcome.out().trim().parse::<u32>().expect("a percentage")
    };
    let came = ["lazy", "auto", "aggressive"].map(percent);
    assert!(came[0] <= 5 && came[1] <= 5 && came[2] >= 95, "{came:?} percent came");
}

/// What is freed leaves the store, and its space goes back to the file system.
#[test]
fn the_store_shrinks_when_memory_is_freed() {
    let case = Case::new("c/store_space.c", &["256"], 64);
    let Some(program) = case.build() else { return };
    let outcome = Run::of(&program).args(case.arguments).memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB, UNMANAGED);
    let space: Vec<u64> = outcome.out().split_whitespace().map(|word| word.parse().expect("MiB")).collect();
    assert!(space[0] >= 128, "{} MiB in the store\n{}", space[0], outcome.describe());
    assert!(space[1] < space[0] / 2, "{} of {} MiB are still taken\n{}", space[1], space[0], outcome.describe());
}

/// What is locked must stay, though it is more than the budget: that is said, and the rest goes on being paged.
#[test]
fn more_is_locked_than_the_budget_has() {
    let case = Case::new("c/locked.c", &["96", "128"], 64);
    let Some(program) = case.build() else { return };
    let plain = Run::of(&program).args(case.arguments).finish();
    plain.exited(0);
    let outcome = Run::of(&program).args(case.arguments).memory(64).finish();
    assert_eq!(outcome.out(), plain.out(), "{}", outcome.describe());
    let told = outcome.err().matches("must stay in RAM").count();
    assert_eq!(told, 1, "{}", outcome.describe());
    outcome.exited(0).paged_within((96 + 64) * MIB, UNMANAGED);
    // The same where the log is, and not at all when only errors are wanted.
    let place = Scratch::new("log");
    let log = place.file("log");
    let logged = Run::of(&program).args(case.arguments).memory(64);
    let logged = logged.option(format!("--log=warn:{}", log.display())).finish();
    assert_eq!(logged.exited(0).err(), "", "{}", logged.describe());
    let text = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(text.matches("must stay in RAM").count(), 1, "{text}");
    let quiet = Run::of(&program).args(case.arguments).memory(64).option("--log=error").finish();
    assert_eq!(quiet.exited(0).err(), "", "{}", quiet.describe());
}
