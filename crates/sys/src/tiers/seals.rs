//! What is known of a sealed store: the key to its pages, how often each slot was written, and the seals: 20 bytes a slot
//! (0.49 %), in memory that a forked child inherits. The seals lie here and not in the file: there is no room for them in
//! slots of 4096 bytes, and whoever changes the file cannot change them.

use crate::Errno;
use crate::memory::{self, Advice, MapSlice, Zeroable};
use ream_wire::seal::{KEY, PageKey, Place};

/// Bytes of a seal.
const SEAL: usize = 16;

/// The own store's, or an ancestor's.
#[derive(Clone, Copy)]
pub(super) struct Seals {
    key: [u8; KEY],
    /// The number of the store, one process's.
    store: u32,
    slots: usize,
    versions: usize,
    seals: usize,
}

// SAFETY: integers.
unsafe impl Zeroable for Seals {}

impl Seals {
    /// None: nothing is sealed.
    pub(super) const NONE: Seals = Seals { key: [0; KEY], store: 0, slots: 0, versions: 0, seals: 0 };

    /// Of so many slots, none of which was written, for ever: nothing unmaps them.
    pub(super) fn new(slots: u32, key: [u8; KEY], store: u32) -> Result<Seals, Errno> {
        let versions = MapSlice::<u32>::new(slots as usize)?.leak();
        let seals = MapSlice::<[u8; SEAL]>::new(slots as usize)?.leak();
        Ok(Seals {
            key,
            store,
            slots: slots as usize,
            versions: versions.as_mut_ptr().expose_provenance(),
            seals: seals.as_mut_ptr().expose_provenance(),
        })
    }

    pub(super) fn key(&self) -> Option<PageKey> {
        PageKey::new(&self.key)
    }

    fn of(&self, slot: u32) -> Option<(*mut u32, *mut [u8; SEAL])> {
        let index = slot as usize;
        let place = || {
            // SAFETY: mapped by `new` for ever, or inherited at the same place, and within it.
            unsafe {
                (
                    core::ptr::with_exposed_provenance_mut::<u32>(self.versions).add(index),
                    core::ptr::with_exposed_provenance_mut::<[u8; SEAL]>(self.seals).add(index),
                )
            }
        };
        (index < self.slots).then(place)
    }

    /// Seals what is to be written to a slot, where it is. False when the slot was written four thousand million times: its
    /// nonces are used up.
    pub(super) fn seal(&mut self, key: &PageKey, slot: u32, page: &mut [u8]) -> bool {
        let Some((version, seal)) = self.of(slot) else { return false };
        // SAFETY: see `of`; reached through this value only.
        unsafe {
            let Some(next) = (*version).checked_add(1) else { return false };
            *version = next;
            let place = Place { lease: 0, store: self.store, slot, version: next };
            key.seal(&place, page).map(|made| *seal = made).is_some()
        }
    }

    /// Opens what was read from a slot, where it is; zeros when it is not what was sealed there last.
    pub(super) fn open(&self, key: &PageKey, slot: u32, page: &mut [u8]) {
        let Some((version, seal)) = self.of(slot) else { return page.fill(0) };
        // SAFETY: see `of`.
        let (version, seal) = unsafe { (*version, *seal) };
        // What was never written is read along at times.
        if version == 0 {
            return page.fill(0);
        }
        key.open(&Place { lease: 0, store: self.store, slot, version }, page, &seal);
    }
}

/// Keys are left out of core dumps.
pub(super) fn conceal<T: Zeroable>(all: &MapSlice<T>) {
    let (start, bytes) = (all.as_ptr().expose_provenance(), all.len() * size_of::<T>());
    // SAFETY: what is left out of a dump changes nothing else.
    let _ = unsafe { memory::advise(start, bytes.next_multiple_of(4096), Advice::DontDump) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_open_as_they_were_written_last() {
        let mut seals = Seals::new(100, [3; KEY], 1).unwrap();
        let key = seals.key().unwrap();
        let clear = [7u8; 4096];
        let (mut first, mut second) = (clear, clear);
        assert!(seals.seal(&key, 5, &mut first));
        let mut back = first;
        seals.open(&key, 5, &mut back);
        assert_eq!(back, clear);
        assert!(seals.seal(&key, 5, &mut second) && second != first);
        // The older one, another slot's, one that was never written, one that is not there.
        for (slot, mut page) in [(5, first), (6, second), (200, second)] {
            seals.open(&key, slot, &mut page);
            assert_eq!(page, [0; 4096], "{slot}");
        }
        assert!(!seals.seal(&key, 100, &mut second));
        // SAFETY: within it.
        unsafe { *seals.of(9).unwrap().0 = u32::MAX };
        assert!(!seals.seal(&key, 9, &mut second));
    }
}
