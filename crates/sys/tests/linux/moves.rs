//! Moving, copying and filling: what goes where, what stops it, and that the count is exact.
//! The last part is about frames alone.

use crate::bed::{self, Engine, WHOLE, bed, peek};
use ream_page::{Frame, PAGE_BYTES, Page};
use ream_sys::file::{self, Fd};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::syscall::{call3, call4, number};
use ream_sys::uffd::Access;
use ream_sys::{Copied, Errno, LinuxMachine, Machine, Moved, Stop, process};

on_engines! {
    every: [
        pages_move_out_and_back_unharmed,
        a_hole_stops_the_move_and_the_count_is_exact,
        a_present_page_is_not_overwritten,
        copies_and_zeros_appear_where_nothing_was,
        a_range_belongs_to_one_machine,
        frames_are_zeroed_emptied_and_hashed,
    ],
    moving: [
        huge_pages_stay_huge,
        a_dropped_table_lets_a_block_stay_huge,
        protected_and_foreign_pages_stay_where_they_are,
        a_pinned_page_is_busy_until_released,
        a_move_made_and_not_counted_is_counted,
    ]
}

fn pages_move_out_and_back_unharmed(engine: Engine) {
    let mut bed = bed!(engine, 2 * WHOLE, Advice::NoHugePage);
    for pages in [1, 16, 511, 512, 700] {
        bed.out(3, 5, pages);
        assert_eq!(bed.mapped(0, 2 * WHOLE), ((2 * WHOLE - pages) as u64, 0));
        bed.back(5, 3, pages);
        assert_eq!(bed.mapped(0, 2 * WHOLE), (2 * WHOLE as u64, 0));
    }
    for index in 0..2 * WHOLE {
        bed.check(index, index as u64);
    }
}

fn huge_pages_stay_huge(engine: Engine) {
    let mut bed = bed!(engine, 4 * WHOLE, Advice::HugePage);
    let (_, huge) = bed.mapped(0, 4 * WHOLE);
    if huge != 4 * WHOLE as u64 {
        eprintln!("SKIPPED: the kernel gave no large pages");
        return;
    }
    let first = bed.machine.huge_start();
    assert_eq!(first % WHOLE, 0);
    bed.out(0, first, 4 * WHOLE);
    assert_eq!(bed.mapped(0, 4 * WHOLE), (0, 0));
    bed.back(first, 0, 4 * WHOLE);
    assert_eq!(bed.mapped(0, 4 * WHOLE), (4 * WHOLE as u64, 4 * WHOLE as u64));
    for index in [0, 1, 511, 512, 2047] {
        bed.check(index, index as u64);
    }
}

fn a_dropped_table_lets_a_block_stay_huge(engine: Engine) {
    let mut bed = bed!(engine, 2 * WHOLE, Advice::HugePage);
    if bed.mapped(0, 2 * WHOLE).1 != 2 * WHOLE as u64 {
        eprintln!("SKIPPED: the kernel gave no large pages");
        return;
    }
    let first = bed.machine.huge_start();
    bed.out(0, first, WHOLE);
    // A 4 KiB page comes and goes, and leaves a page table behind.
    assert_eq!(bed.machine.zero_in(bed.page(7)), Copied::Done);
    bed.out(7, 0, 1);
    bed.machine.drop_table(bed.page(0).block());
    bed.back(first, 0, WHOLE);
    assert_eq!(bed.mapped(0, WHOLE), (WHOLE as u64, WHOLE as u64));
    // With pages in the block nothing is dropped.
    bed.machine.drop_table(bed.page(0).block());
    bed.check(9, 9);
}

fn a_hole_stops_the_move_and_the_count_is_exact(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.out(20, 100, 1);
    let moved = bed.machine.move_out(bed.page(0), Frame(200), 64);
    assert_eq!(moved, Moved { pages: 20, stop: Some(Stop::Absent) });
    assert_eq!(bed.mapped(0, 64).0, 43);
    let moved = bed.machine.move_out(bed.page(20), Frame(300), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Absent) });
    // An empty frame has nothing to give.
    let moved = bed.machine.move_in(Frame(400), bed.page(0), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Absent) });
    bed.back(200, 0, 20);
    bed.back(100, 20, 1);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

fn a_present_page_is_not_overwritten(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.out(0, 0, 32);
    let moved = bed.machine.move_in(Frame(0), bed.page(16), 32);
    assert_eq!(moved, Moved { pages: 16, stop: Some(Stop::Exists) });
    let moved = bed.machine.move_in(Frame(16), bed.page(40), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Exists) });
    assert_eq!(bed.machine.copy_in(Frame(16), bed.page(40)), Copied::Exists);
    assert_eq!(bed.machine.zero_in(bed.page(40)), Copied::Exists);
    (16..32).for_each(|index| bed.check(index, index as u64 - 16));
    bed.check(32, 32);
    bed.check(40, 40);
}

