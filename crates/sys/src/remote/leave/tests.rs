//! Which servers are let go of, and when.

extern crate std;

use super::super::Op;
use super::super::peer::State;
use super::super::tests::{away, remote, with_lanes};
use super::*;
use std::vec;

const PAGES: u32 = 100;

/// Slots that these have.
fn store(remote: &mut Remote, who: u32) {
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(0, PAGES, &mut remote.counts));
    own.put(0, PAGES, who, &mut remote.counts);
}

/// Whether the first server is let go of.
fn lets_go(remote: &mut Remote) -> bool {
    remote.let_go_at = 0;
    remote.let_go();
    let gone = remote.peers[0].state == State::Closing;
    assert_eq!(gone, remote.up & 1 == 0);
    gone
}

#[test]
fn a_server_is_let_go_of_when_others_have_all_copies() {
    let mut remote = remote(3, |config| config.replicas = 2);
    store(&mut remote, 0b011);
    assert!(remote.counts.missing == 0 && !lets_go(&mut remote));
    remote.note_ending(0);
    assert_eq!((remote.counts.missing, remote.counts.held[..3].to_vec()), (PAGES.into(), vec![100, 100, 0]));
    assert!(!lets_go(&mut remote));
    // What is written meanwhile goes elsewhere, also where it was there before.
    *remote.homes.get_mut(0).unwrap() = 0b011;
    assert_eq!(remote.targets(0), 0b110);
    assert_eq!(remote.choose(0b010), Some(2));
    let own = remote.tables.get_mut(0).unwrap();
    own.put(1, PAGES - 1, 0b111, &mut remote.counts);
    assert!(!lets_go(&mut remote), "one is missed");
    let own = remote.tables.get_mut(0).unwrap();
    own.put(0, 1, 0b111, &mut remote.counts);
    assert_eq!(remote.counts.missing, 0);
    // Something else that it is to keep is on its way.
    let mut op = Op::write(0, 500, 1, 0, 0);
    op.targets = 0b001;
    *remote.ops.get_mut(1).unwrap() = op;
    assert!(!lets_go(&mut remote));
    remote.ops.get_mut(1).unwrap().end();
    assert!(lets_go(&mut remote));
    let news = [remote.take_news(), remote.take_news(), remote.take_news()];
    assert_eq!(news, [Some(News::Ending(0)), Some(News::Emptied(0)), None]);
    let own = remote.tables.get(0).unwrap();
    assert!((0..PAGES).all(|slot| own.holder(slot) == 0b110));
    assert_eq!((remote.counts.missing, remote.counts.held[0], remote.counts.leaving()), (0, 0, 0));
    let servers = remote.config.session.servers();
    assert_eq!(servers.get(0).map(ream_stats::Server::losses), Some(0));
}

/// It is there until the end, and whoever is kept there would keep it from ending.
#[test]
fn who_was_let_go_of_is_called_when_there_is_another_lease() {
    let mut remote = remote(2, |config| config.replicas = 2);
    remote.peers[0].generation = remote.way(0).unwrap().1;
    remote.note_ending(0);
    assert!(lets_go(&mut remote));
    let called = |remote: &mut Remote| {
        for _ in 0..2 {
            remote.peers[0].retry_at = 0;
            remote.look_after();
        }
        remote.dialler.take().map(super::super::Dialler::take).is_some()
    };
    assert!(!called(&mut remote) && remote.peers[0].state == State::Down);
    remote.config.session.servers().get(0).unwrap().grant(7, &[7; 32]);
    assert!(called(&mut remote));
}

#[test]
fn where_there_can_be_no_second_copy_one_is_enough() {
    let two = || {
        let mut remote = remote(2, |config| config.replicas = 2);
        store(&mut remote, 0b011);
        remote.note_ending(0);
        remote
    };
    assert!(lets_go(&mut two()));
    // What it alone has is missed, and so is the second copy while somebody may come to take it.
    let mut remote = two();
    remote.tables.get_mut(0).unwrap().put(7, 1, 0b001, &mut remote.counts);
    assert!(!lets_go(&mut remote));
    let mut remote = super::super::tests::remote(3, |config| config.replicas = 2);
    store(&mut remote, 0b011);
    away(&mut remote, 2);
    remote.note_ending(0);
    assert!(!lets_go(&mut remote));
}

#[test]
fn the_local_copy_is_enough_for_one_server() {
    let mut remote = remote(1, |config| config.spill = true);
    store(&mut remote, 0b001);
    remote.note_ending(0);
    assert!(!lets_go(&mut remote));
    assert_eq!(remote.targets(0), 0, "pages go to the file alone");
    remote.tables.get_mut(0).unwrap().put(0, PAGES, 0b001 | SPILLED, &mut remote.counts);
    assert!(lets_go(&mut remote));
    assert!(!remote.fatal);
}

#[test]
fn with_one_copy_each_a_server_is_let_go_of_when_another_has_it() {
    let mut remote = with_lanes(2, |_| {});
    store(&mut remote, 0b001);
    remote.note_ending(0);
    assert!(!lets_go(&mut remote));
    // It is copied from the one that is about to end.
    remote.advance_mend();
    let reads = remote.ops.as_slice().iter().filter(|op| op.nature() == Nature::Read);
    assert_eq!(reads.map(|op| (op.peer, op.pages)).collect::<std::vec::Vec<_>>(), [(0, 64), (0, 36)]);
    remote.tables.get_mut(0).unwrap().put(0, PAGES, 0b011, &mut remote.counts);
    assert!(lets_go(&mut remote));
}

#[test]
fn with_sums_a_server_is_let_go_of_when_no_group_depends_on_it() {
    let mut remote = remote(3, |config| config.parity = true);
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(0, 4, &mut remote.counts));
    let groups = own.groups_mut().unwrap();
    let rows = groups.take(4, true, 0b111, &mut |_| {}).unwrap();
    groups.answered(rows.group);
    (0..4).for_each(|slot| own.put_row(slot, rows.server, rows.row + slot, &mut remote.counts));
    remote.note_ending(0);
    // Its sum is with it, or a column that the sum is of.
    remote.count_exposed();
    assert_eq!(remote.log.exposed.0, 4);
    assert!(!lets_go(&mut remote) && remote.usable() == 0b110);
    let own = remote.tables.get_mut(0).unwrap();
    let groups = own.groups_mut().unwrap();
    let rows = groups.take(4, true, 0b110, &mut |_| {}).unwrap();
    assert_ne!(rows.group, 0);
    groups.answered(rows.group);
    (0..4).for_each(|slot| own.put_row(slot, rows.server, rows.row + slot, &mut remote.counts));
    assert!(lets_go(&mut remote));
    assert_eq!(remote.tables.get(0).unwrap().column_of(0), Some((rows.server, false)));
}
