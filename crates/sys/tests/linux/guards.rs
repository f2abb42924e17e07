//! Guarded pages: a write to one is heard of before it happens, and what is dropped was not written to.
//! Threads of the test play the program's.

use crate::bed::{Bed, Engine, bed, fork, pattern, peek, poke, reap, unmap};
use ream_page::{Frame, PAGE_BYTES, Page, Run};
use ream_sys::memory::{self, Advice};
use ream_sys::syscall;
use ream_sys::{Event, Events, Machine, Moved, Wait, process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

on_engines! {
    every: [
        only_whole_userfaultfds_that_move_guard,
    ],
    moving: [
        a_write_to_a_guarded_page_is_heard_of,
        only_what_is_still_guarded_is_dropped,
        nothing_is_dropped_while_mappings_change,
        locked_pages_are_not_dropped,
        guards_move_with_their_mapping,
        a_child_has_no_guarded_pages,
        no_write_is_lost_between_guards_and_drops,
    ]
}

fn only_whole_userfaultfds_that_move_guard(engine: Engine) {
    let bed = bed!(engine, 1, Advice::NoHugePage);
    // Where the kernel cannot tell what is protected, nothing is.
    assert!(!bed.machine.guards() || engine.moves && !engine.user_only);
}

/// Pages that were moved out come back guarded; their frames keep what they hold. False where the kernel has no guards.
fn come_guarded(bed: &mut Bed, index: u32, pages: u32) -> bool {
    if !bed.machine.guards() {
        eprintln!("SKIPPED: the kernel does not tell what is write-protected (before Linux 6.7)");
        return false;
    }
    bed.out(index, index, pages);
    let back = bed.machine.copy_run_in(Frame(index), bed.page(index), pages, true);
    assert_eq!(back, Moved { pages, stop: None });
    true
}

fn dropped(bed: &mut Bed, runs: &[Run]) -> Vec<Page> {
    let mut pages = Vec::new();
    bed.machine.drop_guarded(runs, &mut |run| pages.extend((run.start.0..run.end().0).map(Page)));
    pages
}

fn guarded(bed: &mut Bed) -> Page {
    bed.await_event(|event| match event {
        Event::Guarded { page } => Some(*page),
        _ => None,
    })
}

fn a_write_to_a_guarded_page_is_heard_of(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    if !come_guarded(&mut bed, 0, 8) {
        return;
    }
    // Reading is for everybody.
    (0..8).for_each(|index| bed.check(index, index as u64));
    let address = bed.address(3);
    let writer = thread::spawn(move || poke(address, 5, 77));
    assert_eq!(guarded(&mut bed), bed.page(3));
    process::sleep_us(20_000);
    assert!(!writer.is_finished());
    assert_eq!(peek(address, 5), pattern(3, 5));
    let run = bed.run(3, 1);
    bed.machine.unguard(run);
    writer.join().unwrap();
    assert_eq!(peek(address, 5), 77);
    // A system call of the program's own is no other.
    let place = bed.address(4);
    let reader = thread::spawn(move || {
        let file = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: a page of the bed, which outlives the thread.
        let room = unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(place), PAGE_BYTES) };
        std::io::Read::read_exact(&mut &file, room).unwrap();
    });
    assert_eq!(guarded(&mut bed), bed.page(4));
    let run = bed.run(4, 1);
    bed.machine.unguard(run);
    reader.join().unwrap();
    assert_eq!((peek(place, 0), peek(place, 511)), (0, 0));
}

fn only_what_is_still_guarded_is_dropped(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    if !come_guarded(&mut bed, 8, 8) || !come_guarded(&mut bed, 32, 2) {
        return;
    }
    let run = bed.run(10, 1);
    bed.machine.unguard(run);
    poke(bed.address(10), 0, 99);
    let runs = [bed.run(0, 16), bed.run(32, 4), bed.run(60, 4)];
    let gone = dropped(&mut bed, &runs);
    let wanted = [8, 9, 11, 12, 13, 14, 15, 32, 33];
    assert_eq!(gone, wanted.map(|index| bed.page(index)));
    assert_eq!(bed.mapped(0, 64).0, 64 - 9);
    assert_eq!(peek(bed.address(10), 0), 99);
    (0..8).for_each(|index| bed.check(index, index as u64));
    // A touch of what is gone is a fault like any other.
    let address = bed.address(9);
    let reader = thread::spawn(move || peek(address, 0));
    assert_eq!(bed.await_fault().0, bed.page(9));
    let back = bed.machine.copy_run_in(Frame(9), bed.page(9), 1, false);
    assert_eq!(back, Moved { pages: 1, stop: None });
    assert_eq!(reader.join().unwrap(), pattern(9, 0));
}