fn protected_and_foreign_pages_stay_where_they_are(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    // SAFETY: memory of the bed.
    unsafe { memory::protect(bed.at(30).cast(), 4 * PAGE_BYTES, Protection::Read).unwrap() };
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    assert_eq!(moved, Moved { pages: 30, stop: Some(Stop::Mapping) });
    let moved = bed.machine.move_out(bed.page(32), Frame(100), 8);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
    bed.check(33, 33);
    // Across the end of the range.
    let moved = bed.machine.move_out(bed.page(60), Frame(100), 8);
    assert_eq!(moved, Moved { pages: 4, stop: Some(Stop::Mapping) });
    // Two mappings that differ in nothing that matters are crossed.
    // SAFETY: memory of the bed.
    unsafe { memory::advise(bed.address(40), 8 * PAGE_BYTES, Advice::DontFork).unwrap() };
    bed.out(34, 200, 24);
    bed.back(200, 34, 24);
    bed.check(39, 39);
    bed.check(40, 40);
    // Nothing is mapped at address 0.
    let moved = bed.machine.move_out(Page(0), Frame(300), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
    // Frames that do not exist.
    let frames = bed.machine.frames();
    let moved = bed.machine.move_out(bed.page(40), Frame(frames - 1), 2);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
}

fn a_pinned_page_is_busy_until_released(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    // A registered buffer of somebody else's io_uring is the strongest pin there is.
    let mut parameters = [0u32; 30];
    // SAFETY: the kernel fills in 120 bytes.
    let ring = unsafe { call3(number::__NR_io_uring_setup, 1, parameters.as_mut_ptr().expose_provenance(), 0) };
    let Ok(ring) = ring else {
        eprintln!("SKIPPED: no io_uring");
        return;
    };
    let buffer = [bed.address(10), PAGE_BYTES];
    let list = buffer.as_ptr().expose_provenance();
    // SAFETY: pins memory of the bed, until it is released below.
    unsafe { call4(number::__NR_io_uring_register, ring, 0, list, 1) }.unwrap();
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    assert_eq!(moved, Moved { pages: 10, stop: Some(Stop::Busy) });
    bed.check(10, 10);
    // SAFETY: releases what was pinned.
    unsafe { call4(number::__NR_io_uring_register, ring, 1, 0, 0) }.unwrap();
    file::close(Fd(ring as i32));
    // Released asynchronously: soon.
    let mut done = 10;
    while done < 64 {
        process::sleep_us(1000);
        done += bed.machine.move_out(bed.page(done), Frame(done), 64 - done).pages;
    }
    bed.back(0, 0, 64);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

fn copies_and_zeros_appear_where_nothing_was(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    bed.out(0, 0, 16);
    assert_eq!(bed.machine.copy_in(Frame(3), bed.page(3)), Copied::Done);
    assert_eq!(bed.machine.zero_in(bed.page(4)), Copied::Done);
    bed.check(3, 3);
    assert_eq!(peek(bed.address(4), 0), 0);
    assert_eq!(bed.mapped(0, 16).0, 2);
    // The frame is still there.
    bed.back(5, 5, 1);
    assert_eq!(bed.machine.move_in(Frame(3), bed.page(6), 1).pages, 1);
    bed.check(6, 3);
    let run = bed.run(0, 16);
    bed.machine.unregister(run).unwrap();
    assert_eq!(bed.machine.copy_in(Frame(7), bed.page(7)), Copied::Gone);
    assert_eq!(bed.machine.zero_in(bed.page(8)), Copied::Gone);
    assert_eq!(bed.machine.move_in(Frame(7), bed.page(7), 1), Moved { pages: 0, stop: Some(Stop::Mapping) });
}

fn a_range_belongs_to_one_machine(engine: Engine) {
    let mut one = bed!(engine, 16, Advice::NoHugePage);
    let mut other = bed!(make_another, engine, 16, Advice::NoHugePage);
    let run = one.run(0, 16);
    assert_eq!(other.machine.register(run), Err(Errno::BUSY));
    one.machine.unregister(run).unwrap();
    other.machine.register(run).unwrap();
    other.machine.unregister(run).unwrap();
}

fn frames_are_zeroed_emptied_and_hashed(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    let zero = {
        assert!(bed.machine.zero_frames(Frame(100), 3));
        bed.machine.digest(Frame(101))
    };
    assert!(zero.zero);
    bed.out(0, 104, 1);
    let first = bed.machine.digest(Frame(104));
    assert!(!first.zero && first != zero);
    // Populated and empty ones alike.
    assert!(bed.machine.zero_frames(Frame(100), 8));
    for frame in 100..108 {
        assert_eq!(bed.machine.digest(Frame(frame)), zero);
    }
    bed.back(100, 0, 1);
    assert_eq!(peek(bed.address(0), 0), 0);
    bed.machine.empty_frames(&[(Frame(100), 2), (Frame(103), 5), (Frame(102), 1)]);
    bed.out(1, 104, 4);
    assert!(!bed.machine.digest(Frame(104)).zero);
    let huge = bed.machine.huge_start();
    assert!(bed.machine.zero_frames(Frame(huge), WHOLE));
    assert_eq!(bed.machine.digest(Frame(huge + 511)), zero);
    assert!(!bed.machine.zero_frames(Frame(bed.machine.frames()), 1));
}

/// Some kernels move a page, meet an obstacle, and leave it out of the count. What is gone from its place and found in
/// the other has been moved.
fn a_move_made_and_not_counted_is_counted(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    bed.out(5, 5, 2);
    bed.out(4, 4, 8);
    assert_eq!(bed.mapped(0, 16).0, 8);
    bed.back(4, 4, 3);
    bed.back(4, 4, 8);
    (0..16).for_each(|index| bed.check(index, index as u64));
}

/// The userfaultfd of ordinary users moves pages as well; copying needs protection, which fails the kernel's own
/// writes there.
#[test]
fn ordinary_users_can_move_but_not_copy() {
    let mut bed = bed!(Engine::ORDINARY, 64, Advice::NoHugePage);
    assert_eq!(bed.machine.access(), Access::UserOnly);
    bed.out(0, 0, 64);
    bed.back(0, 0, 64);
    (0..64).for_each(|index| bed.check(index, index as u64));
    let store = bed::store();
    let refused = LinuxMachine::new(&bed::config(Engine { moves: false, ..Engine::ORDINARY }, store));
    assert_eq!(refused.err().map(|setup| setup.errno), Some(Errno::PERM));
    file::close(store);
}
