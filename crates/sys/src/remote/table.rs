//! What is known of a store: how often each slot was written, and who has what was written last: a bit for each server,
//! and one for the local copy. Five bytes a slot, in memory that a forked child inherits and changes for itself.

use super::groups::{Groups, ROWS};
use crate::Errno;
use crate::memory::{MapSlice, Zeroable};
use ream_stats::{SERVERS, SPILL};
use ream_wire::SEAL;
use ream_wire::seal::KEY;

/// One for the local copy.
pub(super) const SPILLED: u32 = 1 << SPILL;

/// A store: the own one, or an ancestor's.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// The key to its pages, and what they are bound to: the same at all servers, since a seal's nonce must not be used
    /// with anything else.
    pub(super) key: [u8; KEY],
    pub(super) lease: u64,
    pub(super) store: u32,
    /// Slots from here on were never written.
    pub(super) end: u32,
    versions: usize,
    holders: usize,
    slots: usize,
    /// Slots for which there is memory at the servers; there may come to be more.
    usual: usize,
    /// Seals of pages in the local copy, where that is sealed: there is no room for them in the file, and whoever
    /// changes that cannot change them.
    seals: usize,
    /// Where pages have a sum: in which rows they are.
    groups: Groups,
    /// Its number at each server.
    pub(super) stores: [u32; SERVERS],
    /// Of an ancestor's: who has copies in stores that were made for that, and their numbers. Several processes may write
    /// them, and write the same: an ancestor's pages do not change any more.
    copies: usize,
    pub(super) attics: [u32; SERVERS],
    /// The number that these have for all children of one parent that see the same in it; 0: each has its own.
    pub(super) attic: u32,
    /// Bit by server: we may write those, or have asked for it.
    pub(super) ours: u32,
    pub(super) making: u32,
}

// SAFETY: integers.
unsafe impl Zeroable for Table {}

impl Table {
    /// An empty one of so many slots, for ever: nothing unmaps it.
    #[cfg(test)]
    pub(super) fn new(slots: u32, key: [u8; KEY], lease: u64, store: u32) -> Result<Table, Errno> {
        Table::with_room((slots, slots), key, lease, store)
    }

    /// The same; there may come to be the second number of slots.
    pub(super) fn with_room(slots: (u32, u32), key: [u8; KEY], lease: u64, store: u32) -> Result<Table, Errno> {
        let (usual, slots) = (slots.0 as usize, slots.1 as usize);
        let versions = MapSlice::<u32>::with_room(slots, usual)?.leak();
        let holders = MapSlice::<u8>::with_room(slots, usual)?.leak();
        Ok(Table {
            key,
            lease,
            store,
            end: 0,
            versions: versions.as_ptr().expose_provenance(),
            holders: holders.as_mut_ptr().expose_provenance(),
            slots,
            usual,
            seals: 0,
            groups: Groups::NONE,
            stores: [0; SERVERS],
            copies: 0,
            attics: [0; SERVERS],
            attic: 0,
            ours: u32::MAX,
            making: 0,
        })
    }

    /// Its local copy is sealed.
    pub(super) fn with_seals(mut self) -> Result<Table, Errno> {
        self.seals = MapSlice::<[u8; SEAL]>::with_room(self.slots, self.usual)?.leak().as_mut_ptr().expose_provenance();
        Ok(self)
    }

    /// Its pages lie in groups, each with a sum.
    pub(super) fn with_groups(mut self) -> Result<Table, Errno> {
        self.groups = Groups::new(self.slots as u32)?;
        Ok(self)
    }

    /// In which rows its pages are, where they have a sum.
    pub(super) fn groups(&self) -> Option<&Groups> {
        Some(&self.groups).filter(|groups| groups.is_some())
    }

    /// The same, to change.
    pub(super) fn groups_mut(&mut self) -> Option<&mut Groups> {
        Some(&mut self.groups).filter(|groups| groups.is_some())
    }

