//! Pages that are guarded: single pages that were read for somebody who only looks appear write-protected. Until one is written
//! to, it holds what its slot does, and needs neither be moved out nor compared to leave: many are dropped in one call. The
//! first write ends the guard, for a fault; so pages are guarded only while few are written to.

use crate::shard::Shard;
use ream_page::{BLOCK_PAGES, Block, Page, Run, State, Step};
use ream_sys::{Copied, Machine};

/// Runs that leave at once.
const RUNS: usize = 32;
/// Most pages of these together.
const PAGES: usize = 128;
/// Most resident pages of a block that leave so that it can be read whole.
const FEW: u32 = BLOCK_PAGES / 4;
/// Of so many runs that could leave one is moved out all the same, and stays at hand for a while: whether its pages are
/// touched there tells whether it is worth it.
const COOLED: u64 = 8;

/// Runs that are about to leave.
#[derive(Default)]
pub(crate) struct Leaving {
    runs: [Option<Run>; RUNS],
    len: usize,
    /// Pages of all of them.
    pub(crate) pages: usize,
}

impl<M: Machine> Shard<M> {
    /// Whether what is copied in next is to be guarded.
    pub(crate) fn guards_next(&mut self, pages: u32) -> bool {
        !self.preparing && self.machine.guards() && self.guarding.wanted(pages)
    }

    /// Pages that were installed write-protected: those that hold what their slots do are guarded, of the others it is ended.
    pub(crate) fn guarded(&mut self, start: Page, pages: u32) {
        for page in (0..pages).map(|index| start.plus(index)) {
            let word = self.table.word(page).with_guard(true);
            if word.guarded() {
                self.table.set(page, word);
            } else {
                self.machine.unguard(Run { start: page, pages: 1 });
            }
        }
        self.guards = true;
        if let Some(meta) = self.table.meta_mut(start.block()) {
            meta.set_guarded();
        }
    }

    /// No page is guarded any more, nor will be until a fork is over: nobody serves while the copy is made, and what libc and the
    /// fork handlers of others write then must not wait.
    /// False when some are left until the pager has heard of what has changed.
    pub(crate) fn end_guards(&mut self) -> bool {
        let Shard { table, machine, guards, .. } = self;
        if *guards {
            *guards = !table.end_guards(|run| match machine.unguard(run) {
                Copied::Done => true,
                // A block that is not one mapping; a page that is not there any more has no guard.
                Copied::Gone => run.pages == 1,
                _ => false,
            });
        }
        !*guards
    }

    /// A thread wants to write to a guarded page.
    pub(crate) fn unguard(&mut self, page: Page) {
        let one = Run { start: page, pages: 1 };
        if !self.table.word(page).guarded() {
            self.machine.unguard(one);
            return;
        }
        self.counters.faults.add_alone(1);
        self.guarding.written();
        // Whoever writes to what was read goes on with what lies around it. Where the block is not one mapping, at least this.
        if !(self.guarding.is_vain() && self.end_guard(page.block().run())) {
            self.end_guard(one);
        }
    }

    /// Ends the guard of a run. False when it is still there, as it is until the pager has heard of what has changed; then pages
    /// stay marked: a fork has to know of all that are protected.
    fn end_guard(&mut self, run: Run) -> bool {
        let ended = match self.machine.unguard(run) {
            Copied::Done => true,
            // A block that is not one mapping; a page that is not there any more has no guard.
            Copied::Gone => run.pages == 1,
            _ => false,
        };
        if ended {
            for page in crate::table::pages(run) {
                let word = self.table.word(page);
                if word.guarded() {
                    self.put(page, word, word.with_guard(false));
                }
            }
        }
        ended
    }

    /// Whether a run of guarded pages that came in once leaves without being moved out: what has proved to be used is looked
    /// at once more before it goes.
    pub(crate) fn leaves_directly(&mut self) -> bool {
        self.left = self.left.wrapping_add(1);
        self.stage.is_spared() && self.left % COOLED != 0
    }

    /// A run of guarded pages leaves with others.
    pub(crate) fn leave(&mut self, run: Run) {
        let pages = run.pages as usize;
        if self.leaving.len == RUNS || self.leaving.pages + pages > PAGES {
            self.leave_now();
        }
        if let Some(place) = self.leaving.runs.get_mut(self.leaving.len) {
            *place = Some(run);
            self.leaving.len += 1;
            self.leaving.pages += pages;
        }
    }

    /// What stands in the way of reading a block whole, now that a stream is about to read all of it, leaves: pages of it that
    /// came in singly before. They would do so soon, and are read along; in their place the block comes in, and leaves again,
    /// in a hundred pieces. Pages that are used much stay, unless their phase is over.
    pub(crate) fn make_whole(&mut self, block: Block) {
        let may = |meta: &crate::table::Meta| (1..=FEW).contains(&meta.resident());
        if !self.table.meta(block).is_some_and(may) {
            return;
        }
        let over = self.trial.is_over();
        let gives_way = |page: Page| {
            let word = self.table.word(page);
            match word.state() {
                State::Stored | State::Clean => true,
                State::Resident => word.guarded() && (over || !word.hot()) && !self.table.held(page),
                _ => false,
            }
        };
        if !crate::table::pages(block.run()).all(gives_way) {
            return;
        }
        let mut page = block.first();
        while block.run().contains(page) {
            let state = self.table.word(page).state();
            let (start, pages) = self.run_of(page, (page.0, BLOCK_PAGES), |other| other == state);
            if state == State::Resident {
                self.leave(Run { start, pages: pages as u64 });
            }
            page = start.plus(pages);
        }
        self.leave_now();
        self.drop_clean(block.first(), BLOCK_PAGES, State::Clean);
    }

    /// Those that are about to leave do.
    pub(crate) fn leave_now(&mut self) {
        let leaving = core::mem::take(&mut self.leaving);
        let mut runs = [Run { start: Page(0), pages: 0 }; RUNS];
        for (place, run) in runs.iter_mut().zip(leaving.runs.iter().flatten()) {
            *place = *run;
        }
        let runs = runs.get(..leaving.len).unwrap_or(&[]);
        if runs.is_empty() {
            return;
        }
        let mut dropped = [Run { start: Page(0), pages: 0 }; PAGES];
        let mut count = 0;
        self.machine.drop_guarded(runs, &mut |run| {
            if let Some(place) = dropped.get_mut(count) {
                *place = run;
                count += 1;
            }
        });
        let age = self.age();
        let mut left = 0;
        for page in dropped.iter().take(count).flat_map(|run| crate::table::pages(*run)) {
            // A page that two entries of a queue name is told of twice.
            if !self.table.word(page).guarded() {
                continue;
            }
            self.step(page, Step::Leave);
            let word = self.table.word(page);
            self.table.set(page, word.with_age(age));
            left += 1;
        }
        self.calm.left(1, left as u32);
        self.used = self.used.saturating_sub(left);
        self.evictions += left;
        self.counters.evictions.add_alone(left);
        self.counters.evictions_clean.add_alone(left);
        // What is not guarded any more, without our having heard of it: another way is found for it in its turn.
        for page in runs.iter().flat_map(|run| crate::table::pages(*run)) {
            let word = self.table.word(page);
            if word.state() == State::Resident && word.guarded() {
                self.end_guard(Run { start: page, pages: 1 });
                self.enqueue(page, 1, word.hot());
            }
        }
    }
}
