//! Writes: to whom, what was answered, and who has a page then.

use super::changes::Change;
use super::log::PIECE;
use super::peer::Peer;
use super::{CHUNK, Lost, Message, News, Remote, SEGMENT, SPILLED, WRITE};
use crate::file::Part;
use crate::{Errno, process};
use ream_page::PAGE_BYTES;
use ream_wire::MOST_PAGES;
use ream_wire::message::{Kind, Status};
use ream_wire::seal::Place;

/// Bytes that a segment of slots takes at a server.
const SEGMENT_BYTES: u64 = SEGMENT as u64 * 4096;
/// What every server is taken to be away at least, in sixteenths of a microsecond: small differences do not matter.
const NEAR: u64 = 200 * 16;

impl Remote {
    /// Of the servers that can be used the one with the most memory, by how far away it is. Those that are about to end are, where
    /// no other has room.
    pub(super) fn choose(&mut self, without: u32) -> Option<usize> {
        let now = process::now_us();
        let stays = |peer: &Peer| peer.is_up() && !peer.ending && !peer.is_full(now);
        // Where there is a disk below, that has room.
        let some_stay = self.config.below || self.peers.iter().take(self.count).any(stays);
        let mut best: Option<(u64, usize)> = None;
        for (index, peer) in self.peers.iter_mut().enumerate().take(self.count) {
            let told = self.config.session.servers().get(index).map_or(0, |server| server.free());
            peer.told(told);
            if without >> index & 1 != 0 || !peer.is_up() || peer.ending && some_stay || peer.is_full(now) {
                continue;
            }
            let worth = (peer.free / 4096 + 1) * 1024 / (peer.latency + NEAR);
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// Whether no server is away.
    pub(super) fn all_are_up(&self) -> bool {
        self.up == (1 << self.count) - 1
    }

    /// Servers for slots of a segment: those that have it, and as many more as it takes.
    pub(super) fn targets(&mut self, slot: u32) -> u32 {
        let leaving = self.counts.leaving();
        if self.count == 1 && !self.config.below {
            let elsewhere = self.spill.as_ref().is_some_and(|spill| spill.works(process::now_us()));
            return if elsewhere { self.up & !leaving } else { self.up };
        }
        let segment = (slot / SEGMENT) as usize;
        let mut homes = u32::from(self.homes.get(segment).copied().unwrap_or(0)) & self.up & !leaving;
        while homes.count_ones() < self.config.replicas {
            let Some(index) = self.choose(homes) else { break };
            homes |= 1 << index;
            if let Some(peer) = self.peers.get_mut(index) {
                peer.free = peer.free.saturating_sub(SEGMENT_BYTES);
            }
        }
        if let Some(place) = self.homes.get_mut(segment) {
            *place = homes as u8;
        }
        homes
    }

    /// Sends a write on its way.
    pub(super) fn begin_write(&mut self, tag: u32) {
        if self.log.is_some() {
            return self.begin_pieces(tag);
        }
        let Some(slot) = self.ops.get(tag as usize).map(|op| op.slot) else { return };
        let targets = self.targets(slot);
        if self.config.below {
            return self.begin_above(tag, targets);
        }
        let spilled = if self.spill.is_some() { SPILLED } else { 0 };
        if targets | spilled == 0 {
            if self.makes_room(tag) {
                return;
            }
            let all = self.all_are_up();
            match self.ops.get_mut(tag as usize).filter(|_| all) {
                Some(op) => {
                    op.failed = Errno::NOSPC.negative();
                    self.settle(tag);
                }
                // It waits for whoever comes back first.
                None => self.park(tag),
            }
            return;
        }
        self.send_to(tag, targets | spilled);
    }

    /// Where there is a disk below the servers: to as many of these as each page goes to, else there.
    fn begin_above(&mut self, tag: u32, targets: u32) {
        let Some((slot, pages)) = self.ops.get(tag as usize).map(|op| (op.slot, op.pages)) else { return };
        if targets.count_ones() >= self.config.replicas {
            self.written_above(slot);
            return self.send_to(tag, targets);
        }
        self.config.process.counters.servers_passed.add(pages.into());
        self.send_to(tag, SPILLED);
    }

    /// Adds to those that a write goes to.
    pub(super) fn send_to(&mut self, tag: u32, targets: u32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.targets |= targets;
        for (_, peer) in self.peers.iter_mut().enumerate().filter(|(index, _)| targets >> index & 1 != 0) {
            // As many places as there are operations.
            peer.todo[WRITE].push(tag);
        }
        if targets & SPILLED != 0 {
            if let Some(spill) = &mut self.spill {
                spill.writes.push(tag);
            }
        }
        self.settle(tag);
    }

    /// Makes the next message of a lane for pages to be kept.
    pub(super) fn compose_write(&mut self, index: usize) -> Result<bool, Lost> {
        let Some(peer) = self.peers.get_mut(index) else { return Ok(false) };
        let Some(lane) = peer.lanes.as_mut().map(|lanes| &mut lanes[WRITE]) else { return Ok(false) };
        // Forgetting first: what is written later may be the same slots.
        if let Some((slot, pages)) = peer.frees.pop() {
            let store = self.tables.get(0).and_then(|own| own.stores.get(index)).copied().unwrap_or(0);
            lane.request(Kind::Free, u32::MAX, store, slot, pages.min(MOST_PAGES as u32) as u16);
            return Ok(true);
        }
        let Some(tag) = peer.writing.take().or_else(|| peer.todo[WRITE].pop()) else { return Ok(false) };
        if tag & PIECE != 0 {
            return self.compose_piece(index, tag & !PIECE);
        }
        let Some(op) = self.ops.get(tag as usize).copied() else { return Ok(false) };
        let bit = 1 << index;
        if op.open() & bit == 0 {
            return Ok(true);
        }
        let done = u32::from(op.sent.get(index).copied().unwrap_or(0));
        let count = CHUNK.min(op.pages - done);
        let first = op.slot + done;
        // What is copied must be what was written last, since its seal is that of the last.
        if let Some(job) = tag.checked_sub(self.config.io_limit) {
            if !self.mend.is_current(job as usize, &self.tables) {
                self.part_failed(tag, index, Errno::AGAIN.negative());
                return Ok(true);
            }
        }
        if !lane.begin(count) {
            // Behind what is to be sent before it.
            peer.writing = Some(tag);
            return Ok(false);
        }
        let other = if op.table == 0 {
            None
        } else {
            self.tables.get(op.table as usize).and_then(|table| super::PageKey::new(&table.key))
        };
        let key = self.config.sealed.then_some(other.as_ref().unwrap_or(&self.key));
        let Some(table) = self.tables.get(op.table as usize) else { return Ok(false) };
        // SAFETY: the list and the frames do not change until the end of the write has been told.
        let parts = unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
        };
        let (mut skip, mut put) = (done as usize * PAGE_BYTES, 0);
        for part in parts {
            let gone = skip.min(part.bytes);
            skip -= gone;
            let mut at = part.address + gone;
            while at < part.address + part.bytes && put < count {
                let slot = first + put;
                // The same seal for every server: the same page, the same number.
                let place = Place { lease: table.lease, store: table.store, slot, version: table.version(slot) };
                // SAFETY: a frame, whole.
                unsafe { lane.page(put, count, at, key, &place) };
                put += 1;
                at += PAGE_BYTES;
            }
        }
        lane.end(tag, table.store_for(index), first, count);
        if let Some(sent) = self.ops.get_mut(tag as usize).and_then(|op| op.sent.get_mut(index)) {
            *sent += count as u16;
            if u32::from(*sent) < op.pages {
                peer.writing = Some(tag);
            }
        }
        // One at a time: what others have asked for meanwhile is looked at before the next.
        Ok(false)
    }

    /// A server has answered to a part of a write.
    pub(super) fn write_answered(&mut self, index: usize, message: &Message, status: Status) -> Result<(), Lost> {
        let tag = message.tag;
        if tag & PIECE != 0 {
            return self.piece_answered(index, message, status);
        }
        let op = self.ops.get_mut(tag as usize).ok_or(Lost::Refused)?;
        let (Some(answered), pages) = (op.answered.get_mut(index), op.pages) else { return Err(Lost::Refused) };
        *answered += message.request.pages;
        let (answered, sent) = (u32::from(*answered), u32::from(op.sent.get(index).copied().unwrap_or(0)));
        match status {
            Status::Done => {}
            Status::Full | Status::Quota => {
                op.failed = Errno::NOSPC.negative();
                op.bad |= 1 << index;
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.fill_up(process::now_us());
                }
                if let Some(server) = self.config.session.servers().get(index) {
                    server.press();
                }
            }
            _ => return Err(Lost::Refused),
        }
        let Some(op) = self.ops.get_mut(tag as usize) else { return Ok(()) };
        if op.bad >> index & 1 != 0 {
            // What is on its way is answered first: the place of the operation is used again.
            if answered == sent {
                self.replace(tag, index);
            }
        } else if answered == pages {
            op.good |= 1 << index;
            self.settle(tag);
        }
        Ok(())
    }

