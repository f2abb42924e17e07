//! Writes that find no rows, that are read while they are written, and that wait for room.

extern crate std;

use super::super::tests::{away, whole, with_lanes};
use super::super::{AHEAD, request};
use super::*;
use ream_page::{Slot, StoreId};
use ream_wire::message::Kind;
use std::vec;

fn bed() -> Remote {
    with_lanes(3, |config| config.parity = true)
}

/// What is queued is sent, and so answered.
fn answer(remote: &mut Remote, status: Status) {
    for index in 0..remote.count {
        while remote.peers[index].is_up() && remote.peers[index].has_work(WRITE) {
            assert!(remote.compose_write(index).is_ok());
            remote.lane(index, WRITE).unwrap().send_off();
        }
    }
    for number in 0..remote.log.pieces.len() as u32 {
        let piece = *remote.log.pieces.get(number as usize).unwrap();
        if piece.step == Step::Sent {
            let request = request(Kind::Write, 0, piece.row, piece.pages as u16, 0);
            let message = Message { tag: PIECE | number, request };
            assert!(remote.piece_answered(piece.server.into(), &message, status).is_ok());
        }
    }
}

/// Rows for so many pages at one of these servers, of which the first is a slot's.
fn put(remote: &mut Remote, slot: u32, pages: u32, usable: u32) -> Place {
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(slot, 1, &mut remote.counts));
    let groups = own.groups_mut().unwrap();
    let mut full = None;
    let place = groups.take(pages, true, usable, &mut |group| full = Some(group)).unwrap();
    groups.answered(place.group);
    full.into_iter().for_each(|group| groups.let_go_of_sum(group));
    own.put_row(slot, place.server, place.row, &mut remote.counts);
    place
}

#[test]
fn a_page_that_is_written_while_it_is_read_is_nobodys_fault() {
    // Asked for before it is written, or in a queue until that is done.
    for asked in [true, false] {
        let mut remote = bed();
        let server = put(&mut remote, 0, 1, 0b111).server;
        // What is written next comes to the same column, which is the emptiest.
        put(&mut remote, 1000, 10, 0b111 & !(1 << server));
        let mut frame = vec![9u8; PAGE_BYTES];
        remote.read(1, StoreId(0), Slot(0), frame.as_mut_ptr().expose_provenance(), 1);
        if asked {
            assert_eq!(remote.compose_read(server, AHEAD).ok(), Some(true));
        }
        let pages = vec![7u8; 65 * PAGE_BYTES];
        let parts = whole(&pages);
        remote.write(2, Slot(0), &parts);
        // A part of it is kept, and the rest is under way.
        assert!(remote.compose_write(server).is_ok());
        let sent = remote.log.pieces.as_slice().iter().position(|piece| piece.step == Step::Sent).unwrap();
        let piece = *remote.log.pieces.get(sent).unwrap();
        assert_eq!((usize::from(piece.server), piece.offset), (server, 0));
        let message =
            Message { tag: PIECE | sent as u32, request: request(Kind::Write, 0, piece.row, piece.pages as u16, 0) };
        assert!(remote.piece_answered(server, &message, Status::Done).is_ok());
        if !asked {
            assert_eq!(remote.compose_read(server, AHEAD).ok(), Some(true));
        }
        // The row of before arrives.
        assert!(remote.read_answered(server, AHEAD, 1).is_ok());
        assert_eq!(remote.pop_ended(), Some((1, PAGE_BYTES as i32)), "{asked}");
        assert_eq!((remote.forged(), remote.take_news()), (None, None));
        let own = remote.tables.get(0).unwrap();
        assert_eq!(own.column_of(0), Some((server, false)));
        assert!(!own.groups().unwrap().of(0).unwrap().leaving);
    }
}

