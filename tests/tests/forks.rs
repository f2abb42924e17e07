//! fork, exec and everything built on them, out of programs whose memory is paged.

use ream_tests::{Case, MIB, Run, UNMANAGED};

#[test]
fn ten_generations_see_what_their_ancestors_wrote() {
    Case::new("c/fork_deep.c", &["256"], 64).compare();
}

#[test]
fn a_storm_of_children_some_of_them_killed() {
    Case::new("c/fork_storm.c", &["256"], 64).compare();
}

/// The summary is there at once, though nobody has heard of these children's end.
#[test]
fn children_killed_at_birth() {
    Case::new("c/fork_killed.c", &["160"], 48).compare();
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

#[test]
fn exec_spawn_system_and_popen() {
    Case::new("c/fork_exec_mix.c", &["192"], 64).compare();
}
