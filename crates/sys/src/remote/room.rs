//! Second copies make room for first ones: where no server has room for what is written, segments of which others have all are
//! forgotten at one, and written again when there is room. A page with one good copy is better than a program that is stopped.
//!
//! Only of what this process has stored itself, and no child reads: of all else others may rely on the copy.

use super::changes::Change;
use super::{Nature, News, Op, Remote, SEGMENT};
use crate::process;

/// Segments that are given up at once, at most.
const ROUND: u32 = 16;
/// For how long afterwards no copies are made again: they would take the room. In microseconds.
const HOLD: u64 = 5_000_000;
/// When nothing could be given up, how long until it is looked again, in microseconds.
const VAIN: u64 = 1_000_000;

/// The search for what can be given up.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// The segment at which it goes on, and below which something is that a child reads.
    hand: u32,
    frozen: u32,
    /// Until then no copies are made again, and nothing is looked for.
    hold_until: u64,
    vain_until: u64,
}

impl Room {
    pub(super) const NEW: Room = Room { hand: 0, frozen: 0, hold_until: 0, vain_until: 0 };

    /// Whether room is for first copies only.
    pub(super) fn holds(&self, now: u64) -> bool {
        now < self.hold_until
    }

    /// There may be more room, at a server that can be used from now on.
    pub(super) fn has_more(&mut self) {
        (self.hold_until, self.vain_until) = (0, 0);
    }
}

impl Remote {
    /// A child is about to be forked, which reads what is where now.
    pub(super) fn freeze_room(&mut self) {
        self.room.frozen = self.tables.get(0).map_or(0, |own| own.end.div_ceil(SEGMENT));
    }

    /// No child does any more.
    pub(super) fn thaw_room(&mut self) {
        (self.room.frozen, self.room.vain_until) = (0, 0);
    }

    /// A write that nobody has room for begins anew where copies were given up for it; false when there were none.
    pub(super) fn makes_room(&mut self, tag: u32) -> bool {
        let Some(op) = self.ops.get(tag as usize).copied() else { return false };
        if op.good != 0 || op.open() != 0 || op.sent != op.answered || !self.give_up_copies() {
            return false;
        }
        if let Some(place) = self.ops.get_mut(tag as usize) {
            *place = Op::write(op.table, op.slot, op.pages, op.address, op.parts as usize);
        }
        self.begin_write(tag);
        true
    }

    /// Gives up copies of some segments that others have as well. Returns whether there were any.
    fn give_up_copies(&mut self) -> bool {
        let now = process::now_us();
        if !self.is_plain() || self.config.replicas < 2 || now < self.room.vain_until {
            return false;
        }
        let end = self.tables.get(0).map_or(0, |own| own.end).div_ceil(SEGMENT);
        let (mut looked, mut given) = (0, 0);
        while looked < end && given < ROUND {
            let segment = if self.room.hand < end { self.room.hand } else { 0 };
            self.room.hand = segment + 1;
            looked += 1;
            if let Some(server) = self.spare_copy(segment) {
                self.give_up(segment, server);
                given += 1;
            }
        }
        if given == 0 {
            self.room.vain_until = now + VAIN;
            return false;
        }
        self.room.hold_until = now + HOLD;
        if !core::mem::replace(&mut self.degraded, true) {
            self.tell(News::Degraded);
        }
        true
    }

    /// A server all of whose copies in a segment somebody else has, who can be asked and is to stay; of several the one that has
    /// most.
    fn spare_copy(&self, segment: u32) -> Option<usize> {
        let own = self.tables.get(0)?;
        let (first, stay) = (segment * SEGMENT, self.up & !self.counts.leaving());
        let busy = |op: &Op| op.nature() != Nature::None && op.touches(0, first, SEGMENT);
        if segment < self.room.frozen || self.ops.as_slice().iter().any(busy) {
            return None;
        }
        let (mut has, mut alone) = (0, 0);
        for slot in first..own.end.min(first + SEGMENT) {
            let who = own.holder(slot);
            has |= who;
            if (who & stay).count_ones() < 2 {
                alone |= who;
            }
        }
        let spare = has & stay & !alone;
        let can =
            |index: &usize| spare >> index & 1 != 0 && self.peers.get(*index).is_some_and(|peer| peer.frees.has_room());
        (0..self.count).filter(can).max_by_key(|index| self.counts.held.get(*index).copied())
    }

    /// A server is to forget a segment. What is written there next comes after that, by the same lane.
    fn give_up(&mut self, segment: u32, server: usize) {
        let (first, bit) = (segment * SEGMENT, 1 << server);
        let Some(own) = self.tables.get_mut(0) else { return };
        for slot in first..own.end.min(first + SEGMENT) {
            let who = own.holder(slot);
            if who & bit != 0 {
                own.put(slot, 1, who & !bit, &mut self.counts);
            }
        }
        self.changes.add(0, first, SEGMENT, Change::Moved);
        if let Some(homes) = self.homes.get_mut(segment as usize) {
            *homes &= !(bit as u8);
        }
        if let Some(peer) = self.peers.get_mut(server) {
            peer.frees.push((first, SEGMENT));
            peer.has_room_again();
        }
        self.mend.wake();
    }
}

#[cfg(test)]
mod tests;
