//! Moving a mapping to a given place: pages change their address, bytes are not copied. Where a range has become
//! several mappings (advice or protection on a part), it is moved piece by piece.

use ream_page::PAGE_BYTES;
use ream_sys::Errno;
use ream_sys::memory::{self, Advice, Protection};

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;

/// A length at which no mapping can grow: it would end behind the stack.
const TOO_LONG: usize = 0x7fff_ffff_f000;
const EFAULT: Errno = Errno(14);

/// What is at the old place afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nothing: it is unmapped.
    Nothing,
    /// Fresh memory, which reads as zeros. Only where the size stays the same.
    Zeros,
}

/// Moves `old_bytes` at `old` to `new` and grows them there to `new_bytes`; both places are disjoint and page-aligned.
/// What was mapped at the new place is replaced. The growth reads as zeros.
///
/// At no time is a part of the new place unmapped, where another thread's mapping could come to lie.
///
/// # Errors
/// When the kernel refused before the old place was changed.
///
/// # Safety
/// The caller owns both ranges: nobody else uses them during the call, and nobody uses the old one afterwards. The old
/// range is anonymous, private, readable and writable memory.
pub unsafe fn relocate(
    old: *mut u8,
    old_bytes: usize,
    new: *mut u8,
    new_bytes: usize,
    left: Left,
) -> Result<(), Errno> {
    // Asked before anything is tried: kernels unmap the new place before they find that they cannot move.
    // SAFETY: the caller's range.
    if unsafe { one_mapping(old, old_bytes) } {
        // SAFETY: the caller's promise.
        return unsafe { move_whole(old, old_bytes, new, new_bytes, left) };
    }
    // From here on nothing may fail: all is mapped first, and a piece that cannot be moved is copied.
    // SAFETY: the caller owns the new place, and nothing has been moved there yet.
    unsafe { memory::map_over(new, new_bytes, Protection::ReadWrite) }?;
    // SAFETY: the caller's promise, for the part that exists.
    unsafe { move_pieces(old, old_bytes, new, left) };
    Ok(())
}

/// Whether the kernel has all of a range in one mapping, as it must to move it.
///
/// # Safety
/// The caller owns the range.
unsafe fn one_mapping(start: *mut u8, bytes: usize) -> bool {
    // A range in several mappings is refused with EFAULT before anything else is looked at.
    // SAFETY: cannot succeed, and without MREMAP_MAYMOVE nothing moves.
    let refused = unsafe { memory::remap(start, bytes, TOO_LONG, 0, 0) };
    refused.err() != Some(EFAULT)
}

/// # Safety
/// As [`relocate`].
unsafe fn move_whole(old: *mut u8, old_bytes: usize, new: *mut u8, new_bytes: usize, left: Left) -> Result<(), Errno> {
    let keep = if left == Left::Zeros { MREMAP_DONTUNMAP } else { 0 };
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED | keep;
    // SAFETY: the caller's promise.
    unsafe { memory::remap(old, old_bytes, new_bytes, flags, new.expose_provenance()) }.map(|_| ())
}

/// Moves a range in pieces that are one mapping each.
///
/// # Safety
/// As [`relocate`]; the new place is mapped.
unsafe fn move_pieces(old: *mut u8, bytes: usize, new: *mut u8, left: Left) {
    let mut done = 0;
    while done < bytes {
        let (from, to) = (old.wrapping_add(done), new.wrapping_add(done));
        // SAFETY: parts of the caller's ranges.
        unsafe {
            let part = piece(from, bytes - done);
            if move_whole(from, part, to, part, left).is_err() {
                // The process has as many mappings as it may have: bytes are copied. The new place is still mapped.
                core::ptr::copy_nonoverlapping(from, to, part);
                let _ = match left {
                    Left::Nothing => memory::unmap(from, part),
                    Left::Zeros => memory::advise(from.addr(), part, Advice::DontNeed),
                };
            }
            done += part;
        }
    }
}

