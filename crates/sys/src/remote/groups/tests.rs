//! Where the pages of a store lie: in turn, with sums, and gaps that come back.

extern crate std;

use super::*;
use std::vec;
use std::vec::Vec;

fn fill(groups: &mut Groups, slot: u32, pages: u32, usable: u32) -> Vec<Place> {
    let (mut left, mut places) = (pages, Vec::new());
    while left > 0 {
        let mut full = Vec::new();
        let Some(place) = groups.take(left, false, usable, &mut |group| full.push(group)) else { break };
        for page in 0..place.pages {
            groups.put(slot + pages - left + page, place.row + page, false);
        }
        groups.answered(place.group);
        for group in full {
            groups.let_go_of_sum(group);
        }
        left -= place.pages;
        places.push(place);
    }
    places
}

#[test]
fn pages_go_to_all_servers_in_turn_and_sums_too() {
    let mut groups = Groups::new(10_000).unwrap();
    let places = fill(&mut groups, 0, 64 * 6, 0b111);
    let sums: Vec<_> = (0..3).map(|group| groups.get(group).unwrap().sum_at()).collect();
    assert_eq!(sums, [Some(0), Some(1), Some(2)]);
    let servers: Vec<_> = places.iter().map(|place| (place.group, place.server, place.pages)).collect();
    assert_eq!(servers, [(0, 1, 64), (0, 2, 64), (1, 0, 64), (1, 2, 64), (2, 0, 64), (2, 1, 64)]);
    assert!(groups.list().iter().all(|it| it.phase == Phase::Free || it.is_whole()));
    assert_eq!((groups.taken, groups.live, groups.exposed()), (384, 384, (0, 0)));
    // Few pages at once fill the columns evenly; those that must stay together leave rows out.
    let places = fill(&mut groups, 1000, 40, 0b111);
    assert_eq!((places.len(), places[0].pages), (1, 40));
    let place = groups.take(40, true, 0b111, &mut |_| panic!("full")).unwrap();
    assert_eq!((place.group, place.server), (3, 2));
    let mut full = Vec::new();
    let place = groups.take(40, true, 0b111, &mut |group| full.push(group)).unwrap();
    assert_eq!((place.group, full), (4, vec![3]));
}

#[test]
fn what_one_server_had_can_be_computed_and_two_cannot() {
    let mut groups = Groups::new(10_000).unwrap();
    fill(&mut groups, 0, 64 * 2 + 10, 0b111);
    assert!(!groups.lose(0b010));
    // Group 0: data at 1 and 2, sum at 0. Group 1: data at 0, sum here and meant for 1.
    let (first, second) = (*groups.get(0).unwrap(), *groups.get(1).unwrap());
    assert!(!first.is_whole() && first.is_rebuildable() && !groups.is_gone(0, 1, false));
    assert!(second.phase == Phase::Closed && !second.is_whole() && second.sum_for().is_none());
    assert_eq!(groups.exposed(), (138, 0b101));
    assert!(groups.lose(0b001));
    assert!(groups.is_gone(0, 1, false) && !groups.is_gone(64, 2, false) && groups.is_gone(128, 0, false));
}

#[test]
fn the_loss_of_a_server_that_had_nothing_yet_is_none() {
    let mut groups = Groups::new(10_000).unwrap();
    fill(&mut groups, 0, 10, 0b111);
    assert_eq!(groups.get(0).unwrap().rows_of(2), 0);
    assert!(!groups.lose(0b100));
    let it = groups.get(0).unwrap();
    assert!(it.is_whole() && it.phase == Phase::Closing && it.sum_for() == Some(0));
    // Alone: without a sum, and so without need of one here.
    fill(&mut groups, 10, 10, 0b001);
    assert_eq!((groups.exposed(), groups.current()), ((10, 0b001), Some(1)));
}

#[test]
fn gaps_come_back() {
    let mut groups = Groups::new(100_000).unwrap();
    fill(&mut groups, 0, 128 * 400, 0b111);
    assert!(!groups.choose_leaving(false));
    // Three of four in the first half are written anew.
    for slot in (0..25600).filter(|slot| slot % 4 != 0) {
        let mut full = None;
        let place = groups.take(1, false, 0b111, &mut |group| full = Some(group)).unwrap();
        groups.put(slot, place.row, true);
        groups.answered(place.group);
        full.into_iter().for_each(|group| groups.let_go_of_sum(group));
    }
    assert!(groups.has_many_gaps() && !groups.choose_leaving(true));
    assert!(groups.pop_empty().is_none() && groups.choose_leaving(false));
    let leaving = |group: u32| groups.get(group).unwrap().leaving;
    assert!(leaving(0) && leaving(199) && !leaving(200) && !leaving(399));
    let taken = groups.taken;
    groups.freeze();
    for slot in (0..128).filter(|slot| slot % 4 == 0) {
        groups.leave(slot, true);
    }
    assert!(groups.pop_empty().is_none());
    groups.pin(0, true);
    groups.thaw();
    assert!(groups.pop_empty().is_none());
    groups.pin(0, false);
    let (group, was) = groups.pop_empty().unwrap();
    assert_eq!((group, was.rows(), was.members), (0, 64, 0b111));
    assert!(groups.pop_empty().is_none() && groups.taken == taken - 128);
    assert!(groups.get(0).unwrap().phase == Phase::Free);
}

