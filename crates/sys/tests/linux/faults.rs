//! What the machine hears of the program: faults, unmapping, remapping; and forked children.
//! Threads of the test play the program's.

use crate::bed::{Bed, Engine, WHOLE, bed, fork, pattern, peek, poke, reap, unmap};
use ream_page::{Frame, PAGE_BYTES, Pages, Run};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::{Copied, Event, Events, Machine, Moved, Stop, Wait, process};
use std::sync::mpsc;
use std::thread;

on_engines! {
    every: [
        faults_name_page_kind_and_thread,
        more_faults_than_a_batch_holds_are_all_reported,
        unmapping_and_remapping_are_reported,
        nothing_is_moved_or_copied_before_a_change_is_heard,
        the_staging_area_is_not_in_a_child,
    ],
    moving: [
        pages_shared_with_a_child_are_busy_until_unshared,
        all_that_can_be_are_unshared,
        a_large_page_that_has_lost_its_head_is_busy_until_unshared,
    ]
}

fn faults_name_page_kind_and_thread(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    bed.out(0, 0, 64);
    for (index, write) in [(5u32, false), (6, true)] {
        let address = bed.address(index);
        let (tell, told) = mpsc::channel();
        let toucher = thread::spawn(move || {
            tell.send(process::thread_id()).unwrap();
            if write {
                poke(address, 1, 1);
            }
            peek(address, 0)
        });
        let (page, wrote, who) = bed.await_fault();
        assert_eq!((page, wrote), (bed.page(index), write));
        assert_eq!(Ok(who), told.recv());
        bed.machine.follow(Some(who));
        bed.back(index, index, 1);
        bed.machine.wake(bed.run(index, 1));
        assert_eq!(toucher.join().unwrap(), pattern(index as u64, 0));
        bed.machine.follow(None);
    }
}

fn more_faults_than_a_batch_holds_are_all_reported(engine: Engine) {
    let threads = 3 * Events::CAPACITY as u32;
    let mut bed = bed!(engine, threads, Advice::NoHugePage);
    bed.out(0, 0, threads);
    let base = bed.address(0);
    let touchers: Vec<_> = (0..threads as usize)
        .map(|index| {
            let touch = move || peek(base + index * PAGE_BYTES, 0);
            thread::Builder::new().stack_size(64 << 10).spawn(touch).unwrap()
        })
        .collect();
    let mut events = Events::new();
    let mut seen = vec![false; threads as usize];
    while seen.iter().any(|seen| !seen) {
        events.clear();
        bed.machine.poll(Wait::Forever, &mut events);
        for event in events.as_slice() {
            if let Event::Fault { page, .. } = event {
                let index = (page.0 - bed.page(0).0) as u32;
                assert!(!std::mem::replace(&mut seen[index as usize], true), "reported twice");
            }
        }
        // Nobody is answered before everybody has asked, so that batches fill.
        if seen.iter().all(|seen| *seen) {
            bed.back(0, 0, threads);
            let run = bed.run(0, threads);
            bed.machine.wake(run);
        }
    }
    for (index, toucher) in touchers.into_iter().enumerate() {
        assert_eq!(toucher.join().unwrap(), pattern(index as u64, 0));
    }
}

fn unmapping_and_remapping_are_reported(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    let (gone, moved) = (bed.address(8), bed.address(16));
    bed.gives_up(8, 4);
    bed.gives_up(16, 8);
    let unmapper = thread::spawn(move || unmap(gone, 4));
    let run = bed.await_event(|event| match event {
        Event::Unmapped { run } => Some(*run),
        _ => None,
    });
    assert_eq!(run, bed.run(8, 4));
    unmapper.join().unwrap();
    assert_eq!(bed.machine.move_out(bed.page(9), Frame(0), 1), Moved { pages: 0, stop: Some(Stop::Mapping) });

    bed.out(17, 17, 1);
    const MAYMOVE: usize = 1;
    let mover = thread::spawn(move || {
        let old = std::ptr::with_exposed_provenance_mut(moved);
        // SAFETY: the memory is the test's, which does not use the old place any more.
        let place = unsafe { memory::remap(old, 8 * PAGE_BYTES, 32 * PAGE_BYTES, MAYMOVE, 0) }.unwrap();
        let place = place.expose_provenance();
        // Page 1 is absent, and registration has come along.
        let found = (peek(place, 0), peek(place, 512));
        unmap(place, 32);
        found
    });
    let (from, to, pages) = bed.await_event(|event| match event {
        Event::Remapped { from, to, pages } => Some((*from, *to, *pages)),
        _ => None,
    });
    assert_eq!((from, pages), (bed.page(16), 8));
    let (page, ..) = bed.await_fault();
    assert_eq!(page, to.plus(1));
    let back = bed.machine.move_in(Frame(17), page, 1);
    assert_eq!(back, Moved { pages: 1, stop: None });
    bed.machine.wake(Run { start: page, pages: 1 });
    // The old place was reported as unmapped too.
    let old = bed.await_event(|event| match event {
        Event::Unmapped { run } => Some(*run),
        _ => None,
    });
    assert_eq!(old, bed.run(16, 8));
    bed.await_event(|event| matches!(event, Event::Unmapped { run } if run.start == to).then_some(()));
    assert_eq!(mover.join().unwrap(), (pattern(16, 0), pattern(17, 0)));
}

