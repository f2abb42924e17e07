//! Moving a mapping to a given place: pages change their address, bytes are not copied. Where a range has become
//! several mappings (advice or protection on a part), it is moved piece by piece.

use ream_page::{BLOCK_BYTES, PAGE_BYTES};
use ream_sys::Errno;
use ream_sys::memory::{self, Protection};

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;

/// Moves `old_bytes` at `old` to `new` and grows them there to `new_bytes`; both places are disjoint and page-aligned.
/// What was mapped at the new place is replaced, and nothing is left at the old one. The growth reads as zeros.
///
/// # Errors
/// When the kernel refused before anything was changed.
///
/// # Safety
/// The caller owns both ranges: nobody else uses them during the call, and nobody uses the old one afterwards. The old
/// range is anonymous, private, readable and writable memory.
pub unsafe fn relocate(old: *mut u8, old_bytes: usize, new: *mut u8, new_bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    match unsafe { move_whole(old, old_bytes, new, new_bytes) } {
        // EFAULT: not one mapping. Kernels do not move and resize several at once; some move several in turn.
        Err(Errno(14)) => {}
        result => return result,
    }
    // From here on nothing may fail: the rest is mapped first, and a piece that cannot be moved is copied.
    if new_bytes > old_bytes {
        // Nothing has been moved yet.
        // SAFETY: the new place beyond the moved part, which the caller owns.
        unsafe { memory::map_over(new.wrapping_add(old_bytes), new_bytes - old_bytes, Protection::ReadWrite) }?;
    }
    // SAFETY: the caller's promise, for the part that exists.
    unsafe { move_pieces(old, old_bytes, new) };
    Ok(())
}

/// # Safety
/// As [`relocate`].
unsafe fn move_whole(old: *mut u8, old_bytes: usize, new: *mut u8, new_bytes: usize) -> Result<(), Errno> {
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe { memory::remap(old, old_bytes, new_bytes, flags, new.expose_provenance()) }.map(|_| ())
}

/// Moves a range in pieces that are one mapping each.
///
/// # Safety
/// As [`relocate`].
unsafe fn move_pieces(old: *mut u8, bytes: usize, new: *mut u8) {
    let mut done = 0;
    let mut part = bytes;
    while done < bytes {
        part = part.min(bytes - done);
        let (from, to) = (old.wrapping_add(done), new.wrapping_add(done));
        // SAFETY: parts of the caller's ranges.
        if unsafe { move_whole(from, part, to, part) }.is_ok() {
            done += part;
            part = bytes - done;
            continue;
        }
        // Kernels from 6.17 on move mapping after mapping, and may stop behind some.
        let gone = moved_part(from, part);
        if gone > 0 {
            done += gone;
            part = bytes - done;
            continue;
        }
        if part > PAGE_BYTES {
            let unit = if part > BLOCK_BYTES { BLOCK_BYTES } else { PAGE_BYTES };
            let half = (part / 2).next_multiple_of(unit);
            part = if half < part { half } else { PAGE_BYTES };
            continue;
        }
        // One page that does not move (the process has as many mappings as it may have): its bytes are copied.
        // SAFETY: both pages are the caller's; the new one is mapped afresh, or was mapped by the caller before.
        unsafe {
            let _ = memory::map_over(to, part, Protection::ReadWrite);
            core::ptr::copy_nonoverlapping(from, to, part);
            let _ = memory::unmap(from, part);
        }
        done += part;
        part = bytes - done;
    }
}

/// Bytes at the start of a range that was all mapped, and of which the kernel moved so many.
fn moved_part(start: *mut u8, bytes: usize) -> usize {
    let gone = |page: usize| !memory::is_mapped(start.addr() + page * PAGE_BYTES);
    // All pages below `low` are gone, and none from `high` on.
    let (mut low, mut high) = (0, bytes / PAGE_BYTES);
    while low < high {
        let middle = low + (high - low) / 2;
        if gone(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

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
            relocate(old, old_bytes, new, new_bytes).unwrap();
            for page in 0..new_bytes / PAGE_BYTES {
                let expected = if page < old_bytes / PAGE_BYTES { page + 1 } else { 0 };
                assert_eq!(new.add(page * PAGE_BYTES).cast::<usize>().read(), expected);
            }
            // That nothing is left at the old place cannot be asked: another test's thread may have mapped there by now.
            memory::unmap(new, new_bytes).unwrap();
        }
    }
}
