//! The store through the machine: what is written comes back, failures are reported, punches come in order.
//! And that polling sleeps and wakes.

use crate::bed::{Engine, bed};
use ream_page::{Frame, PAGE_BYTES, Slot, StoreId};
use ream_stats::{Config, Identity, Session};
use ream_sys::file;
use ream_sys::memory::Advice;
use ream_sys::{Errno, Event, Events, Machine, Wait};

on_engines! {
    every: [
        the_store_gives_back_what_it_got,
        failures_of_the_store_are_reported,
        a_punch_never_erases_what_is_written_after_it,
        volumes_are_files_of_their_own,
        space_is_counted_with_the_session,
        polling_ends_when_told,
    ],
    moving: []
}

fn the_store_gives_back_what_it_got(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.machine.reserve(0, 128).unwrap();
    bed.out(0, 0, 64);
    let digests: Vec<_> = (0..64).map(|frame| bed.machine.digest(Frame(frame))).collect();
    // Written in three parts and out of order, read in one.
    bed.machine.write(0, Slot(10), &[(Frame(40), 24), (Frame(0), 8), (Frame(8), 32)]);
    assert_eq!(bed.await_io(0), 64 * PAGE_BYTES as i32);
    bed.machine.read(1, StoreId::OWN, Slot(10), Frame(500), 64);
    assert_eq!(bed.await_io(1), 64 * PAGE_BYTES as i32);
    let order: Vec<u32> = (40..64).chain(0..40).collect();
    for (place, frame) in order.iter().enumerate() {
        assert_eq!(bed.machine.digest(Frame(500 + place as u32)), digests[*frame as usize]);
    }
    bed.back(500, 0, 64);
    bed.check(0, 40);
    bed.check(24, 0);
    bed.check(63, 39);
    // Every tag at once.
    for tag in 0..bed.machine.io_limit() {
        bed.machine.read(tag, StoreId::OWN, Slot(10 + tag), Frame(600 + tag), 1);
    }
    let mut missing: u32 = (1 << bed.machine.io_limit()) - 1;
    while missing != 0 {
        let tag = bed.await_event(|event| match event {
            Event::Io { tag, result } if missing & 1 << tag != 0 => {
                assert_eq!(*result, PAGE_BYTES as i32);
                missing &= !(1 << tag);
                Some(*tag)
            }
            _ => None,
        });
        assert_eq!(bed.machine.digest(Frame(600 + tag)), digests[order[tag as usize] as usize]);
    }
}

fn failures_of_the_store_are_reported(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    bed.machine.reserve(0, 4).unwrap();
    bed.machine.read(0, StoreId::OWN, Slot(0), Frame(0), 8);
    assert_eq!(bed.await_io(0), 4 * PAGE_BYTES as i32, "short at the end of the file");
    bed.machine.read(1, StoreId(9), Slot(0), Frame(0), 1);
    assert_eq!(bed.await_io(1), Errno::BADF.negative());
    let frames = bed.machine.frames();
    bed.machine.read(2, StoreId::OWN, Slot(0), Frame(frames), 1);
    assert_eq!(bed.await_io(2), Errno::FAULT.negative());
    bed.machine.write(3, Slot(0), &[]);
    assert_eq!(bed.await_io(3), Errno::FAULT.negative());
    // A store that cannot be written.
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", bed.store.0)).unwrap();
    let reader = file::open(&path, file::flags::READ | file::flags::DIRECT, 0).unwrap();
    bed.machine.add_volume(StoreId::OWN, 0, reader);
    bed.out(0, 50, 1);
    bed.machine.write(4, Slot(0), &[(Frame(50), 1)]);
    assert_eq!(bed.await_io(4), Errno::BADF.negative());
    // An ancestor's store.
    bed.machine.add_store(StoreId(9), &[reader]);
    bed.machine.read(5, StoreId(9), Slot(1), Frame(7), 2);
    assert_eq!(bed.await_io(5), 2 * PAGE_BYTES as i32);
    file::close(reader);
}

