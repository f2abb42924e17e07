//! Which pages are used much (hot): those that come back soon after they were evicted. Decided when they are read again.

use crate::shard::Shard;
use crate::table::pages as pages_of;
use crate::wishes::Usage;
use ream_page::{BLOCK_PAGES, Block, Page, Run, State, Word};
use ream_policy::replacement;
use ream_sys::Machine;

/// Pages among which those evicted together are read again together, when memory falls a little short.
const AROUND: u64 = 8;

impl<M: Machine> Shard<M> {
    /// Pages that a stream goes through are about to be read again. A whole block belongs to the hot ones now, or not, as one; what
    /// comes in pieces, because some of it was used apart from the rest, would stay in pieces.
    pub(crate) fn judge_use(&mut self, start: Page, pages: u32) {
        let run = Run { start, pages: pages as u64 };
        if pages < BLOCK_PAGES {
            return self.forget_stale_use(run);
        }
        let resident = self.count(State::Resident);
        let (mut stored, mut were, mut come_round) = (0, 0, 0);
        for page in pages_of(run) {
            let word = self.table.word(page);
            stored += (word.state() == State::Stored) as u32;
            were += word.hot() as u32;
            come_round += replacement::comes_round(self.evicted_since(word), resident) as u32;
        }
        if stored < BLOCK_PAGES {
            return self.forget_stale_use(run);
        }
        let (comes_round, was) = (come_round * 2 > BLOCK_PAGES, were * 2 > BLOCK_PAGES);
        if was && comes_round {
            self.trial.returned(were as u64);
        }
        let hot = comes_round && self.becomes_hot(was);
        if were == if hot { BLOCK_PAGES } else { 0 } {
            return;
        }
        for page in pages_of(run) {
            let word = self.table.word(page);
            if word.hot() != hot && self.usage(page) != Usage::Keep {
                self.put(page, word, word.with_hot(hot));
            }
        }
    }

    /// What of a run that is about to be read was used much before it was evicted, but long ago, begins anew.
    pub(crate) fn forget_stale_use(&mut self, run: Run) {
        let resident = self.count(State::Resident);
        for page in pages_of(run) {
            let word = self.table.word(page);
            let is_stale = || !replacement::refault_is_hot(self.evicted_since(word), resident);
            if word.state() == State::Stored && word.hot() && is_stale() && self.usage(page) != Usage::Keep {
                self.put(page, word, word.with_hot(false));
            }
        }
    }

    /// Whether a page of a block that came back as one belongs to the hot ones.
    pub(crate) fn becomes_hot(&self, was: bool) -> bool {
        let all = self.count(State::Resident) + self.count(State::Reading) + self.count(State::Ahead);
        self.trial.becomes_hot(was, self.hot_resident + self.hot_coming, all)
    }

    /// How many pages have been evicted since this one was.
    pub(crate) fn evicted_since(&self, word: Word) -> u64 {
        (self.age().wrapping_sub(word.age()) as u64) << self.age_shift()
    }

    /// The run of pages around this one that were evicted only just now, too.
    pub(crate) fn evicted_around(&self, page: Page) -> (u64, u32) {
        let resident = self.count(State::Resident);
        let recent = |page: u64| {
            let word = self.table.word(Page(page));
            word.state() == State::Stored && replacement::refault_is_hot(self.evicted_since(word), resident)
        };
        let first = page.0 - page.0 % AROUND;
        let start = (first..page.0).rev().take_while(|page| recent(*page)).last().unwrap_or(page.0);
        let after = (page.0 + 1..first + AROUND).take_while(|page| recent(*page)).count() as u64;
        (start, (page.0 + 1 + after - start) as u32)
    }

    /// Gives all pages of a block the use that most of them have, before it is installed as one: it leaves as one, too. Pages that
    /// were used apart from the rest long ago would split it again and again.
    pub(crate) fn even_heat(&mut self, block: Block) {
        let run = block.run();
        let hot = pages_of(run).filter(|page| self.table.word(*page).hot()).count() as u32;
        if hot == 0 || hot == BLOCK_PAGES {
            return;
        }
        for page in pages_of(run) {
            let word = self.table.word(page);
            self.put(page, word, word.with_hot(hot > BLOCK_PAGES / 2));
        }
    }

    /// A page that proved to be used.
    pub(crate) fn heat(&mut self, page: Page) {
        let word = self.table.word(page);
        self.put(page, word, word.with_hot(true));
    }
}
