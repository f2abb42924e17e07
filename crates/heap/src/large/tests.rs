//! Tests of large blocks against an engine that keeps its own book of the pages it was told of.

extern crate std;

use std::collections::BTreeSet;
use std::sync::Mutex as StdMutex;
use std::vec::Vec;

use super::*;

/// Each test has an engine type of its own, so that tests may run side by side.
macro_rules! engine {
    ($name:ident, $engaged:expr) => {
        struct $name;
        static BOOK: StdMutex<BTreeSet<u64>> = StdMutex::new(BTreeSet::new());
        impl $name {
            #[allow(dead_code)]
            fn pages() -> usize {
                BOOK.lock().unwrap().len()
            }
        }
        impl Engine for $name {
            fn add(run: Run, kind: Kind) {
                assert_eq!(kind, Kind::Large);
                let mut book = BOOK.lock().unwrap();
                for page in run.start.0..run.end().0 {
                    assert!(book.insert(page), "page {page:x} added twice");
                }
            }
            fn remove(run: Run) {
                let mut book = BOOK.lock().unwrap();
                for page in run.start.0..run.end().0 {
                    assert!(book.remove(&page), "page {page:x} was not there");
                }
            }
            fn discard(_: Run) {}
            type Moving = ();
            type Discarding = ();
            fn moving(_: Run) {}
            fn moved(from: Run, to: Page) {
                $name::remove(from);
                $name::add(Run { start: to, pages: from.pages }, Kind::Large);
            }
            fn engaged() -> bool {
                $engaged
            }
            fn in_session() -> bool {
                true
            }
        }
    };
}

const MIB: usize = 1 << 20;

/// Writes a pattern that tells pages apart.
fn fill(start: NonNull<u8>, bytes: usize, seed: usize) {
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within a block of the test.
        unsafe { start.as_ptr().add(offset).cast::<usize>().write(offset ^ seed) };
    }
}

fn check(start: NonNull<u8>, bytes: usize, seed: usize) {
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within a block of the test.
        assert_eq!(unsafe { start.as_ptr().add(offset).cast::<usize>().read() }, offset ^ seed);
    }
}

#[test]
fn blocks_are_aligned_sized_and_gone_when_freed() {
    engine!(Paging, true);
    let large = Large::<Paging>::new();
    for (bytes, align) in [(4 * MIB, 16), (5 * MIB + 1, 4096), (9 * MIB, 2 * MIB), (4 * MIB + 4096, 32 * MIB)] {
        let block = large.allocate(bytes, align, true).unwrap();
        assert_eq!(block.addr().get() % align.max(2 * MIB), 0);
        assert_eq!(large.length(block.as_ptr()), Some(bytes.next_multiple_of(4096)));
        assert_eq!(large.length(block.as_ptr().wrapping_add(2 * MIB)), None);
        assert_eq!(Paging::pages(), bytes.div_ceil(4096));
        fill(block, bytes, 1);
        assert!(large.free(block.as_ptr()));
        assert!(!large.free(block.as_ptr()));
        // That nothing is mapped there cannot be asked: another test's thread may have mapped there by now.
        assert_eq!((Paging::pages(), large.count()), (0, 0));
    }
    assert_eq!(large.allocate(usize::MAX - 4096, 16, false), None);
    assert_eq!(large.allocate(1 << 60, 16, false), None);
}

