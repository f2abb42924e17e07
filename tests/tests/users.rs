//! Ordinary users, without root and without any setting of the machine: a small set of the programs, as nobody.

use ream_tests::{NOBODY, Reachable, Scratch};

/// Compares a program whose second argument is a directory for its files.
fn compare_with_files(source: &str, size: &str) {
    let Some(reachable) = Reachable::new() else { return };
    let directory = Scratch::for_everybody("files");
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("giving a directory to nobody");
    reachable.compare(source, &[size, &directory.path().to_string_lossy()]);
}

#[test]
fn threads_and_a_fork() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/large_threads.c", &["256"]);
}

#[test]
fn generations_of_forks() {
    let Some(reachable) = Reachable::new() else { return };
    let Some(paged) = reachable.compare("c/fork_deep.c", &["160"]) else { return };
    // Each generation gets its part, whatever its ancestors left in RAM: who has too little takes back at once what he gave up.
    let summary = paged.summary();
    let (came, rescues) = (summary.number("bytes_in") / 4096, summary.number("rescues"));
    assert!(rescues < came / 8, "{}", summary.0);
}

#[test]
fn growing_blocks() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/realloc_grow.c", &["256"]);
}

#[test]
fn system_calls_into_absent_pages() {
    compare_with_files("c/syscalls.c", "256");
}

#[test]
fn whatever_libc_hands_to_the_kernel_is_there() {
    compare_with_files("c/borrowed.c", "160");
}

#[test]
fn what_is_handed_over_by_the_number_of_a_call_or_in_parts_of_its_own_is_there() {
    compare_with_files("c/handed.c", "160");
}

#[test]
fn what_is_handed_over_from_read_only_memory_is_there_though_it_was_never_written() {
    compare_with_files("c/read_only.c", "160");
}

/// Records of several writers, messages, and what a stream is waited for, of more than is lent at a time where it may be divided.
#[test]
fn calls_that_others_can_tell_from_several_are_whole() {
    compare_with_files("c/wholes.c", "160");
}

/// What a thread reads or writes in one call is not mixed with what another does, however long it is.
#[test]
fn calls_of_streams_are_whole() {
    compare_with_files("c/streams_whole.c", "160");
}

#[test]
fn children_of_vfork_leave_nothing_behind() {
    let Some(reachable) = Reachable::new() else { return };
    reachable.compare("c/vfork_list.c", &["160"]);
}

#[test]
fn an_unwritable_store_is_named() {
    let Some(reachable) = Reachable::new() else { return };
    let Some(run) = reachable.run("c/endless.c") else { return };
    let closed = Scratch::for_everybody("closed");
    let outcome = run().memory(64).store(closed.path()).finish();
    outcome.exited(125).says("ream: ").says(&closed.path().to_string_lossy());
    assert_eq!(outcome.err().trim_end().lines().count(), 1, "{}", outcome.describe());
}

#[test]
fn status_of_another_users_process_is_refused_in_one_line() {
    let Some(reachable) = Reachable::new() else { return };
    let mut command = std::process::Command::new(reachable.ream());
    std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    let output = command.arg("status").arg(std::process::id().to_string()).output().expect("running ream status");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("another user's process"), "{said}");
}
