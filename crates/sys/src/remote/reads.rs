//! Reads: from whom, what has come, and what is done when it is not what it should be.

use super::changes::Change;
use super::{AHEAD, DEMAND, Lost, News, Remote, SMALL, SPILLED};
use crate::process;
use ream_page::PAGE_BYTES;
use ream_wire::message::Kind;
use ream_wire::seal::Place;

impl Remote {
    /// Asks for the next part of a read, from whoever has all of it and is nearest.
    pub(super) fn route(&mut self, tag: u32) {
        if self.log.is_some() {
            return self.route_row(tag);
        }
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        self.mend.reads_again(tag, op.slot + op.done);
        let Some(table) = self.tables.get(op.table as usize) else { return };
        let can = self.up | SPILLED;
        // Slots that nobody has were never written, or are being written: nobody wants them, the hash would tell.
        let (mut common, mut length) = (u32::MAX, 0);
        for slot in op.slot + op.done..op.slot + op.pages {
            let who = table.holder(slot) & can;
            let next = if who == 0 { common } else { common & who };
            if next == 0 {
                break;
            }
            common = next;
            length += 1;
        }
        let nobody = common == u32::MAX;
        let first = op.slot + op.done;
        if let Some(op) = self.ops.get_mut(tag as usize) {
            (op.part, op.peer) = (length, u32::MAX);
        }
        if nobody {
            // SAFETY: frames of the read, which nobody else uses before its end is told.
            unsafe {
                let start = core::ptr::with_exposed_provenance_mut::<u8>(op.place());
                start.write_bytes(0, length as usize * PAGE_BYTES);
            }
            return self.part_read(tag);
        }
        let lane = if op.lane as usize == DEMAND { DEMAND } else { AHEAD };
        match self.nearest(common & self.up, lane) {
            Some(index) => {
                // All of one part lies in one of its stores.
                let Some(table) = self.tables.get(op.table as usize) else { return };
                let at = |slot: u32| table.store_at(index, slot);
                let held = (first..first + length).find(|slot| table.holder(*slot) != 0).unwrap_or(first);
                let store = at(held);
                let same = (first..first + length).take_while(|slot| table.holder(*slot) == 0 || at(*slot) == store);
                let length = same.count() as u32;
                let queued = self.peers.get_mut(index).and_then(|peer| peer.todo.get_mut(lane));
                let queued = queued.is_some_and(|queue| queue.push(tag));
                if let Some(op) = self.ops.get_mut(tag as usize).filter(|_| queued) {
                    op.part = length;
                    op.peer = index as u32;
                    return self.read_above(tag);
                }
                self.park(tag);
            }
            None => match &mut self.spill {
                Some(spill) => {
                    spill.reads.push(tag);
                    self.read_below(tag);
                }
                None => self.park(tag),
            },
        }
    }

