//! A memory server that is told to end ends as soon as nothing there is missed: its pages are moved before.

use ream_tests::{Fleet, MemoryServer, Run, skip, tool};

/// So many servers, which give their clients longer than anybody waits here.
fn fleet(count: usize) -> Option<Fleet> {
    let what = "servers that are emptied";
    if !ream_tests::is_root() || tool("ip").is_none() {
        skip(what, "needs root and ip (iproute2)");
        return None;
    }
    let mut fleet = match Fleet::new(0, "256M") {
        Ok(fleet) => fleet,
        Err(error) => {
            skip(what, &format!("hosts cannot be made: {error}"));
            return None;
        }
    };
    fleet.drain = "600";
    fleet.add(count).expect("hosts");
    Some(fleet)
}

/// The first of so many servers is told to end while a program pages to it. Nothing of it is lost.
fn leaves(count: usize, options: &[&str], forks: &str) {
    let Some(mut fleet) = fleet(count) else { return };
    let all: Vec<usize> = (0..count).collect();
    let store = fleet.store(&all);
    let options = [&["--memory", "8M", "--store", &store], options].concat();
    let Some(mut program) = fleet.run(&options, "32", forks) else { return };
    program.until("each server has pages", |now| now.held[..count].iter().all(|pages| *pages > 100));
    fleet.signal(0, libc::SIGTERM);
    fleet.gone(0);
    program.until("it is not used", |now| !now.servers[0].0 && now.held[0] == 0);
    // What was moved is had from elsewhere.
    program.finish();
}

#[test]
fn with_replicas_pages_move_to_the_others() {
    leaves(3, &[], "0");
}

#[test]
fn with_one_copy_each_pages_move_to_the_others() {
    leaves(2, &["--replicas", "1"], "0");
}

#[test]
fn where_the_other_server_has_all_nothing_is_waited_for() {
    leaves(2, &[], "0");
}

#[test]
fn a_local_copy_is_enough() {
    leaves(1, &["--spill", "/var/tmp"], "0");
    leaves(2, &["--spill", "/var/tmp"], "0");
}

#[test]
fn what_others_have_no_room_for_goes_to_the_disk_below() {
    leaves(1, &["--store", "/var/tmp"], "0");
    leaves(2, &["--store", "/var/tmp"], "0");
    leaves(2, &["--store", "/var/tmp", "--replicas", "1"], "200");
}

#[test]
fn with_sums_pages_move_to_the_others() {
    leaves(3, &["--parity"], "0");
}

#[test]
fn children_let_go_as_well() {
    leaves(3, &[], "200");
    leaves(4, &["--parity"], "200");
}

#[test]
fn a_session_that_stores_nothing_is_not_waited_for() {
    let mut server = MemoryServer::start("64M", &["--drain", "600"]);
    let Some(sleep) = tool("sleep") else { return };
    let running = server.store(Run::of(&sleep).arg("600").memory(64)).start();
    server.until("leases", |leases| leases > 0);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    running.signal(libc::SIGKILL);
    running.finish();
}
