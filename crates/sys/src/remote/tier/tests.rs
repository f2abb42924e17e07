//! What goes to the disk, what sinks, and what rises, and when nothing does.

extern crate std;

use super::super::peer::Peer;
use super::super::tests::{remote, whole, with_lanes};
use super::super::{Message, request};
use super::*;
use crate::io::Io;
use ream_page::{PAGE_BYTES, Slot, StoreId};
use ream_wire::message::{Kind, Status};
use std::vec::Vec;

fn bed(servers: usize, replicas: u32) -> Remote {
    remote(servers, |config| (config.below, config.replicas) = (true, replicas))
}

/// A segment that these have; those of them that are servers have memory for it.
fn store(remote: &mut Remote, segment: u32, who: u32) {
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(segment * SEGMENT, SEGMENT, &mut remote.counts));
    own.put(segment * SEGMENT, SEGMENT, who, &mut remote.counts);
    *remote.homes.get_mut(segment as usize).unwrap() = (who & !SPILLED) as u8;
}

fn press(remote: &mut Remote, server: usize) {
    remote.config.session.servers().get(server).unwrap().press();
    remote.hear_presses();
}

/// What has begun to sink.
fn sinking(remote: &mut Remote) -> Option<u32> {
    remote.choose_moves(process::now_us());
    remote.tier.as_ref().unwrap().sinking.map(|it| it.segment)
}

fn holders(remote: &Remote, segment: u32) -> Vec<u32> {
    let own = remote.tables.get(0).unwrap();
    let mut all: Vec<u32> = slots(segment).map(|slot| own.holder(slot)).collect();
    all.dedup();
    all
}

/// All runs that are to be copied for what sinks, or rises, as slots and their number.
fn runs(remote: &mut Remote, rises: bool) -> Vec<(u32, u32)> {
    core::iter::from_fn(|| remote.find_move(rises).map(|job| job.run())).collect()
}

#[test]
fn what_servers_have_no_room_for_goes_to_the_disk() {
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    let targets = |servers, replicas, change: fn(&mut [Peer])| {
        let mut remote = bed(servers, replicas);
        change(&mut remote.peers);
        remote.write(1, Slot(0), &parts);
        assert_eq!(remote.pop_ended(), None);
        remote.ops.get(1).unwrap().targets
    };
    let full = |peers: &mut [Peer]| peers[0].fill_up(process::now_us());
    assert_eq!(targets(1, 1, |_| {}), 0b1);
    assert_eq!(targets(1, 1, full), SPILLED);
    assert_eq!(targets(2, 1, full), 0b10);
    // One copy at a server is not enough.
    assert_eq!(targets(2, 2, |_| {}), 0b11);
    assert_eq!(targets(2, 2, full), SPILLED);
    // Better there than at one that is about to end.
    assert_eq!(targets(1, 1, |peers| peers[0].ending = true), SPILLED);
}

#[test]
fn what_a_server_refuses_goes_to_the_disk_and_is_told_to_the_session() {
    let page = [7; PAGE_BYTES];
    for replicas in [1, 2] {
        let mut remote = bed(replicas as usize, replicas);
        let mut io = Io::new(false, 8).unwrap();
        remote.write(1, Slot(0), &whole(&page));
        let mut answer = |remote: &mut Remote, server: usize, status| {
            remote.ops.get_mut(1).unwrap().sent[server] = 1;
            let message = Message { tag: 1, request: request(Kind::Write, 0, 0, 1, 0) };
            assert!(remote.write_answered(server, &message, status).is_ok());
            remote.advance_spill(&mut io, &[crate::file::Fd::NONE]);
        };
        answer(&mut remote, 0, Status::Full);
        if replicas == 2 {
            assert_eq!(remote.pop_ended(), None);
            answer(&mut remote, 1, Status::Done);
        }
        assert_eq!(remote.pop_ended(), Some((1, PAGE_BYTES as i32)));
        let there = if replicas == 2 { 0b10 | SPILLED } else { SPILLED };
        assert_eq!(remote.tables.get(0).map(|own| own.holder(0)), Some(there));
        assert_eq!((remote.counts.missing, remote.take_news()), (0, None));
        assert_eq!(remote.config.session.servers().get(0).map(|server| server.presses()), Some(1));
        assert_eq!(remote.config.process.counters.servers_passed.get(), 1);
    }
}

