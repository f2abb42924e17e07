//! Large pages for programs that map their heap piece by piece (Python's arenas): no piece holds a whole block, and each is
//! touched before the next is mapped, so that all of it would lie on small pages. Pieces are handed out of a larger
//! mapping, one after the other. The first touch of a block brings all of it, and the next piece finds its pages there:
//! they are zero, since nobody has had them before. What was handed out is never handed out again. A program that gives
//! parts of a piece back right away, to align it, gets no more: holes would be left between its pieces.

use crate::kernel::*;
use crate::maps::{LARGE_FROM, at_block};
use core::ops::Range;
use ream_sys::futex::Mutex;

/// Sizes of pieces: smaller ones are no heap, and larger ones get blocks of their own.
pub const SIZES: Range<usize> = 256 << 10..LARGE_FROM;
/// Bytes in pieces that a program gets from the kernel before they come from here: few programs map more. A piece counts
/// for 1 MiB at least where it is as large.
const SPARED: usize = 4 << 20;
/// Bytes of a mapping that pieces are handed out of.
const CHUNK: usize = 32 << 20;

/// What is left to be handed out.
struct Rest {
    next: usize,
    end: usize,
    asked: usize,
    /// What was handed out last.
    last: Range<usize>,
    /// No more.
    ended: bool,
}

/// Taken inside [`ream_heap::placing`], so that it is free in a forked child.
static REST: Mutex<Rest> = Mutex::new(Rest { next: 0, end: 0, asked: 0, last: 0..0, ended: false });

/// A fresh piece of `length` bytes (whole pages), readable and writable, mapped with `flags`. `None` where it had better
/// come from the kernel.
pub fn take(length: usize, flags: usize) -> Option<usize> {
    if !SIZES.contains(&length) {
        return None;
    }
    let mut rest = REST.lock();
    rest.asked = rest.asked.saturating_add(length.min(1 << 20));
    if rest.ended || rest.asked <= SPARED {
        return None;
    }
    if rest.end - rest.next < length {
        const RLIMIT_AS: usize = 9;
        // Where address space is limited, none is kept for later.
        if limit(RLIMIT_AS) != Ok(usize::MAX) {
            return None;
        }
        // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
        let start =
            at_block(CHUNK, |bytes| unsafe { mmap(0, bytes, PROT_READ_WRITE, flags, -1, 0) }.map(|start| start.addr()));
        let start = start.ok()?;
        // SAFETY: advice on fresh memory, and the end of the last mapping, which was not handed out.
        unsafe {
            let _ = madvise(start, CHUNK, MADV_HUGEPAGE);
            if rest.next < rest.end {
                let _ = munmap(rest.next, rest.end - rest.next);
            }
        }
        (rest.next, rest.end) = (start, start + CHUNK);
    }
    let piece = rest.next;
    rest.next += length;
    rest.last = piece..piece + length;
    Some(piece)
}

/// The program unmaps a range. Inside [`ream_heap::placing`].
pub fn unmapped(range: Range<usize>) {
    let mut rest = REST.lock();
    let inside = rest.last.start <= range.start && range.end <= rest.last.end;
    rest.ended |= inside && range != rest.last;
}
