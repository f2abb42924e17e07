//! The rest of an allocation (`--fetch=aggressive`): a touch of one page brings all of it, the nearest pages first, as far
//! as the budget allows. Ranges that touch count as one, as they do for the kernel; what lies nearest comes first, so that
//! a neighbour gets only what the budget has left.

use crate::shard::{Fetch, List, Shard};
use ream_page::{BLOCK_PAGES, Page, Run, State};
use ream_sys::Machine;

/// Pages read with one request when free frames are few; whole blocks when they are not.
const PIECE: u32 = 32;
/// Blocks looked at in one turn.
const LOOKED: u32 = 64;
/// Allocations fetched at the same time.
const ERRANDS: usize = 4;
/// Where nothing is left out.
const EVERYTHING: Run = Run { start: Page(0), pages: u64::MAX };
/// Times that an allocation is gone through at most: what was in RAM may be moved out while the rest comes.
const PASSES: u32 = 8;

/// The allocations that are being fetched: the one touched last has its turn first.
#[derive(Debug, Default)]
pub(crate) struct Errands([Option<Errand>; ERRANDS]);

/// An allocation that is being fetched, upwards and downwards in turns, until a pass finds nothing missing.
#[derive(Clone, Copy, Debug)]
struct Errand {
    /// The page that was touched.
    origin: Page,
    /// Nothing outside is fetched.
    bounds: Run,
    /// Next page to look at upwards, and the page above the next one downwards; `None` at the end of the allocation.
    up: Option<Page>,
    down: Option<Page>,
    /// Whether it is the turn of the pages below.
    downwards: bool,
    /// Pages of it that may be in RAM, so that it does not push itself out, and what is left of them in this pass.
    most: u64,
    left: u64,
    /// Whether this pass found something missing.
    missed: bool,
    passes: u32,
}

impl Errand {
    fn new(origin: Page, bounds: Run, most: u64, passes: u32) -> Errand {
        let (up, down) = (Some(origin), Some(origin));
        Errand { origin, bounds, up, down, downwards: false, most, left: most, missed: false, passes }
    }

    /// Goes on behind this part, on the other side if there is one; without a part, this side has come to its end.
    fn pass(&mut self, part: Option<Run>) {
        if self.downwards {
            self.down = part.map(|part| part.start);
            self.downwards = self.up.is_none();
        } else {
            self.up = part.map(|part| part.end());
            self.downwards = self.down.is_some();
        }
    }

    /// Whether it was at this page in this pass.
    fn has_passed(&self, page: Page) -> bool {
        let passed = match page.0 >= self.origin.0 {
            true => self.up.is_none_or(|up| page.0 < up.0),
            false => self.down.is_none_or(|down| page.0 >= down.0),
        };
        passed && self.bounds.contains(page)
    }

    /// Takes off pages that are in RAM or will be, of this allocation or of one touched later. Returns what is still to
    /// be done.
    fn after(mut self, pages: u64, others: bool) -> Option<Errand> {
        self.left = self.left.saturating_sub(pages);
        if others {
            self.most = self.most.saturating_sub(pages);
        }
        if self.left > 0 && (self.up.is_some() || self.down.is_some()) {
            return Some(self);
        }
        let again = self.missed && self.passes > 1 && self.most > 0;
        again.then(|| Errand::new(self.origin, self.bounds, self.most, self.passes - 1))
    }
}

impl<M: Machine> Shard<M> {
    /// Begins to fetch what lies around a touched page whose content is in a store.
    pub(crate) fn fetch_all(&mut self, page: Page) {
        if self.fetch == Fetch::Aggressive {
            self.fetch_within(page, EVERYTHING);
        }
    }

    /// The same within a range, which the page lies in.
    pub(crate) fn fetch_within(&mut self, page: Page, bounds: Run) {
        // What is staged and under way while whole blocks come takes three eighths.
        let most = self.limit().saturating_sub(self.fixed()) / 8 * 5;
        self.errands.0.rotate_right(1);
        if let Some(first) = self.errands.0.first_mut() {
            *first = Some(Errand::new(page, bounds, most, PASSES));
        }
    }

    /// Goes on fetching, as far as there are frames and operations. Returns whether there is more to look at at once.
    pub(crate) fn fetch_more(&mut self) -> bool {
        for _ in 0..LOOKED {
            let Some(newest) = self.errands.0.iter().position(Option::is_some) else { return false };
            let Some(mut errand) = self.errands.0.get(newest).copied().flatten() else { return false };
            let part = self.part(&errand);
            // What was asked for in the first pass is installed in a later one.
            let comes = errand.passes < PASSES && part.is_some_and(|part| self.is_under_way(part));
            if comes || part.is_some_and(|part| !self.fetch_part(part, &mut errand.missed)) {
                if !self.may_stage(PIECE as u64) && self.keep_behind(&errand) {
                    continue;
                }
                // It has its turn again when something has come or gone.
                if let Some(place) = self.errands.0.get_mut(newest) {
                    *place = Some(errand);
                }
                return false;
            }
            let pages = part.map_or(0, |part| self.keep(part));
            errand.pass(part);
            for (index, place) in self.errands.0.iter_mut().enumerate().skip(newest) {
                let now = if index == newest { Some(errand) } else { *place };
                *place = now.and_then(|errand| errand.after(pages, index > newest));
            }
        }
        self.fetches()
    }

