//! A file that cannot be written, or that somebody else has written.

extern crate std;

use super::super::tests::remote;
use super::super::{Message, Op, request};
use super::*;
use ream_wire::message::{Kind, Status};

const PAGES: u32 = 2;

/// The server has kept all of a write.
fn answer(remote: &mut Remote, tag: u32) {
    remote.ops.get_mut(tag as usize).unwrap().sent[0] = PAGES as u16;
    let message = Message { tag, request: request(Kind::Write, 0, 0, PAGES as u16, 0) };
    assert!(remote.write_answered(0, &message, Status::Done).is_ok());
}

/// Writes frames to slot 0, at the server and into a block on its way to the file.
fn write(remote: &mut Remote, io: &mut Io, tag: u32, frames: &[u8]) {
    let parts = [Part { address: frames.as_ptr().expose_provenance(), bytes: frames.len() }];
    remote.write(tag, Slot(0), &parts);
    remote.advance_spill(io, &[Fd::NONE]);
}

/// One server and a local copy, threads for I/O, and frames to write.
fn bed() -> (Remote, Io, std::vec::Vec<u8>) {
    let frames = std::vec![7; PAGES as usize * PAGE_BYTES];
    (remote(1, |config| config.spill = true), Io::new(false, 8).unwrap(), frames)
}

#[test]
fn a_write_behind_one_that_fails_is_answered() {
    let (mut remote, mut io, frames) = bed();
    let all = frames.len() as i32;
    let own = |remote: &Remote| remote.tables.get(0).map(|own| (own.version(0), own.holder(0)));
    write(&mut remote, &mut io, 1, &frames);
    answer(&mut remote, 1);
    assert_eq!((remote.pop_ended(), own(&remote)), (Some((1, all)), Some((1, 1 | SPILLED))));
    // The next waits for the first one's block.
    write(&mut remote, &mut io, 2, &frames);
    answer(&mut remote, 2);
    assert_eq!((remote.pop_ended(), own(&remote)), (None, Some((2, 0))));
    remote.spill_written(0, Errno::IO.negative());
    remote.advance_spill(&mut io, &[Fd::NONE]);
    assert_eq!((remote.pop_ended(), own(&remote)), (Some((2, all)), Some((2, 1))));
    assert!(remote.is_settled() && remote.pop_ended().is_none());
}

#[test]
fn a_write_whose_block_fails_while_the_server_is_to_answer_is_with_the_server() {
    let (mut remote, mut io, frames) = bed();
    write(&mut remote, &mut io, 1, &frames);
    remote.spill_written(0, Errno::IO.negative());
    assert_eq!(remote.pop_ended(), None);
    answer(&mut remote, 1);
    assert_eq!(remote.pop_ended(), Some((1, frames.len() as i32)));
    assert_eq!(remote.tables.get(0).map(|own| own.holder(0)), Some(1));
}

#[test]
fn a_forged_local_copy_is_told_once() {
    let mut remote = remote(1, |config| (config.spill, config.spill_sealed) = (true, true));
    let mut frames = std::vec![7u8; PAGE_BYTES];
    for slot in 0..3 {
        let own = remote.tables.get_mut(0).unwrap();
        assert!(own.begin(slot, 1, &mut remote.counts));
        own.put(slot, 1, 1 | SPILLED, &mut remote.counts);
        let mut op = Op::read(0, slot, 1, frames.as_mut_ptr().expose_provenance(), 0);
        (op.part, op.changes) = (1, remote.changes.count());
        *remote.ops.get_mut(1).unwrap() = op;
        assert!(!remote.open_spilled(1));
        assert_eq!(remote.tables.get(0).map(|own| own.holder(slot)), Some(1));
    }
    let told: std::vec::Vec<_> = core::iter::from_fn(|| remote.take_news()).collect();
    assert_eq!((told, remote.forged()), (std::vec![News::Forged(SPILL)], None));
}

