//! Where the pages of a store lie when one of each group's servers keeps a sum (`--parity`): parity logging, after Markatos and
//! Dramitinos (USENIX 1996).
//!
//! A group has a column of rows at each of its servers. Pages go to the next free rows, whatever their slots; nothing is
//! ever overwritten. One column holds, row by row, the exclusive or of the others, seals included: what any one
//! server had can be computed from what the others have. The sum is kept here until its group is full, and then sent. A
//! page that is written anew leaves a gap; a group of nothing but gaps is free again, and one of many gaps is emptied.

use crate::Errno;
use crate::memory::{MapSlice, Zeroable};
use ream_page::PAGE_BYTES;
use ream_stats::SERVERS;
use ream_wire::SEAL;
use ream_wire::message::SLOTS;

/// Rows of a group: what is sent at once.
pub(super) const ROWS: u32 = super::CHUNK;
/// Sums that are kept here at once.
const SUMS: usize = 8;
/// Of those, at most so many that a server had no room for: the others are needed to copy their pages.
const KEPT: usize = SUMS / 2;
/// A row of a sum: a page, and its seal.
pub(super) const ROW: usize = PAGE_BYTES + SEAL;
/// Gaps that are always bearable, in pages.
const FEW: u64 = 1024;
/// No server.
const NOBODY: u8 = u8::MAX;
/// No group.
const NONE: u32 = u32::MAX;

/// What becomes of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    Free,
    /// It is being filled.
    Open,
    /// Its sum is still to be sent, or to be answered.
    Closing,
    Closed,
}

/// Rows at several servers.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) phase: Phase,
    /// Bit by server: it has a column; and of those, it was lost.
    pub(super) members: u8,
    pub(super) lost: u8,
    /// Who has the sum, or is to have it.
    sum: u8,
    /// One more than the place of the sum here; 0 when it is not here.
    memory: u8,
    /// A child may read it: it stays as it is.
    frozen: bool,
    /// It is to be emptied, since most of it is gaps.
    pub(super) leaving: bool,
    /// Its sum is on its way.
    pub(super) sending: bool,
    /// It is among those that may be free.
    listed: bool,
    /// Rows that are taken of each column.
    fill: [u8; SERVERS],
    /// Pages in it that are the last of their slots.
    pub(super) live: u16,
    /// Messages with pages of it, or its sum, that are not answered yet.
    pub(super) open: u16,
    /// Reads of it that are under way.
    reads: u16,
    /// The next of those that may be free.
    next: u32,
}

// SAFETY: zero is a group that is free.
unsafe impl Zeroable for Group {}

const FREE: Group = Group {
    phase: Phase::Free,
    members: 0,
    lost: 0,
    sum: NOBODY,
    memory: 0,
    frozen: false,
    leaving: false,
    sending: false,
    listed: false,
    fill: [0; SERVERS],
    live: 0,
    open: 0,
    reads: 0,
    next: 0,
};

impl Group {
    /// Who has the sum; `None` while it is here, or when there is none.
    pub(super) fn sum_at(&self) -> Option<usize> {
        let there = self.phase == Phase::Closed && self.memory == 0 && self.sum != NOBODY;
        (there && self.lost >> self.sum & 1 == 0).then_some(self.sum.into())
    }

    /// Who is to get the sum that is here.
    pub(super) fn sum_for(&self) -> Option<usize> {
        (self.memory != 0 && self.sum != NOBODY).then_some(self.sum.into())
    }

    fn has_sum(&self) -> bool {
        self.memory != 0 || self.sum_at().is_some()
    }

    /// Bit by server: it had pages, which are lost.
    fn lost_columns(&self) -> u8 {
        let filled = (0u8..).zip(self.fill).fold(0, |all, (index, rows)| all | u8::from(rows > 0) << index);
        self.lost & filled
    }

    /// Whether any one server may be lost.
    fn is_safe(&self) -> bool {
        self.lost_columns() == 0 && self.has_sum()
    }

    /// The same, and nothing has to be done for it. (It has when nobody took the sum, which is here for that reason.)
    pub(super) fn is_whole(&self) -> bool {
        self.is_safe() && !self.is_kept()
    }

    /// The sum is here, and nobody is to have it.
    fn is_kept(&self) -> bool {
        self.phase == Phase::Closed && self.memory != 0
    }