/// Whoever unmaps goes on as soon as its message was read, which a call that fails may do. Something else lies there before the
/// pager hears of it.
fn nothing_is_moved_or_copied_before_a_change_is_heard(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    for round in 0..10u32 {
        let left = bed.page(40 + round);
        bed.out(1, 1, 1);
        let unmapper = bed.replaces(40 + round);
        let busy = Moved { pages: 0, stop: Some(Stop::Busy) };
        assert_eq!(bed.machine.move_out(bed.page(8), Frame(8), 8), busy);
        // That has read it.
        unmapper.join().unwrap();
        poke(left.address(), 0, 77);
        assert_eq!(bed.machine.move_out(left, Frame(9), 1), busy);
        assert_eq!(bed.machine.move_in(Frame(1), bed.page(1), 1), busy);
        assert_eq!(bed.machine.copy_run_in(Frame(1), bed.page(1), 1, false), busy);
        assert_eq!(bed.machine.copy_in(Frame(1), bed.page(1)), Copied::Failed);
        assert_eq!(bed.machine.zero_in(bed.page(1)), Copied::Failed);
        let run = bed.await_event(|event| match event {
            Event::Unmapped { run } => Some(*run),
            _ => None,
        });
        assert_eq!(run.start, left);
        bed.back(1, 1, 1);
        bed.out(8, 8, 8);
        bed.back(8, 8, 8);
        assert_eq!(peek(left.address(), 0), 77);
    }
    (0..16).for_each(|index| bed.check(index, index as u64));
}

fn pages_shared_with_a_child_are_busy_until_unshared(engine: Engine) {
    let mut bed = bed!(make_alone, engine, 64, Advice::NoHugePage);
    let child = fork(|| process::sleep_us(1_000_000_000));
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    let wanted = Pages::from(bed.run(0, 64));
    let accepted = bed.machine.unshare(3, &wanted);
    let result = if accepted { bed.await_io(3) } else { -1 };
    let again = bed.machine.move_out(bed.page(0), Frame(0), 64);
    let hole = bed.machine.unshare(4, &wanted);
    process::kill(child, 9).unwrap();
    reap(child);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Busy) });
    assert!(accepted);
    assert_eq!(result, 0);
    assert_eq!(again, Moved { pages: 64, stop: None });
    assert!(!hole, "absent pages are not for the helper");
    bed.back(0, 0, 64);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

/// Some pages of a block in one errand: those between them stay absent, and one that cannot be written keeps none of the others.
fn all_that_can_be_are_unshared(engine: Engine) {
    let mut bed = bed!(make_alone, engine, 64, Advice::NoHugePage);
    let protect = |bed: &Bed, protection| {
        // SAFETY: a page of the bed, which nobody touches meanwhile.
        unsafe { memory::protect(bed.at(40).cast(), PAGE_BYTES, protection) }.unwrap();
    };
    assert_eq!(bed.machine.move_out(bed.page(8), Frame(8), 8).pages, 8);
    let child = fork(|| process::sleep_us(1_000_000_000));
    protect(&bed, Protection::Read);
    let accepted = bed.machine.unshare(3, &Pages::from(bed.run(0, 64)));
    let result = if accepted { bed.await_io(3) } else { 0 };
    let parts = [(0, 8), (16, 24), (41, 23)];
    let moved = parts.map(|(at, pages)| bed.machine.move_out(bed.page(at), Frame(at), pages).pages);
    let absent = bed.mapped(8, 8);
    protect(&bed, Protection::ReadWrite);
    process::kill(child, 9).unwrap();
    reap(child);
    assert!(accepted && result < 0, "{result}");
    assert_eq!((moved, absent.0), ([8, 24, 23], 0));
    for (at, pages) in [(0, 8), (8, 8), (16, 24), (41, 23)] {
        bed.back(at, at, pages);
        (at..at + pages).for_each(|index| bed.check(index, index as u64));
    }
}

/// The kernel asks the first page of a large one whether it is ours alone, also when only others are mapped here.
fn a_large_page_that_has_lost_its_head_is_busy_until_unshared(engine: Engine) {
    let mut bed = bed!(make_alone, engine, WHOLE, Advice::HugePage);
    if bed.mapped(0, WHOLE).1 != WHOLE as u64 {
        eprintln!("SKIPPED: the kernel gave no large pages");
        return;
    }
    let child = fork(|| process::sleep_us(1_000_000_000));
    let gone = bed.address(0);
    bed.gives_up(0, 1);
    let unmapper = thread::spawn(move || unmap(gone, 1));
    bed.await_event(|event| matches!(event, Event::Unmapped { .. }).then_some(()));
    unmapper.join().unwrap();
    process::kill(child, 9).unwrap();
    reap(child);
    let rest = WHOLE - 1;
    let moved = bed.machine.move_out(bed.page(1), Frame(1), rest);
    let wanted = Pages::from(bed.run(1, rest));
    assert!(bed.machine.unshare(3, &wanted));
    assert_eq!(bed.await_io(3), 0);
    let again = bed.machine.move_out(bed.page(1), Frame(1), rest);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Busy) });
    assert_eq!(again, Moved { pages: rest, stop: None });
    bed.back(1, 1, rest);
    (1..WHOLE).for_each(|index| bed.check(index, index as u64));
}

fn the_staging_area_is_not_in_a_child(engine: Engine) {
    let mut bed = bed!(make_alone, engine, 16, Advice::NoHugePage);
    bed.out(0, 0, 16);
    // Touching a frame there is a segmentation fault, whose signal is in the status.
    let child = fork(|| _ = bed.machine.digest(Frame(0)));
    assert_eq!(reap(child) & 0x7f, 11);
}