#[test]
fn growing_and_shrinking_keep_the_content() {
    engine!(Paging, true);
    let large = Large::<Paging>::new();
    let mut block = large.allocate(4 * MIB, 16, false).unwrap();
    fill(block, 4 * MIB, 77);
    let mut length = 4 * MIB;
    let mut moves = 0;
    // Something in the way forces moves.
    let mut walls = Vec::new();
    for bytes in [4 * MIB + 1, 6 * MIB, 21 * MIB, 5 * MIB, 3 * MIB, 64 * MIB, 64 * MIB + 5] {
        let resized = large.resize(block.as_ptr(), bytes).unwrap().unwrap();
        moves += usize::from(resized != block);
        block = resized;
        assert_eq!(block.addr().get() % (2 * MIB), 0);
        assert_eq!(large.length(block.as_ptr()), Some(bytes.next_multiple_of(4096)));
        check(block, bytes.min(length), 77);
        fill(block, bytes, 77);
        length = bytes;
        assert_eq!(Paging::pages(), bytes.div_ceil(4096) + walls.len() * 1024);
        walls.push(large.allocate(4 * MIB, 16, false).unwrap());
    }
    assert!(moves > 0);
    assert!(large.resize(block.as_ptr().wrapping_add(2 * MIB), 4096).is_none());
    assert_eq!(large.resize(block.as_ptr(), 1 << 60), Some(None));
    check(block, length, 77);
    for wall in walls {
        assert!(large.free(wall.as_ptr()));
    }
    assert!(large.free(block.as_ptr()));
    assert_eq!(Paging::pages(), 0);
}

#[test]
fn a_freed_block_is_used_again_and_reads_as_zeros_when_asked() {
    engine!(Idle, false);
    let large = Large::<Idle>::new();
    let first = large.allocate(8 * MIB, 16, false).unwrap();
    fill(first, 8 * MIB, 3);
    large.free(first.as_ptr());
    assert_eq!(large.length(first.as_ptr()), None);
    let second = large.allocate(7 * MIB, 16, true).unwrap();
    assert_eq!(second, first);
    assert_eq!(large.length(second.as_ptr()), Some(8 * MIB));
    for offset in (0..8 * MIB).step_by(4096) {
        // SAFETY: within the block.
        assert_eq!(unsafe { second.as_ptr().add(offset).cast::<usize>().read() }, 0);
    }
    large.free(second.as_ptr());
    assert!(large.drain());
    assert!(!large.drain());
    assert_eq!(Idle::pages(), 0);
}

#[test]
fn what_is_kept_is_bounded() {
    engine!(Idle, false);
    let large = Large::<Idle>::new();
    let blocks: Vec<_> = (0..40).map(|_| large.allocate(5 * MIB, 16, false).unwrap()).collect();
    for block in blocks {
        large.free(block.as_ptr());
        assert!(Idle::pages() * 4096 <= 200 * MIB);
    }
    assert!(Idle::pages() * 4096 <= cache::MOST_TOGETHER);
    let huge = large.allocate(200 * MIB, 16, false).unwrap();
    let before = Idle::pages();
    large.free(huge.as_ptr());
    assert_eq!(Idle::pages(), before - 200 * MIB / 4096);
    large.drain();
}

#[test]
fn threads_allocate_resize_and_free_at_once() {
    engine!(Idle, false);
    static LARGE: Large<Idle> = Large::new();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            scope.spawn(move || {
                let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
                let mut mine: Vec<(NonNull<u8>, usize, usize)> = Vec::new();
                for step in 0..300usize {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let bytes = 4 * MIB + (seed >> 16) as usize % (8 * MIB);
                    let tag = step << 40 | thread << 60;
                    match seed % 3 {
                        0 if mine.len() < 6 => {
                            let block = LARGE.allocate(bytes, 16, false).unwrap();
                            fill(block, bytes, tag);
                            mine.push((block, bytes, tag));
                        }
                        1 if !mine.is_empty() => {
                            let index = (seed >> 8) as usize % mine.len();
                            let (block, old, tag) = mine[index];
                            let moved = LARGE.resize(block.as_ptr(), bytes).unwrap().unwrap();
                            check(moved, old.min(bytes), tag);
                            fill(moved, bytes, tag);
                            mine[index] = (moved, bytes, tag);
                        }
                        _ => {
                            if let Some((block, bytes, tag)) = mine.pop() {
                                check(block, bytes, tag);
                                assert!(LARGE.free(block.as_ptr()));
                            }
                        }
                    }
                }
                for (block, bytes, tag) in mine {
                    check(block, bytes, tag);
                    assert!(LARGE.free(block.as_ptr()));
                }
            });
        }
    });
    LARGE.drain();
    assert_eq!((Idle::pages(), LARGE.count()), (0, 0));
}
