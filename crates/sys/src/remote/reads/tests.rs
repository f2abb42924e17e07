//! Pages that do not open, at one server and for several reads, and what lies between them.

extern crate std;

use super::super::changes::Change;
use super::super::tests::with_lanes;
use super::*;
use ream_page::{Slot, StoreId};
use ream_wire::SEAL;
use std::vec;
use std::vec::Vec;

const PAGES: u32 = 3;

/// A page as it lies at a server, and its seal.
type Sealed = ([u8; PAGE_BYTES], [u8; SEAL]);

/// Two servers, of which the first is nearer, that have slots 0 and 2; the slot between was never written.
fn bed() -> Remote {
    let mut remote = with_lanes(2, |config| config.replicas = 2);
    remote.peers[1].latency = 1 << 20;
    for slot in [0, 2] {
        write(&mut remote, slot, 0b11);
    }
    remote
}

/// A slot is with these from now on.
fn write(remote: &mut Remote, slot: u32, who: u32) {
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(slot, 1, &mut remote.counts));
    own.put(slot, 1, who, &mut remote.counts);
    remote.changes.add(0, slot, 1, Change::Written);
}

fn read(remote: &mut Remote, tag: u32, frames: &mut [u8]) {
    remote.read(tag, StoreId(0), Slot(0), frames.as_mut_ptr().expose_provenance(), PAGES);
}

/// The server that a read was asked of.
fn asked(remote: &mut Remote, tag: u32) -> usize {
    let index = remote.ops.get(tag as usize).unwrap().peer as usize;
    while remote.compose_read(index, AHEAD).ok() == Some(true) {}
    index
}

/// What a server has been sent for a slot when that was written the so-manyeth time.
fn sealed(remote: &Remote, slot: u32, version: u32) -> Sealed {
    let own = remote.tables.get(0).unwrap();
    let place = Place { lease: own.lease, store: own.store, slot, version };
    let mut page = [slot as u8 | 1; PAGE_BYTES];
    let seal = remote.key.seal(&place, &mut page).unwrap();
    (page, seal)
}

/// That answers: with what was written, but for slots that are bad there and those that were never written.
fn answer(remote: &mut Remote, index: usize, tag: u32, bad: &[u32]) {
    answer_with(remote, index, tag, |remote, slot| {
        let version = remote.tables.get(0).unwrap().version(slot);
        let bad = bad.contains(&slot) || slot == 1;
        if bad { ([0; PAGE_BYTES], [0; SEAL]) } else { sealed(remote, slot, version) }
    });
}

/// That answers with what it has for each slot.
fn answer_with(remote: &mut Remote, index: usize, tag: u32, has: impl Fn(&Remote, u32) -> Sealed) {
    let op = *remote.ops.get(tag as usize).unwrap();
    let mut seals = Vec::new();
    for number in 0..op.part {
        let slot = op.slot + op.done + number;
        let (page, seal) = has(remote, slot);
        // SAFETY: a frame of the test.
        unsafe {
            let frame = core::ptr::with_exposed_provenance_mut::<u8>(op.place() + number as usize * PAGE_BYTES);
            frame.copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES);
        }
        seals.push(seal);
    }
    remote.lane(index, AHEAD).unwrap().bring(&seals);
    assert!(remote.read_answered(index, AHEAD, tag).is_ok());
}

/// All of a read is there, with zeros for what was read along.
fn is_there(frames: &[u8]) -> bool {
    let expected = [1, 0, 3];
    frames.chunks(PAGE_BYTES).zip(expected).all(|(page, byte)| page.iter().all(|it| *it == byte))
}

#[test]
fn a_page_that_is_bad_at_one_server_is_had_from_another_by_all_who_read_it() {
    let mut remote = bed();
    let all = (PAGES as usize * PAGE_BYTES) as i32;
    let mut frames = [vec![9; PAGES as usize * PAGE_BYTES], vec![9; PAGES as usize * PAGE_BYTES]];
    for (tag, frames) in (1..).zip(&mut frames) {
        read(&mut remote, tag, frames);
    }
    let first = [1, 2].map(|tag| asked(&mut remote, tag));
    assert_eq!(first, [0, 0]);
    for tag in [1, 2] {
        answer(&mut remote, 0, tag, &[2]);
        assert_eq!(remote.pop_ended(), None);
    }
    for tag in [1, 2] {
        assert_eq!(asked(&mut remote, tag), 1);
        answer(&mut remote, 1, tag, &[]);
        assert_eq!(remote.pop_ended(), Some((tag, all)));
    }
    assert!(frames.iter().all(|frames| is_there(frames)));
    assert_eq!((remote.take_news(), remote.take_news()), (Some(News::Forged(0)), None));
    assert_eq!(remote.tables.get(0).map(|own| [own.holder(0), own.holder(2)]), Some([0b11, 0b10]));
}

