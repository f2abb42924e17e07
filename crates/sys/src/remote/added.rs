//! Servers that are added to the session while this process pages. It notices them by their number, and calls them like
//! servers that were away.

use super::log::Log;
use super::mend::{self, Mend};
use super::op::Op;
use super::peer::Peer;
use super::{Remote, SEGMENT};
use crate::tcp::Address;
use crate::{Errno, process};

/// How long it is waited for a new server before a write that nobody else has room for fails, in microseconds.
const NEW: u64 = 3_000_000;

impl Remote {
    /// Takes in servers that were added since this was last called.
    pub(super) fn take_in_new(&mut self) {
        while self.config.session.servers().count() > self.count {
            // For want of memory: it is tried again with the next look.
            if self.take_in(self.count).is_err() {
                return;
            }
        }
    }

    fn take_in(&mut self, index: usize) -> Result<(), Errno> {
        let remote = self.config.session.remotes().get(index).ok_or(Errno::INVAL)?;
        let address = Address::new(remote.family, &remote.address, remote.port as u16, remote.scope);
        if !self.mend.is_some() {
            // There was one server alone.
            self.mend = Mend::new(self.config.io_limit)?;
        }
        let peer = Peer::new(address.ok_or(Errno::INVAL)?, self.places())?;
        *self.peers.get_mut(index).ok_or(Errno::INVAL)? = peer;
        if self.count == 1 && self.tier.is_none() {
            self.find_homes();
        }
        self.count = index + 1;
        self.unused |= 1 << index;
        self.unused_until = process::now_us() + NEW;
        // It may be one of those before it that is about to end.
        self.look_who_leaves();
        Ok(())
    }

    /// Requests that a lane may have to keep.
    pub(super) fn places(&self) -> usize {
        let ops = self.config.io_limit as usize + mend::JOBS;
        if self.log.is_some() { Log::pieces_for(ops) } else { ops }
    }

    /// While there is one server nobody asks whose a segment is. What is there stays there: elsewhere it would take room twice.
    fn find_homes(&mut self) {
        let end = self.tables.get(0).map_or(0, |own| own.end);
        for home in self.homes.as_mut_slice().iter_mut().take(end.div_ceil(SEGMENT) as usize) {
            *home |= 1;
        }
    }

    /// A write that nobody keeps begins anew when a server that was just added is there; false when there is none.
    pub(super) fn waits_for_new(&mut self, tag: u32) -> bool {
        if self.unused == 0 || self.log.is_some() || process::now_us() >= self.unused_until {
            return false;
        }
        let Some(op) = self.ops.get_mut(tag as usize) else { return false };
        if op.good != 0 || op.open() != 0 || op.sent != op.answered {
            return false;
        }
        *op = Op::write(op.table, op.slot, op.pages, op.address, op.parts as usize);
        self.park(tag);
        true
    }
}

#[cfg(test)]
mod tests;