fn volumes_are_files_of_their_own(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    let directory = std::ffi::CString::new(std::env::temp_dir().as_os_str().as_encoded_bytes()).unwrap();
    let other = file::create_store(&directory).unwrap().fd;
    bed.machine.add_volume(StoreId::OWN, 2, other);
    bed.machine.reserve(0, 64).unwrap();
    bed.machine.reserve(2, 64).unwrap();
    bed.out(0, 0, 64);
    bed.machine.write(0, Slot::at(2, 3), &[(Frame(0), 8)]);
    assert_eq!(bed.await_io(0), 8 * PAGE_BYTES as i32);
    bed.machine.write(0, Slot::at(0, 3), &[(Frame(8), 8)]);
    assert_eq!(bed.await_io(0), 8 * PAGE_BYTES as i32);
    // One that is not there.
    bed.machine.write(1, Slot::at(1, 3), &[(Frame(0), 8)]);
    assert_eq!(bed.await_io(1), Errno::BADF.negative());
    // As one's own, and as an ancestor's.
    let anchors = bed.machine.anchors();
    bed.machine.add_store(StoreId(7), &anchors);
    for store in [StoreId::OWN, StoreId(7)] {
        for (volume, frame) in [(2, 0), (0, 8)] {
            bed.machine.read(0, store, Slot::at(volume, 3), Frame(100), 8);
            assert_eq!(bed.await_io(0), 8 * PAGE_BYTES as i32);
            for index in 0..8 {
                assert_eq!(bed.machine.digest(Frame(100 + index)), bed.machine.digest(Frame(frame + index)));
            }
        }
    }
    // Its space is given back apart from that of the others.
    bed.machine.punch(Slot::at(2, 0), 64);
    bed.machine.write(0, Slot::at(2, 20), &[(Frame(0), 1)]);
    bed.await_io(0);
    bed.machine.read(0, StoreId::OWN, Slot::at(2, 3), Frame(100), 1);
    bed.await_io(0);
    assert!(bed.machine.digest(Frame(100)).zero);
    bed.machine.read(0, StoreId::OWN, Slot::at(0, 3), Frame(100), 1);
    bed.await_io(0);
    assert_eq!(bed.machine.digest(Frame(100)), bed.machine.digest(Frame(8)));
    file::close(other);
}

fn a_punch_never_erases_what_is_written_after_it(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.machine.reserve(0, 8192).unwrap();
    bed.out(0, 0, 64);
    for round in 0..20 {
        let slot = Slot(round * 64);
        bed.machine.write(0, slot, &[(Frame(0), 64)]);
        bed.await_io(0);
        bed.machine.punch(Slot(0), 8192);
        bed.machine.write(0, slot, &[(Frame(0), 64)]);
        assert_eq!(bed.await_io(0), 64 * PAGE_BYTES as i32);
        bed.machine.read(1, StoreId::OWN, slot, Frame(100), 64);
        assert_eq!(bed.await_io(1), 64 * PAGE_BYTES as i32);
        for index in 0..64 {
            assert_eq!(bed.machine.digest(Frame(100 + index)), bed.machine.digest(Frame(index)), "round {round}");
        }
    }
    // What lies beside it was punched.
    bed.machine.read(1, StoreId::OWN, Slot(0), Frame(100), 1);
    bed.await_io(1);
    assert!(bed.machine.digest(Frame(100)).zero);
}

fn polling_ends_when_told(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    let mut events = Events::new();
    bed.machine.poll(Wait::No, &mut events);
    assert!(events.as_slice().is_empty());
    let before = bed.machine.now_us();
    // Polls may end early; many of them may not end late without end.
    for _ in 0..10 {
        bed.machine.poll(Wait::Micros(2000), &mut events);
    }
    assert!(events.as_slice().is_empty());
    assert!(bed.machine.now_us() > before + 2000);
}

/// Zeros for a session, for good.
fn session(limit: u64) -> &'static Session {
    let layout = std::alloc::Layout::new::<Session>();
    let config = Config { store_limit_bytes: limit, ..Config::new() };
    // SAFETY: a fresh zeroed allocation of the session's own layout, never freed.
    unsafe { Session::create(std::alloc::alloc_zeroed(layout), 1, &config, 0) }
}

/// Another process has what is left, and leaves it.
fn space_is_counted_with_the_session(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    let session = session(8 << 20);
    let ledger = session.ledger();
    let mine = session.claim(Identity { pid: 1, start: 1, space: 0 }, 0).unwrap();
    let theirs = session.claim(Identity { pid: 2, start: 2, space: 0 }, 0).unwrap();
    let other = session.process(theirs).unwrap();
    bed.machine.count_space(ledger, session.process(mine).unwrap());
    assert!(other.acquire_store(ledger, 2 << 20));
    assert_eq!(bed.machine.room(0), 3 * 512);
    assert_eq!(bed.machine.reserve(0, 4 * 512), Err(Errno::NOSPC));
    bed.machine.reserve(0, 3 * 512).unwrap();
    assert_eq!((bed.machine.room(0), bed.machine.reserve(0, 4 * 512)), (0, Err(Errno::NOSPC)));
    assert!(!bed.machine.has_room_again());
    // What is given back others may have; it is counted anew before it is used.
    bed.machine.punch(Slot(512), 512);
    assert!(bed.machine.reserve_again(Slot(512), 8) && bed.machine.room(0) == 0);
    bed.machine.punch(Slot(512), 512);
    assert!(bed.machine.reserve_again(Slot(0), 8));
    while bed.machine.room(0) < 512 {
        bed.machine.poll(Wait::Micros(1000), &mut Events::new());
    }
    assert!(other.acquire_store(ledger, 2 << 20));
    assert!(!bed.machine.reserve_again(Slot(512 + 8), 8) && !bed.machine.has_room_again());
    session.release(theirs);
    assert!(bed.machine.has_room_again() && !bed.machine.has_room_again());
    assert!(bed.machine.reserve_again(Slot(512), 8) && bed.machine.reserve_again(Slot(512), 8));
    assert_eq!(bed.machine.room(0), 512);
    bed.machine.reserve(0, 4 * 512).unwrap();
    assert_eq!(bed.machine.room(0), 0);
}
