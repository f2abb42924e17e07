//! Reads where pages have a sum: from the server that has them, or, when that is lost, computed from what the others of
//! their group have.

use super::changes::Change;
use super::groups::{ROW, ROWS, add};
use super::{AHEAD, DEMAND, Remote};
use crate::Errno;
use crate::memory::MapSlice;
use crate::queue::Queue;
use ream_page::PAGE_BYTES;
use ream_stats::SERVERS;
use ream_wire::SEAL;
use ream_wire::seal::Place;

/// Runs of pages that are computed at once.
const BUILDS: usize = 8;

/// A run of pages that is computed: what its read receives is added up.
#[derive(Clone, Copy)]
struct Build {
    /// One more than the read's tag; 0 when it is free.
    read: u32,
    pages: u32,
    /// Whose column it is.
    server: u32,
    row: u32,
    /// Bit by server: it is still to be asked.
    left: u32,
    /// Rows of the group that each had when that began. A group that is open gets more, which the sum of then knows nothing of.
    rows: [u8; SERVERS],
}

const _: () = assert!(ROWS <= u8::MAX as u32, "rows fit");

/// What is being computed.
pub(super) struct Builds {
    builds: [Build; BUILDS],
    memory: MapSlice<u8>,
    /// Reads that wait for one of them, or for pages of their group that are on their way.
    waiting: Queue<u32>,
}

/// Where a page is to be had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Nowhere,
    At {
        server: usize,
        row: u32,
    },
    /// It was lost there.
    Lost {
        server: usize,
        row: u32,
    },
    /// Copies of an ancestor's page, bit by server.
    Copied(u32),
}

const FREE: Build = Build { read: 0, pages: 0, server: 0, row: 0, left: 0, rows: [0; SERVERS] };
/// Bytes of a run.
const RUN: usize = ROWS as usize * ROW;

impl Builds {
    /// None.
    pub(super) const fn none() -> Builds {
        Builds { builds: [FREE; BUILDS], memory: MapSlice::empty(), waiting: Queue::none() }
    }

    pub(super) fn new(reads: usize) -> Result<Builds, Errno> {
        Ok(Builds { memory: MapSlice::new(BUILDS * RUN)?, waiting: Queue::new(reads)?, ..Builds::none() })
    }

    fn of(&self, tag: u32) -> Option<usize> {
        self.builds.iter().position(|build| build.read == tag + 1)
    }

    fn release(&mut self, tag: u32) {
        if let Some(build) = self.of(tag).and_then(|number| self.builds.get_mut(number)) {
            *build = FREE;
        }
    }

    /// The sum of a row.
    fn row(&mut self, number: usize, row: u32) -> &mut [u8] {
        let first = number * RUN + row as usize * ROW;
        self.memory.as_mut_slice().get_mut(first..first + ROW).unwrap_or(&mut [])
    }

    /// Whether a read waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Remote {
    fn spot(&self, table: u32, slot: u32) -> Spot {
        let Some(table) = self.tables.get(table as usize) else { return Spot::Nowhere };
        let copied = table.copies_of(slot) & self.up;
        if copied != 0 {
            return Spot::Copied(copied);
        }
        let (Some((server, spoilt)), Some(groups)) = (table.column_of(slot), table.groups()) else {
            return Spot::Nowhere;
        };
        let row = groups.row(slot);
        let lost = groups.of(slot).is_none_or(|it| it.lost >> server & 1 != 0) || self.up >> server & 1 == 0;
        if lost || spoilt { Spot::Lost { server, row } } else { Spot::At { server, row } }
    }

