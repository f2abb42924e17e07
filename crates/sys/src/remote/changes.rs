//! Which slots were written lately. What a read brings may be older than what was written while it was under way, and does not
//! open then; nobody wants it, and the server is not to blame.

use crate::Errno;
use crate::memory::MapSlice;

/// Changes that are remembered.
const MOST: u64 = 1024;

/// The last changes, and how many there were.
pub(super) struct Changes {
    ring: MapSlice<[u32; 3]>,
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
    pub(super) fn add(&mut self, table: u32, slot: u32, pages: u32) {
        if let Some(place) = self.ring.get_mut((self.count % MOST) as usize) {
            *place = [table, slot, pages];
        }
        self.count += 1;
    }

    /// Whether a slot was among them since there were so many; `None` when that is not known any more.
    pub(super) fn since(&self, count: u64, table: u32, slot: u32) -> Option<bool> {
        if self.count - count > MOST {
            return None;
        }
        Some((count..self.count).any(|number| {
            let [other, first, pages] = self.ring.get((number % MOST) as usize).copied().unwrap_or_default();
            other == table && (first..first + pages).contains(&slot)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_known() {
        let mut changes = Changes::new().unwrap();
        changes.add(0, 10, 4);
        let then = changes.count();
        assert_eq!(changes.since(then, 0, 10), Some(false));
        changes.add(0, 20, 4);
        changes.add(1, 30, 1);
        let all = [(0, 19), (0, 20), (0, 23), (0, 24), (0, 30), (1, 30)]
            .map(|(table, slot)| changes.since(then, table, slot));
        assert_eq!(all, [false, true, true, false, false, true].map(Some));
        assert_eq!(changes.since(0, 0, 13), Some(true));
        (0..MOST).for_each(|_| changes.add(0, 1, 1));
        assert_eq!(changes.since(then, 0, 20), None);
        assert_eq!(changes.since(changes.count() - MOST, 0, 1), Some(true));
    }
}
