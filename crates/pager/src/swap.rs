//! How pages are exchanged with a store where that is not as fast as can be: what may be under way at once, and when
//! the program's threads stand still.

use crate::shard::Shard;
use ream_page::Page;
use ream_stats::PageOut;
use ream_sys::Machine;

impl<M: Machine> Shard<M> {
    /// Whether a page may be asked for now.
    pub(crate) fn may_read(&self) -> bool {
        self.has_turn(self.writing)
    }

    /// Whether pages may be written now.
    pub(crate) fn may_write(&self) -> bool {
        self.tags_free > 0 && self.has_turn(self.reading)
    }

    /// Whether one more operation may begin, when so many of the other kind are under way. While a fork is being prepared
    /// always: it waits until nothing is under way, which one after the other would take as long as threads touch pages.
    fn has_turn(&self, others: u32) -> bool {
        let apart = self.swap.page_out == PageOut::Overlapped || others == 0;
        let few = self.swap.in_flight == 0 || self.reading + self.writing < self.swap.in_flight;
        apart && few || self.preparing
    }

    /// Whether pages may be asked for that nobody waits for.
    pub(crate) fn may_ask_ahead(&self) -> bool {
        self.swap.in_flight == 0 && self.may_read()
    }

    /// Of a run to be read the part with this page that one request brings, where there is to be only one.
    pub(crate) fn one_request(&self, (start, pages): (Page, u32), page: Page) -> (Page, u32) {
        if self.swap.in_flight == 0 {
            return (start, pages);
        }
        let mut at = start;
        while at.0 < start.0 + u64::from(pages) {
            let length = self.piece_length(at, (start.0 + u64::from(pages) - at.0) as u32);
            if page.0 < at.0 + u64::from(length) {
                return (at, length);
            }
            at = at.plus(length);
        }
        (page, 1)
    }

    /// A page is about to be asked for that a thread waits for.
    pub(crate) fn asking(&mut self) {
        if self.swap.suspends_throughout() {
            self.machine.suspend();
        }
    }

    /// It may have been asked for in vain, or has come.
    pub(crate) fn asked(&mut self) {
        if self.swap.suspends_throughout() && self.reading == 0 {
            self.machine.resume();
        }
    }

    /// What came from a store is about to be installed.
    pub(crate) fn installing(&mut self) {
        if self.swap.suspends() {
            self.machine.suspend();
        }
    }

    /// It is. Where threads stand still throughout, they do so until nothing is asked for any more.
    pub(crate) fn has_installed(&mut self) {
        if self.swap.suspends() && !(self.swap.suspends_throughout() && self.reading > 0) {
            self.machine.resume();
        }
    }
}