fn nothing_is_dropped_while_mappings_change(engine: Engine) {
    let mut bed = bed!(engine, 64, Advice::NoHugePage);
    if !come_guarded(&mut bed, 8, 8) {
        return;
    }
    let unmapper = bed.replaces(40);
    let runs = [bed.run(8, 8)];
    assert_eq!(dropped(&mut bed, &runs), []);
    unmapper.join().unwrap();
    bed.await_event(|event| matches!(event, Event::Unmapped { .. }).then_some(()));
    assert_eq!(dropped(&mut bed, &runs).len(), 8);
}

/// Locked behind the pager's back: the kernel drops what comes before in the same run, and stops there.
fn locked_pages_are_not_dropped(engine: Engine) {
    let mut bed = bed!(engine, 32, Advice::NoHugePage);
    if !come_guarded(&mut bed, 0, 16) {
        return;
    }
    let locked = bed.address(4);
    // SAFETY: no memory is touched but by the kernel, which makes the pages present that are there.
    unsafe { syscall::call3(syscall::number::__NR_mlock2, locked, 2 * PAGE_BYTES, 1) }.unwrap();
    let runs = [bed.run(0, 8), bed.run(8, 8)];
    let gone = dropped(&mut bed, &runs);
    let wanted = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    assert_eq!(gone, wanted.map(|index| bed.page(index)));
    assert_eq!(bed.mapped(0, 16).0, 2);
    (4..6).for_each(|index| bed.check(index, index as u64));
}

/// Where the program moves it to, the kernel protects it still: the pager ends that before a fork.
fn guards_move_with_their_mapping(engine: Engine) {
    let mut bed = bed!(engine, 16, Advice::NoHugePage);
    if !come_guarded(&mut bed, 4, 8) {
        return;
    }
    let old = bed.address(4);
    bed.gives_up(4, 8);
    let mover = thread::spawn(move || {
        const MAYMOVE: usize = 1;
        let old = std::ptr::with_exposed_provenance_mut(old);
        // SAFETY: the memory is the test's, which does not use the old place any more. It grows, so that it has to move.
        let place = unsafe { memory::remap(old, 8 * PAGE_BYTES, 32 * PAGE_BYTES, MAYMOVE, 0) }.unwrap();
        let place = place.expose_provenance();
        poke(place, 5, 77);
        place
    });
    let to = bed.await_event(|event| match event {
        Event::Remapped { to, .. } => Some(*to),
        _ => None,
    });
    assert_eq!(guarded(&mut bed), to);
    bed.machine.unguard(Run { start: to, pages: 1 });
    let place = mover.join().unwrap();
    assert_eq!((peek(place, 5), peek(place + PAGE_BYTES, 5)), (77, pattern(5, 5)));
    assert_eq!(dropped(&mut bed, &[Run { start: to, pages: 8 }]).len(), 7);
    let unmapper = thread::spawn(move || unmap(place, 32));
    bed.await_event(|event| matches!(event, Event::Unmapped { run } if run.start == to).then_some(()));
    unmapper.join().unwrap();
}

fn a_child_has_no_guarded_pages(engine: Engine) {
    let mut bed = bed!(make_alone, engine, 16, Advice::NoHugePage);
    if !come_guarded(&mut bed, 0, 8) {
        return;
    }
    let address = bed.address(2);
    // Nobody would wake it.
    assert_eq!(reap(fork(|| poke(address, 0, 5))), 0);
    bed.check(2, 2);
    let runs = [bed.run(0, 8)];
    assert_eq!(dropped(&mut bed, &runs).len(), 8);
}

