//! Which slots were written or moved lately. What a read brings may be older than what was written while it was under way, and
//! does not open then; nobody wants it, and the server is not to blame. What was moved meanwhile is had from where it is now.

use crate::Errno;
use crate::memory::MapSlice;

/// Changes that are remembered.
const MOST: u64 = 1024;

/// What has become of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It is where it was, as far as anybody knows.
    No,
    /// What was written is somewhere else now, or there as well.
    Moved,
    /// It was written anew.
    Written,
}

/// The last changes, and how many there were.
pub(super) struct Changes {
    ring: MapSlice<[u32; 4]>,
    count: u64,
}

impl Changes {
    pub(super) fn new() -> Result<Changes, Errno> {
        Ok(Changes { ring: MapSlice::new(MOST as usize)?, count: 0 })
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Slots of a store have got other holders.
    pub(super) fn add(&mut self, table: u32, slot: u32, pages: u32, change: Change) {
        if let Some(place) = self.ring.get_mut((self.count % MOST) as usize) {
            *place = [table, slot, pages, u32::from(change == Change::Written)];
        }
        self.count += 1;
    }

    /// What has become of a slot since there were so many; `None` when that is not known any more.
    pub(super) fn since(&self, count: u64, table: u32, slot: u32) -> Option<Change> {
        if self.count - count > MOST {
            return None;
        }
        let mut change = Change::No;
        for number in count..self.count {
            let [other, first, pages, written] = self.ring.get((number % MOST) as usize).copied().unwrap_or_default();
            if other == table && (first..first + pages).contains(&slot) {
                if written != 0 {
                    return Some(Change::Written);
                }
                change = Change::Moved;
            }
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_known() {
        let mut changes = Changes::new().unwrap();
        changes.add(0, 10, 4, Change::Written);
        let then = changes.count();
        assert_eq!(changes.since(then, 0, 10), Some(Change::No));
        changes.add(0, 20, 4, Change::Written);
        changes.add(1, 30, 1, Change::Moved);
        changes.add(0, 23, 2, Change::Moved);
        let all = [(0, 19), (0, 20), (0, 23), (0, 24), (0, 30), (1, 30)]
            .map(|(table, slot)| changes.since(then, table, slot));
        // Written and moved: nobody wants what was there before.
        let expected = [Change::No, Change::Written, Change::Written, Change::Moved, Change::No, Change::Moved];
        assert_eq!(all, expected.map(Some));
        assert_eq!(changes.since(0, 0, 13), Some(Change::Written));
        (0..MOST).for_each(|_| changes.add(0, 1, 1, Change::Written));
        assert_eq!(changes.since(then, 0, 20), None);
        assert_eq!(changes.since(changes.count() - MOST, 0, 1), Some(Change::Written));
    }
}
