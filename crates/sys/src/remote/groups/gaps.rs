//! Rows that nobody wants any more, and which groups are emptied for them.

use super::*;

impl Groups {
    /// Whether groups are to be used sparingly: at worst each has one column.
    pub(in crate::remote) fn are_few(&self) -> bool {
        self.taken > self.count as u64 * u64::from(ROWS) / 4 * 3
    }

    /// Whether there are so many gaps that some are to be filled before more are made: an eighth of what is stored.
    pub(in crate::remote) fn has_many_gaps(&self) -> bool {
        self.taken > self.live + self.live / 8 + FEW
    }

    /// Chooses groups to be emptied, when gaps are more than a tenth of what is stored, or a half where there is much room:
    /// those with the most. Returns whether there are any.
    pub(in crate::remote) fn choose_leaving(&mut self, roomy: bool) -> bool {
        const PARTS: usize = 16;
        let spare = self.live / if roomy { 2 } else { 10 } + FEW / 2;
        if self.taken <= self.live + spare {
            return false;
        }
        let excess = self.taken - self.live - spare / 2;
        let part = |it: &Group| (u64::from(it.live) * PARTS as u64 / it.taken().max(1)) as usize;
        let able = |it: &&Group| it.phase == Phase::Closed && !it.frozen && it.live > 0;
        let mut gaps = [0u64; PARTS + 1];
        for it in self.used().iter().filter(able) {
            if let Some(place) = gaps.get_mut(part(it)) {
                *place += it.taken() - u64::from(it.live);
            }
        }
        let (mut sum, mut limit) = (0, 0);
        while limit < PARTS && sum < excess {
            sum += gaps.get(limit).copied().unwrap_or(0);
            limit += 1;
        }
        let mut any = false;
        for it in self.used_mut() {
            if able(&&*it) && part(it) < limit {
                it.leaving = true;
                any = true;
            }
        }
        any
    }
}