/// Length of the mapping at `start`, at most `bytes`.
///
/// # Safety
/// The caller owns the range, all of which is mapped.
unsafe fn piece(start: *mut u8, bytes: usize) -> usize {
    // In pages: so many are in one mapping, and so many are not.
    let (mut within, mut beyond) = (1, bytes / PAGE_BYTES + 1);
    while beyond - within > 1 {
        let middle = within + (beyond - within) / 2;
        // SAFETY: parts of the caller's range.
        if unsafe { one_mapping(start, middle * PAGE_BYTES) } {
            within = middle;
        } else {
            beyond = middle;
        }
    }
    within * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};
    use ream_page::BLOCK_BYTES;

    #[test]
    fn a_range_of_several_mappings_arrives_whole() {
        let (old_bytes, new_bytes) = (5 * BLOCK_BYTES + 7 * PAGE_BYTES, 8 * BLOCK_BYTES);
        let old = memory::map(old_bytes, BLOCK_BYTES, Protection::ReadWrite).unwrap().as_ptr();
        let new = memory::map(new_bytes, BLOCK_BYTES, Protection::None).unwrap().as_ptr();
        // SAFETY: both mappings are the test's own.
        unsafe {
            for page in 0..old_bytes / PAGE_BYTES {
                old.add(page * PAGE_BYTES).cast::<usize>().write(page + 1);
            }
            memory::advise(old.addr() + 3 * PAGE_BYTES, PAGE_BYTES, memory::Advice::DontFork).unwrap();
            memory::advise(old.addr() + 2 * BLOCK_BYTES, PAGE_BYTES, memory::Advice::DontDump).unwrap();
            relocate(old, old_bytes, new, new_bytes, Left::Nothing).unwrap();
            for page in 0..new_bytes / PAGE_BYTES {
                let expected = if page < old_bytes / PAGE_BYTES { page + 1 } else { 0 };
                assert_eq!(new.add(page * PAGE_BYTES).cast::<usize>().read(), expected);
            }
            // That nothing is left at the old place cannot be asked: another test's thread may have mapped there by now.
            memory::unmap(new, new_bytes).unwrap();
        }
    }

    #[test]
    fn zeros_can_be_left_behind() {
        let bytes = 64 * PAGE_BYTES;
        let place = |protection| memory::map(bytes, PAGE_BYTES, protection).unwrap().as_ptr();
        let (old, new) = (place(Protection::ReadWrite), place(Protection::None));
        // SAFETY: both mappings are the test's own.
        unsafe {
            for page in 0..64 {
                old.add(page * PAGE_BYTES).cast::<usize>().write(page + 1);
            }
            memory::advise(old.addr() + 3 * PAGE_BYTES, PAGE_BYTES, Advice::DontFork).unwrap();
            relocate(old, bytes, new, bytes, Left::Zeros).unwrap();
            for page in 0..64 {
                assert_eq!(new.add(page * PAGE_BYTES).cast::<usize>().read(), page + 1);
                assert_eq!(old.add(page * PAGE_BYTES).cast::<usize>().read(), 0);
            }
            memory::unmap(old, bytes).unwrap();
            memory::unmap(new, bytes).unwrap();
        }
    }

    /// A thread takes every free place for a mapping of its own while ranges of several mappings are moved.
    #[test]
    fn no_other_mapping_is_replaced() {
        static STOP: AtomicBool = AtomicBool::new(false);
        const BYTES: usize = 40 * PAGE_BYTES;
        let thief = || {
            let mut taken = 0u64;
            while !STOP.load(Ordering::Relaxed) {
                let mut places = [core::ptr::null_mut::<u8>(); 64];
                for place in &mut places {
                    *place = memory::map(3 * PAGE_BYTES, PAGE_BYTES, Protection::ReadWrite).unwrap().as_ptr();
                    taken += 1;
                    // SAFETY: mapped above, for this thread.
                    unsafe { place.add(PAGE_BYTES).cast::<u64>().write(taken) };
                }
                for (index, place) in places.into_iter().enumerate() {
                    // SAFETY: as above.
                    unsafe {
                        assert_eq!(place.add(PAGE_BYTES).cast::<u64>().read(), taken - 63 + index as u64);
                        memory::unmap(place, 3 * PAGE_BYTES).unwrap();
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let thief = scope.spawn(thief);
            for round in 0..3000 {
                let place = |protection| memory::map(BYTES, PAGE_BYTES, protection).unwrap().as_ptr();
                let (old, new) = (place(Protection::ReadWrite), place(Protection::None));
                // SAFETY: both mappings are the test's own.
                unsafe {
                    for page in 0..BYTES / PAGE_BYTES - 1 {
                        old.add(page * PAGE_BYTES).cast::<usize>().write(round + page);
                    }
                    for page in [3, 4, 9, 20, 31] {
                        let advice = if page < 9 { memory::Advice::DontFork } else { memory::Advice::DontDump };
                        memory::advise(old.addr() + page * PAGE_BYTES, PAGE_BYTES, advice).unwrap();
                    }
                    relocate(old, BYTES - PAGE_BYTES, new, BYTES, Left::Nothing).unwrap();
                    for page in 0..BYTES / PAGE_BYTES - 1 {
                        assert_eq!(new.add(page * PAGE_BYTES).cast::<usize>().read(), round + page);
                    }
                    memory::unmap(old.add(BYTES - PAGE_BYTES), PAGE_BYTES).unwrap();
                    memory::unmap(new, BYTES).unwrap();
                }
            }
            STOP.store(true, Ordering::Relaxed);
            thief.join().unwrap();
        });
    }
}
