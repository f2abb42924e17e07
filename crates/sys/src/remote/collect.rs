//! Where pages have a sum: those of groups that lost a column, or their sum, or are mostly gaps, are copied into new rows; those
//! of an ancestor's groups, which its descendants do not change, to two servers each.

use super::groups::Phase;
use super::mend::{AGAIN, Found, LOG, LOOK};
use super::{CHUNK, Remote};
use crate::process;

impl Remote {
    /// Looks for a run of slots that are to be copied.
    pub(super) fn find_row_job(&mut self) -> Found {
        let whole = self.can_make_whole();
        let mut looked = 0;
        while looked < LOOK {
            let (index, first) = self.mend.place();
            let Some(table) = self.tables.get(index as usize).filter(|_| (index as usize) < self.table_count) else {
                let found = self.mend.begin_again();
                if !found {
                    // What could not be copied keeps nobody from writing, nor other groups from being chosen.
                    self.log.leaving = false;
                    let refused = self.mend.take_refused();
                    self.log.choose_at = if refused { process::now_us() + AGAIN } else { 0 };
                }
                return if found { Found::More } else { Found::Nothing };
            };
            let Some(groups) = table.groups() else { return Found::Nothing };
            let wanted = |slot: &u32| {
                let Some((server, spoilt)) = table.column_of(*slot) else { return false };
                let Some(it) = groups.of(*slot) else { return false };
                let there = it.lost >> server & 1 == 0 && !spoilt || it.is_rebuildable();
                let whole_here = it.is_whole() && !it.depends_on(groups.leaving);
                let due = if index == 0 {
                    it.phase == Phase::Closed && (it.leaving || !whole_here && whole)
                } else {
                    let copies = table.copies_of(*slot) as u8;
                    let stays = whole_here && !spoilt && copies & groups.leaving == 0;
                    !stays && (copies & !groups.leaving).count_ones() < 2
                };
                due && there
            };
            let end = table.end.max(first).min(first + LOOK);
            let Some(slot) = (first..end).find(wanted) else {
                looked += end - first + 1;
                self.mend.go_on_at(if end >= table.end { (index + 1, 0) } else { (index, end) });
                continue;
            };
            looked += slot - first + 1;
            let copies = table.copies_of(slot);
            let alike = |slot: &u32| wanted(slot) && table.copies_of(*slot) == copies;
            let pages = (slot..end.min(slot + CHUNK)).take_while(alike).count() as u32;
            let there = table.column_of(slot).map_or(0, |(server, _)| 1 << server);
            self.mend.go_on_at((index, slot + pages));
            if self.mend.copies(index, slot, pages) {
                continue;
            }
            let target =
                if index == 0 { Some(LOG) } else { self.choose(copies | there).or_else(|| self.choose(copies)) };
            let target = target.and_then(|target| if target == LOG { Some(LOG) } else { self.attic(index, target) });
            let Some(target) = target else { continue };
            return self.mend.found(index, slot, pages, target);
        }
        Found::More
    }
}
