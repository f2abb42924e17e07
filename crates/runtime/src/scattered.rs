//! Large pages for programs that reserve small pieces at addresses of their own choice, all over the address space, and open
//! them one by one (V8: 256 KiB each, at random places). An address without MAP_FIXED is a wish; such pieces are put side by
//! side, so that eight of them fill a block, which is made one large page when it is full (`engine/dense.rs`).
//!
//! Places are parts of 256 KiB in reservations without access. What the program unmaps becomes reserved again. Since a program
//! asks for more than it keeps (it aligns the piece itself), the last place before one in use cannot be filled; so each
//! thread goes on where it was, or begins at a block behind which there is room for more than that. What somebody maps
//! there without asking stays theirs.

use crate::kernel::*;
use crate::maps::{LARGE_FROM, at_block};
use core::ops::Range;
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Run};
use ream_sys::Errno;
use ream_sys::futex::Mutex;
use ream_sys::memory::{MapSlice, Zeroable};
use ream_sys::process;

/// Bytes of a place: what V8 aligns its pages to.
const PLACE: usize = 256 << 10;
const PAGES: u32 = (PLACE / PAGE_BYTES) as u32;
/// Places of a reservation.
const PLACES: usize = 256;
const CHUNK: usize = PLACE * PLACES;
/// Reservations at most: 64 GiB.
const CHUNKS: usize = 1024;
/// Pieces that lie where the program wished before this begins: other programs have a few.
const SPARED: u32 = 16;
/// Sizes of pieces. Larger mappings do not win by beginning at a block.
const SIZES: Range<usize> = PLACE..64 << 20;
/// Wishes below this may be a must: addresses that fit into a few bits.
const LOWEST: usize = 1 << 36;
/// Threads that go on where they were.
const CURSORS: usize = 16;
/// Bytes that another thread leaves behind one that goes on.
const APART: usize = 16 << 20;
/// Places of a block.
const BLOCK: usize = BLOCK_BYTES / PLACE;
const NO_ACCESS: usize = 0;
const FLAGS: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

#[derive(Clone, Copy)]
struct Chunk {
    start: usize,
    /// For each place, a bit for each of its pages that the program has.
    live: [u64; PLACES],
}

// SAFETY: numbers; nothing happens at drop.
unsafe impl Zeroable for Chunk {}

struct Table {
    chunks: MapSlice<Chunk>,
    used: usize,
    asked: u32,
    /// Where threads go on: thread, address.
    cursors: [(usize, usize); CURSORS],
    /// What was handed out last, and not opened since: pages without content. Empty for none.
    fresh: Range<usize>,
}

/// Taken inside [`ream_heap::placing`], so that it is free in a forked child.
static TABLE: Mutex<Table> =
    Mutex::new(Table { chunks: MapSlice::empty(), used: 0, asked: 0, cursors: [(0, 0); CURSORS], fresh: 0..0 });

/// A piece without access for one that wishes to lie at `address`, of `length` bytes (whole pages). `None` where it had
/// better lie there.
pub fn take(address: usize, length: usize, protection: usize, flags: usize) -> Option<usize> {
    let ours = protection == NO_ACCESS && flags & !MAP_NORESERVE == MAP_PRIVATE | MAP_ANONYMOUS;
    if !ours || !SIZES.contains(&length) || address < LOWEST || address % PLACE != 0 {
        return None;
    }
    let mut table = TABLE.lock();
    table.asked = table.asked.saturating_add(1);
    if table.asked <= SPARED {
        return None;
    }
    const RLIMIT_AS: usize = 9;
    // Where address space is limited, none is kept for later.
    if limit(RLIMIT_AS) != Ok(usize::MAX) {
        return None;
    }
    if length >= LARGE_FROM {
        return at_block(length, reserve).ok();
    }
    let thread = process::thread_id() as usize;
    let place = match table.find(thread, length) {
        Some(place) => place,
        None => {
            table.grow()?;
            table.find(thread, length)?
        }
    };
    table.mark(place..place + length, true);
    table.fresh = place..place + length;
    Some(place)
}

fn reserve(bytes: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
    unsafe { mmap(0, bytes, NO_ACCESS, FLAGS, -1, 0) }.map(|start| start.addr())
}

/// The program is about to unmap a run: where all of it lies in a place, it becomes reserved again. Returns whether that was
/// done, and nothing is left to unmap.
///
/// # Safety
/// Nobody uses the memory any more, and nobody manages it.
pub unsafe fn give_back(run: Run) -> bool {
    let range = run.start.address()..run.end().address();
    let mut table = TABLE.lock();
    let Some(chunk) = table.holder(&range) else { return false };
    if !(chunk..chunk + CHUNK).contains(&(range.end - 1)) {
        return false;
    }
    if range.start < table.fresh.start || range.end > table.fresh.end {
        // SAFETY: the caller's promise.
        let over = unsafe { mmap(range.start, range.len(), NO_ACCESS, FLAGS | MAP_FIXED, -1, 0) };
        if over.is_err() {
            return false;
        }
        // SAFETY: fresh memory.
        let _ = unsafe { madvise(range.start, range.len(), MADV_HUGEPAGE) };
        table.fresh = 0..0;
    }
    table.mark(range, false);
    true
}

/// The program maps something at an address that it insists on, or opens a run.
pub fn used(run: Run) {
    let mut table = TABLE.lock();
    if table.used > 0 {
        let range = run.start.address()..run.end().address();
        if range.start < table.fresh.end && table.fresh.start < range.end {
            table.fresh = 0..0;
        }
        table.mark(range, true);
    }
}

