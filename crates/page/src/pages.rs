//! Some of a block's pages.

use crate::{BLOCK_PAGES, Block, Page, Run};

/// A set of pages of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// The block that they lie in.
    pub block: Block,
    /// A bit for each page, the first one's the lowest of the first word.
    pub bits: [u64; Pages::WORDS],
}

impl Pages {
    /// Words of 64 bits.
    pub const WORDS: usize = BLOCK_PAGES as usize / 64;

    /// None of a block's pages.
    pub const fn none(block: Block) -> Pages {
        Pages { block, bits: [0; Pages::WORDS] }
    }
    /// Adds a page, if it lies in the block.
    pub fn insert(&mut self, page: Page) {
        let at = page.in_block();
        if let Some(word) = self.bits.get_mut(at / 64).filter(|_| page.block() == self.block) {
            *word |= 1 << (at % 64);
        }
    }
    /// Whether `page` is one of them.
    pub fn contains(&self, page: Page) -> bool {
        let at = page.in_block();
        page.block() == self.block && self.bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }
    /// The pages that both sets hold, which are of one block.
    pub fn and(&self, other: &Pages) -> Pages {
        let mut both = Pages::none(self.block);
        for (place, (one, two)) in both.bits.iter_mut().zip(self.bits.iter().zip(&other.bits)) {
            *place = one & two;
        }
        both
    }
    /// Runs of consecutive pages, in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let mut page = self.block.first();
        let end = self.block.run().end();
        core::iter::from_fn(move || {
            let ends = |page: &mut Page, inside: bool| {
                while page.0 < end.0 && self.contains(*page) == inside {
                    *page = page.plus(1);
                }
                *page
            };
            let start = ends(&mut page, false);
            let pages = ends(&mut page, true).0 - start.0;
            (pages > 0).then_some(Run { start, pages })
        })
    }
}

impl From<Run> for Pages {
    /// The pages of a run that lie in its first page's block.
    fn from(run: Run) -> Pages {
        let mut pages = Pages::none(run.start.block());
        let part = run.and(pages.block.run());
        (0..part.pages as u32).for_each(|index| pages.insert(part.start.plus(index)));
        pages
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn runs_are_what_was_put_in() {
        let first = Block(7).first();
        let mut pages = Pages::none(Block(7));
        assert!(pages.is_empty() && pages.runs().next().is_none());
        let put = [0u32, 1, 5, 62, 63, 64, 65, 300, 510, 511];
        put.iter().for_each(|at| pages.insert(first.plus(*at)));
        pages.insert(Block(8).first());
        pages.insert(Page(first.0 - 1));
        let runs: Vec<_> = pages.runs().map(|run| (run.start.0 - first.0, run.pages)).collect();
        assert_eq!(runs, [(0, 2), (5, 1), (62, 4), (300, 1), (510, 2)]);
        assert!((0..512).all(|at| pages.contains(first.plus(at)) == put.contains(&at)));
        assert!(!pages.contains(Block(8).first()) && !pages.contains(first.plus(512 + 5)));
        let part = Pages::from(Run { start: first.plus(63), pages: 1000 });
        assert_eq!(part.runs().map(|run| run.pages).sum::<u64>(), 449);
        let both: Vec<_> = pages.and(&part).runs().map(|run| (run.start.0 - first.0, run.pages)).collect();
        assert_eq!(both, [(63, 3), (300, 1), (510, 2)]);
    }
}
