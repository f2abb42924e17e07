//! The store through the machine: what is written comes back, failures are reported, punches come in order.
//! And that polling sleeps and wakes.

use crate::bed::{Engine, bed};
use ream_page::{Frame, PAGE_BYTES, Slot, StoreId};
use ream_sys::file;
use ream_sys::memory::Advice;
use ream_sys::{Errno, Event, Events, Machine, Wait};

on_engines! {
    every: [
        the_store_gives_back_what_it_got,
        failures_of_the_store_are_reported,
        a_punch_never_erases_what_is_written_after_it,
        polling_ends_when_told,
    ],
    moving: []
}

fn the_store_gives_back_what_it_got(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.machine.reserve(128).unwrap();
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
    bed.machine.reserve(4).unwrap();
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
    bed.machine.add_store(StoreId::OWN, reader);
    bed.out(0, 50, 1);
    bed.machine.write(4, Slot(0), &[(Frame(50), 1)]);
    assert_eq!(bed.await_io(4), Errno::BADF.negative());
    // An ancestor's store.
    bed.machine.add_store(StoreId(9), reader);
    bed.machine.read(5, StoreId(9), Slot(1), Frame(7), 2);
    assert_eq!(bed.await_io(5), 2 * PAGE_BYTES as i32);
    file::close(reader);
}

fn a_punch_never_erases_what_is_written_after_it(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.machine.reserve(8192).unwrap();
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
