//! Blocks of memory through which pages go to the store below: sealed there, or taken out of what is kept compressed. The
//! frames that pages come from stay as they are, since their pages may be brought back meanwhile.

use crate::file::Part;
use crate::memory::MapSlice;
use crate::{Errno, process};
use ream_page::PAGE_BYTES;

/// Blocks, and pages of each: 8 MiB.
pub(super) const BLOCKS: usize = 32;
pub(super) const PAGES: u32 = 64;

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A write, by its tag.
    Write(u32),
    /// A segment of compressed memory that is being emptied.
    Segment(u32),
}

#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Pages; 0 for a free one.
    pub(super) pages: u32,
    pub(super) slot: u32,
    pub(super) done: u32,
    pub(super) owner: Owner,
    /// When to try once more, in microseconds; 0 while it is being filled or written.
    pub(super) again: u64,
    pub(super) part: Part,
}

const FREE: Block =
    Block { pages: 0, slot: 0, done: 0, owner: Owner::Write(0), again: 0, part: Part { address: 0, bytes: 0 } };

/// What became of a block.
pub(super) enum Outcome {
    /// The rest of it is still to be written.
    Goes,
    /// It has ended, with this error if it is negative.
    Ended(Block, i32),
}

pub(super) struct Blocks {
    memory: MapSlice<u8>,
    pub(super) list: [Block; BLOCKS],
    /// Those that wait to be tried once more.
    waiting: usize,
}

impl Blocks {
    pub(super) fn new() -> Result<Blocks, Errno> {
        Ok(Blocks { memory: MapSlice::new(BLOCKS * PAGES as usize * PAGE_BYTES)?, list: [FREE; BLOCKS], waiting: 0 })
    }

    /// Whether none is in use.
    pub(super) fn is_settled(&self) -> bool {
        self.list.iter().all(|block| block.pages == 0)
    }

    /// Whether pages are on their way that come from writes, not from compressed memory.
    pub(super) fn writes(&self) -> bool {
        self.list.iter().any(|block| block.pages > 0 && matches!(block.owner, Owner::Write(_)))
    }

    /// How many are free.
    pub(super) fn free(&self) -> usize {
        self.list.iter().filter(|block| block.pages == 0).count()
    }

    /// Whether a slot is on its way.
    pub(super) fn touches(&self, slot: u32) -> bool {
        self.list.iter().any(|block| block.pages > 0 && (block.slot..block.slot + block.pages).contains(&slot))
    }

    /// A free one, for pages from a slot on.
    pub(super) fn take(&mut self, owner: Owner, slot: u32) -> Option<usize> {
        let number = self.list.iter().position(|block| block.pages == 0)?;
        *self.list.get_mut(number)? = Block { slot, owner, ..FREE };
        Some(number)
    }

    /// The place of the next page of a block, which counts as filled.
    pub(super) fn next(&mut self, number: usize) -> Option<&mut [u8]> {
        let block = self.list.get_mut(number).filter(|block| block.pages < PAGES)?;
        let at = (number * PAGES as usize + block.pages as usize) * PAGE_BYTES;
        let place = self.memory.as_mut_slice().get_mut(at..at + PAGE_BYTES)?;
        block.pages += 1;
        Some(place)
    }

    /// A page of a block.
    pub(super) fn page(&mut self, number: usize, index: u32) -> Option<&mut [u8]> {
        let at = (number * PAGES as usize + index as usize) * PAGE_BYTES;
        self.memory.as_mut_slice().get_mut(at..at + PAGE_BYTES)
    }

    /// What of a block is to be written now: its slot, and the list of its one part, which stays.
    pub(super) fn rest(&mut self, number: usize) -> Option<(u32, &[Part])> {
        let start = self.memory.as_ptr().expose_provenance() + number * PAGES as usize * PAGE_BYTES;
        let block = self.list.get_mut(number)?;
        let gone = block.done as usize * PAGE_BYTES;
        block.part = Part { address: start + gone, bytes: block.pages as usize * PAGE_BYTES - gone };
        self.waiting -= usize::from(core::mem::replace(&mut block.again, 0) != 0);
        Some((block.slot + block.done, core::slice::from_ref(&block.part)))
    }

    /// Its write could not be started just now.
    pub(super) fn postpone(&mut self, number: usize) {
        if let Some(block) = self.list.get_mut(number) {
            self.waiting += usize::from(block.again == 0);
            block.again = process::now_us() + 1000;
        }
    }

    /// The next one that is due.
    pub(super) fn due(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let now = process::now_us();
        self.list.iter().position(|block| block.pages > 0 && (1..=now).contains(&block.again))
    }

    /// A write of a block has ended.
    pub(super) fn ended(&mut self, number: usize, result: i32) -> Outcome {
        let Some(block) = self.list.get_mut(number) else { return Outcome::Goes };
        let got = (result.max(0) as usize / PAGE_BYTES) as u32;
        block.done += got;
        let passing = got > 0 || result == Errno::AGAIN.negative() || result == Errno::INTR.negative();
        if block.done < block.pages && passing {
            self.waiting += usize::from(block.again == 0);
            block.again = 1;
            return Outcome::Goes;
        }
        let failed = match (block.done < block.pages, result) {
            (false, _) => 0,
            (true, 0..) => Errno::IO.negative(),
            (true, error) => error,
        };
        Outcome::Ended(core::mem::replace(block, FREE), failed)
    }
}