    /// Whose column a slot is in, where pages have a sum, and whether it is not genuine there.
    pub(super) fn column_of(&self, slot: u32) -> Option<(usize, bool)> {
        let who = u32::from(self.byte(self.holders, slot));
        let servers = who & !SPILLED;
        (servers != 0).then(|| (servers.trailing_zeros() as usize, who & SPILLED != 0))
    }

    /// Who has copies of an ancestor's slot.
    pub(super) fn copies_of(&self, slot: u32) -> u32 {
        self.byte(self.copies, slot).into()
    }

    /// The number of the store for copies that a server has, or is to have; 0: any. One that was lost there begins anew with the same
    /// number, and with the same in it.
    pub(super) fn number_for(&self, server: usize) -> u32 {
        self.attics.get(server).copied().filter(|attic| *attic != 0).unwrap_or(self.attic)
    }

    /// Who has copies of any of these slots of an ancestor's.
    pub(super) fn copies_in(&self, slot: u32, pages: u32) -> u32 {
        (slot..self.end.min(slot + pages)).fold(0, |all, slot| all | self.copies_of(slot))
    }

    fn set_holder(&mut self, slot: u32, who: u8) {
        if let Some(holder) = self.holders().get_mut(slot as usize) {
            *holder = who;
        }
    }

    /// A slot is in that row of a server's column now.
    pub(super) fn put_row(&mut self, slot: u32, server: usize, row: u32, counts: &mut Counts) {
        let old = self.byte(self.holders, slot);
        self.groups.put(slot, row, old != 0);
        counts.change(old, 1 << server);
        self.set_holder(slot, 1 << server);
    }

    /// Whether what a server has in that store of it, and there in that place, is a slot's, where pages have a sum: a
    /// copy, or in its column, and genuine as far as is known.
    pub(super) fn is_at(&self, slot: u32, server: usize, (store, at): (u32, u32)) -> bool {
        if self.is_attic(server, store) {
            return self.copies_of(slot) >> server & 1 != 0;
        }
        self.column_of(slot) == Some((server, false)) && self.groups.row(slot) == at
    }

    fn is_attic(&self, server: usize, store: u32) -> bool {
        self.copies != 0 && self.attics.get(server) == Some(&store)
    }

    /// What a server has in that store is not genuine: the copy, or in its column.
    pub(super) fn spoil(&mut self, slot: u32, server: usize, store: u32) {
        if self.is_attic(server, store) {
            return self.set_copies(slot, self.byte(self.copies, slot) & !(1 << server));
        }
        self.set_holder(slot, self.byte(self.holders, slot) | SPILLED as u8);
        let (group, ancestor) = (self.groups.row(slot) / ROWS, self.copies != 0);
        if let Some(it) = self.groups.get_mut(group) {
            it.leaving |= !ancestor;
        }
    }

    /// An ancestor's slot has one copy more.
    pub(super) fn add_copy(&mut self, slot: u32, server: usize) {
        self.set_copies(slot, self.byte(self.copies, slot) | 1 << server);
    }

    fn set_copies(&mut self, slot: u32, copies: u8) {
        let old = self.byte(self.copies, slot);
        // With two it does without its group.
        match (old.count_ones() > 1, copies.count_ones() > 1) {
            (false, true) => self.groups.leave(slot, true),
            (true, false) => self.groups.need(slot),
            _ => {}
        }
        if let Some(place) = self.copies().get_mut(slot as usize) {
            *place = copies;
        }
    }

    /// Nobody can give what is in a slot's row, and there are no copies: it is in none from now on.
    pub(super) fn give_up(&mut self, slot: u32, counts: &mut Counts) {
        counts.change(self.byte(self.holders, slot), 0);
        self.groups.leave(slot, true);
        self.set_holder(slot, 0);
    }