#[test]
fn what_the_disk_refuses_is_read_from_memory() {
    for sealed in [false, true] {
        let mut remote = remote(1, |config| (config.spill, config.spill_sealed) = (true, sealed));
        let mut io = Io::new(false, 8).unwrap();
        let pages: std::vec::Vec<u8> =
            (0..PAGES as usize * PAGE_BYTES).map(|byte| (byte / PAGE_BYTES) as u8 + 5).collect();
        write(&mut remote, &mut io, 1, &pages);
        // The server has no room.
        remote.part_failed(1, 0, Errno::NOSPC.negative());
        assert_eq!(remote.pop_ended(), Some((1, pages.len() as i32)));
        // What follows is in the file already.
        let own = remote.tables.get_mut(0).unwrap();
        assert!(own.begin(PAGES, 1, &mut remote.counts));
        own.put(PAGES, 1, SPILLED, &mut remote.counts);
        for refused in [false, true] {
            if refused {
                remote.spill_written(0, Errno::IO.negative());
            }
            let mut frames = std::vec![9u8; pages.len() + PAGE_BYTES];
            let address = frames.as_mut_ptr().expose_provenance();
            remote.read(2, ream_page::StoreId(0), Slot(0), address, PAGES);
            assert!(remote.advance_spill(&mut io, &[Fd::NONE]));
            assert_eq!(remote.pop_ended(), Some((2, pages.len() as i32)));
            assert!(frames.starts_with(&pages) && frames.ends_with(&[9; PAGE_BYTES]), "{sealed} {refused}");
            // From the middle on, and beyond the block.
            remote.read(3, ream_page::StoreId(0), Slot(1), address, PAGES);
            assert!(remote.advance_spill(&mut io, &[Fd::NONE]));
            assert_eq!((remote.pop_ended(), remote.ops.get(3).map(|op| op.done)), (None, Some(1)));
            assert!(frames.starts_with(&pages[PAGE_BYTES..]));
            // The rest would be asked of the file.
            while remote.spill.as_mut().unwrap().reads.pop().is_some() {}
            assert_eq!(remote.spill.as_ref().unwrap().in_block(PAGES, 1), (None, 1));
        }
        assert!(!remote.is_settled() && remote.forged().is_none());
    }
}

#[test]
fn what_did_not_come_into_the_file_is_not_read_from_there() {
    let (mut remote, mut io, frames) = bed();
    write(&mut remote, &mut io, 1, &frames);
    answer(&mut remote, 1);
    assert_eq!(remote.pop_ended(), Some((1, frames.len() as i32)));
    let mut back = std::vec![9u8; frames.len()];
    *remote.ops.get_mut(2).unwrap() = Op::read(0, 0, PAGES, back.as_mut_ptr().expose_provenance(), super::super::AHEAD);
    remote.ops.get_mut(2).unwrap().part = PAGES;
    remote.spill.as_mut().unwrap().reads.push(2);
    // Before it has its turn, the server alone has it.
    remote.spill_written(0, Errno::IO.negative());
    assert!(remote.advance_spill(&mut io, &[Fd::NONE]));
    assert_eq!(remote.ops.get(2).map(|op| (op.peer, op.done)), Some((0, 0)));
    assert!(remote.pop_ended().is_none() && remote.spill.as_ref().unwrap().reads.is_empty());
}

#[test]
fn a_page_that_is_bad_in_the_file_is_had_from_the_server_by_all_who_read_it() {
    let mut remote = remote(1, |config| (config.spill, config.spill_sealed) = (true, true));
    let own = remote.tables.get_mut(0).unwrap();
    assert!(own.begin(0, 1, &mut remote.counts));
    own.put(0, 1, 1 | SPILLED, &mut remote.counts);
    let mut frame = std::vec![7u8; PAGE_BYTES];
    for tag in [1, 2] {
        let mut op = Op::read(0, 0, 1, frame.as_mut_ptr().expose_provenance(), super::super::AHEAD);
        (op.part, op.changes) = (1, remote.changes.count());
        *remote.ops.get_mut(tag).unwrap() = op;
    }
    for tag in [1, 2] {
        remote.spill_read(tag, PAGE_BYTES as i32);
        assert_eq!((remote.pop_ended(), remote.ops.get(tag as usize).map(|op| op.peer)), (None, Some(0)));
    }
}
