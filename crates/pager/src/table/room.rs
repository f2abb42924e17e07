//! Addresses for metadata, taken when a range comes under management: when a page of it is touched it is too late, and a
//! program may have taken all addresses that it is allowed by then (RLIMIT_AS).

use super::{CHUNK, Chunk, Table, blocks};
use ream_page::Run;
use ream_sys::Errno;
use ream_sys::memory::MapSlice;

/// Allocations for which addresses are taken at a time, where there are so many.
const SPARE_CHUNKS: usize = 16;
/// Blocks for which there is room beside those that are managed: a range that moves has some in both places for a while.
const SLACK: u64 = 2 * CHUNK as u64;

/// Written over the first of so many chunks that are not in use yet.
pub(super) struct Spare {
    next: *mut Spare,
    chunks: usize,
}

impl Table {
    /// Makes sure that there are addresses for the metadata of all blocks of a run.
    pub fn reserve(&mut self, run: Run) -> Result<(), Errno> {
        let mut fresh = 0;
        for (block, _) in blocks(run) {
            self.leaf(block)?;
            fresh += self.find(block).is_null() as u64;
        }
        let wanted = self.blocks + self.all_zeros + fresh + SLACK;
        if wanted <= self.room {
            return Ok(());
        }
        let missing = (wanted - self.room).div_ceil(CHUNK as u64) as usize;
        let map = |chunks| MapSlice::<Chunk>::with_room(chunks, 1).map(|spare| (spare.leak().as_mut_ptr(), chunks));
        let (first, chunks) = map(missing.max(SPARE_CHUNKS)).or_else(|_| map(missing))?;
        self.room += (chunks * CHUNK) as u64;
        let spare: *mut Spare = first.cast();
        // SAFETY: fresh memory, larger than a Spare and aligned as one, that is known to nobody else.
        unsafe { spare.write(Spare { next: self.spare, chunks }) };
        self.spare = spare;
        Ok(())
    }

    /// A chunk of zeros out of what is spare, which is not counted as room any more.
    pub(super) fn take_spare(&mut self) -> Option<*mut Chunk> {
        // SAFETY: null, or written by `reserve` over the first of its chunks; `&mut self` makes the access exclusive.
        let spare = unsafe { self.spare.as_mut() }?;
        let chunk = self.spare.cast::<Chunk>().wrapping_add(spare.chunks - 1);
        spare.chunks -= 1;
        if spare.chunks == 0 {
            let last = core::mem::replace(&mut self.spare, spare.next);
            // SAFETY: the chunk itself, which is to be zeros.
            unsafe { last.cast::<u8>().write_bytes(0, size_of::<Spare>()) };
        }
        self.room -= CHUNK as u64;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::LEVEL;
    use ream_page::{Page, State, Step};

    /// The run's blocks come into use out of what was reserved, all of it zeros, and no chunk is made twice.
    #[test]
    fn what_was_reserved_is_enough() {
        let mut table = Table::new().unwrap();
        assert!(size_of::<Chunk>() >= LEVEL * size_of::<usize>(), "a chunk serves for a leaf");
        let run = |first: u64, blocks: u64| Run { start: Page(512 * first), pages: 512 * blocks };
        for (first, blocks) in [(8, 700), (10_000, 1), (20_000, 900)] {
            table.reserve(run(first, blocks)).unwrap();
            table.prepare(run(first, blocks)).unwrap();
            assert!(table.room >= table.blocks + table.all_zeros + SLACK);
        }
        let room = table.room;
        table.reserve(run(8, 700)).unwrap();
        for block in (8..708).chain(10_000..10_001).chain(20_000..20_900) {
            let page = Page(512 * block + 7);
            assert_eq!((table.word(page).state(), table.hash(page)), (State::Zero, 0));
            assert!(table.set(page, table.word(page).step(Step::Fill).unwrap()));
            table.set_hash(page, block);
        }
        assert_eq!((table.room, table.blocks, table.all_zeros), (room, 1601, 0));
        assert!((8..708).all(|block| table.hash(Page(512 * block + 7)) == block));
        while table.take_spare().is_some() {}
        assert_eq!(table.room, table.blocks.next_multiple_of(CHUNK as u64));
    }
}
