//! The shard's queues of page runs: what is resident, cooling, clean, read ahead, to be written, oldest first.

use crate::queue::Fifo;
use crate::shard::{Fatal, List, Shard};
use crate::table::Meta;
use ream_page::{Frame, Page, State};
use ream_sys::Machine;

impl<M: Machine> Shard<M> {
    /// Remembers a run of resident pages for eviction.
    pub(crate) fn enqueue(&mut self, start: Page, pages: u32, hot: bool) {
        self.queue(if hot { List::Hot } else { List::New }, start, pages);
    }

    pub(crate) fn list(&mut self, list: List) -> &mut Fifo {
        match list {
            List::New => &mut self.new,
            List::Hot => &mut self.hot,
            List::Cooling => &mut self.cooling,
            List::Clean => &mut self.clean,
            List::Ahead => &mut self.ahead,
            List::Dirty => &mut self.dirty,
        }
    }

    /// Remembers a page that is to be written.
    pub(crate) fn enqueue_dirty(&mut self, page: Page) {
        self.queue(List::Dirty, page, 1);
        self.dirty_pages = self.dirty.len();
    }

    /// The frame of a page that is to be written: it cools, was compared, and has no slot.
    pub(crate) fn is_dirty(&self, page: Page) -> Option<Frame> {
        let word = self.table.word(page);
        let frame = word.frame().filter(|_| word.state() == State::Cooling)?;
        let info = self.frames.info(frame);
        (info.hashed() && !info.io() && info.slot().is_none()).then_some(frame)
    }

    /// Adds a run to a queue. Entries are left behind when pages go elsewhere; when the queue is full, all but one
    /// live entry for each page are dropped. That leaves it half empty, unless more pages than the limit must stay:
    /// then it grows.
    pub(crate) fn queue(&mut self, list: List, start: Page, pages: u32) {
        let epoch = self.epoch(list, start);
        if self.list(list).push(start, pages, epoch) {
            return;
        }
        self.sift(list, false);
        self.sift(list, true);
        let full = self.list(list).is_full();
        if full && self.list(list).grow().is_err() || !self.list(list).push(start, pages, epoch) {
            self.fail(Fatal::Internal("no memory for a queue of pages"));
        }
    }

    /// The epoch that an entry about this page is of: of the block's Resident pages, where it is about such.
    fn epoch(&self, list: List, page: Page) -> u32 {
        match list {
            List::New | List::Hot => self.table.meta(page.block()).map_or(0, Meta::epoch),
            List::Cooling | List::Clean | List::Ahead | List::Dirty => 0,
        }
    }

    /// Takes the oldest entry of a queue that is of its block's epoch. Others are about pages that have all gone, by other
    /// ways than this queue: taken for what came back since, they would move that out too early and, of a block that came
    /// back whole, in their pieces.
    pub(crate) fn take(&mut self, list: List) -> Option<(Page, u32)> {
        loop {
            let (start, pages, bits) = self.list(list).pop_of()?;
            if Fifo::is_of(bits, self.epoch(list, start)) {
                return Some((start, pages));
            }
        }
    }

    /// One pass over a queue: takes the marks off its live pages, or drops every entry that adds no page to those
    /// marked before it.
    fn sift(&mut self, list: List, drop: bool) {
        for _ in 0..self.list(list).len() {
            let Some((start, pages, bits)) = self.list(list).pop_of() else { return };
            let epoch = self.epoch(list, start);
            if !Fifo::is_of(bits, epoch) {
                continue;
            }
            let mut fresh = false;
            for index in 0..pages {
                let page = start.plus(index);
                let word = self.table.word(page);
                let live = match list {
                    List::New => word.state() == State::Resident && !word.hot(),
                    List::Hot => word.state() == State::Resident && word.hot(),
                    List::Cooling => word.state() == State::Cooling,
                    List::Clean => word.state() == State::Clean,
                    List::Ahead => word.state() == State::Ahead,
                    List::Dirty => self.is_dirty(page).is_some(),
                };
                if live && !(drop && word.marked()) {
                    fresh = true;
                    self.table.set(page, word.with_mark(drop));
                }
            }
            if fresh || !drop {
                let _ = self.list(list).push(start, pages, epoch);
            }
        }
    }
}