    /// Whether a lost column can be computed.
    pub(super) fn is_rebuildable(&self) -> bool {
        self.lost_columns().count_ones() <= 1 && self.has_sum()
    }

    /// Rows of a server's column that are taken.
    pub(super) fn rows_of(&self, server: usize) -> u32 {
        self.fill.get(server).copied().unwrap_or(0).into()
    }

    /// Whether one of these servers has something that pages depend on.
    pub(super) fn depends_on(&self, who: u8) -> bool {
        let filled = (0u8..).zip(self.fill).fold(0, |all, (index, rows)| all | u8::from(rows > 0) << index);
        let sum = if self.sum == NOBODY { 0 } else { 1 << self.sum };
        self.phase != Phase::Free && self.members & !self.lost & who & (filled | sum) != 0
    }

    /// Rows of the sum.
    pub(super) fn rows(&self) -> u32 {
        self.fill.iter().copied().max().unwrap_or(0).into()
    }

    fn taken(&self) -> u64 {
        self.fill.iter().map(|rows| u64::from(*rows)).sum()
    }

    /// Whether it holds nothing that anybody wants or is at work for.
    fn is_empty(&self) -> bool {
        self.phase == Phase::Closed && !self.frozen && (self.live, self.open, self.reads) == (0, 0, 0)
    }
}

/// Rows for pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) group: u32,
    pub(super) server: usize,
    /// The first, of all rows of the store: the slot there.
    pub(super) row: u32,
    pub(super) pages: u32,
}

/// The groups of a store, and in which row each of its slots is. Inherited by a forked child, which changes them for itself.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    rows: usize,
    slots: usize,
    list: usize,
    count: usize,
    sums: usize,
    /// Bit by place: a sum is there.
    used_sums: u8,
    /// The one that is being filled, before which none is free, and from which on none was ever used.
    current: u32,
    cursor: u32,
    end: u32,
    /// Bit by server: it is about to end.
    pub(super) leaving: u8,
    /// Head of those that may be free.
    listed: u32,
    /// Rows that are taken, and pages in them that are the last of their slots.
    pub(super) taken: u64,
    pub(super) live: u64,
}

impl Groups {
    /// None: pages have no sum.
    pub(super) const NONE: Groups = Groups {
        rows: 0,
        slots: 0,
        list: 0,
        count: 0,
        sums: 0,
        used_sums: 0,
        current: NONE,
        cursor: 0,
        end: 0,
        leaving: 0,
        listed: NONE,
        taken: 0,
        live: 0,
    };

    /// For so many slots, for ever: nothing unmaps it.
    pub(super) fn new(slots: u32) -> Result<Groups, Errno> {
        let count = (slots / ROWS) as usize;
        // As many as it takes when each has one column only, and half of what is stored, or more, is gaps.
        let count = (count * 2 + 64).min((SLOTS / ROWS) as usize - 1);
        let rows = MapSlice::<u32>::new(slots as usize)?.leak();
        let list = MapSlice::<Group>::new(count)?.leak();
        let sums = MapSlice::<u8>::new(SUMS * ROWS as usize * ROW)?.leak();
        Ok(Groups {
            rows: rows.as_mut_ptr().expose_provenance(),
            slots: slots as usize,
            list: list.as_mut_ptr().expose_provenance(),
            count,
            sums: sums.as_mut_ptr().expose_provenance(),
            ..Groups::NONE
        })
    }

    /// Whether there are any.
    pub(super) fn is_some(&self) -> bool {
        self.count > 0
    }

    fn rows_mut(&mut self) -> &mut [u32] {
        // SAFETY: mapped by `new` for ever, or inherited at the same place, and reached through this value only.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(self.rows), self.slots) }
    }

