//! The budget of a session: pages of RAM that nobody holds, handed out and taken back without a lock.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Free pages of the budget, and who waits for them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Ledger {
    budget_pages: AtomicU64,
    /// The budget less what is pinned.
    total_pages: AtomicU64,
    free_pages: AtomicI64,
    /// Counts acquisitions and returns, so that an audit can tell whether it looked at one moment.
    pub(crate) changes: AtomicU64,
    peak_held: AtomicU64,
    starving: AtomicU32,
    engaged: AtomicU32,
    managed_pages: AtomicI64,
    peak_managed: AtomicU64,
    /// Bytes that may still be taken for compressed pages.
    zip_free: Room,
    /// Bytes that the files of the session's stores may still take on disk.
    store_free: Room,
    /// Bytes that all stores hold, and the most that they held at once.
    stored: AtomicI64,
    peak_stored: AtomicU64,
}

/// What the ledger keeps of all processes together, beside the pages of the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) starving: u32,
    pub(crate) engaged: u32,
    pub(crate) managed: i64,
    pub(crate) zip_free: i64,
    pub(crate) store_free: i64,
    pub(crate) stored: i64,
}

/// Bytes that are left of a limit.
#[derive(Debug, Default)]
#[repr(transparent)]
struct Room(AtomicI64);

impl Room {
    /// All of them, or none (false).
    fn take(&self, bytes: u64) -> bool {
        let enough = |free: i64| free.checked_sub_unsigned(bytes).filter(|rest| *rest >= 0);
        self.0.fetch_update(SeqCst, SeqCst, enough).is_ok()
    }
    fn put(&self, bytes: u64) {
        self.0.fetch_add(bytes as i64, SeqCst);
    }
    fn left(&self) -> u64 {
        self.0.load(SeqCst).max(0) as u64
    }
}

/// The least limit of a store: a file grows by 2 MiB at least.
const LEAST_STORE: u64 = 2 << 20;
/// A limit that no disk reaches, and that sums of it do not overflow.
const NO_LIMIT: u64 = 1 << 60;

/// What the files of stores may take at first, where the settings say so many bytes; 0 is no limit.
pub(crate) fn store_limit(bytes: u64) -> i64 {
    if bytes == 0 { NO_LIMIT as i64 } else { bytes.clamp(LEAST_STORE, NO_LIMIT) as i64 }
}

/// Most pages of a budget that may be pinned: a quarter of it, and 16 MiB, are kept for what can be paged, which needs room
/// to come and go.
pub const fn pinnable(budget_pages: u64) -> u64 {
    let quarter = budget_pages / 4;
    budget_pages.saturating_sub(if quarter > 4096 { quarter } else { 4096 })
}