#[test]
fn a_server_keeps_what_it_has_when_the_next_segment_has_no_room() {
    let pages = std::vec![7; 2 * PAGE_BYTES];
    for holds in [false, true] {
        let mut remote = bed(2, 1);
        store(&mut remote, 0, 0b01);
        let own = remote.tables.get_mut(0).unwrap();
        own.put(0, SEGMENT, if holds { 0b01 } else { 0 }, &mut remote.counts);
        remote.write(1, Slot(SEGMENT - 1), &whole(&pages));
        assert_eq!(remote.ops.get(1).unwrap().targets, 0b01);
        remote.part_failed(1, 0, Errno::NOSPC.negative());
        assert_eq!(*remote.homes.get(0).unwrap(), if holds { 0b11 } else { 0b10 });
        remote.ops.get_mut(1).unwrap().good = 0b10;
        remote.settle(1);
        assert_eq!(*remote.homes.get(1).unwrap(), 0b10);
    }
}

#[test]
fn a_segment_that_was_not_used_sinks_when_a_server_had_no_room() {
    let mut remote = with_lanes(2, |config| config.below = true);
    [0b01, 0b10, 0b01, SPILLED].into_iter().zip(0..).for_each(|(who, segment)| store(&mut remote, segment, who));
    assert_eq!(sinking(&mut remote), None);
    // Another one's presses are as good as ours.
    press(&mut remote, 0);
    remote.tier.as_mut().unwrap().touch(3);
    assert_eq!(sinking(&mut remote), Some(2));
    assert_eq!(runs(&mut remote, false), (0..8).map(|run| (2 * SEGMENT + run * CHUNK, CHUNK)).collect::<Vec<_>>());
    remote.end_moves(0);
    assert_eq!(remote.may_drop(2), None, "it is not on the disk");
    // Once more, and now it is.
    assert_eq!(sinking(&mut remote), Some(0), "it was used once");
    let own = remote.tables.get_mut(0).unwrap();
    own.put(0, SEGMENT, 0b01 | SPILLED, &mut remote.counts);
    own.put(7, 1, 0, &mut remote.counts);
    assert_eq!(runs(&mut remote, false), []);
    // While somebody reads it, it stays.
    *remote.ops.get_mut(1).unwrap() = Op::read(0, 500, 100, 0, 0);
    assert_eq!(remote.may_drop(0), Some(false));
    remote.ops.get_mut(1).unwrap().end();
    remote.peers[0].fill_up(process::now_us());
    remote.end_moves(process::now_us());
    assert_eq!(holders(&remote, 0), [SPILLED, 0, SPILLED]);
    assert_eq!((*remote.homes.get(0).unwrap(), remote.config.process.counters.servers_sunk.get()), (0, 511));
    assert_eq!(remote.peers[0].frees.pop(), Some((0, SEGMENT)));
    assert!(!remote.peers[0].is_full(process::now_us()));
}

#[test]
fn what_was_used_or_written_meanwhile_or_a_child_reads_does_not_sink() {
    for what in 0..3 {
        let mut remote = with_lanes(1, |config| config.below = true);
        store(&mut remote, 0, 0b1);
        if what == 0 {
            remote.freeze(true);
        }
        press(&mut remote, 0);
        assert_eq!(sinking(&mut remote), if what == 0 { None } else { Some(0) });
        let own = remote.tables.get_mut(0).unwrap();
        own.put(0, SEGMENT, 0b1 | SPILLED, &mut remote.counts);
        match what {
            1 => remote.tier.as_mut().unwrap().touch(5),
            2 => own.put(5, 1, 0b1, &mut remote.counts),
            _ => {}
        }
        assert_eq!(remote.may_drop(0), None, "{what}");
        remote.thaw();
        assert_eq!(remote.may_drop(0), if what == 0 { Some(true) } else { None });
    }
}

#[test]
fn while_the_disk_refuses_nothing_sinks_and_what_passes_by_says_why() {
    let page = [7; PAGE_BYTES];
    let mut remote = with_lanes(1, |config| config.below = true);
    let mut io = Io::new(false, 8).unwrap();
    store(&mut remote, 1, 0b1);
    remote.peers[0].fill_up(process::now_us());
    let mut write = |remote: &mut Remote, tag, slot| {
        remote.write(tag, Slot(slot), &whole(&page));
        remote.advance_spill(&mut io, &[crate::file::Fd::NONE]);
        remote.pop_ended()
    };
    assert_eq!(write(&mut remote, 1, 0), Some((1, PAGE_BYTES as i32)));
    remote.spilled(true, 0, Errno::NOSPC.negative());
    assert_eq!(remote.take_news(), Some(super::super::News::Spill(Errno::NOSPC)));
    // Nobody else has the first: it stays in its block.
    assert_eq!((holders(&remote, 0)[0], remote.is_settled()), (SPILLED, false));
    assert_eq!(write(&mut remote, 2, 1), Some((2, Errno::NOSPC.negative())));
    press(&mut remote, 0);
    assert_eq!((sinking(&mut remote), holders(&remote, 1)), (None, std::vec![0b1]));
}