#[test]
fn where_one_is_away_and_the_others_are_full_a_write_ends_after_the_deadline() {
    let mut remote = bed();
    let deadline = remote.config.deadline_us;
    away(&mut remote, 2);
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    let fill_up = |remote: &mut Remote, now: u64| remote.peers.iter_mut().for_each(|peer| peer.fill_up(now));
    fill_up(&mut remote, process::now_us());
    remote.write(1, Slot(0), &parts);
    let since = remote.log.stranded_since().expect("it waits");
    // Those that were full are asked again, one after the other, and are full.
    fill_up(&mut remote, 0);
    for _ in 0..4 {
        remote.advance_log();
        answer(&mut remote, Status::Full);
        assert_eq!((remote.log.stranded_since(), remote.pop_ended()), (Some(since), None));
    }
    fill_up(&mut remote, process::now_us());
    remote.look_at_clock();
    assert!(!remote.log.in_vain);
    remote.log.stranded_since -= deadline + 1;
    remote.look_at_clock();
    remote.advance_log();
    let full = Errno::NOSPC.negative();
    assert_eq!((remote.pop_ended(), remote.fatal), (Some((1, full)), false));
    assert!(remote.log.is_settled());
    // Who comes next hears it at once.
    fill_up(&mut remote, process::now_us());
    remote.write(2, Slot(0), &parts);
    assert_eq!(remote.pop_ended(), Some((2, full)));
    // Until somebody keeps something.
    fill_up(&mut remote, 0);
    remote.write(3, Slot(0), &parts);
    answer(&mut remote, Status::Done);
    assert_eq!((remote.pop_ended(), remote.log.in_vain), (Some((3, PAGE_BYTES as i32)), false));
    fill_up(&mut remote, process::now_us());
    remote.write(4, Slot(1), &parts);
    assert_eq!(remote.pop_ended(), None);
    assert!(remote.log.stranded_since().is_some_and(|now| now >= since));
}

#[test]
fn where_all_are_away_a_write_waits_as_long_as_the_last_may() {
    let mut remote = bed();
    let deadline = remote.config.deadline_us;
    (1..3).for_each(|index| away(&mut remote, index));
    remote.peers[0].fill_up(process::now_us());
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    remote.write(1, Slot(0), &parts);
    remote.log.stranded_since -= deadline + 1;
    remote.lose(0, Lost::Closed);
    while remote.take_news().is_some() {}
    remote.look_at_clock();
    assert_eq!((remote.take_news(), remote.fatal), (None, false));
    remote.log.stranded_since -= deadline + 1;
    remote.look_at_clock();
    assert!(matches!(remote.take_news(), Some(News::Fatal(_, Lost::Late))) && remote.pop_ended().is_none());
}

/// Many gaps, which are being filled, and no room for more.
fn with_gaps() -> Remote {
    let mut remote = bed();
    (0..40).for_each(|slot| _ = put(&mut remote, slot, ROWS, 0b111));
    remote.peers.iter_mut().for_each(|peer| peer.free = 0);
    remote.log.leaving = true;
    assert!(remote.has_many_gaps());
    remote
}

#[test]
fn writes_do_not_wait_for_copying_that_waits_for_them() {
    let mut remote = with_gaps();
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    remote.write(1, Slot(100), &parts);
    remote.advance_log();
    assert_eq!(remote.log.waiting.len(), 1);
    // A fork waits for all that is on its way, and no copying begins while it does.
    assert!(!remote.is_settled());
    remote.log.asked.store(u64::MAX, Ordering::Relaxed);
    remote.advance_log();
    assert_eq!(remote.log.waiting.len(), 0);
    answer(&mut remote, Status::Done);
    assert!(remote.is_settled() && remote.pop_ended() == Some((1, PAGE_BYTES as i32)));
}

#[test]
fn writes_do_not_wait_for_ever_for_copying_that_does_not_get_on() {
    let mut remote = with_gaps();
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    remote.write(1, Slot(100), &parts);
    assert_eq!(remote.log.waiting.len(), 1);
    remote.log.held_since -= HELD;
    remote.advance_log();
    assert_eq!(remote.log.waiting.len(), 0);
    remote.write(2, Slot(101), &parts);
    assert_eq!(remote.log.waiting.len(), 0);
    // When it gets on, they wait.
    remote.log.kept(true);
    remote.write(3, Slot(102), &parts);
    assert_eq!(remote.log.waiting.len(), 1);
}
