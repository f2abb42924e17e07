//! fork, exec and everything built on them, out of programs whose memory is paged.

use ream_tests::{Case, MIB, Run, UNMANAGED, is_root, skip};

#[test]
fn ten_generations_see_what_their_ancestors_wrote() {
    Case::new("c/fork_deep.c", &["256"], 64).compare();
}

#[test]
fn a_storm_of_children_some_of_them_killed() {
    Case::new("c/fork_storm.c", &["256"], 64).compare();
}

/// More than there once were places for forks whose children live. So many need more than their parts of this budget.
#[test]
fn a_hundred_children_at_once() {
    let Some(program) = Case::new("c/fork_many.c", &[], 128).build() else { return };
    let outcome = Run::of(&program).args(["256", "100"]).memory(128).finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "100 children\n", "{}", outcome.describe());
    assert_eq!(outcome.summary().number("engagements"), 101, "{}", outcome.describe());
}

/// libc reads the state of its name service in fork(), where no pager could bring it back.
#[test]
fn what_libc_reads_in_a_fork_is_there() {
    Case::new("c/fork_names.c", &["128"], 32).compare();
}

/// Paging begins before the copy is made, where both would not fit; or just then.
#[test]
fn forks_before_and_while_paging_begins() {
    for mebibytes in ["40", "72", "96"] {
        let Some(program) = Case::new("c/fork_reserved.c", &[], 128).build() else { return };
        let outcome = Run::of(&program).arg(mebibytes).memory(128).finish();
        outcome.exited(0);
        // Also what parent and child share can be paged: nobody exceeds the budget.
        assert_eq!((&*outcome.out(), &*outcome.err()), ("forked\n", ""), "{}", outcome.describe());
    }
}

/// Where everything reserved had fitted the budget, until there was a child.
#[test]
fn what_was_shared_and_is_written_fits_the_budget() {
    for mebibytes in ["60", "100"] {
        let Some(program) = Case::new("c/fork_rewrite.c", &[], 128).build() else { return };
        // What is not managed may come on top: 4 MiB for each.
        let outcome = Run::of(&program).arg(mebibytes).arg("139264").memory(128).finish();
        outcome.exited(0);
        assert_eq!((&*outcome.out(), &*outcome.err()), ("both\n", ""), "{}", outcome.describe());
    }
}

/// Paging begins in the child before its first instruction, where what it has in RAM and what both have reserved come to more than
/// the budget. (It said after half a minute, while which the child stood still, that nobody watched: the watcher waited for it.)
#[test]
fn a_child_is_paged_at_once_where_it_must_be() {
    let Some(program) = Case::new("c/fork_rewrite.c", &[], 128).build() else { return };
    for untouched in ["20", "60"] {
        let outcome = Run::of(&program).args(["60", "139264", untouched]).memory(128).finish();
        outcome.exited(0);
        assert_eq!((&*outcome.out(), &*outcome.err()), ("both\n", ""), "{}", outcome.describe());
    }
}

/// What a parent has only reserved is its child's where the child needs it: nothing is paged as long as all that is used fits.
#[test]
fn what_is_reserved_and_not_used_is_left_to_a_child() {
    let Some(program) = Case::new("c/fork_rewrite.c", &[], 128).build() else { return };
    let outcome = Run::of(&program).args(["40", "139264", "70"]).memory(128).finish();
    outcome.exited(0);
    assert_eq!((&*outcome.out(), &*outcome.err()), ("both\n", ""), "{}", outcome.describe());
    assert_eq!(outcome.summary().number("engagements"), 0, "{}", outcome.describe());
}

/// On a busy machine a watcher that hears of a child after the copy is too late for it, and for its parent.
#[test]
fn a_watcher_without_a_processor_knows_before_the_child_has_its_part() {
    let Some(program) = Case::new("c/fork_starved.c", &[], 64).build() else { return };
    if !is_root() {
        return skip("a watcher without a processor", "only root may set real-time priorities");
    }
    let outcome = Run::of(&program).memory(64).finish();
    outcome.exited(0);
    match outcome.out().trim() {
        "not allowed" => skip("a watcher without a processor", "real-time priorities are not allowed"),
        kib => {
            let kib: u64 = kib.parse().expect("KiB in RAM");
            // 84 MiB without wires.
            assert!(kib <= 70 << 10, "{kib} KiB in a budget of 64 MiB\n{}", outcome.describe());
        }
    }
}