#[test]
fn a_segment_that_cannot_sink_is_not_tried_for_ever() {
    let mut remote = with_lanes(1, |config| config.below = true);
    store(&mut remote, 0, 0b1);
    press(&mut remote, 0);
    for _ in 0..4 {
        // Nothing of it is copied.
        if sinking(&mut remote).is_some() {
            while remote.find_move(false).is_some() {}
            remote.end_moves(process::now_us());
        }
    }
    assert!(!remote.tier.as_ref().unwrap().is_busy());
}

#[test]
fn nothing_is_looked_for_for_ever() {
    let mut remote = with_lanes(1, |config| config.below = true);
    (0..3).for_each(|segment| store(&mut remote, segment, 0b1));
    press(&mut remote, 0);
    remote.freeze(true);
    assert!(remote.tier.as_ref().unwrap().is_busy());
    assert_eq!(sinking(&mut remote), None);
    assert!(!remote.tier.as_ref().unwrap().is_busy());
}

#[test]
fn what_is_read_more_often_than_others_rises() {
    let mut remote = with_lanes(1, |config| config.below = true);
    (0..8).for_each(|segment| store(&mut remote, segment, SPILLED));
    let mut page = [0; PAGE_BYTES];
    let mut read = |remote: &mut Remote, segment: u32, pages: u32| {
        remote.read(1, StoreId(0), Slot(segment * SEGMENT), page.as_mut_ptr().expose_provenance(), pages);
        while remote.spill.as_mut().unwrap().reads.pop().is_some() {}
        remote.ops.get_mut(1).unwrap().end();
    };
    // All alike: nothing; and large reads do not count.
    for _ in 0..OFTEN * 4 {
        (0..8).for_each(|segment| read(&mut remote, segment, 1));
        read(&mut remote, 7, 64);
    }
    assert!(!remote.tier.as_ref().unwrap().is_busy());
    (0..OFTEN * 8).for_each(|_| read(&mut remote, 5, 1));
    remote.choose_moves(process::now_us());
    let it = remote.tier.as_ref().unwrap().rising.unwrap();
    assert_eq!((it.segment, it.target, *remote.homes.get(5).unwrap()), (5, 0, 1));
    // What is in clear on the disk gets new numbers.
    let job = remote.find_move(true).unwrap();
    assert!((job.run(), job.filed, job.moved) == ((5 * SEGMENT, CHUNK), true, true));
    let own = remote.tables.get_mut(0).unwrap();
    own.put(5 * SEGMENT, SEGMENT, 0b1 | SPILLED, &mut remote.counts);
    assert_eq!(runs(&mut remote, true), []);
    remote.end_moves(process::now_us());
    assert!(remote.tier.as_ref().unwrap().rising.is_none());
    // It is in both, so that it can be forgotten at once.
    assert_eq!(remote.counts.missing, 0);
}

#[test]
fn where_no_server_has_room_it_is_made() {
    let mut remote = with_lanes(1, |config| config.below = true);
    store(&mut remote, 0, SPILLED);
    remote.peers[0].fill_up(process::now_us());
    remote.tier.as_mut().unwrap().waiting.push(0);
    remote.choose_moves(process::now_us());
    assert!(remote.tier.as_ref().unwrap().rising.is_none());
    assert_eq!(remote.config.session.servers().get(0).map(|server| server.presses()), Some(1));
}

#[test]
fn a_lost_copy_comes_to_the_disk_where_no_server_has_room() {
    let mut remote = with_lanes(2, |config| (config.below, config.replicas) = (true, 2));
    store(&mut remote, 0, 0b01);
    assert_eq!(remote.counts.missing, u64::from(SEGMENT));
    assert_eq!(remote.target_of(0, 0, 0b01), Some(1));
    *remote.homes.get_mut(0).unwrap() = 0b01;
    remote.peers[1].fill_up(process::now_us());
    assert_eq!(remote.target_of(0, 0, 0b01), Some(SPILL));
    // Not an ancestor's.
    assert_eq!(remote.target_of(1, 0, 0b01), None);
    remote.tables.get_mut(0).unwrap().put(0, SEGMENT, 0b01 | SPILLED, &mut remote.counts);
    assert_eq!(remote.counts.missing, 0);
}