impl Ledger {
    pub(crate) fn set_total(&self, pages: u64) {
        self.budget_pages.store(pages, SeqCst);
        self.total_pages.store(pages, SeqCst);
        self.free_pages.store(pages as i64, SeqCst);
    }
    /// The budget in pages.
    pub fn budget_pages(&self) -> u64 {
        self.budget_pages.load(SeqCst)
    }
    /// The part of the budget that serves memory which can be paged: all but what is pinned.
    pub fn total_pages(&self) -> u64 {
        self.total_pages.load(SeqCst)
    }
    pub(crate) fn set_zip(&self, bytes: u64) {
        self.zip_free.0.store(bytes as i64, SeqCst);
    }
    /// Takes bytes for compressed pages: all of them, or none (false).
    pub(crate) fn take_zip(&self, bytes: u64) -> bool {
        self.zip_free.take(bytes)
    }
    pub(crate) fn put_zip(&self, bytes: u64) {
        self.zip_free.put(bytes);
    }
    /// Bytes that nobody has taken for compressed pages.
    pub fn zip_free(&self) -> u64 {
        self.zip_free.left()
    }
    pub(crate) fn set_store(&self, free: i64) {
        self.store_free.0.store(free, SeqCst);
    }
    /// Takes bytes on disk: all of them, or none (false).
    pub(crate) fn take_store(&self, bytes: u64) -> bool {
        self.store_free.take(bytes)
    }
    pub(crate) fn put_store(&self, bytes: u64) {
        self.store_free.put(bytes);
    }
    /// Bytes that the files of the session's stores may still take on disk.
    pub fn store_free(&self) -> u64 {
        self.store_free.left()
    }
    /// Most bytes that the stores of all processes held at once.
    pub fn peak_stored(&self) -> u64 {
        self.peak_stored.load(SeqCst)
    }
    pub(crate) fn change_stored(&self, by: i64) {
        let now = self.stored.fetch_add(by, SeqCst) + by;
        if by > 0 && now > 0 && now as u64 > self.peak_stored.load(SeqCst) {
            self.peak_stored.fetch_max(now as u64, SeqCst);
        }
    }
    /// Pages that nobody holds; negative after [`Ledger::overdraw`].
    pub fn free_pages(&self) -> i64 {
        self.free_pages.load(SeqCst)
    }
    /// Most pages ever held at once, what is pinned among them.
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
    /// Replaces total and free pages, both as seen, by what is right; false when a number has changed since.
    pub(crate) fn correct(&self, seen: (u64, i64), right: (u64, i64)) -> bool {
        let total = self.total_pages.compare_exchange(seen.0, right.0, SeqCst, SeqCst);
        total.is_ok() && self.free_pages.compare_exchange(seen.1, right.1, SeqCst, SeqCst).is_ok()
    }
    /// Replaces the sums over all processes, as seen, by what is right, each unless it has changed since.
    pub(crate) fn correct_sums(&self, seen: Sums, right: Sums) {
        // One that has changed waits for the next audit.
        let _ = self.starving.compare_exchange(seen.starving, right.starving, SeqCst, SeqCst);
        let _ = self.engaged.compare_exchange(seen.engaged, right.engaged, SeqCst, SeqCst);
        let _ = self.managed_pages.compare_exchange(seen.managed, right.managed, SeqCst, SeqCst);
        let _ = self.zip_free.0.compare_exchange(seen.zip_free, right.zip_free, SeqCst, SeqCst);
        let _ = self.store_free.0.compare_exchange(seen.store_free, right.store_free, SeqCst, SeqCst);
        let _ = self.stored.compare_exchange(seen.stored, right.stored, SeqCst, SeqCst);
    }
    pub(crate) fn sums(&self) -> Sums {
        Sums {
            starving: self.starving.load(SeqCst),
            engaged: self.engaged.load(SeqCst),
            managed: self.managed_pages.load(SeqCst),
            zip_free: self.zip_free.0.load(SeqCst),
            store_free: self.store_free.0.load(SeqCst),
            stored: self.stored.load(SeqCst),
        }
    }
    /// Takes pages out of the budget for good, all of them or none; never more than [`pinnable`] allows.
    pub(crate) fn pin(&self, pages: u64) -> bool {
        let least = self.budget_pages() - pinnable(self.budget_pages());
        let rest = |total: u64| total.checked_sub(pages).filter(|rest| *rest >= least);
        if self.total_pages.fetch_update(SeqCst, SeqCst, rest).is_err() {
            return false;
        }
        let enough = |free: i64| free.checked_sub_unsigned(pages).filter(|rest| *rest >= 0);
        let taken = self.free_pages.fetch_update(SeqCst, SeqCst, enough).is_ok();
        if !taken {
            self.total_pages.fetch_add(pages, SeqCst);
        }
        taken
    }
    /// Changes the budget. What is held may then be more than there is; free pages are negative until it was given up.
    /// False when too little would be left beside what is pinned.
    pub(crate) fn set_budget(&self, pages: u64) -> bool {
        let before = self.budget_pages();
        let pinned = before.saturating_sub(self.total_pages());
        if pages < pinned.saturating_add((pages / 4).max(4096)) {
            return false;
        }
        let before = self.budget_pages.swap(pages, SeqCst);
        let by = pages as i64 - before as i64;
        self.total_pages.fetch_add(by as u64, SeqCst);
        self.free_pages.fetch_add(by, SeqCst);
        true
    }
    /// As [`Ledger::pin`], of pages that somebody holds who has to give them up first: fewer than none may be free then.
    pub(crate) fn pin_ahead(&self, pages: u64) -> bool {
        let least = (self.budget_pages() / 4).max(4096);
        let rest = |total: u64| total.checked_sub(pages).filter(|rest| *rest >= least);
        if self.total_pages.fetch_update(SeqCst, SeqCst, rest).is_err() {
            return false;
        }
        self.free_pages.fetch_sub(pages as i64, SeqCst);
        true
    }
    pub(crate) fn unpin(&self, pages: u64) {
        self.free_pages.fetch_add(pages as i64, SeqCst);
        self.total_pages.fetch_add(pages, SeqCst);
    }
    fn note_held(&self, free: i64) {
        let held = (self.budget_pages() as i64 - free).max(0) as u64;
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
        count(&self.starving, up);
    }
    pub(crate) fn change_engaged(&self, up: bool) {
        count(&self.engaged, up);
    }
}

