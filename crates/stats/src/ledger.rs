//! The budget of a session: pages of RAM that nobody holds, handed out and taken back without a lock.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Free pages of the budget, and who waits for them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Ledger {
    total_pages: AtomicU64,
    free_pages: AtomicI64,
    /// Counts acquisitions and returns, so that an audit can tell whether it looked at one moment.
    pub(crate) changes: AtomicU64,
    peak_held: AtomicU64,
    starving: AtomicU32,
    engaged: AtomicU32,
    managed_pages: AtomicI64,
    peak_managed: AtomicU64,
}

impl Ledger {
    pub(crate) fn set_total(&self, pages: u64) {
        self.total_pages.store(pages, SeqCst);
        self.free_pages.store(pages as i64, SeqCst);
    }
    /// The budget in pages.
    pub fn total_pages(&self) -> u64 {
        self.total_pages.load(SeqCst)
    }
    /// Pages that nobody holds; negative after [`Ledger::overdraw`].
    pub fn free_pages(&self) -> i64 {
        self.free_pages.load(SeqCst)
    }
    /// Most pages ever held at once.
    pub fn peak_held(&self) -> u64 {
        self.peak_held.load(SeqCst)
    }
    /// Takes up to `pages`, and returns how many it got.
    pub(crate) fn take(&self, pages: u64) -> u64 {
        let mut free = self.free_pages.load(SeqCst);
        loop {
            let granted = pages.min(free.max(0) as u64);
            if granted == 0 {
                return 0;
            }
            match self.free_pages.compare_exchange_weak(free, free - granted as i64, SeqCst, SeqCst) {
                Ok(_) => {
                    self.note_held(free - granted as i64);
                    return granted;
                }
                Err(now) => free = now,
            }
        }
    }
    /// Takes all of `pages` even if that leaves less than nothing: for memory that is in RAM already.
    pub(crate) fn take_all(&self, pages: u64) {
        let before = self.free_pages.fetch_sub(pages as i64, SeqCst);
        self.note_held(before - pages as i64);
    }
    pub(crate) fn put(&self, pages: u64) {
        self.free_pages.fetch_add(pages as i64, SeqCst);
    }
    /// Replaces `seen` by `right`; false when the number has changed since.
    pub(crate) fn correct(&self, seen: i64, right: i64) -> bool {
        self.free_pages.compare_exchange(seen, right, SeqCst, SeqCst).is_ok()
    }
    fn note_held(&self, free: i64) {
        let held = (self.total_pages() as i64 - free).max(0) as u64;
        if held > self.peak_held.load(SeqCst) {
            self.peak_held.fetch_max(held, SeqCst);
        }
    }
    /// Processes that wait for pages; while there are any, others give back what they can spare.
    pub fn starving(&self) -> u32 {
        self.starving.load(SeqCst)
    }
    /// Processes whose memory is being paged.
    pub fn engaged(&self) -> u32 {
        self.engaged.load(SeqCst)
    }
    /// Pages that all processes manage.
    pub fn managed_pages(&self) -> u64 {
        self.managed_pages.load(SeqCst).max(0) as u64
    }
    /// Most pages that all processes managed at once.
    pub fn peak_managed(&self) -> u64 {
        self.peak_managed.load(SeqCst)
    }
    pub(crate) fn change_managed(&self, by: i64) {
        let now = self.managed_pages.fetch_add(by, SeqCst) + by;
        if by > 0 && now as u64 > self.peak_managed.load(SeqCst) {
            self.peak_managed.fetch_max(now as u64, SeqCst);
        }
    }
    pub(crate) fn change_starving(&self, up: bool) {
        if up {
            self.starving.fetch_add(1, SeqCst);
        } else {
            self.starving.fetch_sub(1, SeqCst);
        }
    }
    pub(crate) fn change_engaged(&self, up: bool) {
        if up {
            self.engaged.fetch_add(1, SeqCst);
        } else {
            self.engaged.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_what_is_there_and_no_more() {
        let ledger = Ledger::default();
        ledger.set_total(100);
        assert_eq!(ledger.take(60), 60);
        assert_eq!(ledger.take(60), 40);
        assert_eq!(ledger.take(1), 0);
        ledger.put(5);
        assert_eq!(ledger.take(60), 5);
        assert_eq!(ledger.peak_held(), 100);
    }

    #[test]
    fn overdrawn_grants_nothing_until_repaid() {
        let ledger = Ledger::default();
        ledger.set_total(10);
        ledger.take_all(15);
        assert_eq!(ledger.free_pages(), -5);
        assert_eq!(ledger.take(1), 0);
        ledger.put(6);
        assert_eq!(ledger.take(9), 1);
        assert_eq!(ledger.peak_held(), 15);
    }
}
