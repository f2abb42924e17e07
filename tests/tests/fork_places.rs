//! fork where other threads, or the stack it is called on, stand in its way.

use ream_tests::Case;

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
