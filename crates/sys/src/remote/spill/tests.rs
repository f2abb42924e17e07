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