    /// Of these servers the one that answers soonest. What is known of the others becomes less certain.
    pub(super) fn nearest(&mut self, among: u32, lane: usize) -> Option<usize> {
        if among.count_ones() <= 1 {
            return (among != 0).then(|| among.trailing_zeros() as usize);
        }
        let candidates = self.peers.iter().enumerate().filter(|(index, _)| among >> index & 1 != 0);
        let best = candidates.min_by_key(|(_, peer)| peer.cost(lane)).map(|(index, _)| index);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if Some(index) != best && among >> index & 1 != 0 {
                peer.latency -= peer.latency / 256;
            }
        }
        best
    }

    pub(super) fn compose_read(&mut self, index: usize, which: usize) -> Result<bool, Lost> {
        let Some(peer) = self.peers.get_mut(index) else { return Ok(false) };
        let Some(tag) = peer.todo.get_mut(which).and_then(|queue| queue.pop()) else { return Ok(false) };
        let op = self.ops.get(tag as usize).ok_or(Lost::Refused)?;
        let table = self.tables.get(op.table as usize).ok_or(Lost::Refused)?;
        let first = op.slot + op.done;
        let held = (first..first + op.part).find(|slot| table.holder(*slot) >> index & 1 != 0).unwrap_or(first);
        let summed = table.groups().is_some();
        let (store, at) = if summed { (op.store, op.at) } else { (table.store_at(index, held), first) };
        if let Some(lane) = peer.lanes.as_mut().and_then(|lanes| lanes.get_mut(which)) {
            lane.request(Kind::Read, tag, store, at, op.part as u16);
        }
        // Which row is asked for was settled before.
        if let Some(op) = self.ops.get_mut(tag as usize).filter(|_| !summed) {
            op.changes = self.changes.count();
        }
        Ok(true)
    }

    /// A server has sent a part of a read.
    pub(super) fn read_answered(&mut self, index: usize, which: usize, tag: u32) -> Result<(), Lost> {
        let op = self.ops.get(tag as usize).ok_or(Lost::Refused)?;
        // Of one server alone, too: `ream status` shows it.
        if which == DEMAND && op.part <= SMALL {
            let begun = self.lane(index, which).map(|lane| lane.begun());
            if let (Some(begun), Some(peer)) = (begun, self.peers.get_mut(index)) {
                peer.measured(process::now_us().saturating_sub(begun));
                if let Some(server) = self.config.session.servers().get(index) {
                    server.set_latency_us(peer.latency / 16);
                }
            }
        }
        if self.build_answered(index, which, tag) {
            return Ok(());
        }
        if !self.config.sealed || self.open(index, which, tag) {
            self.part_read(tag);
        } else {
            // Again, without those that did not open there.
            self.route(tag);
        }
        Ok(())
    }

    /// The part of a read that was asked for is there.
    pub(super) fn part_read(&mut self, tag: u32) {
        if self.log.is_some() {
            self.unpin(tag);
        }
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.done += op.part;
        op.part = 0;
        op.peer = u32::MAX;
        if op.done < op.pages {
            return self.route(tag);
        }
        let result = (op.pages as usize * PAGE_BYTES) as i32;
        self.end(tag, result);
    }

    /// So many pages from a server, or of the local copy, were not what was written there.
    pub(super) fn count_forged(&self, who: usize, pages: u64) {
        self.config.process.counters.pages_not_genuine.add(pages);
        if let Some(server) = self.config.session.servers().get(who) {
            server.forge(pages);
        }
    }

    /// Opens the pages of a read where they are. One that does not open is lost there. False when some are to be asked for again:
    /// another has one, or it was not clear what had become of it meanwhile. What nobody else has holds zeros, and whether anybody
    /// wanted it, the pager finds out, which keeps a hash of each page that is stored.
    fn open(&mut self, index: usize, which: usize, tag: u32) -> bool {
        let Some(op) = self.ops.get(tag as usize).copied() else { return true };
        let other = if op.table == 0 { None } else { self.key_of(op.table) };
        let key = other.as_ref().unwrap_or(&self.key);
        let can = self.up | SPILLED;
        let Some(table) = self.tables.get_mut(op.table as usize) else { return true };
        let summed = table.groups().is_some();
        let lane = self.peers.get(index).and_then(|peer| peer.lanes.as_ref()).and_then(|lanes| lanes.get(which));
        let Some(lane) = lane else { return true };
        let (mut forged, mut elsewhere, mut again) = (0, false, false);
        for number in 0..op.part {
            let slot = op.slot + op.done + number;
            let place = Place { lease: table.lease, store: table.store, slot, version: table.version(slot) };
            let Some(seal) = lane.seal(number) else { break };
            // SAFETY: a frame of the read, whose bytes have come, and which nobody else uses before its end is told.
            let page = unsafe {
                let start = core::ptr::with_exposed_provenance_mut(op.place() + number as usize * PAGE_BYTES);
                core::slice::from_raw_parts_mut(start, PAGE_BYTES)
            };
            let who = table.holder(slot);
            if key.open(&place, page, &seal) {
                self.mend.opened(tag, slot);
                continue;
            }
            // What nobody has was never written, or is being written: it is read along at times, and then not wanted. Asked for
            // again it would not open either.
            if who == 0 || !summed && who & can == 0 {
                continue;
            }
            let here =
                if summed { table.is_at(slot, index, (op.store, op.at + number)) } else { who >> index & 1 != 0 };
            match self.changes.since(op.changes, op.table, slot) {
                Some(Change::Written) => continue,
                Some(Change::No) if here => {}
                // It was found out already that this is not genuine, or it is somewhere else since.
                Some(Change::No | Change::Moved) | None => {
                    again = true;
                    continue;
                }
            }
            forged += 1;
            if summed {
                table.spoil(slot, index, op.store);
                (elsewhere, self.log.leaving) = (true, true);
                continue;
            }
            let others = who & !(1 << index);
            elsewhere |= others != 0;
            table.put(slot, 1, others, &mut self.counts);
        }
        if forged > 0 {
            self.count_forged(index, forged);
            if self.forged.is_none() || !elsewhere {
                self.forged = Some(index);
            }
            self.mend.wake();
            let told = self.peers.get_mut(index).is_some_and(|peer| core::mem::replace(&mut peer.forged, true));
            if elsewhere && !told {
                self.tell(News::Forged(index));
            }
        }
        !(elsewhere || again)
    }
}

#[cfg(test)]
mod tests;
