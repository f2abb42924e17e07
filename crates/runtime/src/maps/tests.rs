//! The program's memory calls and what is managed after each, on the real kernel.

use std::vec::Vec;

use super::*;
use crate::{advice, heap, holds};

const MIB: usize = 1 << 20;
const READ_WRITE: usize = PROT_READ_WRITE;
const NONE: usize = 0;
const FLAGS: usize = MAP_PRIVATE | MAP_ANONYMOUS;

/// One test at a time: what one has unmapped another would map again, and what is managed is the process's.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn new(bytes: usize, protection: usize, flags: usize) -> usize {
    heap::join_session();
    // SAFETY: a fresh mapping for the test.
    unsafe { map(0, bytes, protection, FLAGS | flags, -1, 0) }.unwrap()
}

fn managed(address: usize, bytes: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    managed_parts(Run::covering(address, bytes), |part| parts.push((part.start.address() - address, part.bytes())));
    parts
}

fn write(address: usize, value: u64) {
    // SAFETY: mapped by the test.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address).write(value) };
}

fn read(address: usize) -> u64 {
    // SAFETY: mapped by the test.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address).read() }
}

fn free(address: usize, bytes: usize) {
    // SAFETY: mapped by the test, which does not use it any more.
    unsafe { unmap(address, bytes) }.unwrap();
    assert_eq!(managed(address, bytes), []);
}

#[test]
fn large_anonymous_private_memory_is_managed_and_nothing_else() {
    let _turn = turn();
    let plain = new(MIB, READ_WRITE, 0);
    assert_eq!(managed(plain, MIB), [(0, MIB)]);
    free(plain, MIB);
    let aligned = new(5 * MIB + 1, READ_WRITE, MAP_POPULATE);
    assert_eq!(aligned % BLOCK_BYTES, 0);
    assert_eq!(managed(aligned, 5 * MIB + 1), [(0, 5 * MIB + PAGE_BYTES)]);
    write(aligned + 5 * MIB, 3);
    free(aligned, 5 * MIB + 1);
    for (bytes, protection, flags) in [
        (MIB - PAGE_BYTES, READ_WRITE, 0),
        (4 * MIB, READ_WRITE, MAP_STACK),
        (4 * MIB, READ_WRITE | 4, 0),
        (4 * MIB, 1, 0),
        (4 * MIB, NONE, 0),
    ] {
        let other = new(bytes, protection, flags);
        assert_eq!(managed(other, bytes), []);
        free(other, bytes);
    }
    // SAFETY: refused by the kernel.
    assert_eq!(unsafe { map(0, 0, READ_WRITE, FLAGS, -1, 0) }, Err(Errno(22)));
    // SAFETY: refused by the kernel.
    assert_eq!(unsafe { unmap(4097, 4096) }, Err(Errno(22)));
}

#[test]
fn parts_are_unmapped_and_replaced() {
    let _turn = turn();
    let start = new(8 * MIB, READ_WRITE, 0);
    write(start, 1);
    write(start + 4 * MIB, 2);
    free(start + 2 * MIB, MIB);
    assert_eq!(managed(start, 8 * MIB), [(0, 2 * MIB), (3 * MIB, 5 * MIB)]);
    let fixed = FLAGS | MAP_FIXED;
    // SAFETY: the test's own range; the first call is refused and must change nothing.
    unsafe {
        assert_eq!(map(start, MIB, READ_WRITE, MAP_PRIVATE | MAP_FIXED, -1, 0), Err(Errno(9)));
        assert_eq!(read(start), 1);
        assert_eq!(managed(start, MIB), [(0, MIB)]);
        assert_eq!(map(start + 4 * MIB, MIB, READ_WRITE, fixed, -1, 0), Ok(start + 4 * MIB));
        assert_eq!(read(start + 4 * MIB), 0);
        assert_eq!(map(start + 4 * MIB, 4096, NONE, fixed, -1, 0), Ok(start + 4 * MIB));
    }
    assert_eq!(managed(start + 3 * MIB, 5 * MIB), [(0, MIB), (MIB + 4096, 4 * MIB - 4096)]);
    free(start, 8 * MIB);
}