    /// Installs what has come since the errand went by, so that it is staged no longer. Returns whether there was any.
    fn keep_behind(&mut self, errand: &Errand) -> bool {
        let (before, old) = (self.count(State::Ahead), self.ahead_old);
        for index in 0..self.ahead.len() {
            let Some((start, pages)) = self.ahead.pop() else { break };
            if errand.has_passed(start) {
                self.ahead_old = self.ahead_old.saturating_sub((index < old) as u64);
                self.keep(Run { start, pages: pages as u64 });
            } else {
                self.queue(List::Ahead, start, pages);
            }
        }
        self.count(State::Ahead) < before
    }

    /// Whether something is fetched that may have memory which others used much.
    pub(crate) fn fetches(&self) -> bool {
        self.errands.0.iter().any(Option::is_some)
    }

    /// The next part of an allocation: pages of one block, as many as may be read with one request now. `None` at the
    /// end of the allocation.
    fn part(&self, errand: &Errand) -> Option<Run> {
        let near = match errand.downwards {
            true => Page(errand.down?.0.checked_sub(1)?),
            false => errand.up?,
        };
        if !errand.bounds.contains(near) || !self.manages(near) {
            return None;
        }
        let block = near.block();
        let most = if self.may_read_ahead(BLOCK_PAGES as u64) { BLOCK_PAGES } else { PIECE };
        let most = if self.table.all_zero(block) { BLOCK_PAGES as u64 } else { errand.left.min(most as u64) };
        let (mut first, mut last) = (near, near);
        let within = block.run().and(errand.bounds);
        if errand.downwards {
            while first.0 > within.start.0 && last.0 - first.0 + 1 < most && self.manages(Page(first.0 - 1)) {
                first = Page(first.0 - 1);
            }
        } else {
            while last.plus(1).0 < within.end().0 && last.0 - first.0 + 1 < most && self.manages(last.plus(1)) {
                last = last.plus(1);
            }
        }
        Some(Run { start: first, pages: last.0 - first.0 + 1 })
    }

    /// Starts reading what this part has in a store. Returns whether all of it is in RAM or on its way.
    pub(crate) fn fetch_part(&mut self, part: Run, missed: &mut bool) -> bool {
        let mut next = part.start;
        while next.0 < part.end().0 {
            let mut pages = 1;
            match self.table.word(next).state() {
                // It cannot be kept before it is written.
                State::Writing => return false,
                State::Stored => {
                    *missed = true;
                    let extent = (next.0, (part.end().0 - next.0) as u32);
                    pages = self.run_of(next, extent, |state| state == State::Stored).1;
                    if !self.fetch_run(next, pages) {
                        return false;
                    }
                }
                _ => {}
            }
            next = next.plus(pages);
        }
        true
    }

    /// Starts reading a run of pages that are in a store, in pieces when no frames side by side are left for all of
    /// it. Returns whether all are on their way.
    fn fetch_run(&mut self, start: Page, pages: u32) -> bool {
        let (mut done, mut piece) = (0, pages);
        while done < pages && self.may_read_ahead(piece as u64) {
            let at = start.plus(done);
            let want = piece.min(pages - done);
            self.forget_stale_use(Run { start: at, pages: want as u64 });
            self.read_extent(at, want, None);
            if !self.is_stored(at) {
                done += want;
            } else if want > 1 {
                piece = want / 2;
            } else {
                return false;
            }
        }
        // Where it lies in more places than there are operations, something is left out.
        !crate::table::pages(Run { start, pages: pages as u64 }).any(|page| self.is_stored(page))
    }

    fn is_under_way(&self, part: Run) -> bool {
        crate::table::pages(part).any(|page| self.table.word(page).state() == State::Reading)
    }

    fn is_stored(&self, page: Page) -> bool {
        self.table.word(page).state() == State::Stored
    }

    /// Brings the pages of a part back that were moved out but are in RAM still. Returns how many of it are there, or to
    /// come.
    pub(crate) fn keep(&mut self, part: Run) -> u64 {
        if self.table.all_zero(part.start.block()) {
            return 0;
        }
        let mut count = 0;
        for page in crate::table::pages(part) {
            let state = self.table.word(page).state();
            if matches!(state, State::Cooling | State::Clean | State::Ahead) {
                let run = self.staged_run(page, part, |other| other == state);
                self.install_and_wake(run);
            }
            count += !matches!(state, State::Zero | State::Stored) as u64;
        }
        count
    }
}