    pub(super) fn list(&self) -> &[Group] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(self.list), self.count) }
    }

    pub(super) fn list_mut(&mut self) -> &mut [Group] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(self.list), self.count) }
    }

    /// Those that were ever used: the tables are as large as the store may come to be.
    pub(super) fn used(&self) -> &[Group] {
        self.list().get(..self.end as usize).unwrap_or(&[])
    }

    fn used_mut(&mut self) -> &mut [Group] {
        let end = self.end as usize;
        self.list_mut().get_mut(..end).unwrap_or(&mut [])
    }

    pub(super) fn get(&self, group: u32) -> Option<&Group> {
        self.list().get(group as usize)
    }

    pub(super) fn get_mut(&mut self, group: u32) -> Option<&mut Group> {
        self.list_mut().get_mut(group as usize)
    }

    /// The row of a slot that somebody has.
    pub(super) fn row(&self, slot: u32) -> u32 {
        if slot as usize >= self.slots {
            return 0;
        }
        // SAFETY: mapped, and within it.
        unsafe { *core::ptr::with_exposed_provenance::<u32>(self.rows).add(slot as usize) }
    }

    /// The group of a slot that somebody has.
    pub(super) fn of(&self, slot: u32) -> Option<&Group> {
        self.get(self.row(slot) / ROWS)
    }

    /// Rows from `row` on of the sum of a group that is here; empty when it is not.
    pub(super) fn sum(&mut self, group: u32, row: u32, rows: u32) -> &mut [u8] {
        let memory = self.get(group).map_or(0, |group| group.memory);
        let start = if memory == 0 {
            core::ptr::NonNull::dangling().as_ptr()
        } else {
            core::ptr::with_exposed_provenance_mut(self.sums)
        };
        let bytes = if memory == 0 { 0 } else { SUMS * ROWS as usize * ROW };
        // SAFETY: as in `rows_mut`, or nothing.
        let all = unsafe { core::slice::from_raw_parts_mut(start, bytes) };
        let first = (memory.saturating_sub(1) as usize * ROWS as usize + (row % ROWS) as usize) * ROW;
        all.get_mut(first..first + rows as usize * ROW).unwrap_or(&mut [])
    }

    /// Adds a page and its seal to the sum of its row, or takes them out again; to nothing where that is not here.
    pub(super) fn add(&mut self, row: u32, page: &[u8], seal: &[u8]) {
        let (sum, sum_seal) = self.sum(row / ROWS, row, 1).split_at_mut_checked(PAGE_BYTES).unwrap_or_default();
        add(sum, page);
        add(sum_seal, seal);
    }

    /// Rows for some of so many pages, at one of these servers; for all of them when they must stay together. `None` when it
    /// has to be waited for that a sum has been answered. A group that is full is told by `full`: its sum can be sent when
    /// its pages are.
    pub(super) fn take(&mut self, pages: u32, together: bool, usable: u32, full: &mut dyn FnMut(u32)) -> Option<Place> {
        let pages = pages.min(ROWS);
        loop {
            if self.current == NONE {
                self.current = self.open(usable as u8)?;
            }
            let group = self.current;
            let it = *self.get(group)?;
            let data = |index: usize| it.members >> index & 1 != 0 && usize::from(it.sum) != index;
            let room = |index: usize| ROWS - it.rows_of(index);
            let fits = |index: &usize| {
                data(*index) && usable >> index & 1 != 0 && room(*index) >= if together { pages } else { 1 }
            };
            // The emptiest column: the servers work side by side.
            if let Some(server) = (0..SERVERS).filter(fits).max_by_key(|index| (room(*index), SERVERS - index)) {
                let pages = pages.min(room(server));
                let row = it.rows_of(server);
                let it = self.get_mut(group)?;
                *it.fill.get_mut(server)? += pages as u8;
                it.open += 1;
                self.taken += u64::from(pages);
                if self.is_full(group) {
                    self.finish(group);
                    full(group);
                }
                return Some(Place { group, server, row: group * ROWS + row, pages });
            }
            self.finish(group);
            full(group);
        }
    }

    fn is_full(&self, group: u32) -> bool {
        self.get(group).is_none_or(|it| {
            let mut data = (0..SERVERS).filter(|index| it.members >> index & 1 != 0 && usize::from(it.sum) != *index);
            data.all(|index| it.rows_of(index) == ROWS)
        })
    }

    /// Begins a group with a column at each of these servers.
    fn open(&mut self, members: u8) -> Option<u32> {
        let alone = members.count_ones() == 1;
        let memory = self.used_sums.trailing_ones();
        if members == 0 || memory as usize >= SUMS && !alone {
            return None;
        }
        let count = self.count as u32;
        let free = |group: &u32| self.get(*group).is_some_and(|it| it.phase == Phase::Free && !it.listed);
        // The first: servers keep rows in blocks of several groups, which are free when all of those are.
        let group = (self.cursor..count).find(free)?;
        self.cursor = group + 1;
        self.end = self.end.max(group + 1);
        let mut sum = NOBODY;
        if !alone {
            // Each in turn.
            let nth = group % members.count_ones();
            sum = (0u8..8).filter(|index| members >> index & 1 != 0).nth(nth as usize)?;
            self.used_sums |= 1 << memory;
        }
        let memory = if alone { 0 } else { memory as u8 + 1 };
        *self.get_mut(group)? = Group { phase: Phase::Open, members, sum, memory, ..FREE };
        self.sum(group, 0, ROWS).fill(0);
        Some(group)
    }

    /// Nothing more goes to a group.
    pub(super) fn finish(&mut self, group: u32) {
        if self.current == group {
            self.current = NONE;
        }
        let open = |it: &&mut Group| matches!(it.phase, Phase::Open | Phase::Closing);
        let Some(it) = self.get_mut(group).filter(open) else { return };
        it.phase = if it.sum_for().is_none() { Phase::Closed } else { Phase::Closing };
        self.check(group);
    }

    /// The group that is being filled.
    pub(super) fn current(&self) -> Option<u32> {
        (self.current != NONE).then_some(self.current)
    }

    /// The sum is at its server now.
    pub(super) fn let_go_of_sum(&mut self, group: u32) {
        self.forget_sum(group);
        self.sum_settled(group);
    }

    /// Nobody is to have the sum. It stays here as long as pages depend on it. Where the server that it was for is `full`,
    /// they may come to, before all have been copied to others: then it stays if there is room.
    fn keep_sum(&mut self, group: u32, full: bool) {
        let kept = self.used().iter().filter(|it| it.is_kept()).count();
        let Some(it) = self.get_mut(group) else { return };
        it.sum = NOBODY;
        if it.lost_columns() == 0 && !(full && kept < KEPT) {
            self.forget_sum(group);
        }
        self.sum_settled(group);
    }

    /// The server that the sum was for has no room.
    pub(super) fn sum_refused(&mut self, group: u32) {
        self.keep_sum(group, true);
    }

    fn sum_settled(&mut self, group: u32) {
        if let Some(it) = self.get_mut(group) {
            it.sending = false;
        }
        self.finish(group);
        self.check(group);
    }

    fn forget_sum(&mut self, group: u32) {
        let memory = self.get_mut(group).map_or(0, |it| core::mem::take(&mut it.memory));
        if memory != 0 {
            self.used_sums &= !(1 << (memory - 1));
        }
    }

    /// A server does not keep rows from this one on of its column: those are not taken any more, and nothing goes to the group.
    pub(super) fn cut(&mut self, group: u32, server: usize, row: u32) {
        let Some(rows) = self.get_mut(group).and_then(|it| it.fill.get_mut(server)) else { return };
        let kept = (row % ROWS).min((*rows).into()) as u8;
        let gone = core::mem::replace(rows, kept) - kept;
        self.taken = self.taken.saturating_sub(gone.into());
        self.finish(group);
    }

    /// Whether a row is one of those that are taken.
    pub(super) fn has_row(&self, server: usize, row: u32) -> bool {
        self.get(row / ROWS).is_some_and(|it| row % ROWS < it.rows_of(server))
    }

    /// A slot is in a row from now on: that of before has become a gap, if it `had` one.
    pub(super) fn put(&mut self, slot: u32, row: u32, had: bool) {
        self.leave(slot, had);
        if let Some(place) = self.rows_mut().get_mut(slot as usize) {
            *place = row;
        }
        self.live += 1;
        if let Some(it) = self.get_mut(row / ROWS) {
            it.live += 1;
        }
    }

    /// A slot is nowhere any more.
    pub(super) fn leave(&mut self, slot: u32, had: bool) {
        if !had {
            return;
        }
        let group = self.row(slot) / ROWS;
        self.live = self.live.saturating_sub(1);
        if let Some(it) = self.get_mut(group) {
            it.live = it.live.saturating_sub(1);
        }
        self.check(group);
    }

    /// An ancestor's slot depends on its group again.
    pub(super) fn need(&mut self, slot: u32) {
        self.live += 1;
        let group = self.row(slot) / ROWS;
        if let Some(it) = self.get_mut(group) {
            it.live += 1;
        }
    }

    /// A read of a group begins, or has ended.
    pub(super) fn pin(&mut self, group: u32, on: bool) {
        if let Some(it) = self.get_mut(group) {
            it.reads = if on { it.reads + 1 } else { it.reads.saturating_sub(1) };
        }
        self.check(group);
    }

    /// A message with pages of a group was answered.
    pub(super) fn answered(&mut self, group: u32) {
        if let Some(it) = self.get_mut(group) {
            it.open = it.open.saturating_sub(1);
        }
        self.check(group);
    }

    /// Notes a group that may be free.
    fn check(&mut self, group: u32) {
        let head = self.listed;
        let Some(it) = self.get_mut(group).filter(|it| it.is_empty() && !it.listed) else { return };
        (it.listed, it.next) = (true, head);
        self.listed = group;
    }

    /// Takes a group that is free again out of service; what it was, so that its servers can be told.
    pub(super) fn pop_empty(&mut self) -> Option<(u32, Group)> {
        while self.listed != NONE {
            let group = self.listed;
            let it = self.get_mut(group)?;
            (it.listed, self.listed) = (false, it.next);
            let it = *self.get(group)?;
            if it.is_empty() {
                self.taken = self.taken.saturating_sub(it.taken());
                self.cursor = self.cursor.min(group);
                self.forget_sum(group);
                *self.get_mut(group)? = FREE;
                return Some((group, it));
            }
        }
        None
    }

    /// In a forked child: nothing is under way there, and what its parent is still to send it has here.
    pub(super) fn become_ancestor(&mut self) {
        for it in self.used_mut() {
            (it.open, it.reads, it.sending) = (0, 0, false);
        }
    }

    /// A child is about to read what there is.
    pub(super) fn freeze(&mut self) {
        self.used_mut().iter_mut().filter(|it| it.phase != Phase::Free).for_each(|it| it.frozen = true);
    }

    /// No child reads it any more.
    pub(super) fn thaw(&mut self) {
        for group in 0..self.end {
            if let Some(it) = self.get_mut(group) {
                it.frozen = false;
            }
            self.check(group);
        }
    }

    /// These servers are lost, with their columns. Returns whether a page may be gone: then `is_gone` tells which are.
    pub(super) fn lose(&mut self, who: u32) -> bool {
        let mut gone = false;
        for group in 0..self.end {
            let Some(it) = self.get_mut(group).filter(|it| it.phase != Phase::Free) else { continue };
            let lost = it.members & !it.lost & who as u8;
            if lost == 0 {
                continue;
            }
            it.lost |= lost;
            let sum = it.sum != NOBODY && lost >> it.sum & 1 != 0;
            if sum {
                self.keep_sum(group, false);
            }
            self.finish(group);
            gone |= self.get(group).is_some_and(|it| it.live > 0 && !it.is_rebuildable() && it.lost_columns() != 0);
        }
        gone
    }

    /// Whether a slot that a server had cannot be had from anybody any more.
    /// `spoilt`: it was not genuine there, and none of the others must be lost then.
    pub(super) fn is_gone(&self, slot: u32, server: usize, spoilt: bool) -> bool {
        self.of(slot).is_some_and(|it| {
            let lost = it.lost >> server & 1 != 0 && !it.is_rebuildable();
            lost || spoilt && !(it.has_sum() && it.lost_columns() & !(1 << server) == 0)
        })
    }

    /// Pages that are to be copied for want of a server that has their sum, or since a server is about to end; and bit by server, which must not be lost now.
    pub(super) fn exposed(&self) -> (u64, u32) {
        let due = |it: &&Group| !it.is_whole() || it.depends_on(self.leaving);
        let exposed = self.used().iter().filter(|it| it.phase != Phase::Free && it.live > 0).filter(due);
        exposed.fold((0, 0), |(pages, who), it| {
            let depends = if it.is_safe() { 0 } else { it.members & !it.lost };
            (pages + u64::from(it.live), who | u32::from(depends))
        })
    }
}

/// Adds a page, or a seal, to a sum.
pub(super) fn add(sum: &mut [u8], bytes: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= byte;
    }
}

mod gaps;
#[cfg(test)]
mod tests;
