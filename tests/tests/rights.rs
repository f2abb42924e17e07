//! Programs that begin as root and give its rights up while their memory is paged: daemons, and what they fork and
//! execute after that. Store and summary lie where only root may write.

use ream_tests::{Case, NOBODY, Reachable, Run, Scratch, UNMANAGED, is_root, skip, tool};

/// The way of giving rights up that the program is told, under these options of Ream.
fn gives_up(how: &[&str], options: &[&str]) {
    if !is_root() {
        return skip("giving up root's rights", "needs root");
    }
    let arguments = [&["128", "3"], how].concat();
    Case::new("c/rights.c", &arguments, 48)
        .compare_with(|run, _| options.iter().fold(run, |run, option| run.option(option)));
}

#[test]
fn root_becomes_an_ordinary_user_and_pages_on() {
    if !is_root() {
        return skip("setuid", "needs root");
    }
    Case::new("c/setuid_drop.c", &["192"], 64).compare();
}

#[test]
fn children_forked_after_that_page_on() {
    gives_up(&["users"], &[]);
}

#[test]
fn also_without_moving_pages_and_without_a_ring() {
    gives_up(&["users"], &["--engine=copy"]);
    gives_up(&["users"], &["--io=threads"]);
}

#[test]
fn rights_are_given_up_before_paging_begins() {
    gives_up(&["early"], &[]);
}

#[test]
fn rights_are_given_up_for_a_while() {
    gives_up(&["back"], &[]);
}

#[test]
fn whether_a_program_can_be_dumped_is_its_own_affair() {
    gives_up(&["dumpable"], &[]);
}

/// Neither /proc nor the store's directory can be seen there.
#[test]
fn a_daemon_locks_itself_up() {
    let scratch = Scratch::for_everybody("root");
    gives_up(&["chroot", &scratch.path().to_string_lossy()], &[]);
}

/// The program that another user runs joins the session, and so do ten generations of its children.
#[test]
fn a_program_executed_as_another_user() {
    let Some(reachable) = Reachable::new() else { return };
    let (Some(program), Some(setpriv)) = (reachable.program("c/fork_deep.c"), tool("setpriv")) else { return };
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()];
    let run = || Run::of(&setpriv).args(&user).arg(&program).arg("192").ream(reachable.ream());
    let plain = run().finish();
    plain.exited(0);
    let outcome = run().memory(48).finish();
    outcome.same_as(&plain).paged_within(48 << 20, UNMANAGED);
    assert_eq!(outcome.err(), "", "{}", outcome.describe());
    assert!(outcome.summary().number("processes") > 10, "{}", outcome.summary().0);
}

/// Without the agent there is nobody to help: the child ends with a line that says so, its parent goes on.
#[test]
fn nobody_is_left_to_help() {
    if !is_root() {
        return skip("giving up root's rights", "needs root");
    }
    let case = Case::new("c/rights.c", &["96", "0", "orphaned"], 48);
    let Some(program) = case.build() else { return };
    let outcome = Run::of(&program).args(case.arguments).memory(48).finish();
    outcome.exited(0).says("ream: this forked process cannot go on: creating the store failed (errno 13: ");
    outcome.says("ream: --summary: ").says(": errno 13; the summary is left out");
    assert_eq!(outcome.err().lines().count(), 2, "{}", outcome.describe());
    assert!(outcome.out().starts_with("child ended with 125\n"), "{}", outcome.describe());
}
