//! How many ranks may compute at once.

use super::{Seat, Stand, trial::Trial};
use crate::Session;
use crate::process::Process;
use core::sync::atomic::Ordering::SeqCst;

impl Session {
    /// How many ranks may compute at once, as things are.
    pub fn ranks_at_once(&self) -> u32 {
        match self.config().ranks_at_once {
            0 => {}
            number => return number,
        }
        let (total, managed) = (self.ledger().total_pages(), self.ledger().managed_pages());
        if managed <= total {
            return u32::MAX;
        }
        if self.turns().trial.all_at_once() {
            return u32::MAX;
        }
        let seats = self.used().iter().filter(|process| process.seat().stand() != Stand::Away);
        let needs = |process: &Process| process.seat().needs(process.managed_pages());
        let (ranks, pages) = seats.fold((0, 0), |(n, pages), one| (n + 1, pages + needs(one)));
        // With the stage through which pages come and go, a quarter of what a rank holds. Nothing, where the ranks have
        // not begun or others need the memory.
        let mean = (pages / u64::max(ranks, 1) / 3 * 4).max(1);
        (total / mean).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// A rank has computed for so long outside the kernel, in nanoseconds, since it last waited. One thread of it at a time.
    pub fn note_stretch(&self, seat: &Seat, ns: u64) {
        seat.note_stretch(ns);
        self.turns().trial.computed(ns);
    }

    /// Whether ranks take turns by what is measured, and compute for short whiles only between two waits.
    pub(super) fn is_brief(&self) -> bool {
        let ledger = self.ledger();
        let seats = self.used().iter().map(Process::seat).filter(|seat| seat.stand() != Stand::Away);
        let sums = seats.fold((0, 0, 0), |(ranks, computed, waits), seat| {
            (ranks + 1, computed + seat.computed_ns.load(SeqCst), waits + seat.waits.load(SeqCst))
        });
        self.config().ranks_at_once == 0
            && ledger.managed_pages() > ledger.total_pages()
            && Trial::are_brief(sums.0, sums.1, sums.2)
    }

    /// Whether more ranks have places than may compute at once now: those that got theirs while more could.
    pub fn is_crowded(&self) -> bool {
        let holders = self.used().iter().filter(|process| process.seat().stand().holds()).count();
        holders > self.places()
    }

    /// Places there are, with those of ranks that were let in.
    pub(super) fn places(&self) -> usize {
        self.ranks_at_once().saturating_add(self.turns().extra.load(SeqCst)) as usize
    }
}
