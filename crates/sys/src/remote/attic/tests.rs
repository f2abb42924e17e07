//! Children that see the same make their copies of it in the same place, and nobody makes any of what nobody needs.

extern crate std;

use super::super::RemoteConfig;
use super::super::tests::{remote, with_lanes};
use super::*;
use std::vec::Vec;

const SEGMENTS: u32 = 12;

/// A parent whose segments are with these servers in turn.
fn parent(change: impl FnOnce(&mut RemoteConfig)) -> Remote {
    let mut remote = remote(4, |config| {
        config.replicas = 2;
        change(config);
    });
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(0, SEGMENTS * SEGMENT, &mut remote.counts));
    own.put(0, SEGMENTS * SEGMENT, 0b11, &mut remote.counts);
    remote
}

/// A child of it.
fn child(parent: &Remote) -> Remote {
    let mut child = with_lanes(4, |config| config.replicas = 2);
    let mut table = *parent.tables.get(0).unwrap();
    table.become_ancestor().unwrap();
    child.keep_table(1, table);
    (child.table_count, child.counts) = (2, parent.counts);
    let servers = child.config.session.servers();
    (0..4).for_each(|index| servers.get(index).unwrap().set_free(1 << 30));
    child
}

fn segments(child: &mut Remote, who: u32) -> Vec<Option<usize>> {
    (0..SEGMENTS).map(|segment| child.choose_for(1, segment * SEGMENT, who)).collect()
}

#[test]
fn children_that_see_the_same_share_the_place_for_copies() {
    let mut parent = parent(|_| {});
    assert_eq!(parent.tables.get(0).unwrap().attic, 0);
    parent.freeze(true);
    let first = child(&parent);
    let number = first.tables.get(1).unwrap().attic;
    assert_ne!(number & MADE, 0);
    parent.freeze(true);
    let second = child(&parent);
    assert_eq!(second.tables.get(1).unwrap().attic, number);
    // What is its own has none: that is for its own children.
    assert_eq!(second.tables.get(0).unwrap().attic, 0);
    // The number that is asked for, also after a loss, is that.
    let mut children = [first, second];
    for child in &mut children {
        assert_eq!(child.attic(1, 2), None);
        let table = child.tables.get_mut(1).unwrap();
        assert_eq!((table.making, table.number_for(2)), (0b100, number));
        table.attics[3] = 9;
        assert_eq!(table.number_for(3), 9, "an older one that is there");
        table.attics[3] = 0;
    }
    // The same servers whatever each of them knows about these.
    children[0].peers[0].latency = 100_000;
    children[1].peers[3].free = 1 << 40;
    for who in [0b1, 0b10, 0b100] {
        let [one, other] = children.each_mut().map(|child| segments(child, who));
        assert_eq!(one, other);
        let different: std::collections::BTreeSet<_> = one.into_iter().collect();
        assert!(different.len() == 3 && !different.contains(&Some(who.trailing_zeros() as usize)), "{different:?}");
    }
    // Slots may be written anew: the next child sees something else.
    parent.thaw();
    assert_eq!(parent.tables.get(0).unwrap().attic, 0);
    parent.freeze(true);
    assert_ne!(child(&parent).tables.get(1).unwrap().attic, number);
}

#[test]
fn where_slots_may_have_what_nobody_needs_nothing_is_shared() {
    let number = |alone, change: fn(&mut RemoteConfig)| {
        let mut parent = remote(4, change);
        parent.freeze(alone);
        parent.tables.get(0).unwrap().attic
    };
    assert_ne!(number(true, |_| {}), 0);
    assert_eq!(number(false, |_| {}), 0, "compressed memory above");
    assert_eq!(number(true, |config| config.parity = true), 0);
    assert_eq!(number(true, |config| config.below = true), 0);
    assert_eq!(number(true, |config| config.spill = true), 0);
    assert_eq!(number(true, |config| config.sealed = false), 0);
}

#[test]
fn what_is_let_go_of_is_not_copied() {
    let mut plain = parent(|_| {});
    plain.tables.get_mut(0).unwrap().put(0, 10, 0b1, &mut plain.counts);
    assert_eq!(plain.counts.missing, 10);
    (0..10).for_each(|slot| plain.freed(slot));
    plain.freed(5);
    plain.freed(u32::MAX);
    assert_eq!((plain.counts.missing, plain.counts.stored), (0, u64::from(SEGMENTS * SEGMENT - 10)));
    assert_eq!([9, 10].map(|slot| plain.tables.get(0).unwrap().holder(slot)), [0, 0b11]);
    // A disk below has its own way to forget.
    let mut below = parent(|config| config.below = true);
    below.freed(0);
    assert_eq!(below.tables.get(0).unwrap().holder(0), 0b11);
}

#[test]
fn segments_of_copies_are_filled() {
    let mut parent = parent(|_| {});
    let mut alone = child(&parent);
    parent.freeze(true);
    for child in [&mut alone, &mut child(&parent)] {
        let table = child.tables.get_mut(1).unwrap();
        table.put(SEGMENT + 7, 1, 0b1011, &mut child.counts);
        assert_eq!([0, SEGMENT, 2 * SEGMENT].map(|slot| table.copies_in(slot, SEGMENT)), [0, 0b1000, 0]);
        // Where some of it is, although others have more, and although there is no room for another segment.
        (child.peers[2].free, child.peers[3].free) = (1 << 40, 0);
        child.peers[3].fill_up(process::now_us());
        assert_eq!(child.choose_for(1, 2 * SEGMENT - 1, 0b11), Some(3));
        assert_eq!(child.choose_for(1, 2 * SEGMENT, 0b11), Some(2));
        // Not for what is there already, or where it is about to end.
        assert_eq!(child.choose_for(1, SEGMENT + 7, 0b1011), Some(2));
        child.peers[3].ending = true;
        assert_eq!(child.choose_for(1, SEGMENT + 8, 0b11), Some(2));
        child.peers[3].ending = false;
        // Where some of it is on its way.
        let job = super::super::mend::Job::new(1, 3 * SEGMENT, 64, 3);
        child.start_job(0, job);
        assert_eq!(child.choose_for(1, 3 * SEGMENT + 64, 0b11), Some(3));
        assert_eq!(child.choose_for(1, 4 * SEGMENT, 0b11), Some(2));
    }
}

#[test]
fn small_servers_get_copies_last() {
    let mut parent = parent(|_| {});
    parent.freeze(true);
    let mut child = child(&parent);
    child.config.session.servers().get(2).unwrap().set_free(1 << 26);
    assert!(segments(&mut child, 0b1).iter().all(|server| matches!(server, Some(1 | 3))));
    child.peers[1].fill_up(process::now_us());
    assert!(segments(&mut child, 0b1).iter().all(|server| *server == Some(3)));
    child.peers[3].fill_up(process::now_us());
    assert!(segments(&mut child, 0b1).iter().all(|server| *server == Some(2)));
    child.peers[2].fill_up(process::now_us());
    assert_eq!(child.choose_for(1, 0, 0b1), None);
}