    /// These servers have lost all: their columns, and copies. Returns how many slots cannot be had any more.
    pub(super) fn lose_columns(&mut self, who: u32, counts: &mut Counts) -> u64 {
        let ancestor = self.copies != 0;
        if !self.groups.lose(who) && !ancestor {
            return 0;
        }
        let mut gone = 0;
        for slot in 0..self.end {
            let copies = self.byte(self.copies, slot);
            if u32::from(copies) & who != 0 {
                self.set_copies(slot, copies & !(who as u8));
            }
            let Some((server, spoilt)) = self.column_of(slot) else { continue };
            if self.copies_of(slot) == 0 && self.groups.is_gone(slot, server, spoilt) {
                gone += 1;
                self.give_up(slot, counts);
            }
        }
        for (index, attic) in self.attics.iter_mut().enumerate() {
            if who >> index & 1 != 0 {
                *attic = 0;
            }
        }
        gone
    }

    fn seal_at(&self, slot: u32) -> Option<*mut [u8; SEAL]> {
        let there = self.seals != 0 && (slot as usize) < self.slots;
        // SAFETY: mapped by `with_seals` for ever, or inherited at the same place, and within it.
        there.then(|| unsafe { core::ptr::with_exposed_provenance_mut::<[u8; SEAL]>(self.seals).add(slot as usize) })
    }

    /// The seal of a page in the local copy; `None` when that is not sealed.
    pub(super) fn seal(&self, slot: u32) -> Option<[u8; SEAL]> {
        // SAFETY: see `seal_at`.
        self.seal_at(slot).map(|seal| unsafe { *seal })
    }

    pub(super) fn set_seal(&mut self, slot: u32, seal: [u8; SEAL]) {
        if let Some(place) = self.seal_at(slot) {
            // SAFETY: see `seal_at`; reached through this value only.
            unsafe { *place = seal };
        }
    }

    /// It is an ancestor's now: what is copied from here on goes elsewhere.
    pub(super) fn become_ancestor(&mut self) -> Result<(), Errno> {
        if self.copies == 0 {
            self.copies = MapSlice::<u8>::with_room(self.slots, self.usual)?.leak().as_mut_ptr().expose_provenance();
        }
        (self.ours, self.making) = (0, 0);
        self.groups.become_ancestor();
        Ok(())
    }

    fn versions(&mut self) -> &mut [u32] {
        // SAFETY: mapped by `new` for ever, or inherited at the same place, and reached through this value only.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(self.versions), self.slots) }
    }

