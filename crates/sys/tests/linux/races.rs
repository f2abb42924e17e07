//! Running threads against moves: no write may be lost, whenever it happens.
//! The protocol is the pager's: moved out, hashed, compared with the store.

use crate::bed::{Engine, WHOLE, bed, pattern, peek, poke};
use crate::compaction::Compaction;
use ream_page::{Frame, PAGE_BYTES, Slot, StoreId};
use ream_sys::memory::Advice;
use ream_sys::{Events, Machine, Moved, Stop, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

on_engines! {
    every: [
        no_write_is_lost_between_moves,
    ],
    moving: [
        counts_stay_exact_while_the_kernel_compacts,
    ]
}

/// Two threads count up in every page while the pager moves the pages out, compares them with the store by hash, and
/// brings back the store's content where the hash says that nothing changed. A write that the hash missed is a count
/// that goes backwards. (Hashing before the move out instead of after it makes this fail within milliseconds.)
fn no_write_is_lost_between_moves(engine: Engine) {
    const PAGES: u32 = 8;
    const ROUNDS: u32 = 3000;
    let mut bed = bed!(engine, PAGES, Advice::NoHugePage);
    bed.machine.reserve(0, PAGES).unwrap();
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
                    counts[index] = found.wrapping_add(1);
                    poke(address, lane, counts[index]);
                    for _ in 0..seed >> 32 & 0x3ff {
                        std::hint::spin_loop();
                    }
                }
            })
        })
        .collect();
    let mut stored: [Option<u64>; PAGES as usize] = [None; PAGES as usize];
    let (mut clean, mut dirty, mut faults) = (0, 0, 0);
    let mut events = Events::new();
    let mut round = 0;
    // Where other processes leave the writers little of the processors, until both were seen.
    while round < ROUNDS || (round < 20 * ROUNDS && (clean <= 50 || dirty <= 50 || faults == 0)) {
        round += 1;
        // Several times in a row, so that some have not been written in between.
        let index = round / 4 % PAGES;
        let slot = Slot(index);
        // Staging frames: the page's own, and one to read back into.
        let (frame, other) = (Frame(2 * index), Frame(2 * index + 1));
        let moved = bed.machine.move_out(bed.page(index), frame, 1);
        if moved.stop == Some(Stop::Busy) {
            continue;
        }
        assert_eq!(moved, Moved { pages: 1, stop: None });
        let digest = bed.machine.digest(frame);
        if stored[index as usize] == Some(digest.hash) {
            clean += 1;
            bed.machine.read(0, StoreId::OWN, slot, other, 1);
            assert_eq!(bed.await_io(0), PAGE_BYTES as i32);
            assert_eq!(bed.machine.digest(other), digest);
            bed.machine.empty_frames(&[(frame, 1)]);
            while bed.machine.move_in(other, bed.page(index), 1).stop == Some(Stop::Busy) {}
        } else {
            dirty += 1;
            bed.machine.write(0, slot, &[(frame, 1)]);
            assert_eq!(bed.await_io(0), PAGE_BYTES as i32);
            stored[index as usize] = Some(digest.hash);
            while bed.machine.move_in(frame, bed.page(index), 1).stop == Some(Stop::Busy) {}
        }
        bed.machine.wake(bed.run(index, 1));
        if round % 7 != 0 {
            continue;
        }
        events.clear();
        bed.machine.poll(Wait::Micros(200), &mut events);
        // What was reported while reads and writes were waited for are faults as well.
        faults += events.as_slice().len() + std::mem::take(&mut bed.news).len();
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let run = bed.run(0, PAGES);
    bed.machine.wake(run);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(lost.load(Ordering::Relaxed), 0, "writes were lost");
    assert!(clean > 50 && dirty > 50 && faults > 0, "the race was not run: {clean} clean, {dirty} dirty");
}

/// Pages travel to and fro while the kernel migrates them. In some kernels a move that meets a migration is counted
/// one short, and the next answers that the page is there already.
fn counts_stay_exact_while_the_kernel_compacts(engine: Engine) {
    const PAGES: u32 = 4 * WHOLE;
    const ROUNDS: u32 = 60;
    let mut bed = bed!(engine, PAGES, Advice::NoHugePage);
    let Some(compaction) = Compaction::begin() else { return };
    let whole = bed.run(0, PAGES);
    for round in 0..ROUNDS {
        compaction.thin_out(round as usize);
        let part = [1, 16, 64, 512][round as usize % 4];
        for inwards in [false, true] {
            let mut first = 0;
            while first < PAGES {
                let mut done = 0;
                while done < part {
                    let (page, frame) = (bed.page(first + done), Frame(first + done));
                    let moved = if inwards {
                        bed.machine.move_in(frame, page, part - done)
                    } else {
                        bed.machine.move_out(page, frame, part - done)
                    };
                    done += moved.pages;
                    // Migration holds pages for moments; nothing else may stop a move here.
                    assert!(matches!(moved.stop, None | Some(Stop::Busy)), "{moved:?} in round {round}");
                }
                first += part;
            }
            let mut mapped = 0;
            bed.machine.present(whole, &mut |run, _| {
                mapped += run.pages;
                true
            });
            assert_eq!(mapped, if inwards { PAGES as u64 } else { 0 });
        }
    }
    drop(compaction);
    for index in 0..PAGES {
        bed.check(index, index as u64);
    }
}