impl Table {
    fn list(&self) -> &[Chunk] {
        self.chunks.as_slice().get(..self.used).unwrap_or(&[])
    }

    /// Start of the reservation in which a range begins.
    fn holder(&self, range: &Range<usize>) -> Option<usize> {
        let begins = |chunk: &&Chunk| range.start.wrapping_sub(chunk.start) < CHUNK;
        self.list().iter().find(begins).map(|chunk| chunk.start)
    }

    fn find(&mut self, thread: usize, length: usize) -> Option<usize> {
        let places = length.div_ceil(PLACE);
        let (before, next) = self.cursors.get(thread % CURSORS).copied().unwrap_or((0, 0));
        let on = (before == thread).then(|| self.go_on(next, places)).flatten();
        // Not where another thread goes on, unless there is no room elsewhere.
        let others = |address: usize| {
            self.cursors.iter().any(|(other, next)| *other != thread && address.wrapping_sub(*next) < APART)
        };
        let anew = |near: bool| {
            let all = self.list().iter();
            all.flat_map(|chunk| beginnings(chunk, places)).find(|address| near || !others(*address))
        };
        let place = on.or_else(|| anew(false)).or_else(|| anew(self.used >= CHUNKS))?;
        if let Some(cursor) = self.cursors.get_mut(thread % CURSORS) {
            *cursor = (thread, place);
        }
        Some(place)
    }

    /// The next places behind an address, if those in use end soon.
    fn go_on(&self, address: usize, places: usize) -> Option<usize> {
        let chunk = self.list().iter().find(|chunk| address.wrapping_sub(chunk.start) < CHUNK)?;
        let live = chunk.live.get((address - chunk.start) / PLACE..)?;
        let first = live.iter().position(|live| *live == 0)?;
        let free = live.get(first..first + places)?.iter().all(|live| *live == 0);
        free.then_some(address + first * PLACE)
    }

    fn grow(&mut self) -> Option<()> {
        if self.chunks.is_empty() {
            self.chunks = MapSlice::new(CHUNKS).ok()?;
        }
        let used = self.used;
        let slot = self.chunks.get_mut(used)?;
        let start = at_block(CHUNK, reserve).ok()?;
        // SAFETY: advice on fresh memory.
        let _ = unsafe { madvise(start, CHUNK, MADV_HUGEPAGE) };
        slot.start = start;
        self.used = used + 1;
        Some(())
    }

    /// The program has, or has not any more, what of a range lies in reservations.
    fn mark(&mut self, range: Range<usize>, live: bool) {
        let used = self.used;
        for chunk in self.chunks.as_mut_slice().iter_mut().take(used) {
            let start = range.start.max(chunk.start);
            let end = range.end.min(chunk.start + CHUNK);
            let mut at = start;
            while at < end {
                let offset = at - chunk.start;
                let next = (offset / PLACE + 1) * PLACE;
                let pages = (end.min(chunk.start + next) - at) / PAGE_BYTES;
                let first = (offset % PLACE / PAGE_BYTES) as u32;
                let bits = u64::MAX >> (PAGES - pages as u32) << first;
                if let Some(place) = chunk.live.get_mut(offset / PLACE) {
                    *place = if live { *place | bits } else { *place & !bits };
                }
                at = chunk.start + next;
            }
        }
    }
}

/// Blocks with so many free places, and one of the next.
fn beginnings(chunk: &Chunk, places: usize) -> impl Iterator<Item = usize> + '_ {
    let least = places.max(BLOCK + 1);
    let room = move |index: &usize| {
        let live = chunk.live.get(*index..(*index + least).min(PLACES)).unwrap_or(&[]);
        live.len() >= places.max(BLOCK) && live.iter().all(|live| *live == 0)
    };
    (0..PLACES).step_by(BLOCK).filter(room).map(|index| chunk.start + index * PLACE)
}

const _: () = assert!(PAGES == u64::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_side_by_side_and_free_blocks_are_used_again() {
        let chunk = Chunk { start: 1 << 40, live: [0; PLACES] };
        let cursors = [(0, 0); CURSORS];
        let mut table = Table { chunks: MapSlice::new(1).unwrap(), used: 1, asked: 0, cursors, fresh: 0..0 };
        *table.chunks.get_mut(0).unwrap() = chunk;
        let start = chunk.start;
        // As V8 does: more than it needs, of which it gives the end back.
        let length = 2 * PLACE - PAGE_BYTES;
        let take = |table: &mut Table, thread: usize| {
            let place = table.find(thread, length)?;
            table.mark(place..place + length, true);
            table.mark(place + PLACE..place + length, false);
            Some((place - start) / PLACE)
        };
        for index in 0..PLACES / 4 - 1 {
            assert_eq!(take(&mut table, 7), Some(index));
            // Another thread begins elsewhere, and both go on until they meet.
            assert_eq!(take(&mut table, 8), Some(PLACES / 4 + index));
        }
        table.cursors = cursors;
        for index in PLACES / 2..PLACES - 1 {
            assert_eq!(take(&mut table, 7), Some(index));
        }
        assert_eq!(take(&mut table, 7), None);
        // A block and one page less of the next place is not enough, then it is.
        table.mark(start + 16 * PLACE..start + 25 * PLACE - PAGE_BYTES, false);
        assert_eq!(take(&mut table, 7), None);
        table.mark(start + 25 * PLACE - PAGE_BYTES..start + 25 * PLACE, false);
        assert_eq!(take(&mut table, 7), Some(16));
        assert_eq!(table.holder(&(start + CHUNK..start + CHUNK + 1)), None);
    }
}
