//! The rest of an allocation (`--fetch=aggressive`): a touch of one page brings all of it, the nearest pages first, as far
//! as the budget allows. Ranges that touch count as one, as they do for the kernel; what lies nearest comes first, so that
//! a neighbour gets only what the budget has left.

use crate::shard::{Fetch, Shard};
use ream_page::{BLOCK_PAGES, Page, Run, State};
use ream_sys::Machine;

/// Pages read with one request when free frames are few; whole blocks when they are not.
const PIECE: u32 = 32;
/// Blocks looked at in one turn.
const LOOKED: u32 = 64;
/// Operations kept back for what a thread waits for.
const SPARE_TAGS: usize = 16;

/// An allocation that is being fetched, upwards and downwards in turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand {
    /// Next page to look at upwards, and the page above the next one downwards; `None` at the end of the allocation.
    up: Option<Page>,
    down: Option<Page>,
    /// Whether it is the turn of the pages below.
    downwards: bool,
    /// Pages that may still be read, so that the allocation does not push itself out.
    left: u64,
}

impl<M: Machine> Shard<M> {
    /// Begins to fetch what lies around a touched page whose content is in a store; the last touch counts.
    pub(crate) fn fetch_all(&mut self, page: Page) {
        if self.fetch == Fetch::Aggressive {
            // What is staged and under way while whole blocks come takes three eighths.
            let left = self.limit().saturating_sub(self.fixed()) / 8 * 5;
            self.errand = Some(Errand { up: Some(page), down: Some(page), downwards: false, left });
        }
    }

    /// Goes on fetching, as far as there are frames and operations.
    pub(crate) fn fetch_more(&mut self) {
        for _ in 0..LOOKED {
            let Some(mut errand) = self.errand else { return };
            let found = if errand.downwards { self.below(&errand) } else { self.above(&errand) };
            if let Some((_, run)) = found.filter(|(_, run)| run.pages > 0) {
                if !self.has_frames(run.pages) {
                    return;
                }
                self.read_extent(run.start, run.pages as u32, None);
                if self.table.word(run.start).state() == State::Stored {
                    return;
                }
                errand.left = errand.left.saturating_sub(run.pages);
            }
            let next = found.map(|(next, _)| next);
            *(if errand.downwards { &mut errand.down } else { &mut errand.up }) = next;
            errand.downwards = if errand.downwards { errand.up.is_none() } else { errand.down.is_some() };
            let over = errand.left == 0 || errand.up.is_none() && errand.down.is_none();
            self.errand = Some(errand).filter(|_| !over);
        }
    }

    fn has_frames(&self, pages: u64) -> bool {
        self.tags_free > SPARE_TAGS
            && self.count(State::Reading) + pages <= self.marks.ahead
            && self.free_pages() + self.count(State::Clean) >= self.marks.low / 2 + pages
    }

    /// Most pages to be read with one request now.
    fn most(&self, errand: &Errand) -> u64 {
        let most = if self.has_frames(BLOCK_PAGES as u64) { BLOCK_PAGES } else { PIECE };
        errand.left.min(most as u64)
    }

    fn is_stored(&self, page: Page) -> bool {
        self.table.word(page).state() == State::Stored
    }

    /// The next pages upwards that are only in a store, none if the rest of the block has none, and where to go on.
    /// `None` at the end of the allocation.
    fn above(&self, errand: &Errand) -> Option<(Page, Run)> {
        let first = errand.up.filter(|page| self.manages(*page))?;
        let end = first.block().run().end();
        if self.table.all_zero(first.block()) {
            return Some((end, Run { start: end, pages: 0 }));
        }
        let mut start = first;
        while start.0 < end.0 && !self.is_stored(start) && self.manages(start) {
            start = start.plus(1);
        }
        let mut next = start;
        while next.0 < end.0 && next.0 - start.0 < self.most(errand) && self.is_stored(next) {
            next = next.plus(1);
        }
        Some((next, Run { start, pages: next.0 - start.0 }))
    }

    /// The same downwards.
    fn below(&self, errand: &Errand) -> Option<(Page, Run)> {
        let end = errand.down.filter(|page| page.0 > 0 && self.manages(Page(page.0 - 1)))?;
        let last = Page(end.0 - 1);
        let first = last.block().run().start;
        if self.table.all_zero(last.block()) {
            return Some((first, Run { start: first, pages: 0 }));
        }
        let mut end = end;
        while end.0 > first.0 && !self.is_stored(Page(end.0 - 1)) && self.manages(Page(end.0 - 1)) {
            end = Page(end.0 - 1);
        }
        let mut start = end;
        while start.0 > first.0 && end.0 - start.0 < self.most(errand) && self.is_stored(Page(start.0 - 1)) {
            start = Page(start.0 - 1);
        }
        Some((start, Run { start, pages: end.0 - start.0 }))
    }
}