/// Two threads count up in every page, now and then, while the pager drops what is guarded and brings back what it holds: a
/// write that a guard missed is a count that goes backwards.
fn no_write_is_lost_between_guards_and_drops(engine: Engine) {
    const PAGES: u32 = 8;
    const ROUNDS: u32 = 4000;
    let mut bed = bed!(engine, PAGES, Advice::NoHugePage);
    if !bed.machine.guards() {
        return;
    }
    let (stop, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let base = bed.address(0);
    let writers: Vec<_> = (0..2usize)
        .map(|lane| {
            let (stop, lost) = (stop.clone(), lost.clone());
            thread::spawn(move || {
                let mut counts: [u64; PAGES as usize] = std::array::from_fn(|index| pattern(index as u64, lane));
                let mut seed = 88_172_645_463_325_252u64 + lane as u64;
                while !stop.load(Ordering::Relaxed) {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let index = (seed % PAGES as u64) as usize;
                    let address = base + index * PAGE_BYTES;
                    let found = peek(address, lane);
                    if found != counts[index] {
                        lost.fetch_add(1, Ordering::Relaxed);
                        stop.store(true, Ordering::Relaxed);
                    }
                    if seed >> 60 < 4 {
                        counts[index] = found.wrapping_add(1);
                        poke(address, lane, counts[index]);
                    }
                    for _ in 0..seed >> 32 & 0x3ff {
                        std::hint::spin_loop();
                    }
                }
            })
        })
        .collect();
    let (mut guards, mut gone) = ([false; PAGES as usize], [false; PAGES as usize]);
    let (mut drops, mut writes, mut round) = (0, 0, 0);
    let mut events = Events::new();
    // On a slow machine until both were seen.
    while !stop.load(Ordering::Relaxed) && (round < ROUNDS || drops < 100 || writes < 100) {
        round += 1;
        // What is not guarded is moved out and comes back guarded: its frame holds what it holds.
        for index in (0..PAGES).filter(|index| index % 4 == round % 4) {
            let at = index as usize;
            if !guards[at] && !gone[at] {
                bed.machine.empty_frames(&[(Frame(index), 1)]);
                bed.out(index, index, 1);
                let back = bed.machine.copy_run_in(Frame(index), bed.page(index), 1, true);
                assert_eq!(back, Moved { pages: 1, stop: None });
                guards[at] = true;
            }
        }
        let runs = [bed.run(round % 5, 4)];
        for page in dropped(&mut bed, &runs) {
            let at = (page.0 - bed.page(0).0) as usize;
            assert!(guards[at] && !gone[at]);
            (guards[at], gone[at]) = (false, true);
            drops += 1;
        }
        events.clear();
        bed.machine.poll(Wait::Micros(200), &mut events);
        for event in events.as_slice() {
            let (Event::Guarded { page } | Event::Fault { page, .. }) = *event else { continue };
            let at = (page.0 - bed.page(0).0) as usize;
            let run = Run { start: page, pages: 1 };
            if gone[at] {
                let back = bed.machine.copy_run_in(Frame(at as u32), page, 1, at % 2 == 0);
                assert_eq!(back, Moved { pages: 1, stop: None });
                (guards[at], gone[at]) = (at % 2 == 0, false);
            } else if matches!(event, Event::Guarded { .. }) {
                writes += u32::from(guards[at]);
                guards[at] = false;
                bed.machine.unguard(run);
            }
            bed.machine.wake(run);
        }
    }
    stop.store(true, Ordering::Relaxed);
    // Whoever sleeps is served once more.
    while writers.iter().any(|writer| !writer.is_finished()) {
        for index in 0..PAGES {
            let run = bed.run(index, 1);
            bed.machine.unguard(run);
            let _ = bed.machine.copy_run_in(Frame(index), bed.page(index), 1, false);
            bed.machine.wake(run);
        }
        process::sleep_us(1000);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(lost.load(Ordering::Relaxed), 0, "after {round} rounds, {drops} drops and {writes} writes");
    assert!(drops >= 100 && writes >= 100, "{drops} drops and {writes} writes to guarded pages");
}