#[test]
fn what_is_read_along_is_not_asked_for_again() {
    // Never written, written meanwhile wherever, and with a server that is lost.
    let cases: [&dyn Fn(&mut Remote); 4] =
        [&|_| {}, &|remote| write(remote, 1, 0b11), &|remote| write(remote, 1, 0b10), &|remote| {
            let own = remote.tables.get_mut(0).unwrap();
            own.put(1, 1, 0b100, &mut remote.counts);
        }];
    for case in cases {
        let mut remote = bed();
        let mut frames = vec![9; PAGES as usize * PAGE_BYTES];
        read(&mut remote, 1, &mut frames);
        assert_eq!(asked(&mut remote, 1), 0);
        case(&mut remote);
        answer(&mut remote, 0, 1, &[]);
        assert_eq!(remote.pop_ended(), Some((1, frames.len() as i32)));
        assert!(is_there(&frames) && remote.forged().is_none());
    }
}

#[test]
fn what_is_copied_while_it_is_read_is_asked_for_again() {
    let mut remote = bed();
    let mut frames = vec![9; PAGES as usize * PAGE_BYTES];
    read(&mut remote, 1, &mut frames);
    assert_eq!(asked(&mut remote, 1), 0);
    // It was bad there, which another read has found out, and was copied to it from the other.
    remote.changes.add(0, 2, 1, Change::Moved);
    answer(&mut remote, 0, 1, &[2]);
    assert_eq!((remote.pop_ended(), asked(&mut remote, 1)), (None, 0));
    answer(&mut remote, 0, 1, &[]);
    assert_eq!(remote.pop_ended(), Some((1, frames.len() as i32)));
    assert!(is_there(&frames) && remote.forged().is_none());
}

#[test]
fn what_was_there_before_or_belongs_elsewhere_is_not_taken_though_it_is_genuine() {
    // Slot 2 as it was before it was written again; and what is in slot 0, seal and all.
    let cases: [fn(&Remote) -> Sealed; 2] = [|remote| sealed(remote, 2, 1), |remote| sealed(remote, 0, 1)];
    for case in cases {
        let mut remote = bed();
        write(&mut remote, 2, 0b11);
        let counters = &remote.config.process.counters;
        let before = counters.pages_not_genuine.get();
        let mut frames = vec![9; PAGES as usize * PAGE_BYTES];
        read(&mut remote, 1, &mut frames);
        assert_eq!(asked(&mut remote, 1), 0);
        answer_with(&mut remote, 0, 1, |remote, slot| match slot {
            0 => sealed(remote, 0, 1),
            1 => ([0; PAGE_BYTES], [0; SEAL]),
            _ => case(remote),
        });
        // It counts as lost there, and is had from the other.
        assert_eq!((remote.pop_ended(), asked(&mut remote, 1)), (None, 1));
        answer(&mut remote, 1, 1, &[]);
        assert_eq!(remote.pop_ended(), Some((1, frames.len() as i32)));
        assert!(is_there(&frames));
        assert_eq!(remote.take_news(), Some(News::Forged(0)));
        assert_eq!(remote.tables.get(0).map(|own| [own.holder(0), own.holder(2)]), Some([0b11, 0b10]));
        let servers = remote.config.session.servers();
        let bad = |index: usize| servers.get(index).map(ream_stats::Server::forged);
        assert_eq!((counters.pages_not_genuine.get() - before, bad(0), bad(1)), (1, Some(1), Some(0)));
    }
}

#[test]
fn it_is_known_how_far_away_a_server_alone_is() {
    let mut remote = with_lanes(1, |_| {});
    write(&mut remote, 0, 0b1);
    let mut frame = vec![0; PAGE_BYTES];
    let latency = |remote: &Remote| remote.config.session.servers().get(0).unwrap().latency_us();
    for (waited_for, lane) in [(false, AHEAD), (true, DEMAND)] {
        remote.set_waited_for(waited_for);
        remote.read(1, StoreId(0), Slot(0), frame.as_mut_ptr().expose_provenance(), 1);
        assert!(latency(&remote) == 0 && remote.compose_read(0, lane).is_ok());
        assert!(remote.read_answered(0, lane, 1).is_ok());
        // What does not open is lost; it is written again.
        write(&mut remote, 0, 0b1);
    }
    assert!(latency(&remote) > 0);
}
