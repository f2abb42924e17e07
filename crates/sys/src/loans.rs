//! Memory lent to the kernel for the time of a call. A userfaultfd for ordinary users serves no accesses by the kernel
//! itself: what a call reads or writes must be resident before it, and stay so until it returns.
//!
//! A borrower writes its range into a slot, waits until the pager is between two evictions, and then touches the pages:
//! those that the pager took away before it knew of the range come back, and no others go. The pager reads all slots at
//! each eviction. Both sides order their two steps by sequentially consistent operations, so that one of them sees the
//! other (Dekker's argument).

use crate::process;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use ream_page::{Page, Run};

/// Loans at a time, of all threads together.
const SLOTS: usize = 4096;
/// Stands for a first page while the rest of a slot is not written yet.
const CLAIMED: u64 = u64::MAX;

struct Slot {
    /// First page, plus one; 0 when free.
    start: AtomicU64,
    pages: AtomicU64,
    /// Number of the next slot of the same borrower.
    next: AtomicU32,
}

impl Slot {
    #[allow(clippy::declare_interior_mutable_const, reason = "each use makes a slot of its own")]
    const FREE: Slot = Slot { start: AtomicU64::new(0), pages: AtomicU64::new(0), next: AtomicU32::new(0) };
}

/// Slots of one borrower: the number of the first, or 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Chain(pub u32);

/// All loans of a process.
pub struct Loans {
    slots: [Slot; SLOTS],
    /// Slots ever used at the same time: those behind are free.
    most: AtomicU32,
    /// Odd while the pager evicts.
    evictions: AtomicU32,
}

impl Loans {
    /// None.
    pub const fn new() -> Loans {
        Loans { slots: [const { Slot::FREE }; SLOTS], most: AtomicU32::new(0), evictions: AtomicU32::new(0) }
    }

    /// Adds a run to a borrower's chain; it takes effect with [`Loans::settle`]. `None` when all slots are taken.
    pub fn lend(&self, run: Run, chain: Chain) -> Option<Chain> {
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.start.load(SeqCst) != 0 || slot.start.compare_exchange(0, CLAIMED, SeqCst, SeqCst).is_err() {
                continue;
            }
            let number = index as u32 + 1;
            self.most.fetch_max(number, SeqCst);
            slot.pages.store(run.pages, SeqCst);
            slot.next.store(chain.0, SeqCst);
            slot.start.store(run.start.0 + 1, SeqCst);
            return Some(Chain(number));
        }
        None
    }

    /// Waits until no eviction is under way that began before the loans were written. Afterwards pages of theirs that
    /// are resident stay so.
    pub fn settle(&self) {
        let began = self.evictions.load(SeqCst);
        if began % 2 == 0 {
            return;
        }
        let mut turns = 0;
        while self.evictions.load(SeqCst) == began {
            turns += 1;
            if turns % 64 == 0 {
                process::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// Ends all loans of a chain.
    pub fn take_back(&self, chain: Chain) {
        let mut number = chain.0;
        while let Some(slot) = (number as usize).checked_sub(1).and_then(|index| self.slots.get(index)) {
            number = slot.next.load(SeqCst);
            slot.start.store(0, SeqCst);
        }
    }

    /// Ends all loans: of a forked child, whose other threads stayed behind.
    pub fn forget_all(&self) {
        for slot in &self.slots {
            slot.start.store(0, SeqCst);
        }
        self.evictions.store(0, SeqCst);
    }

    /// The pager is about to evict pages of a run: how many of them, counted from the first, are lent to nobody. What
    /// is lent from now on waits for [`Loans::evicted`].
    pub(crate) fn evict(&self, run: Run) -> u64 {
        self.evictions.fetch_add(1, SeqCst);
        let most = self.most.load(SeqCst) as usize;
        let mut free = run.pages;
        for slot in self.slots.iter().take(most) {
            let start = slot.start.load(SeqCst);
            if start == 0 || start == CLAIMED {
                continue;
            }
            let lent = Run { start: Page(start - 1), pages: slot.pages.load(SeqCst) }.and(run);
            if lent.pages > 0 {
                free = free.min(lent.start.0 - run.start.0);
            }
        }
        free
    }

    /// The eviction is over.
    pub(crate) fn evicted(&self) {
        self.evictions.fetch_add(1, SeqCst);
    }
}

impl Default for Loans {
    fn default() -> Loans {
        Loans::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn run(start: u64, pages: u64) -> Run {
        Run { start: Page(start), pages }
    }

    #[test]
    fn what_is_lent_is_not_evicted() {
        let loans = Loans::new();
        let free = |start, pages| {
            let free = loans.evict(run(start, pages));
            loans.evicted();
            free
        };
        assert_eq!(free(0, 8), 8);
        let chain = loans.lend(run(5, 2), Chain::default()).unwrap();
        let chain = loans.lend(run(20, 1), chain).unwrap();
        loans.settle();
        assert_eq!((free(0, 8), free(5, 3), free(7, 10), free(6, 1), free(0, 5)), (5, 0, 10, 0, 5));
        assert_eq!((free(10, 20), free(20, 1)), (10, 0));
        let other = loans.lend(run(6, 1), Chain::default()).unwrap();
        loans.take_back(chain);
        assert_eq!((free(0, 8), free(20, 1)), (6, 1));
        loans.take_back(other);
        loans.take_back(Chain::default());
        assert_eq!(free(0, 8), 8);
    }

    #[test]
    fn slots_are_used_again_and_may_run_out() {
        let loans = Loans::new();
        let mut chain = Chain::default();
        for page in 0..SLOTS as u64 {
            chain = loans.lend(run(page, 1), chain).unwrap();
        }
        assert_eq!(loans.lend(run(9, 1), Chain::default()), None);
        loans.take_back(chain);
        assert_eq!(loans.lend(run(9, 1), Chain::default()), Some(Chain(1)));
        loans.forget_all();
        assert_eq!(loans.evict(run(9, 1)), 1);
    }

    /// Borrowers and an evictor on a model of memory: no page is away while it is lent and has been touched.
    #[test]
    fn no_page_goes_away_while_it_is_lent() {
        use core::sync::atomic::AtomicBool;
        static LOANS: Loans = Loans::new();
        static RESIDENT: [AtomicBool; 8] = [const { AtomicBool::new(true) }; 8];
        static STOP: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0;
                while !STOP.load(SeqCst) {
                    turn += 1;
                    let page = turn % 8;
                    if LOANS.evict(run(page, 1)) > 0 {
                        RESIDENT[page as usize].store(false, SeqCst);
                    }
                    LOANS.evicted();
                }
            });
            let borrower = |seed: u64| {
                for turn in 0..20_000u64 {
                    let page = (turn * 5 + seed) % 8;
                    let chain = LOANS.lend(run(page, 1), Chain::default()).unwrap();
                    LOANS.settle();
                    RESIDENT[page as usize].store(true, SeqCst);
                    for _ in 0..20 {
                        assert!(RESIDENT[page as usize].load(SeqCst), "it went away");
                    }
                    LOANS.take_back(chain);
                }
            };
            let others: [_; 2] = [1, 4].map(|seed| scope.spawn(move || borrower(seed)));
            let failed = others.into_iter().any(|thread| thread.join().is_err());
            STOP.store(true, SeqCst);
            assert!(!failed);
        });
    }
}