    fn holders(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(self.holders), self.slots) }
    }

    fn copies(&mut self) -> &mut [u8] {
        let slots = if self.copies == 0 { 0 } else { self.slots };
        let start = if slots == 0 {
            core::ptr::NonNull::dangling().as_ptr()
        } else {
            core::ptr::with_exposed_provenance_mut(self.copies)
        };
        // SAFETY: as above, or nothing.
        unsafe { core::slice::from_raw_parts_mut(start, slots) }
    }

    fn byte(&self, array: usize, slot: u32) -> u8 {
        if array == 0 || slot as usize >= self.slots {
            return 0;
        }
        // SAFETY: as above, and within it.
        unsafe { *core::ptr::with_exposed_provenance::<u8>(array).add(slot as usize) }
    }

    /// Who has a slot.
    pub(super) fn holder(&self, slot: u32) -> u32 {
        (self.byte(self.holders, slot) | self.byte(self.copies, slot)).into()
    }

    /// The number of the store in which a server has a slot.
    pub(super) fn store_at(&self, index: usize, slot: u32) -> u32 {
        let own = self.copies == 0 || self.byte(self.holders, slot) >> index & 1 != 0;
        (if own { &self.stores } else { &self.attics }).get(index).copied().unwrap_or(0)
    }

    /// The number of the store in which a server is to have copies.
    pub(super) fn store_for(&self, index: usize) -> u32 {
        (if self.copies == 0 { &self.stores } else { &self.attics }).get(index).copied().unwrap_or(0)
    }

    /// How often a slot was written; 0 for one that never was, or is not there.
    pub(super) fn version(&self, slot: u32) -> u32 {
        if slot as usize >= self.slots {
            return 0;
        }
        // SAFETY: as above, and within it.
        unsafe { *core::ptr::with_exposed_provenance::<u32>(self.versions).add(slot as usize) }
    }

    /// Gives slots a new number. False when one of them has had them all.
    pub(super) fn renew(&mut self, slot: u32, pages: u32) -> bool {
        let (first, end) = (slot as usize, slot as usize + pages as usize);
        let Some(versions) = self.versions().get_mut(first..end) else { return false };
        // Written four thousand million times: out of service, since its nonces are used up.
        let fresh = !versions.contains(&u32::MAX);
        if fresh {
            versions.iter_mut().for_each(|version| *version += 1);
        }
        fresh
    }

    /// Slots are about to be written: nobody has them. False when one of them cannot be any more.
    pub(super) fn begin(&mut self, slot: u32, pages: u32, counts: &mut Counts) -> bool {
        if !self.renew(slot, pages) {
            return false;
        }
        self.end = self.end.max(slot + pages);
        self.put(slot, pages, 0, counts);
        true
    }

    /// Slots are with these now.
    pub(super) fn put(&mut self, slot: u32, pages: u32, who: u32, counts: &mut Counts) {
        for slot in slot..slot + pages {
            let (old, first) = (self.holder(slot) as u8, self.byte(self.holders, slot));
            let ancestor = self.copies != 0;
            counts.change(old, who as u8);
            if self.groups.is_some() && !ancestor {
                self.groups.leave(slot, first != 0);
            }
            let keep = if ancestor { first & who as u8 } else { who as u8 };
            if let Some(holder) = self.holders().get_mut(slot as usize) {
                *holder = keep;
            }
            if let Some(copy) = self.copies().get_mut(slot as usize) {
                *copy = who as u8 & !keep;
            }
        }
    }

    /// Whoever has lost all has nothing any more. Returns how many slots nobody has now.
    pub(super) fn lose(&mut self, who: u32, counts: &mut Counts) -> u64 {
        let mut gone = 0;
        for slot in 0..self.end {
            let old = self.holder(slot);
            if old & who != 0 {
                self.put(slot, 1, old & !who, counts);
                gone += u64::from(old & !who == 0);
            }
        }
        for (index, attic) in self.attics.iter_mut().enumerate() {
            if who >> index & 1 != 0 {
                *attic = 0;
            }
        }
        gone
    }
}

/// How many slots are where.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// Copies that each is to have.
    wanted: u32,
    /// Whether there is a disk below the servers: what is there needs no copies.
    below: bool,
    /// Bit by server: it is about to end, so its copies do not count.
    leaving: u8,
    /// Slots that somebody has, and of those the ones with fewer copies.
    pub(super) stored: u64,
    pub(super) missing: u64,
    /// Of each, slots that it has, and those that it alone has.
    pub(super) held: [u64; SERVERS + 1],
    sole: [u64; SERVERS + 1],
}

impl Counts {
    pub(super) fn new(wanted: u32, below: bool) -> Counts {
        Counts { wanted, below, leaving: 0, stored: 0, missing: 0, held: [0; SERVERS + 1], sole: [0; SERVERS + 1] }
    }

    /// Whether a slot that these have lacks a copy.
    pub(super) fn is_short(&self, who: u8) -> bool {
        let enough = self.below && who & SPILLED as u8 != 0;
        who != 0 && !enough && (who & !self.leaving).count_ones() < self.wanted
    }

    /// Servers that are about to end.
    pub(super) fn leaving(&self) -> u32 {
        self.leaving.into()
    }

    /// Those are about to end from now on, and no others.
    pub(super) fn set_leaving(&mut self, leaving: u32, tables: &[Table]) {
        self.leaving = leaving as u8;
        let slots = tables.iter().flat_map(|table| (0..table.end).map(|slot| table.holder(slot) as u8));
        self.missing = slots.filter(|who| self.is_short(*who)).count() as u64;
    }

