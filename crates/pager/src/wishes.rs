//! What the program asks for by name of a range: its pages in RAM soon, or out of it, and how it is going to be used;
//! and how much of a range is where.

use crate::shard::{Progress, Shard};
use crate::table::{blocks, pages};
use ream_page::{Page, Run, State};
use ream_sys::Machine;

/// Ranges whose use is known, at most.
pub const HINTS: usize = 64;
/// Pages moved out in one turn on request, so that faults are served between.
const COLD_TURN: u32 = 2048;
/// Pages of a fault in a range that is used in order: 512 KiB.
const SEQUENTIAL: u32 = 128;

/// How a range is going to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Usage {
    /// As the history of faults suggests.
    #[default]
    Unknown,
    /// In order of address.
    Sequential,
    /// Here and there.
    Random,
    /// Again and again.
    Keep,
}

impl Usage {
    /// Pages to be read at a fault, first page and number: at least so many where they are used in order.
    pub(crate) fn extent(self, page: Page, extent: (u64, u32)) -> (u64, u32) {
        let end = match self {
            Usage::Sequential => page.0 + SEQUENTIAL as u64,
            _ => 0,
        };
        (extent.0, end.saturating_sub(extent.0).max(extent.1 as u64) as u32)
    }
}

/// Pages of a range, by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Whereabouts {
    /// Mapped in the program.
    pub resident: u64,
    /// In RAM, on the way to the store or from it.
    pub staged: u64,
    /// In the store alone.
    pub stored: u64,
}

/// Usage of ranges: few, so they are gone through one by one.
#[derive(Debug)]
pub struct Usages {
    list: [(Run, Usage); HINTS],
    len: usize,
}

impl Default for Usages {
    fn default() -> Usages {
        Usages::new()
    }
}

impl Usages {
    /// Nothing is known.
    pub const fn new() -> Usages {
        Usages { list: [(Run { start: Page(0), pages: 0 }, Usage::Unknown); HINTS], len: 0 }
    }

    /// Tells each range, those that were named last at the end.
    pub fn each(&self, mut tell: impl FnMut(Run, Usage)) {
        self.list.iter().take(self.len).for_each(|(run, usage)| tell(*run, *usage));
    }

    fn of(&self, page: Page) -> Usage {
        let known = self.list.get(..self.len).unwrap_or(&[]);
        known.iter().find(|(run, _)| run.contains(page)).map_or(Usage::Unknown, |(_, usage)| *usage)
    }

    /// Nothing is known of these pages any more. What is known of pages behind them in the same range is forgotten, too.
    pub(crate) fn forget(&mut self, run: Run) {
        let mut kept = 0;
        for index in 0..self.len {
            let Some((known, usage)) = self.list.get(index).copied() else { return };
            let pages = match known.and(run).pages {
                0 => known.pages,
                _ => run.start.0.saturating_sub(known.start.0),
            };
            if let (true, Some(place)) = (pages > 0, self.list.get_mut(kept)) {
                *place = (Run { start: known.start, pages }, usage);
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Notes how a range is going to be used; of more than [`HINTS`] ranges the oldest is forgotten.
    pub fn set(&mut self, run: Run, usage: Usage) {
        self.forget(run);
        if usage == Usage::Unknown {
            return;
        }
        if self.len == HINTS {
            self.list.rotate_left(1);
            self.len -= 1;
        }
        if let Some(place) = self.list.get_mut(self.len) {
            *place = (run, usage);
            self.len += 1;
        }
    }
}

impl<M: Machine> Shard<M> {
    /// How the program says that it uses the page.
    pub(crate) fn usage(&self, page: Page) -> Usage {
        self.usages.of(page)
    }

    /// Notes how a range is going to be used.
    pub fn set_usage(&mut self, run: Run, usage: Usage) {
        self.usages.set(run, usage);
        self.know(run);
        if usage != Usage::Keep {
            return;
        }
        for (block, part) in blocks(run) {
            if self.table.meta(block).is_none_or(|meta| meta.resident() == 0) {
                continue;
            }
            for page in pages(part) {
                let word = self.table.word(page);
                if word.state() == State::Resident && !word.hot() {
                    self.put(page, word, word.with_hot(true));
                    self.requeue(page);
                }
            }
        }
    }

    /// Moves the resident pages of a range out, and writes what the store does not have. Takes the part that is done off
    /// the range; `Again` while something is left.
    pub fn cool(&mut self, left: &mut Run) -> Progress {
        let mut moved = 0;
        self.know(*left);
        while left.pages > 0 && moved < COLD_TURN {
            let block = left.start.block();
            let part = block.run().and(*left);
            if self.table.meta(block).is_some_and(|meta| meta.resident() > 0) {
                moved += self.cool_part(part);
            }
            *left = Run { start: part.end(), pages: left.pages - part.pages };
        }
        self.settle(COLD_TURN);
        // With all operations under way, the rest of what cools is looked at when some have ended.
        let busy = self.tags_free == 0 && (!self.cooling.is_empty() || self.dirty_pages > 0);
        if (left.pages > 0 || busy) && self.store_full.is_none() { Progress::Again } else { Progress::Done }
    }

    /// Begins to bring back what a range has in a store, as far as the budget allows.
    pub fn fetch_range(&mut self, run: Run) {
        self.fetch_within(run.start, run);
    }

    /// Counts the pages of a range by where they are, when it has been learnt ([`Shard::know`]).
    pub fn whereabouts(&self, run: Run) -> Whereabouts {
        let mut count = Whereabouts::default();
        for (block, part) in blocks(run) {
            if self.table.meta(block).is_none() {
                continue;
            }
            for page in pages(part) {
                match self.table.word(page).state() {
                    State::Unmanaged | State::Zero => {}
                    State::Resident => count.resident += 1,
                    State::Stored => count.stored += 1,
                    State::Cooling | State::Writing | State::Clean | State::Ahead | State::Reading => count.staged += 1,
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, pages: u64) -> Run {
        Run { start: Page(start), pages }
    }

    #[test]
    fn the_last_word_counts_and_the_oldest_is_forgotten() {
        let mut usages = Usages::default();
        usages.set(run(100, 50), Usage::Random);
        usages.set(run(120, 10), Usage::Keep);
        assert_eq!([99, 100, 119, 120, 129, 130].map(|page| usages.of(Page(page))), {
            use Usage::*;
            [Unknown, Random, Random, Keep, Keep, Unknown]
        });
        usages.set(run(100, 50), Usage::Unknown);
        assert_eq!(usages.len, 0);
        for index in 0..=HINTS as u64 {
            usages.set(run(index * 10, 5), Usage::Sequential);
        }
        assert_eq!(usages.of(Page(0)), Usage::Unknown);
        assert_eq!(usages.of(Page(10)), Usage::Sequential);
        assert_eq!(usages.of(Page(HINTS as u64 * 10)), Usage::Sequential);
    }
}
