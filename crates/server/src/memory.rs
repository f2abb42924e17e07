//! The server's memory: segments of 2 MiB of fresh anonymous memory each. The kernel hands them out as zeros, and what is
//! given up is unmapped, so nobody ever reads what another has left.

use ream_sys::memory::MapSlice;
use ream_wire::{PAGE, SEAL};
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of a segment.
pub(crate) const SEGMENT: u32 = 512;
/// What a segment costs, with the seals of its pages, in bytes.
pub(crate) const COST: u64 = SEGMENT as u64 * (PAGE + SEAL) as u64;

/// Bytes of pages for which so much memory, or such a quota, is enough.
pub fn usable(bytes: u64) -> u64 {
    bytes / COST * SEGMENT as u64 * PAGE as u64
}

/// An account of bytes with a limit.
pub(crate) struct Account {
    limit: u64,
    used: AtomicU64,
}

impl Account {
    pub(crate) fn new(limit: u64) -> Account {
        Account { limit, used: AtomicU64::new(0) }
    }
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    /// Takes bytes if there are as many.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The pages of 512 slots.
pub(crate) struct Segment {
    pages: MapSlice<[u8; PAGE]>,
    seals: Box<[[u8; SEAL]; SEGMENT as usize]>,
    /// Bit by slot: it has been written.
    held: [u64; SEGMENT as usize / 64],
}

impl Segment {
    /// An empty one; `None` when the machine has no memory.
    pub(crate) fn new(large: bool) -> Option<Segment> {
        let pages = MapSlice::new(SEGMENT as usize).ok()?;
        if large {
            pages.prefer_large();
        }
        Some(Segment { pages, seals: Box::new([[0; SEAL]; SEGMENT as usize]), held: [0; SEGMENT as usize / 64] })
    }

    fn holds(&self, slot: usize) -> bool {
        self.held.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.iter().all(|word| *word == 0)
    }

    /// The seal of a slot that has been written.
    pub(crate) fn seal(&self, slot: usize) -> Option<&[u8; SEAL]> {
        if self.holds(slot) { self.seals.get(slot) } else { None }
    }

    /// The page of a slot that has been written.
    pub(crate) fn page(&self, slot: usize) -> Option<&[u8; PAGE]> {
        if self.holds(slot) { self.pages.get(slot) } else { None }
    }

    /// Keeps a page.
    pub(crate) fn write(&mut self, slot: usize, page: &[u8], seal: &[u8; SEAL]) {
        let (Some(place), Some(kept), Some(word)) =
            (self.pages.get_mut(slot), self.seals.get_mut(slot), self.held.get_mut(slot / 64))
        else {
            return;
        };
        if page.len() == PAGE {
            place.copy_from_slice(page);
            *kept = *seal;
            *word |= 1 << (slot % 64);
        }
    }

    /// Forgets a page. Its bytes can no longer be read by anybody, its own client included.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let Some(word) = self.held.get_mut(slot / 64) {
            *word &= !(1 << (slot % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_and_forgotten() {
        let mut segment = Segment::new(true).unwrap();
        assert!(segment.is_empty() && segment.page(5).is_none());
        segment.write(5, &[7; PAGE], &[1; SEAL]);
        assert_eq!((segment.page(5), segment.seal(5)), (Some(&[7; PAGE]), Some(&[1; SEAL])));
        assert!(segment.page(6).is_none() && segment.page(512).is_none());
        segment.write(512, &[7; PAGE], &[1; SEAL]);
        segment.write(7, &[7; 100], &[1; SEAL]);
        assert!(segment.page(7).is_none());
        segment.forget(5);
        assert!(segment.page(5).is_none() && segment.seal(5).is_none() && segment.is_empty());
    }

    #[test]
    fn accounts_hold() {
        let account = Account::new(10);
        assert!(account.take(10) && !account.take(1) && !account.take(u64::MAX));
        account.give(4);
        assert!(account.take(3) && !account.take(2));
        assert_eq!((account.used(), account.limit()), (9, 10));
    }
}