#[test]
fn reservations_are_managed_as_they_open() {
    let _turn = turn();
    let start = new(16 * MIB, NONE, MAP_NORESERVE);
    let open = |offset: usize, bytes| {
        // SAFETY: the test's own range.
        unsafe { holds::protect(start + offset, bytes, READ_WRITE, None) }.unwrap();
    };
    open(4 * MIB, MIB / 2);
    assert_eq!(managed(start, 16 * MIB), []);
    open(4 * MIB + MIB / 2, MIB / 2);
    assert_eq!(managed(start, 16 * MIB), [(4 * MIB, MIB)]);
    // Next to what is managed, even a page.
    open(5 * MIB, PAGE_BYTES);
    assert_eq!(managed(start, 16 * MIB), [(4 * MIB, MIB + PAGE_BYTES)]);
    // SAFETY: the test's own range.
    unsafe { map(start + 8 * MIB, 3 * MIB, READ_WRITE, FLAGS | MAP_FIXED, -1, 0) }.unwrap();
    assert_eq!(managed(start + 6 * MIB, 10 * MIB), [(2 * MIB, 3 * MIB)]);
    // SAFETY: the test's own range.
    unsafe { map(start + 11 * MIB, MIB / 4, READ_WRITE, FLAGS | MAP_FIXED, -1, 0) }.unwrap();
    assert_eq!(managed(start + 6 * MIB, 10 * MIB), [(2 * MIB, 3 * MIB + MIB / 4)]);
    free(start, 16 * MIB);
}

#[test]
fn protecting_small_parts_again_and_again_ends() {
    let _turn = turn();
    let start = new(64 * MIB, NONE, 0);
    for round in 0..1000 {
        let (offset, protection) = (round * 7919 % 16384 * 4096, if round % 3 == 0 { READ_WRITE } else { 1 });
        // SAFETY: the test's own range.
        unsafe { holds::protect(start + offset, 4096, protection, None) }.unwrap();
    }
    free(start, 64 * MIB);
}

#[test]
fn protected_and_locked_parts_are_held_until_both_end() {
    let _turn = turn();
    let start = new(4 * MIB, READ_WRITE, 0);
    write(start + MIB, 7);
    // SAFETY: the test's own range, which it does not write meanwhile.
    unsafe {
        holds::protect(start + MIB, MIB, 1, None).unwrap();
        assert_eq!(read(start + MIB), 7);
        assert_eq!(managed(start, 4 * MIB), [(0, 4 * MIB)]);
        assert!(!holds::any_locked(Run::covering(start, 4 * MIB)));
        if holds::lock(start + MIB, 2 * PAGE_BYTES, 0).is_ok() {
            assert!(holds::any_locked(Run::covering(start, 4 * MIB)));
            assert!(!holds::any_locked(Run::covering(start + 2 * MIB, MIB)));
            // The kernel refuses to discard locked pages: the content stays.
            assert_eq!(advice::advise(start, 4 * MIB, MADV_DONTNEED), Err(Errno(22)));
            assert_eq!(read(start + MIB), 7);
            holds::unlock(start, 4 * MIB).unwrap();
            assert!(!holds::any_locked(Run::covering(start, 4 * MIB)));
        }
        holds::protect(start, 4 * MIB, READ_WRITE, None).unwrap();
        write(start + MIB, 8);
        advice::advise(start + MIB, PAGE_BYTES, MADV_FREE).unwrap();
        assert_eq!(read(start + MIB), 0);
        assert_eq!(holds::protect(start + 1, 1, 1, None), Err(Errno(22)));
    }
    free(start, 4 * MIB);
}

