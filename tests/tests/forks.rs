//! fork, exec and everything built on them, out of programs whose memory is paged.

use ream_tests::Case;

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

#[test]
fn exec_spawn_system_and_popen() {
    Case::new("c/fork_exec_mix.c", &["192"], 64).compare();
}