    /// A server does not get, or keep, a write.
    pub(super) fn part_failed(&mut self, tag: u32, index: usize, result: i32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.bad |= 1 << index;
        op.failed = result;
        self.replace(tag, index);
    }

    /// Finds another server for a write that one does not keep, if there is one.
    fn replace(&mut self, tag: u32, index: usize) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        let ours = tag < self.config.io_limit;
        if let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.writing == Some(tag)) {
            peer.writing = None;
        }
        let segment = (op.slot / SEGMENT) as usize;
        // Where it is on the disk already it needs nobody else.
        let enough = self.config.below && op.targets & SPILLED != 0;
        let other = if ours && self.count > 1 && !enough { self.choose(op.targets | op.bad) } else { None };
        if ours && op.table == 0 {
            // What is at home there already stays so: it may be the next segment that had no room.
            let gone = if self.has_of(op.slot / SEGMENT, index) { 0 } else { 1 << index };
            if let Some(place) = self.homes.get_mut(segment) {
                *place &= !gone;
                *place |= other.map_or(0, |other| 1 << other);
            }
        }
        match other {
            Some(other) => self.send_to(tag, 1 << other),
            None if ours && self.config.below && op.targets & SPILLED == 0 => {
                self.config.process.counters.servers_passed.add(op.pages.into());
                self.send_to(tag, SPILLED);
            }
            None if ours && (self.waits_for_new(tag) || self.makes_room(tag)) => {}
            None => self.settle(tag),
        }
    }

    /// Ends a write when nobody is left to answer.
    pub(super) fn settle(&mut self, tag: u32) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        let unanswered = |index: usize| op.sent.get(index) != op.answered.get(index);
        let busy =
            (0..self.count).any(|index| op.bad >> index & 1 != 0 && unanswered(index) && self.up >> index & 1 != 0);
        if op.open() != 0 || busy {
            return;
        }
        if tag < self.config.io_limit {
            if let Some(table) = self.tables.get_mut(op.table as usize) {
                table.put(op.slot, op.pages, op.good, &mut self.counts);
            }
            self.changes.add(op.table, op.slot, op.pages, Change::Written);
            self.is_at_home(op.slot + op.pages - 1, op.good);
            let copies = self.config.replicas + u32::from(self.config.spill);
            let enough = self.config.below && op.good & SPILLED != 0;
            if op.good != 0 && !enough && op.good.count_ones() < copies {
                self.mend.wake();
                let full = op.failed == Errno::NOSPC.negative();
                if full && !core::mem::replace(&mut self.degraded, true) {
                    self.tell(News::Degraded);
                }
            }
        }
        let result = match (op.good, op.failed) {
            (0, 0) => Errno::IO.negative(),
            (0, failed) => failed,
            _ => (op.pages as usize * PAGE_BYTES) as i32,
        };
        self.end(tag, result);
    }
}
