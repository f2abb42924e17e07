//! A turn of the pager: events, faults that waited, and what is done besides; and what to do when nothing can be done.

use crate::shard::{Fatal, Shard};
use ream_page::{BLOCK_PAGES, Page, Pages, Run, State};
use ream_sys::memory::Zeroable;
use ream_sys::{Event, Machine};

/// Faults that may wait for frames; more than threads a process has.
pub(crate) const PENDING: usize = 1 << 16;

/// A fault that waits for a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Pending {
    page: u64,
    thread: u32,
    /// Pages evicted so far when it began to wait, modulo 2^32.
    since: u32,
    write: bool,
    /// It was served before, but for a frame.
    again: bool,
}

/// Who fills in order and waits for a block of frames, though there are fewer.
#[derive(Default)]
pub(crate) struct Choosy {
    /// How many did when all who wait were last served again, and have since then.
    count: u32,
    /// The fault that is being served again: since when it waits.
    since: Option<u32>,
    /// It goes on waiting for a block.
    waits: bool,
}

// SAFETY: needed to keep the waiting list in zeroed mapped memory; all-zero bytes are a valid Pending.
unsafe impl Zeroable for Pending {}

impl<M: Machine> Shard<M> {
    /// Takes note of a fault that cannot be served now, for want of a frame.
    pub(crate) fn postpone(&mut self, page: Page, write: bool, thread: u32) {
        self.postpone_as(page, write, thread, true);
    }

    /// The same; without `again` it is served later as if it came only then.
    pub(crate) fn postpone_as(&mut self, page: Page, write: bool, thread: u32, again: bool) {
        if self.pending_len == PENDING {
            // The thread faults again and finds the queue shorter.
            self.machine.wake(Run { start: page, pages: 1 });
            return;
        }
        let place = (self.pending_head + self.pending_len) % PENDING;
        if let Some(entry) = self.pending.get_mut(place) {
            let since = self.choosy.since.unwrap_or(self.evictions as u32);
            *entry = Pending { page: page.0, thread, since, write, again };
            self.pending_len += 1;
        }
    }

    /// A stream that fills may wait for a block of frames where most of those who wait do, and no longer than it takes to evict
    /// four for each: others take frames as they come. Notes that it does.
    pub(crate) fn may_be_choosy(&mut self) -> bool {
        let patience = 4 * BLOCK_PAGES * (1 + self.choosy.count);
        let waited = self.choosy.since.map_or(0, |since| (self.evictions as u32).wrapping_sub(since));
        let may = self.choosy.count as usize * 2 >= self.pending_len && waited < patience;
        self.choosy.waits = may;
        self.choosy.count += (may && self.choosy.since.is_none()) as u32;
        may
    }

    fn retry_pending(&mut self) {
        let mut choosy = 0;
        for _ in 0..self.pending_len {
            let Some(entry) = self.pending.get(self.pending_head).copied() else { return };
            self.pending_head = (self.pending_head + 1) % PENDING;
            self.pending_len -= 1;
            let before = self.pending_len;
            (self.choosy.since, self.choosy.waits) = (Some(entry.since), false);
            self.serve(Page(entry.page), entry.write, entry.thread, entry.again);
            self.choosy.since = None;
            choosy += self.choosy.waits as u32;
            if self.pending_len > before && !self.choosy.waits {
                // Still no frame: the rest would not find one either.
                return;
            }
        }
        self.choosy.count = choosy;
    }

    /// Whether touches of what is in a store, or was never written, wait until the next call: for a process that has little
    /// room now, and will soon have more.
    pub fn withhold(&mut self, yes: bool) {
        self.withheld = yes;
    }

    /// Whether they do.
    pub fn withholds(&self) -> bool {
        self.withheld
    }

    /// Forgets the waiting faults (a fork's child has none).
    pub(crate) fn clear_pending(&mut self) {
        self.pending_len = 0;
        self.choosy = Choosy::default();
    }

    /// Takes an event from the machine. A fault on a page that is not managed is not the shard's: returns false.
    pub fn event(&mut self, event: Event) -> bool {
        match event {
            Event::Fault { page, write, thread } => {
                if !self.manages(page) {
                    return false;
                }
                self.counters.faults.add_alone(1);
                self.know(page.block().run());
                self.serve(page, write, thread, false);
            }
            Event::Guarded { page } => self.unguard(page),
            Event::Io { tag, result } => self.io_done(tag, result),
            Event::Unmapped { run } => self.let_go(run, true),
            Event::Remapped { from, to, pages } => self.remap(from, to, pages),
        }
        true
    }

    /// One turn of work: serves faults that waited, keeps frames free. Returns whether there is more to do at once.
    pub fn work(&mut self) -> bool {
        self.starved = false;
        self.set_marks();
        if self.pending_len > 0 && !self.withheld {
            self.retry_pending();
        }
        let mut more = !self.quiet && self.bring_more() | self.fetch_more() | self.balance() | self.give_space_back();
        more |= self.learn_more();
        // Nothing could leave when all was tried last, and nothing has since: to try all again, as whoever prepares a fork does as
        // well, must not keep those who wait from what they are given then.
        let in_vain = !more || self.barren && self.store_full.is_none();
        if self.pending_len > 0 && in_vain && !self.withheld {
            more = self.check_stuck() || more && !self.starved;
        }
        if self.used <= self.limit && !self.is_learning() {
            self.shared_zeros = 0;
        }
        self.counters.peak_resident.raise(self.used - self.shared_zeros.min(self.used));
        more && self.fatal.is_none()
    }

    /// Gives the space of some free slots back to the file system, where many are free. Returns whether there are more.
    fn give_space_back(&mut self) -> bool {
        const AT_ONCE: u32 = 4;
        for _ in 0..AT_ONCE {
            if self.threads_waiting() > 0 {
                return false;
            }
            let Some((slot, pages)) = self.slots.spare() else { return false };
            self.machine.punch(slot, pages);
        }
        true
    }

    /// A fault waits and nothing is under way that could free a frame: the store is full, or everything is pinned,
    /// held, or metadata. Returns whether there is more to be done at once: a full store is tried once more, since the
    /// file system may have room by now.
    fn check_stuck(&mut self) -> bool {
        // The helper that unshares pages may itself be the one that waits for a frame.
        let helpless = self.unsharing.is_some_and(|(_, pages)| self.is_waited_for(&pages)) as usize;
        let is_idle = self.tags_free + helpless >= self.tags.len() && self.free_pages() == 0;
        if is_idle && self.quiet {
            // Nothing is evicted before the fork, and the thread that forks may be the one that waits.
            self.starved = true;
        } else if is_idle && self.count(State::Clean) == 0 {
            match self.store_full {
                Some(_) if !self.tried_again => {
                    self.tried_again = true;
                    self.store_full = None;
                    self.slots.grow_again();
                    return true;
                }
                Some(errno) => {
                    if self.give_up_duplicates() {
                        self.store_full = None;
                        return true;
                    }
                    self.fail(Fatal::StoreFull(Some(errno)));
                }
                None => self.starved = self.barren,
            }
        }
        false
    }

    /// Whether a postponed fault is about one of these pages.
    pub(crate) fn is_waited_for(&self, pages: &Pages) -> bool {
        (0..self.pending_len).any(|index| {
            let entry = self.pending.get((self.pending_head + index) % PENDING);
            entry.is_some_and(|entry| pages.contains(Page(entry.page)))
        })
    }

    /// Whether a thread waits for a frame although nothing more can be evicted: the limit is too low for what must
    /// stay. Raise it, or the thread waits until something changes.
    pub fn starved(&self) -> bool {
        self.starved
    }
}
