//! What is copied is what was written, or it is not copied: with the number that the page had, anything else gives it away.

extern crate std;

use super::super::groups::ROWS;
use super::super::tests::remote;
use super::*;
use ream_wire::seal::Place;
use std::vec::Vec;

/// Three servers, and so many pages from slot 0 on in groups whose sums have been added up, and are here.
fn with_pages(pages: u32) -> Remote {
    let mut remote = remote(3, |config| config.parity = true);
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(0, pages, &mut remote.counts));
    let mut slot = 0;
    while slot < pages {
        let groups = own.groups_mut().unwrap();
        let rows = groups.take(pages - slot, false, 0b111, &mut |_| {}).unwrap();
        groups.answered(rows.group);
        for row in rows.row..rows.row + rows.pages {
            let (bound, mut page) = (place(own, slot), [slot as u8 | 1; PAGE_BYTES]);
            let seal = remote.key.seal(&bound, &mut page).unwrap();
            own.groups_mut().unwrap().add(row, &page, &seal);
            own.put_row(slot, rows.server, row, &mut remote.counts);
            slot += 1;
        }
    }
    remote
}

fn place(own: &Table, slot: u32) -> Place {
    Place { lease: own.lease, store: own.store, slot, version: own.version(slot) }
}

fn lose(remote: &mut Remote, server: usize) {
    remote.close_group();
    remote.up &= !(1 << server);
    assert_eq!(remote.tables.get_mut(0).unwrap().lose_columns(1 << server, &mut remote.counts), 0);
}

/// Begins to copy these; the tag of that.
fn copy(remote: &mut Remote, slot: u32, pages: u32) -> u32 {
    let Found::Job(job) = remote.mend.found(0, slot, pages, LOG) else { panic!("no job") };
    remote.start_job(0, job);
    remote.mend.first_tag
}

/// Pages on their way to new rows, as runs of slots.
fn written(remote: &Remote) -> Vec<(u32, u32)> {
    let ops = remote.ops.as_slice().iter().filter(|op| op.nature() == Nature::Write);
    ops.map(|op| (op.slot, op.pages)).collect()
}

/// The slots that a server has.
fn slots_at(remote: &Remote, server: usize) -> Vec<u32> {
    let own = remote.tables.get(0).unwrap();
    (0..own.end).filter(|slot| own.column_of(*slot).is_some_and(|(at, _)| at == server)).collect()
}

#[test]
fn what_was_computed_and_opens_is_copied() {
    // They are all in one column: their sum is what they are.
    let mut remote = with_pages(10);
    assert_eq!(slots_at(&remote, 1).len(), 10);
    lose(&mut remote, 1);
    copy(&mut remote, 0, 10);
    assert_eq!(written(&remote), [(0, 10)]);
    let pages = remote.mend.memory.as_slice().chunks(PAGE_BYTES).take(10);
    assert!((0u8..).zip(pages).all(|(slot, page)| page.iter().all(|byte| *byte == slot | 1)));
    assert!((0..10).all(|slot| remote.mend.has(0, slot, remote.tables.get(0).unwrap())));
}

#[test]
fn what_nobody_can_give_is_not_copied_as_zeros() {
    let mut remote = with_pages(2 * ROWS);
    lose(&mut remote, 1);
    let second = slots_at(&remote, 2)[0];
    let tag = copy(&mut remote, second, 1);
    // The server has sent it, and it did not open there; what it could be computed from is lost.
    let own = remote.tables.get_mut(0).unwrap();
    own.spoil(second, 2, 0);
    remote.route(tag);
    assert_eq!(written(&remote), []);
    assert!(!remote.mend.has(0, second, remote.tables.get(0).unwrap()));
    assert!(!remote.mend.jobs.iter().any(|job| job.busy));
    // Nobody looks for it again, and whoever reads it learns that it is not what was written.
    assert_eq!((remote.tables.get(0).unwrap().holder(second), remote.forged()), (0, Some(2)));
}

#[test]
fn what_was_computed_and_does_not_open_is_left_out() {
    // What is to be copied, and what is: the first run that opened. The others have their turn later.
    for (slot, pages, copied) in [(0, 10, &[(0, 3)][..]), (3, 7, &[(4, 6)]), (3, 1, &[])] {
        let mut remote = with_pages(10);
        let groups = remote.tables.get_mut(0).and_then(Table::groups_mut).unwrap();
        groups.add(groups.row(3), &[1], &[]);
        lose(&mut remote, 1);
        copy(&mut remote, slot, pages);
        assert_eq!(written(&remote), copied);
        let own = remote.tables.get(0).unwrap();
        for slot in 0..10 {
            let is = copied.iter().any(|(first, pages)| (*first..first + pages).contains(&slot));
            assert_eq!(remote.mend.has(0, slot, own), is, "{slot}");
        }
        assert!(remote.mend.refused && remote.mend.jobs[0].busy != copied.is_empty());
        // The page counts as there: it may be computed well next time.
        assert_eq!((own.holder(3), remote.forged()), (0b10, Some(1)));
    }
}

#[test]
fn what_is_read_once_more_must_open_once_more() {
    let mut remote = with_pages(10);
    lose(&mut remote, 1);
    let tag = copy(&mut remote, 0, 10);
    remote.mend.reads_again(tag, 4);
    let own = remote.tables.get(0).unwrap();
    assert!((0..10).all(|slot| remote.mend.has(0, slot, own) == (slot < 4)));
    assert!(!remote.mend.is_current(0, &remote.tables));
    remote.mend.opened(tag, 10);
    (4..10).for_each(|slot| remote.mend.opened(tag, slot));
    assert!(remote.mend.is_current(0, &remote.tables));
}

#[test]
fn what_cannot_be_copied_keeps_nobody_waiting() {
    let mut remote = with_pages(1);
    let groups = remote.tables.get_mut(0).and_then(Table::groups_mut).unwrap();
    groups.add(groups.row(0), &[1], &[]);
    lose(&mut remote, 1);
    // The sum stays here, for want of room elsewhere.
    remote.tables.get_mut(0).and_then(Table::groups_mut).unwrap().sum_refused(0);
    remote.log.leaving = true;
    remote.mend.wake();
    for _ in 0..3 {
        remote.mend.not_before = 0;
        remote.advance_mend();
    }
    assert!(!remote.log.leaving && remote.log.choose_at > 0 && !remote.mend.jobs[0].busy);
    // Not at once, but again and again: it may be computed well next time.
    remote.log.choose_at = u64::MAX;
    remote.advance_log();
    assert!(!remote.log.leaving);
    remote.log.choose_at = 1;
    remote.advance_log();
    assert!(remote.log.leaving && remote.mend.is_busy() && remote.log.choose_at == 0);
    assert_eq!(remote.tables.get(0).unwrap().holder(0), 0b10);
}
