//! Copies of what ancestors have stored, in stores that are made for that: which servers get them, and under which number.
//!
//! All children of one parent that were forked while its slots were frozen see the same in each slot, so the store for copies has
//! the same number for all of them, and so have the servers for each segment: who makes a copy that another has made already
//! writes the same bytes to the same place, and takes no room.

use super::{Remote, SEGMENT, WRITE};
use crate::process;
use ream_wire::message::{Kind, MADE};

/// A server that has less left than one part in so many of what another has gets copies last.
const SMALL: u64 = 8;

impl Remote {
    /// Whether each page lies in its slot at servers alone: what a slot that is let go of has is not kept then, so that a child has no
    /// slot of which another child, forked later, may see something else.
    pub(super) fn is_plain(&self) -> bool {
        !self.log.is_some() && self.spill.is_none()
    }

    /// The pager has let go of a slot: nobody reads what is in it any more, and no copy of that is missing.
    pub(crate) fn freed(&mut self, slot: u32) {
        let plain = self.is_plain();
        if let Some(own) = self.tables.get_mut(0).filter(|own| plain && own.holder(slot) != 0) {
            own.put(slot, 1, 0, &mut self.counts);
        }
    }

    /// What children that are forked from now on see stays as it is: they share the stores for copies of it, by a number that only
    /// they know.
    pub(super) fn freeze_attic(&mut self) {
        // What is not sealed could be passed on to others although it was changed.
        let shares = self.is_plain() && self.config.sealed;
        let Some(own) = self.tables.get_mut(0).filter(|own| shares && own.attic == 0) else { return };
        let mut number = [0; 4];
        if process::random(&mut number).is_ok() {
            own.attic = u32::from_ne_bytes(number) | MADE;
        }
    }

    /// Slots may be written anew: who is forked later sees something else, and shares nothing with those before.
    pub(super) fn thaw_attic(&mut self) {
        if let Some(own) = self.tables.get_mut(0) {
            own.attic = 0;
        }
    }

    /// A server for one copy more of a slot that those have.
    pub(super) fn choose_for(&mut self, index: u32, slot: u32, who: u32) -> Option<usize> {
        let Some(table) = self.tables.get(index as usize).filter(|_| index > 0) else { return self.choose(who) };
        let (first, attic) = (slot - slot % SEGMENT, table.attic);
        // Where something of the segment is or comes there is memory for the rest.
        let there = table.copies_in(first, SEGMENT) | self.mend.targets(index, first, SEGMENT);
        let usable = |index: &usize| {
            let peer = self.peers.get(*index);
            who >> index & 1 == 0 && peer.is_some_and(|peer| peer.is_up() && !peer.ending)
        };
        let home = (0..self.count).filter(|index| there >> index & 1 != 0).find(usable);
        if home.is_some() {
            return home;
        }
        if attic == 0 {
            return self.choose(who);
        }
        let now = process::now_us();
        let free = |index: usize| self.config.session.servers().get(index).map_or(0, |server| server.free());
        let most = (0..self.count).filter(usable).map(free).max().unwrap_or(0);
        let has_room = |index: &usize| self.peers.get(*index).is_some_and(|peer| !peer.is_full(now));
        // The same order for all that share it, another for each segment.
        let rank = |index: &usize| (free(*index) < most / SMALL, mix(attic, first / SEGMENT, *index as u32));
        let best = (0..self.count).filter(usable).filter(has_room).min_by_key(rank);
        best.or_else(|| self.choose(who))
    }

    /// A server that may be written copies of a store's pages: where one has to be made for that, it is asked for, and it is
    /// `None` until it is there.
    pub(super) fn attic(&mut self, index: u32, target: usize) -> Option<usize> {
        let table = self.tables.get_mut(index as usize)?;
        if table.ours >> target & 1 != 0 {
            return Some(target);
        }
        if table.making >> target & 1 == 0 {
            let known = table.number_for(target);
            let mut number = known.to_ne_bytes();
            if known == 0 {
                process::random(&mut number).ok()?;
            }
            let number = u32::from_ne_bytes(number) | MADE;
            let lane = self.peers.get_mut(target)?.lanes.as_mut().map(|lanes| &mut lanes[WRITE])?;
            if lane.is_clear() && lane.has_room() {
                lane.request(Kind::Make, index, number, 0, 0);
                table.making |= 1 << target;
            }
        }
        self.mend.has_found();
        None
    }

    /// A server has made a store for copies of an ancestor's pages, or has one of that number.
    pub(super) fn store_made(&mut self, index: usize, message: &super::Message, made: bool) {
        let Some(table) = self.tables.get_mut(message.tag as usize) else { return };
        table.making &= !(1 << index);
        if !made {
            return;
        }
        table.ours |= 1 << index;
        if let Some(place) = table.attics.get_mut(index) {
            *place = message.request.store;
        }
        self.mend.wake();
    }
}

/// Spreads segments over servers.
fn mix(attic: u32, segment: u32, server: u32) -> u64 {
    let mut word = u64::from(attic) << 32 | u64::from(segment);
    word ^= u64::from(server) << 56;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests;
