//! Single pages are moved out while all threads wait for pages: then no processor has to be interrupted for it. Nobody is woken
//! before the pager has looked at what has arrived, so it can wait for the last that runs, which comes within microseconds where
//! all do little between two pages.

use crate::install::COPIED;
use crate::shard::Shard;
use ream_page::Run;
use ream_sys::{Event, Events, Machine};

/// Microseconds that it is waited for, at most.
const WAIT: u64 = 100;
/// Pages that arrive at once, and populated frames that are kept for what is read next.
const ARRIVING: u64 = 32;
const KEPT: u64 = 64;

impl<M: Machine> Shard<M> {
    /// To be called before what has arrived is looked at, when what threads ask for has been submitted: makes room for it, and
    /// moves pages out if this is the time. Of what `asked` is used to hear meanwhile, faults on pages that are not managed are
    /// added to `others`.
    pub fn before_arrivals(&mut self, asked: &mut Events, others: &mut Events) {
        if self.quiet || self.preparing {
            return;
        }
        self.make_room_for_copies();
        self.calm.saw(self.threads_waiting());
        if !self.uses_calm() || self.stage_lacks() < self.stage_size() / 8 {
            return;
        }
        let until = self.machine.now_us() + WAIT;
        while !self.calm.is_now(self.threads_waiting()) {
            if self.machine.now_us() > until || self.fatal.is_some() {
                self.calm.ended(false);
                return;
            }
            asked.clear();
            self.machine.ask(asked);
            for event in asked.as_slice() {
                if self.event(*event) || others.push(*event) {
                    continue;
                }
                if let Event::Fault { page, .. } = *event {
                    // There is no room to note it: the thread asks again.
                    self.machine.wake(Run { start: page, pages: 1 });
                }
            }
            if self.take_started() {
                self.machine.submit();
            }
        }
        self.calm.ended(true);
        self.balance_in_calm();
    }

    /// Single pages are copied in, for which they need room besides their frames; moved, they would interrupt others.
    fn make_room_for_copies(&mut self) {
        let arriving = ARRIVING.min(self.marks.low / 8);
        if self.extents.pages() > u64::from(COPIED) || self.used + arriving <= self.limit {
            return;
        }
        let kept = KEPT.min(self.marks.low / 4);
        while self.frames.full_count() < kept + arriving && (self.empty_huge() || self.retire_clean()) {}
        self.room_for_copy(arriving as u32, kept);
    }

    fn uses_calm(&self) -> bool {
        !self.preparing && self.used <= self.limit && self.calm.is_worth()
    }

    /// Whether moving out is put off until all threads wait: something that one waits for is on its way, so there will be
    /// another look.
    pub(crate) fn waits_for_calm(&self) -> bool {
        self.wanted > 0
            && self.pending_len == 0
            && self.uses_calm()
            && self.stage_lacks() < self.stage_size() * 3 / 8
            && self.free_pages() >= self.marks.low / 2
    }
}
