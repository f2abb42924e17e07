//! Pages that are computed while their group is being filled.

extern crate std;

use super::super::tests::with_lanes;
use super::*;
use ream_page::{Slot, StoreId};
use std::vec;
use std::vec::Vec;

/// A page as it was sent to a server: that, its row, and its seal.
type Sent = (usize, u32, [u8; PAGE_BYTES], [u8; SEAL]);

/// Pages come to the rows of one server.
fn write(remote: &mut Remote, sent: &mut Vec<Sent>, slot: u32, pages: u32, server: usize) {
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(slot, pages, &mut remote.counts));
    let groups = own.groups_mut().unwrap();
    let rows = groups.take(pages, true, if sent.is_empty() { 0b1111 } else { 1 << server }, &mut |_| {}).unwrap();
    assert_eq!((rows.group, rows.server, rows.pages), (0, server, pages));
    groups.answered(rows.group);
    for (slot, row) in (slot..slot + pages).zip(rows.row..) {
        let place = Place { lease: own.lease, store: own.store, slot, version: own.version(slot) };
        let mut page = [slot as u8 | 1; PAGE_BYTES];
        let seal = remote.key.seal(&place, &mut page).unwrap();
        own.groups_mut().unwrap().add(row, &page, &seal);
        own.put_row(slot, server, row, &mut remote.counts);
        sent.push((server, row, page, seal));
    }
}

/// A server answers with what it was asked for.
fn answer(remote: &mut Remote, sent: &[Sent], tag: u32) {
    let op = *remote.ops.get(tag as usize).unwrap();
    let server = op.peer as usize;
    assert_eq!(remote.compose_read(server, AHEAD).ok(), Some(true));
    let mut seals = Vec::new();
    for number in 0..op.part {
        let has = sent.iter().find(|(at, row, ..)| (*at, *row) == (server, op.at + number));
        let (page, seal) = has.map_or(([0; PAGE_BYTES], [0; SEAL]), |(_, _, page, seal)| (*page, *seal));
        // SAFETY: a frame of the test.
        unsafe {
            let frame = core::ptr::with_exposed_provenance_mut::<u8>(op.place() + number as usize * PAGE_BYTES);
            frame.copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES);
        }
        seals.push(seal);
    }
    remote.lane(server, AHEAD).unwrap().bring(&seals);
    assert!(remote.read_answered(server, AHEAD, tag).is_ok());
}

#[test]
fn a_group_may_get_more_pages_while_one_of_its_columns_is_computed() {
    let mut remote = with_lanes(4, |config| config.parity = true);
    let mut sent = Vec::new();
    write(&mut remote, &mut sent, 0, 6, 1);
    write(&mut remote, &mut sent, 10, 3, 2);
    write(&mut remote, &mut sent, 20, 2, 3);
    let own = remote.tables.get_mut(0).unwrap();
    let store = own.stores[1];
    (0..6).for_each(|slot| own.spoil(slot, 1, store));
    let mut frames = vec![9u8; 6 * PAGE_BYTES];
    remote.read(1, StoreId(0), Slot(0), frames.as_mut_ptr().expose_provenance(), 6);
    assert_eq!(remote.ops.get(1).map(|op| (op.peer, op.part)), Some((2, 3)));
    // The other that is still to be asked has more by then, and so has the sum.
    write(&mut remote, &mut sent, 22, 4, 3);
    answer(&mut remote, &sent, 1);
    assert_eq!(remote.ops.get(1).map(|op| (op.peer, op.part)), Some((3, 2)));
    answer(&mut remote, &sent, 1);
    assert_eq!((remote.pop_ended(), remote.forged()), (Some((1, frames.len() as i32)), None));
    let pages = frames.chunks(PAGE_BYTES);
    assert!((0u8..).zip(pages).all(|(slot, page)| page.iter().all(|byte| *byte == slot | 1)));
}
