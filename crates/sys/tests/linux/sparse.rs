//! Giving back what large pages waste, while the program writes, discards, moves and unmaps: every byte stays, and what
//! was discarded reads as zeros.

use crate::compaction::Compaction;
use ream_page::{BLOCK_BYTES, BLOCK_PAGES, Block, PAGE_BYTES, Page};
use ream_sys::Errno;
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::sparse::{Given, Sparse};
use ream_sys::syscall::{call3, number};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `None`, loudly, where the kernel or the user's rights do not suffice.
fn means() -> Option<Sparse> {
    match Sparse::new(ream_sys::user::nobody) {
        Ok(sparse) => Some(sparse),
        Err(error) => {
            eprintln!("SKIPPED: giving back: errno {}", error.0);
            None
        }
    }
}

/// Says so where the kernel had no large pages to be given back: nothing was tried then.
fn met(given: u64) {
    if given == 0 {
        eprintln!("SKIPPED: giving back: no large page was met");
    }
}

/// Gives one block of the test's memory back.
fn give(sparse: &mut Sparse, block: Block, least: u32) -> Result<Given, Errno> {
    let mut outcome = Err(Errno::INVAL);
    // SAFETY: the test's own memory, or whatever took its place, which is the test.
    unsafe { sparse.give_back(block, 1, least, &mut |_, told| outcome = told) };
    outcome
}

/// Blocks of fresh memory that asks for large pages.
fn blocks(count: usize) -> *mut u8 {
    let start = memory::map(count * BLOCK_BYTES, BLOCK_BYTES, Protection::ReadWrite).unwrap().as_ptr();
    // SAFETY: fresh memory.
    unsafe { memory::advise(start.expose_provenance(), count * BLOCK_BYTES, Advice::HugePage) }.unwrap();
    start
}

fn block(start: *mut u8) -> Block {
    Page::containing(start.expose_provenance()).block()
}

fn word(start: *mut u8, page: usize) -> &'static AtomicU64 {
    // SAFETY: within the test's memory, which stays mapped.
    unsafe { &*start.add(page * PAGE_BYTES).cast::<AtomicU64>() }
}