    /// Asks for the next part of a read.
    pub(super) fn route_row(&mut self, tag: u32) {
        self.unpin(tag);
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        let (first, end) = (op.slot + op.done, op.slot + op.pages);
        self.mend.reads_again(tag, first);
        if let Some(op) = self.ops.get_mut(tag as usize) {
            // The rows are those of now, whenever they are asked for.
            op.changes = self.changes.count();
        }
        let spot = self.spot(op.table, first);
        // As long as the rows, too, follow one another in one group.
        let follows = |slot: &u32| match (spot, self.spot(op.table, *slot)) {
            (Spot::At { server, row }, Spot::At { server: other, row: next })
            | (Spot::Lost { server, row }, Spot::Lost { server: other, row: next }) => {
                server == other && next == row + (slot - first) && next / ROWS == row / ROWS
            }
            (one, other) => one == other,
        };
        let pages = (first..end).take_while(follows).count() as u32;
        if let Some(op) = self.ops.get_mut(tag as usize) {
            (op.part, op.peer) = (pages, u32::MAX);
        }
        match spot {
            // Never written, or being written: nobody wants them, the hash would tell.
            Spot::Nowhere => {
                // SAFETY: frames of the read, which nobody else uses before its end is told.
                unsafe {
                    let start = core::ptr::with_exposed_provenance_mut::<u8>(op.place());
                    start.write_bytes(0, pages as usize * PAGE_BYTES);
                }
                self.part_read(tag);
            }
            Spot::At { server, row } => {
                let store = self.tables.get(op.table as usize).and_then(|table| table.stores.get(server)).copied();
                self.pin(tag, row / ROWS);
                self.ask(tag, server, store.unwrap_or(0), row, pages);
            }
            Spot::Copied(who) => {
                let lane = if op.lane as usize == DEMAND { DEMAND } else { AHEAD };
                let Some(server) = self.nearest(who, lane) else { return self.park(tag) };
                let store = self.tables.get(op.table as usize).and_then(|table| table.attics.get(server)).copied();
                self.ask(tag, server, store.unwrap_or(0), first, pages);
            }
            Spot::Lost { server, row } => self.build(tag, server, row, pages),
        }
    }

    /// Has a server asked for a part of a read.
    fn ask(&mut self, tag: u32, server: usize, store: u32, at: u32, pages: u32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        let lane = if op.lane as usize == DEMAND { DEMAND } else { AHEAD };
        let peer = self.peers.get_mut(server).filter(|peer| peer.is_up());
        let queued = peer.and_then(|peer| peer.todo.get_mut(lane)).is_some_and(|queue| queue.push(tag));
        if queued {
            (op.part, op.peer, op.store, op.at) = (pages, server as u32, store, at);
        } else {
            self.park(tag);
        }
    }

    fn pin(&mut self, tag: u32, group: u32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        op.pinned = group + 1;
        if let Some(groups) = self.tables.get_mut(op.table as usize).and_then(|table| table.groups_mut()) {
            groups.pin(group, true);
        }
    }

    /// Lets go of what a part of a read was done with.
    pub(super) fn unpin(&mut self, tag: u32) {
        let Some(op) = self.ops.get_mut(tag as usize) else { return };
        let pinned = core::mem::take(&mut op.pinned);
        if pinned > 0 {
            let groups = self.tables.get_mut(op.table as usize).and_then(|table| table.groups_mut());
            groups.into_iter().for_each(|groups| groups.pin(pinned - 1, false));
        }
        self.builds.release(tag);
    }

