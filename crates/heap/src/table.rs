//! Which large block begins at an address: a table by 2 MiB block number, two levels over the address space that can be managed.
//! Lookups, insertions and removals take no lock; second-level tables are mapped on demand and kept.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use ream_page::{ADDRESS_BITS, BLOCK_BYTES, PAGE_BYTES};
use ream_sys::memory::{self, Protection};

const ENTRIES: usize = 1 << 13;
const ENTRIES_MASK: usize = ENTRIES - 1;
/// Second-level tables.
const LEAVES: usize = (1 << ADDRESS_BITS) / BLOCK_BYTES / ENTRIES;

/// Bit of a length that says that the block is a plain one. Lengths are whole pages.
const PLAIN: usize = 1;

/// One second-level table: 16 GiB of address space.
struct Leaf {
    /// Length in bytes of the block that begins here, 0 for none; with [`PLAIN`].
    lengths: [AtomicU64; ENTRIES],
}

/// Lengths of blocks by their address, which is a multiple of 2 MiB.
pub(crate) struct Table {
    leaves: [AtomicPtr<Leaf>; LEAVES],
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table { leaves: [const { AtomicPtr::new(null_mut()) }; LEAVES] }
    }

    fn slot(&self, address: usize) -> Option<&AtomicU64> {
        let block = address / BLOCK_BYTES;
        let leaf = self.leaves.get(block / ENTRIES)?.load(Ordering::Acquire);
        // SAFETY: null, or a table that was published whole and is never unmapped.
        let leaf = unsafe { leaf.as_ref() }?;
        leaf.lengths.get(block & ENTRIES_MASK)
    }

    /// Length of the block at `address`, if one begins there.
    pub(crate) fn get(&self, address: usize) -> Option<usize> {
        let length = self.slot(address)?.load(Ordering::Acquire) as usize & !PLAIN;
        (length != 0).then_some(length)
    }

    /// Whether the block at `address` is a plain one: not managed, and not put on large pages.
    pub(crate) fn is_plain(&self, address: usize) -> bool {
        self.slot(address).is_some_and(|slot| slot.load(Ordering::Acquire) as usize & PLAIN != 0)
    }

    /// The first block that begins at `address` or behind it, with its length, and whether it is plain.
    pub(crate) fn next(&self, address: usize) -> Option<(usize, usize, bool)> {
        let mut block = address.div_ceil(BLOCK_BYTES);
        while let Some(leaf) = self.leaves.get(block / ENTRIES) {
            // SAFETY: null, or a table that was published whole and is never unmapped.
            if let Some(leaf) = unsafe { leaf.load(Ordering::Acquire).as_ref() } {
                for slot in leaf.lengths.get(block & ENTRIES_MASK..).unwrap_or(&[]) {
                    let length = slot.load(Ordering::Acquire) as usize;
                    if length != 0 {
                        return Some((block * BLOCK_BYTES, length & !PLAIN, length & PLAIN != 0));
                    }
                    block += 1;
                }
            } else {
                block = (block / ENTRIES + 1) * ENTRIES;
            }
        }
        None
    }

    /// Takes the block at `address` out and returns its length, and whether it is plain. Of two threads that do so at once,
    /// one gets it.
    pub(crate) fn take(&self, address: usize) -> Option<(usize, bool)> {
        let length = self.slot(address)?.swap(0, Ordering::AcqRel) as usize;
        (length != 0).then_some((length & !PLAIN, length & PLAIN != 0))
    }

    /// Enters a block, or changes its length. False when there is no memory for a table, or the address is too high.
    pub(crate) fn set(&self, address: usize, length: usize, plain: bool) -> bool {
        let length = length | if plain { PLAIN } else { 0 };
        let Some(place) = self.leaves.get(address / BLOCK_BYTES / ENTRIES) else { return false };
        if place.load(Ordering::Acquire).is_null() {
            let bytes = size_of::<Leaf>();
            let Ok(fresh) = memory::map(bytes, PAGE_BYTES, Protection::ReadWrite) else { return false };
            let leaf: *mut Leaf = fresh.as_ptr().cast();
            if place.compare_exchange(null_mut(), leaf, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread was first; nobody has seen ours.
                let _ = unsafe { memory::unmap(fresh.as_ptr(), bytes) };
            }
        }
        let Some(slot) = self.slot(address) else { return false };
        slot.store(length as u64, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_at_both_ends_of_the_address_space() {
        let table = Table::new();
        let last = (1 << ADDRESS_BITS) - BLOCK_BYTES;
        for address in [0, BLOCK_BYTES, 0x7f00_0020_0000, last] {
            assert_eq!(table.get(address), None);
            assert!(table.set(address, address / 2 + 4096, address == BLOCK_BYTES));
            assert_eq!(table.get(address), Some(address / 2 + 4096));
        }
        assert_eq!(table.next(0), Some((0, 4096, false)));
        assert_eq!(table.next(1), Some((BLOCK_BYTES, BLOCK_BYTES / 2 + 4096, true)));
        assert_eq!(table.next(BLOCK_BYTES + 1), Some((0x7f00_0020_0000, 0x7f00_0020_0000 / 2 + 4096, false)));
        assert_eq!(table.next(last), Some((last, last / 2 + 4096, false)));
        assert_eq!(table.next(last + 1), None);
        assert_eq!(table.next(usize::MAX), None);
        assert!(table.is_plain(BLOCK_BYTES) && !table.is_plain(last));
        assert_eq!(table.take(BLOCK_BYTES), Some((BLOCK_BYTES / 2 + 4096, true)));
        assert_eq!(table.take(BLOCK_BYTES), None);
        assert_eq!(table.get(0), Some(4096));
        assert!(!table.set(1 << ADDRESS_BITS, 4096, false));
        assert_eq!(table.get(usize::MAX), None);
    }

    #[test]
    fn of_two_that_take_one_gets_it() {
        extern crate std;
        let table = Table::new();
        let won = std::sync::atomic::AtomicUsize::new(0);
        for round in 1..500usize {
            table.set(round * BLOCK_BYTES, round * 4096, false);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        if table.take(round * BLOCK_BYTES).is_some() {
                            won.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert_eq!(won.load(Ordering::SeqCst), round);
        }
    }
}
