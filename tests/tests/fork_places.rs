//! fork where other threads, the stack it is called on, or what a signal has interrupted stand in its way.

use ream_tests::{Case, Run, ream_library};

/// libc takes its lock on the list of streams in fork(), which a thread has that waits for one asleep in a fault.
#[test]
fn streams_are_written_and_flushed_meanwhile() {
    Case::new("c/fork_streams.c", &["160", "20"], 64).compare();
}

/// A page of the stack that is absent when the pager has parked comes back never.
#[test]
fn stacks_are_paged_memory() {
    Case::new("c/fork_stacks.c", &["160"], 64).compare();
}

/// The only thread has the heap's locks in hand: paged, while everything fits, and without a session.
#[test]
fn handlers_that_interrupt_malloc() {
    let case = Case::new("c/fork_in_handler.c", &["200", "96"], 48);
    let Some(program) = case.build() else { return };
    case.compare();
    for run in [Run::of(&program).memory(512), Run::of(&program).env("LD_PRELOAD", ream_library())] {
        let outcome = run.args(["200", "1"]).finish();
        outcome.exited(0);
        assert_eq!((&*outcome.out(), &*outcome.err()), ("200 forks at least\n", ""), "{}", outcome.describe());
    }
}

/// The signal is let in between two handlers of the fork; ending the process takes locks of ours.
#[test]
fn handlers_that_end_the_process() {
    Case::new("c/fork_exits.c", &["160"], 64).compare();
}