    /// Begins to compute a part of a read.
    fn build(&mut self, tag: u32, server: usize, row: u32, pages: u32) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        let group = row / ROWS;
        let Some(groups) = self.tables.get_mut(op.table as usize).and_then(|table| table.groups_mut()) else { return };
        let Some(it) = groups.get(group).copied() else { return };
        // A column that is not lost may have a page in it that is not genuine: then none must be lost.
        let others = (0..self.count).filter(|index| *index != server && it.rows_of(*index) > row % ROWS);
        let sources = others.fold(0u32, |all, index| all | 1 << index);
        let sum = it.sum_at().map_or(0, |index| 1 << index);
        let possible = it.is_rebuildable() && sources & u32::from(it.lost) == 0;
        if !possible {
            if let Some(op) = self.ops.get_mut(tag as usize) {
                op.part = 1;
            }
            // SAFETY: frames of the read, which nobody else uses before its end is told.
            unsafe { core::ptr::with_exposed_provenance_mut::<u8>(op.place()).write_bytes(0, PAGE_BYTES) };
            // It is nowhere from now on. Whether anybody wanted it, the pager's hash tells.
            if let Some(table) = self.tables.get_mut(op.table as usize) {
                table.give_up(op.slot + op.done, &mut self.counts);
            }
            (self.forged, self.log.stale) = (self.forged.or(Some(server)), true);
            return self.part_read(tag);
        }
        // What is on its way to others was added to the sum already.
        let number = if it.open > 0 { None } else { self.builds.builds.iter().position(|build| build.read == 0) };
        let Some(number) = number else {
            self.builds.waiting.push(tag);
            return;
        };
        for at in 0..pages {
            let place = self.builds.row(number, at);
            place.fill(0);
            add(place, groups.sum(group, row + at, 1));
        }
        let rows = |index: usize| if sum >> index & 1 != 0 { it.rows() } else { it.rows_of(index) };
        if let Some(build) = self.builds.builds.get_mut(number) {
            let rows = core::array::from_fn(|index| rows(index) as u8);
            *build = Build { read: tag + 1, pages, server: server as u32, row, left: sources | sum, rows };
        }
        self.pin(tag, group);
        self.build_on(tag, number);
    }

    /// Asks the next of the others.
    fn build_on(&mut self, tag: u32, number: usize) {
        let (Some(build), Some(op)) = (self.builds.builds.get_mut(number), self.ops.get(tag as usize)) else { return };
        if build.left == 0 {
            return self.built(tag, number);
        }
        let (server, row) = (build.left.trailing_zeros() as usize, build.row);
        build.left &= build.left - 1;
        let Some(table) = self.tables.get(op.table as usize) else { return };
        let rows = build.rows.get(server).copied().unwrap_or(0);
        let pages = build.pages.min(u32::from(rows).saturating_sub(row % ROWS));
        let store = table.stores.get(server).copied().unwrap_or(0);
        self.ask(tag, server, store, row, pages);
    }

    /// One of the others has answered. False when the read is none that is computed.
    pub(super) fn build_answered(&mut self, index: usize, which: usize, tag: u32) -> bool {
        let Some(number) = self.builds.of(tag) else { return false };
        let Some(op) = self.ops.get(tag as usize).copied() else { return false };
        let lane = self.peers.get(index).and_then(|peer| peer.lanes.as_ref()).and_then(|lanes| lanes.get(which));
        for at in 0..op.part {
            let seal = lane.and_then(|lane| lane.seal(at)).unwrap_or_default();
            // SAFETY: a frame of the read, whose bytes have come, and which nobody else uses before its end is told.
            let page = unsafe {
                let start = core::ptr::with_exposed_provenance(op.place() + at as usize * PAGE_BYTES);
                core::slice::from_raw_parts(start, PAGE_BYTES)
            };
            if let Some((sum, sum_seal)) = self.builds.row(number, at).split_at_mut_checked(PAGE_BYTES) {
                add(sum, page);
                add(sum_seal, &seal);
            }
        }
        self.build_on(tag, number);
        true
    }

    /// All are added up: that is what was lost.
    fn built(&mut self, tag: u32, number: usize) {
        let (Some(build), Some(op)) = (self.builds.builds.get(number).copied(), self.ops.get(tag as usize).copied())
        else {
            return;
        };
        let other = if op.table == 0 { None } else { self.key_of(op.table) };
        let key = other.as_ref().unwrap_or(&self.key);
        let Some(table) = self.tables.get(op.table as usize) else { return };
        let mut wrong = false;
        for at in 0..build.pages {
            // SAFETY: a frame of the read, which nobody else uses before its end is told.
            let page = unsafe {
                let start = core::ptr::with_exposed_provenance_mut(op.place() + at as usize * PAGE_BYTES);
                core::slice::from_raw_parts_mut(start, PAGE_BYTES)
            };
            let Some((sum, seal)) = self.builds.row(number, at).split_at_checked(PAGE_BYTES) else { break };
            page.copy_from_slice(sum);
            let slot = op.slot + op.done + at;
            let place = Place { lease: table.lease, store: table.store, slot, version: table.version(slot) };
            let seal: &[u8; SEAL] = seal.try_into().unwrap_or(&[0; SEAL]);
            if self.config.sealed && key.open(&place, page, seal) {
                self.mend.opened(tag, slot);
                continue;
            }
            if !self.config.sealed || table.column_of(slot).is_none() {
                continue;
            }
            // A page that was written anew meanwhile nobody wants.
            match self.changes.since(op.changes, op.table, slot) {
                Some(Change::Written) => {}
                Some(Change::No) => wrong = true,
                // It is somewhere else, or may be.
                Some(Change::Moved) | None => return self.route_row(tag),
            }
        }
        if wrong {
            self.forged = self.forged.or(Some(build.server as usize));
        }
        if let Some(op) = self.ops.get_mut(tag as usize) {
            op.part = build.pages;
        }
        self.part_read(tag);
    }

    /// Tries again what waited for others.
    pub(super) fn advance_builds(&mut self) {
        for _ in 0..self.builds.waiting.len() {
            let Some(tag) = self.builds.waiting.pop() else { return };
            self.route_row(tag);
        }
    }
}

#[cfg(test)]
mod tests;
