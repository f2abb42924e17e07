//! Blocks that came to lie on small pages and are full now: heaps that grow in pieces (each piece is touched before the next
//! is there), and blocks of which a part was discarded and came back. The thread that looks for waste makes large pages of
//! them, many in one call: the kernel drains every processor's lists once a call.

use ream_page::{BLOCK_PAGES, Block, Page, Run};
use ream_sys::Errno;
use ream_sys::memory::{self, Advice, MapSlice};
use ream_sys::pagemap::{Mapped, Pagemap};

use crate::holds;

/// Pages in RAM from which a block is full: a large page adds a tenth.
const FULL: u32 = BLOCK_PAGES / 10 * 9 + 1;
/// Pages from which it is nearly full: a large page adds a third, which is done to few.
const NEARLY: u32 = BLOCK_PAGES / 4 * 3;
/// Most blocks at a time; a block takes 0.3 to 1 ms, in which its own mapping waits for a part.
const TOGETHER: usize = 128;

/// Pages on small pages, by block, in a window of so many blocks and one that begins before it.
pub(super) struct Count<const BLOCKS: usize> {
    first: Block,
    small: [u32; BLOCKS],
}

impl<const BLOCKS: usize> Count<BLOCKS> {
    pub(super) fn from(start: Page) -> Count<BLOCKS> {
        Count { first: start.block(), small: [0; BLOCKS] }
    }

    pub(super) fn add(&mut self, part: Run, mapped: Mapped) {
        if mapped.huge || mapped.zero || mapped.swapped {
            return;
        }
        let mut left = part;
        while left.pages > 0 {
            let block = left.start.block();
            let here = block.run().and(left).pages;
            if let Some(count) = self.small.get_mut(block.0.saturating_sub(self.first.0) as usize) {
                *count += here as u32;
            }
            left = Run { start: Page(left.start.0 + here), pages: left.pages - here };
        }
    }

    /// The blocks that are full, or nearly, and how many pages a large one adds to those that are not.
    pub(super) fn full(&self) -> impl Iterator<Item = (Block, u64)> + '_ {
        let full = self.small.iter().enumerate().filter(|(_, count)| **count >= NEARLY);
        full.map(|(index, count)| {
            let adds = if *count >= FULL { 0 } else { BLOCK_PAGES - *count };
            (Block(self.first.0 + index as u64), adds.into())
        })
    }
}

/// Blocks that are to become large pages.
pub(super) struct Dense {
    found: MapSlice<u64>,
    count: usize,
}

impl Dense {
    pub(super) fn new() -> Result<Dense, Errno> {
        Ok(Dense { found: MapSlice::new(TOGETHER)?, count: 0 })
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a block, in order of address; false when there is no room left.
    pub(super) fn add(&mut self, block: Block) -> bool {
        let room = self.found.get_mut(self.count);
        let added = room.map(|place| *place = block.0).is_some();
        self.count += usize::from(added);
        added
    }

    /// Makes large pages of what was found, tells what could not become one, and forgets it. Returns whether there may be
    /// more.
    pub(super) fn gather(&mut self, pagemap: &Pagemap, mut failed: impl FnMut(Block)) -> bool {
        let found = self.found.as_slice().get(..self.count).unwrap_or(&[]);
        let more = found.len() == TOGETHER;
        // What is shared with a child would be copied for it; locked memory has to be there at any moment.
        let fit = |block: &&u64| {
            let run = Block(**block).run();
            pagemap.exclusive(Block(**block)) && !holds::any_locked(run)
        };
        let mut run = Run { start: Page(0), pages: 0 };
        for block in found.iter().filter(fit).map(|block| Block(*block)) {
            if run.end() == block.first() {
                run.pages += u64::from(BLOCK_PAGES);
                continue;
            }
            collapse(run, &mut failed);
            run = block.run();
        }
        collapse(run, &mut failed);
        self.count = 0;
        more
    }
}

/// The content stays what it is, whoever changes it meanwhile. What the program has advised against large pages is refused,
/// as are pages that a device uses.
fn collapse(run: Run, failed: &mut impl FnMut(Block)) {
    // SAFETY: this advice changes no content and no mapping.
    let one = |run: Run| unsafe { memory::advise(run.start.address(), run.bytes(), Advice::Collapse) };
    if run.pages > 0 && one(run).is_err() {
        // It stops at the first mapping that does not let it.
        for block in (run.start.block().0..run.end().block().0).map(Block) {
            if one(block.run()).is_err() {
                failed(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_full_when_nine_tenths_of_it_are_there() {
        let small = Mapped::default();
        let mut count = Count::<4>::from(Page(512 * 7 + 100));
        // The end of one block, a whole one, and most of the third.
        count.add(Run { start: Page(512 * 7 + 100), pages: 370 }, small);
        count.add(Run { start: Page(512 * 8), pages: 512 + 400 }, small);
        count.add(Run { start: Page(512 * 10), pages: 512 }, Mapped { zero: true, ..small });
        assert!(count.full().eq([(Block(8), 0), (Block(9), 112)]));
        count.add(Run { start: Page(512 * 9 + 450), pages: 62 }, small);
        count.add(Run { start: Page(512 * 30), pages: 512 }, small);
        assert!(count.full().eq([(Block(8), 0), (Block(9), 0)]));
        let mut dense = Dense::new().unwrap();
        assert!((0..TOGETHER as u64).all(|block| dense.add(Block(block))) && !dense.add(Block(9)));
    }
}