    /// A slot changes hands.
    pub(super) fn change(&mut self, from: u8, to: u8) {
        self.stored = self.stored + u64::from(to != 0) - u64::from(from != 0);
        self.missing = self.missing + u64::from(self.is_short(to)) - u64::from(self.is_short(from));
        let mut differs = from ^ to;
        while differs != 0 {
            let who = differs.trailing_zeros();
            if let Some(held) = self.held.get_mut(who as usize) {
                // Where pages have a sum, the last bit is set without being counted.
                *held = if to >> who & 1 != 0 { *held + 1 } else { held.saturating_sub(1) };
            }
            differs &= differs - 1;
        }
        for (who, more) in [(from, false), (to, true)] {
            if who.is_power_of_two() {
                if let Some(sole) = self.sole.get_mut(who.trailing_zeros() as usize) {
                    *sole = if more { *sole + 1 } else { *sole - 1 };
                }
            }
        }
    }

    /// Slots that one alone has.
    pub(super) fn sole(&self, who: usize) -> u64 {
        self.sole.get(who).copied().unwrap_or(0)
    }

    /// Bit by server: it alone has something.
    pub(super) fn soles(&self) -> u32 {
        self.sole.iter().enumerate().fold(0, |all, (who, count)| all | u32::from(*count > 0) << who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_change_hands_and_are_counted() {
        let mut counts = Counts::new(2, false);
        let mut table = Table::new(1000, [0; KEY], 1, 1).unwrap();
        assert!(table.begin(10, 4, &mut counts) && (table.version(10), table.version(14)) == (1, 0));
        assert_eq!((counts.stored, counts.missing), (0, 0));
        table.put(10, 4, 0b11, &mut counts);
        assert_eq!((counts.stored, counts.missing, counts.soles()), (4, 0, 0));
        table.put(10, 1, 0b01, &mut counts);
        assert_eq!((counts.missing, counts.sole(0), counts.soles()), (1, 1, 1));
        // The second is lost: nothing is gone.
        assert_eq!(table.lose(0b10, &mut counts), 0);
        assert_eq!((counts.missing, counts.sole(0)), (4, 4));
        table.put(11, 2, 0b01 | SPILLED, &mut counts);
        assert_eq!((counts.missing, counts.sole(0)), (2, 2));
        // The first, too: what it alone had is.
        assert_eq!(table.lose(0b01, &mut counts), 2);
        assert_eq!((counts.stored, counts.missing, counts.soles()), (2, 2, SPILLED));
        // An ancestor's, which is copied again to the second, where it has a store of its own.
        table.stores = [7; SERVERS];
        table.attics = [9; SERVERS];
        assert_eq!((table.store_at(0, 11), table.store_for(0)), (7, 7));
        table.put(13, 1, 0b01, &mut counts);
        table.become_ancestor().unwrap();
        table.put(13, 1, 0b11, &mut counts);
        assert_eq!(
            (table.holder(13), table.store_at(0, 13), table.store_at(1, 13), table.store_for(0)),
            (0b11, 7, 9, 9)
        );
        assert_eq!((table.lose(0b01, &mut counts), table.holder(13), table.store_at(1, 13)), (0, 0b10, 9));
        assert_eq!((table.seal(10), table.seal(1000)), (None, None));
        let mut table = table.with_seals().unwrap();
        table.set_seal(10, [7; SEAL]);
        table.set_seal(1000, [7; SEAL]);
        assert_eq!((table.seal(10), table.seal(11), table.seal(1000)), (Some([7; SEAL]), Some([0; SEAL]), None));
        assert!(!table.begin(999, 2, &mut counts));
        assert_eq!((table.holder(999), table.holder(5000), table.version(5000)), (0, 0, 0));
    }
}