/// One more or one less, never less than none: who was killed between its flag and the ledger was not counted.
fn count(number: &AtomicU32, up: bool) {
    if up {
        number.fetch_add(1, SeqCst);
    } else {
        let _ = number.fetch_update(SeqCst, SeqCst, |now| now.checked_sub(1));
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
    fn a_budget_shrinks_below_what_is_held_and_grows_again() {
        let ledger = Ledger::default();
        ledger.set_total(100_000);
        assert_eq!(ledger.take(60_000), 60_000);
        assert!(ledger.set_budget(50_000));
        assert_eq!((ledger.total_pages(), ledger.free_pages(), ledger.take(1)), (50_000, -10_000, 0));
        assert!(ledger.set_budget(70_000));
        assert_eq!(ledger.take(20_000), 10_000);
        assert!(!ledger.set_budget(4095) && ledger.budget_pages() == 70_000);
    }

    #[test]
    fn pinned_pages_are_no_part_of_the_budget() {
        let ledger = Ledger::default();
        ledger.set_total(100_000);
        assert_eq!(ledger.take(30_000), 30_000);
        assert!(!ledger.pin(71_000) && ledger.pin(60_000) && !ledger.pin(16_000));
        assert_eq!((ledger.budget_pages(), ledger.total_pages(), ledger.free_pages()), (100_000, 40_000, 10_000));
        ledger.unpin(60_000);
        assert_eq!((ledger.total_pages(), ledger.free_pages()), (100_000, 70_000));
        ledger.set_total(4096 + 512);
        assert!(!ledger.pin(1024) && ledger.pin(512));
    }

    #[test]
    fn compressed_pages_have_an_account_of_their_own() {
        let ledger = Ledger::default();
        ledger.set_zip(100);
        assert!(ledger.take_zip(60) && !ledger.take_zip(41) && ledger.take_zip(40) && !ledger.take_zip(1));
        ledger.put_zip(60);
        assert_eq!(ledger.zip_free(), 60);
    }

    #[test]
    fn files_take_no_more_than_their_limit() {
        let ledger = Ledger::default();
        ledger.set_store(store_limit(8 << 20));
        assert!(ledger.take_store(5 << 20) && !ledger.take_store((3 << 20) + 1) && ledger.take_store(3 << 20));
        assert!(!ledger.take_store(1));
        ledger.put_store(5 << 20);
        assert_eq!(ledger.store_free(), 5 << 20);
        assert_eq!((store_limit(1), store_limit(0) > i64::MAX / 16), (2 << 20, true));
        ledger.change_stored(30);
        ledger.change_stored(-20);
        ledger.change_stored(15);
        assert_eq!(ledger.peak_stored(), 30);
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