#[test]
fn moved_mappings_take_their_management_along() {
    let _turn = turn();
    let start = new(4 * MIB, READ_WRITE, 0);
    for page in 0..1024 {
        write(start + page * PAGE_BYTES, page as u64 + 1);
    }
    // Two mappings from the kernel's view, and in the way of growth.
    let wall = new(2 * MIB, READ_WRITE, 0);
    // SAFETY: the test's own ranges.
    unsafe {
        madvise(start + MIB, PAGE_BYTES, 10).unwrap();
        assert_eq!(remap(start, 4 * MIB, 2 * MIB, 0, 0), Ok(start));
        assert_eq!(managed(start, 4 * MIB), [(0, 2 * MIB)]);
        // What is no new place, because no flag says so, has no influence.
        let end = start + 2 * MIB;
        assert_eq!(remap(start, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE, 0x1234_5678_9abd), Ok(start));
        assert_eq!(managed(start, 3 * MIB), [(0, 2 * MIB)]);
        assert_eq!(remap(start, 2 * MIB, 2 * MIB - PAGE_BYTES, MREMAP_MAYMOVE, end + 1), Ok(start));
        assert_eq!(managed(start, 3 * MIB), [(0, 2 * MIB - PAGE_BYTES)]);
        assert_eq!(remap(start, 2 * MIB - PAGE_BYTES, 2 * MIB, 0, 77), Ok(start));
        assert_eq!(managed(start, 3 * MIB), [(0, 2 * MIB)]);
        let grown = remap(start, 2 * MIB, 64 * MIB, MREMAP_MAYMOVE, 0).unwrap();
        assert_eq!(managed(grown, 64 * MIB), [(0, 64 * MIB)]);
        for page in 0..511 {
            assert_eq!(read(grown + page * PAGE_BYTES), page as u64 + 1);
        }
        assert_eq!(read(grown + 511 * PAGE_BYTES), 0, "it was cut off and came again");
        assert_eq!((read(grown + 2 * MIB), read(grown + 64 * MIB - 8)), (0, 0));
        if grown != start {
            assert_eq!(managed(start, 2 * MIB), []);
        }
        assert_eq!(remap(grown, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, wall), Ok(wall));
        assert_eq!(managed(wall, 2 * MIB), [(0, 2 * MIB)]);
        assert_eq!(managed(grown, 2 * MIB), [(MIB, MIB)]);
        assert_eq!(read(wall + 4096), 2);
        assert_eq!(remap(grown + 1, MIB, 2 * MIB, MREMAP_MAYMOVE, 0), Err(Errno(22)));
        free(grown + MIB, 63 * MIB);
    }
    free(wall, 2 * MIB);
}

#[test]
fn small_mappings_are_handed_out_of_larger_ones() {
    let _turn = turn();
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    assert_eq!(pieces::take(MIB - PAGE_BYTES, flags), None);
    assert_eq!(pieces::take(4 * MIB, flags), None);
    let taken: Vec<usize> = core::iter::from_fn(|| Some(pieces::take(MIB, flags))).flatten().take(70).collect();
    let follow = taken.windows(2).filter(|pair| pair[1] == pair[0] + MIB).count();
    assert!(follow >= 66, "{follow} of 69 lie behind the last one");
    for (index, piece) in taken.iter().enumerate() {
        for page in 0..MIB / PAGE_BYTES {
            assert_eq!(read(piece + page * PAGE_BYTES), 0);
            write(piece + page * PAGE_BYTES, (index * 1000 + page) as u64);
        }
    }
    for (index, piece) in taken.iter().enumerate() {
        for page in 0..MIB / PAGE_BYTES {
            assert_eq!(read(piece + page * PAGE_BYTES), (index * 1000 + page) as u64);
        }
        free(*piece, MIB);
    }
    // What does not fit the rest begins a new one, and nothing is handed out twice.
    let large = pieces::take(4 * MIB - PAGE_BYTES, flags).unwrap();
    assert!(taken.iter().all(|piece| *piece + MIB <= large || large + 4 * MIB <= *piece));
    free(large, 4 * MIB - PAGE_BYTES);
}