#[test]
fn no_more_sums_than_there_is_room_for() {
    let mut groups = Groups::new(100_000).unwrap();
    let mut full = 0;
    for _ in 0..SUMS * 2 {
        assert!(groups.take(ROWS, false, 0b111, &mut |_| full += 1).is_some());
    }
    assert_eq!(full, SUMS);
    assert!(groups.take(1, false, 0b111, &mut |_| {}).is_none());
    add(groups.sum(3, 5, 1), &[3; ROW]);
    add(groups.sum(3, 5, 1), &[1; ROW]);
    assert_eq!((groups.sum(3, 5, 1)[ROW - 1], groups.sum(3, 4, 1)[0], groups.sum(4, 5, 1)[0]), (2, 0, 0));
    groups.let_go_of_sum(3);
    let place = groups.take(1, false, 0b111, &mut |_| {}).unwrap();
    assert_eq!(groups.sum(place.group, 5, 1)[0], 0);
    assert!(groups.sum(3, 5, 1).is_empty());
}

#[test]
fn rows_that_a_server_does_not_keep_are_not_taken() {
    let mut groups = Groups::new(10_000).unwrap();
    let first = groups.take(20, false, 0b111, &mut |_| panic!("full")).unwrap();
    let second = groups.take(10, false, 1 << first.server, &mut |_| panic!("full")).unwrap();
    assert_eq!((second.group, second.row), (first.group, first.row + 20));
    // The second has no room: the first stays, the group is closed, and its sum goes out when all is answered.
    groups.cut(first.group, first.server, second.row);
    assert!(groups.has_row(first.server, first.row + 19) && !groups.has_row(first.server, second.row));
    assert_eq!((groups.taken, groups.current()), (20, None));
    for place in [first, second] {
        assert!(groups.get(place.group).unwrap().open > 0);
        groups.answered(place.group);
    }
    let it = groups.get(first.group).unwrap();
    assert!(it.phase == Phase::Closing && it.sum_for().is_some() && it.open == 0 && it.rows() == 20);
    // What came after the gap is not had either; cut twice is cut once.
    groups.cut(first.group, first.server, first.row + 30);
    assert_eq!(groups.taken, 20);
}

#[test]
fn a_sum_that_nobody_takes_stays_here_while_a_column_is_lost() {
    let mut groups = Groups::new(10_000).unwrap();
    let place = groups.take(ROWS, false, 0b111, &mut |_| {}).unwrap();
    (0..ROWS).for_each(|page| groups.put(page, place.row + page, false));
    groups.answered(place.group);
    let other = groups.take(ROWS, false, 0b111 & !(1 << place.server), &mut |_| {}).unwrap();
    (0..ROWS).for_each(|page| groups.put(100 + page, other.row + page, false));
    groups.answered(other.group);
    assert_eq!(other.group, place.group);
    groups.add(place.row, &[5; PAGE_BYTES], &[6; ROW - PAGE_BYTES]);
    assert!(!groups.lose(1 << place.server));
    let sums = groups.used_sums;
    // The one that it was for has no room.
    groups.sum_refused(place.group);
    assert_eq!(groups.used_sums, sums);
    assert!(groups.get(place.group).unwrap().is_rebuildable());
    assert_eq!((groups.sum(place.group, place.row, 1)[0], groups.sum(place.group, place.row, 1)[ROW - 1]), (5, 6));
    assert!(groups.get(place.group).unwrap().phase == Phase::Closed);
    // When nothing depends on it any more, it makes room.
    (0..ROWS).for_each(|page| groups.leave(page, true));
    (0..ROWS).for_each(|page| groups.leave(100 + page, true));
    assert!(groups.pop_empty().is_some() && groups.used_sums == sums & (sums - 1));
}

#[test]
fn groups_are_few_before_there_are_none() {
    let mut groups = Groups::new(10_000).unwrap();
    assert!(!groups.are_few());
    // Each with one column, as it is with two servers.
    let mut places = 0;
    while let Some(place) = groups.take(ROWS, false, 0b001, &mut |_| {}) {
        groups.answered(place.group);
        places += 1;
        if groups.are_few() {
            break;
        }
    }
    assert!(groups.are_few() && places < groups.count && places > groups.count / 2, "{places} of {}", groups.count);
}

#[test]
fn sums_that_servers_have_no_room_for_stay_here_if_not_too_many() {
    let mut groups = Groups::new(10_000).unwrap();
    let mut slot = 0;
    let mut refused = |groups: &mut Groups| {
        let place = groups.take(ROWS, false, 0b111, &mut |_| {}).unwrap();
        (0..ROWS).for_each(|page| groups.put(slot + page, place.row + page, false));
        slot += ROWS;
        groups.answered(place.group);
        groups.finish(place.group);
        groups.sum_refused(place.group);
        place.group
    };
    let kept: Vec<_> = (0..KEPT).map(|_| refused(&mut groups)).collect();
    // To be copied, but any server may be lost.
    assert_eq!(groups.exposed(), ((KEPT * ROWS as usize) as u64, 0));
    assert!(kept.iter().all(|group| !groups.get(*group).unwrap().is_whole()));
    let more = refused(&mut groups);
    assert_eq!(groups.exposed().1, 0b111);
    assert!(!groups.get(more).unwrap().has_sum() && groups.used_sums.count_ones() == KEPT as u32);
    let server = (0..3).find(|server| groups.get(more).unwrap().rows_of(*server) > 0).unwrap();
    assert!(groups.lose(1 << server));
    assert!(kept.iter().all(|group| groups.get(*group).unwrap().is_rebuildable()));
}