fn resident(start: *mut u8) -> usize {
    let mut pages = [0u8; BLOCK_PAGES as usize];
    // SAFETY: room for a byte a page.
    let result = unsafe {
        call3(number::__NR_mincore, start.expose_provenance(), BLOCK_BYTES, pages.as_mut_ptr().expose_provenance())
    };
    assert_eq!(result, Ok(0));
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// A page of each kind of block: what is given back is what was zeros.
#[test]
fn what_was_never_touched_is_given_back() {
    let Some(mut sparse) = means() else { return };
    let start = blocks(3);
    for page in (0..512).step_by(64) {
        word(start, page).store(page as u64 + 1, Ordering::Relaxed);
    }
    word(start, 512).store(1, Ordering::Relaxed);
    word(start, 512).store(0, Ordering::Relaxed);
    for page in 1024..1536 {
        word(start, page).store(7, Ordering::Relaxed);
    }
    if resident(start) != 512 {
        eprintln!("SKIPPED: giving back: no large pages here");
        return;
    }
    // SAFETY: within the test's memory.
    let zeros = [0, 1, 2].map(|index| sparse.count_zeros(block(unsafe { start.add(index * BLOCK_BYTES) })));
    assert_eq!(zeros, [504, 512, 0]);
    let mut told = Vec::new();
    // SAFETY: the test's own memory.
    unsafe { sparse.give_back(block(start), 3, 64, &mut |block, outcome| told.push((block, outcome))) };
    let expected = [Ok(Given::Part(504)), Ok(Given::All), Ok(Given::Nothing)];
    let blocks = (0..3).map(|index| Block(block(start).0 + index));
    assert_eq!(told, blocks.zip(expected).collect::<Vec<_>>());
    // SAFETY: within the test's memory.
    let at = |index: usize| unsafe { start.add(index * BLOCK_BYTES) };
    assert_eq!([0, 1, 2].map(|index| resident(at(index))), [8, 0, 512]);
    // A fresh large page, and no longer the sparse one.
    word(start, 600).store(7, Ordering::Relaxed);
    word(start, 100).store(7, Ordering::Relaxed);
    assert_eq!([0, 1].map(|index| resident(at(index))), [9, 512]);
    for page in 0..1536 {
        let expected = match page {
            0..512 if page % 64 == 0 => page as u64 + 1,
            100 | 600 => 7,
            0..1024 => 0,
            _ => 7,
        };
        assert_eq!(word(start, page).load(Ordering::Relaxed), expected, "page {page}");
    }
    sparse.close();
}

/// A block that was unmapped meanwhile: the one beside it is inherited by children as before.
#[test]
fn what_could_not_be_kept_from_children_is_theirs_again() {
    let Some(mut sparse) = means() else { return };
    // Others would map something into the hole.
    let _alone = crate::bed::alone();
    let start = blocks(2);
    word(start, 0).store(1, Ordering::Relaxed);
    // SAFETY: the test's own memory, of which nobody uses the second block.
    unsafe { memory::unmap(start.add(BLOCK_BYTES), BLOCK_BYTES) }.unwrap();
    let mut told = Vec::new();
    // SAFETY: the test's own memory.
    unsafe { sparse.give_back(block(start), 2, 64, &mut |_, outcome| told.push(outcome)) };
    assert_eq!(told, [Err(Errno::NOMEM); 2]);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let here = format!("{:x}-", start.addr());
    let flags = maps.lines().skip_while(|line| !line.starts_with(&here)).find(|line| line.starts_with("VmFlags"));
    assert!(flags.is_some_and(|flags| !flags.contains(" dc")), "{flags:?}");
    sparse.close();
}

/// Threads count up words of their own all over two blocks, which are given back and made large again all the while. The
/// kernel migrates pages in the meantime: a move that meets that is counted short.
#[test]
fn writers_lose_nothing() {
    let Some(mut sparse) = means() else { return };
    let compaction = Compaction::begin();
    let start = blocks(2);
    let stop = AtomicBool::new(false);
    let address = start.expose_provenance();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..3usize)
            .map(|lane| {
                let stop = &stop;
                scope.spawn(move || {
                    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
                    let mut seed = lane as u64 + 1;
                    let mut counts = [0u64; 1024];
                    while !stop.load(Ordering::Relaxed) {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        // Few pages, so that most stay zeros.
                        let page = (seed >> 33) as usize % 16 * 61;
                        // SAFETY: within the test's memory, a word that only this thread uses.
                        let place = unsafe { &*start.add(page * PAGE_BYTES + lane * 8).cast::<AtomicU64>() };
                        assert_eq!(place.load(Ordering::Relaxed), counts[page], "lane {lane}, page {page}");
                        counts[page] += 1;
                        place.store(counts[page], Ordering::Relaxed);
                    }
                    counts.iter().sum()
                })
            })
            .collect();
        let mut given = 0;
        let begun = std::time::Instant::now();
        for time in 0.. {
            if begun.elapsed().as_secs() >= 3 {
                break;
            }
            if let Some(compaction) = compaction.as_ref().filter(|_| time % 64 == 0) {
                compaction.thin_out(time / 64);
            }
            for index in 0..2 {
                // SAFETY: within the test's memory; advice loses nothing.
                unsafe {
                    let place = start.add(index * BLOCK_BYTES);
                    let at = place.expose_provenance();
                    let _ = memory::advise(at, BLOCK_BYTES, Advice::HugePage);
                    let _ = memory::advise(at, BLOCK_BYTES, Advice::Collapse);
                    given += matches!(give(&mut sparse, block(place), 1), Ok(Given::Part(_))) as u64;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        met(given);
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|count| *count > 0));
    sparse.close();
}

const DONTNEED: usize = 4;
const FREE: usize = 8;
const MAYMOVE: usize = 1;
const FIXED: usize = 2;
/// An empty mapping stays behind. (A hole would be taken by another test's mapping.)
const DONTUNMAP: usize = 4;

/// A thread discards pages, unmaps and moves parts: it finds zeros, or what it wrote, and never what was there before.
#[test]
fn what_is_discarded_stays_so_and_what_is_moved_comes_along() {
    let Some(mut sparse) = means() else { return };
    let compaction = Compaction::begin();
    let stop = AtomicBool::new(false);
    let places = [blocks(1).expose_provenance(), blocks(1).expose_provenance()];
    let current = AtomicU64::new(places[0] as u64);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut turn = 0usize;
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let start: *mut u8 = std::ptr::with_exposed_provenance_mut(places[turn]);
                rounds += 1;
                for page in (0..512).step_by(32) {
                    word(start, page).store(rounds << 16 | page as u64, Ordering::Relaxed);
                }
                let discard = |page: usize, pages: usize, advice: usize| {
                    let place = places[turn] + page * PAGE_BYTES;
                    // SAFETY: the test's memory, in whole pages.
                    assert_eq!(unsafe { call3(number::__NR_madvise, place, pages * PAGE_BYTES, advice) }, Ok(0));
                };
                discard(64, 32, DONTNEED);
                discard(480, 1, if rounds % 2 == 0 { DONTNEED } else { FREE });
                for page in (0..512).step_by(32).filter(|page| *page != 480) {
                    let expected = if page == 64 { 0 } else { rounds << 16 | page as u64 };
                    assert_eq!(word(start, page).load(Ordering::Relaxed), expected, "round {rounds}, page {page}");
                }
                // All of it, or its second half after its first.
                let other = places[1 - turn];
                let moves = |from: usize, bytes: usize| {
                    let old = std::ptr::with_exposed_provenance_mut(places[turn] + from);
                    // SAFETY: replaces what is at the other place, which nobody uses.
                    let moved = unsafe { memory::remap(old, bytes, bytes, MAYMOVE | FIXED | DONTUNMAP, other + from) };
                    // Several mappings for a moment, while advice is changed.
                    assert!(matches!(moved, Ok(_) | Err(Errno::FAULT)), "{moved:?}");
                    moved.is_ok()
                };
                let moved = match rounds % 3 {
                    0 => {
                        moves(0, BLOCK_BYTES / 2) && {
                            while !moves(BLOCK_BYTES / 2, BLOCK_BYTES / 2) {}
                            true
                        }
                    }
                    _ => moves(0, BLOCK_BYTES),
                };
                if moved {
                    turn = 1 - turn;
                    current.store(other as u64, Ordering::Relaxed);
                    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(other);
                    for page in (0..512).step_by(32).filter(|page| *page != 480) {
                        let expected = if page == 64 { 0 } else { rounds << 16 | page as u64 };
                        assert_eq!(
                            word(start, page).load(Ordering::Relaxed),
                            expected,
                            "moved, round {rounds}, page {page}"
                        );
                    }
                    // What stays behind is empty, and nobody waits there for ever.
                    let behind: *mut u8 = std::ptr::with_exposed_provenance_mut(places[1 - turn]);
                    for page in (0..512).step_by(100) {
                        assert_eq!(
                            word(behind, page).load(Ordering::Relaxed),
                            0,
                            "behind, round {rounds}, page {page}"
                        );
                    }
                }
                for place in places {
                    // SAFETY: the test's memory; advice loses nothing.
                    unsafe {
                        let _ = memory::advise(place, BLOCK_BYTES, Advice::HugePage);
                        let _ = memory::advise(places[turn], BLOCK_BYTES, Advice::Collapse);
                    }
                }
            }
            rounds
        });
        let mut given = 0;
        let begun = std::time::Instant::now();
        for time in 0.. {
            if begun.elapsed().as_secs() >= 3 {
                break;
            }
            if let Some(compaction) = compaction.as_ref().filter(|_| time % 64 == 0) {
                compaction.thin_out(time / 64);
            }
            let place = Page::containing(current.load(Ordering::Relaxed) as usize).block();
            given += matches!(give(&mut sparse, place, 1), Ok(Given::Part(_))) as u64;
        }
        stop.store(true, Ordering::Relaxed);
        let rounds = worker.join().unwrap();
        assert!(rounds > 0);
        met(given);
    });
    sparse.close();
}