/// What the kernel takes for shared for ever, because the first page of a large one has gone, can be paged.
#[test]
fn large_pages_that_lost_their_first_after_a_fork() {
    let Some(program) = Case::new("c/fork_headless.c", &[], 128).build() else { return };
    let outcome = Run::of(&program).memory(128).finish();
    outcome.exited(0).paged_within(128 * MIB, UNMANAGED);
    assert_eq!((&*outcome.out(), &*outcome.err()), ("headless\n", ""), "{}", outcome.describe());
}

/// The summary is there at once, though nobody has heard of these children's end.
#[test]
fn children_killed_at_birth() {
    Case::new("c/fork_killed.c", &["160"], 48).compare();
}

/// A child needs its ancestors' stores, which are opened in a table of files that may be full.
#[test]
fn as_many_files_are_open_as_may_be() {
    Case::new("c/fork_files.c", &["192"], 64).compare();
}

/// What was unmapped without a word to Ream cannot be registered for a child: the rest can.
#[test]
fn what_was_unmapped_behind_our_back_is_not_the_childs() {
    Case::new("c/fork_holes.c", &["192"], 64).compare();
}

/// A child that allocates where its parent was just giving memory back finds zeros there, as calloc promises.
#[test]
fn what_is_freed_during_a_fork_is_not_found_again() {
    Case::new("c/fork_frees.c", &["20"], 64).compare();
}

/// The half that each fork sets aside for its child comes back when there is none.
#[test]
fn forks_that_fail_cost_nothing() {
    let case = Case::new("c/fork_fails.c", &["160"], 64);
    let Some(program) = case.build() else { return };
    let outcome = Run::of(&program).args(case.arguments).memory(case.memory).finish();
    outcome.exited(0).paged_within(case.memory * MIB, UNMANAGED);
    let resident: u64 = outcome.out().trim().parse().expect("MiB in RAM");
    assert!(resident >= 24, "{resident} MiB of data in a budget of 64\n{}", outcome.describe());
}

/// A forked child that executes a program outside the session leaves its half of the budget, also while that program runs.
#[test]
fn what_executes_a_program_outside_leaves_its_half() {
    for mebibytes in ["40", "128"] {
        let Some(program) = Case::new("c/fork_outside.c", &[], 128).build() else { return };
        let outcome = Run::of(&program).args([mebibytes, "128"]).memory(64).option("--no-exec-inherit").finish();
        outcome.exited(0).paged_within(64 * MIB, UNMANAGED);
        assert_eq!((&*outcome.out(), &*outcome.err()), ("outside\n", ""), "{}", outcome.describe());
    }
}

#[test]
fn exec_spawn_system_and_popen() {
    Case::new("c/fork_exec_mix.c", &["192"], 64).compare();
}

/// What the parent keeps from its children leaves room where the child's pager may come to lie.
#[test]
fn what_children_are_not_to_have() {
    let case = Case::new("c/left_out.c", &["48", "96"], 64);
    for engine in ["move", "copy"] {
        case.compare_with(|run, _| run.option(format!("--engine={engine}")).deadline(60));
    }
}

/// The same once it is paged, when the kernel's mark is on everything: secrets, and what devices write to.
#[test]
fn what_is_kept_back_is_not_a_childs() {
    let case = Case::new("c/kept_back.c", &["96"], 32);
    let Some(program) = case.build() else { return };
    for memory in [512, 150] {
        Run::of(&program).args(case.arguments).memory(memory).deadline(60).finish().exited(0);
    }
    for engine in ["move", "copy"] {
        case.compare_with(|run, _| run.option(format!("--engine={engine}")).deadline(60));
    }
}

/// While everything fits, and paged.
#[test]
fn what_children_are_to_inherit() {
    let case = Case::new("c/inherited.c", &["96"], 32);
    let Some(program) = case.build() else { return };
    Run::of(&program).args(case.arguments).memory(512).finish().exited(0);
    for engine in ["move", "copy"] {
        let outcome = case.compare_with(|run, _| run.option(format!("--engine={engine}")));
        let summary = outcome.expect("it was built before").summary.expect("a summary");
        assert_eq!(summary.0["engine"], engine, "what was used is told");
    }
}
