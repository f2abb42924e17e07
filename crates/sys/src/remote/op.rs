//! A read or a write of pages, as long as it is under way.

use crate::memory::Zeroable;
use ream_page::PAGE_BYTES;
use ream_stats::SERVERS;

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// None: its place is free.
    None,
    Read,
    Write,
}

/// A read or a write, by its tag.
#[derive(Clone, Copy)]
pub(super) struct Op {
    nature: u32,
    /// Zero for the own store, else one more than the ancestor's place.
    pub(super) table: u32,
    pub(super) slot: u32,
    pub(super) pages: u32,
    /// Pages of a read that are there, and those that are being read, from whom and by which lane.
    pub(super) done: u32,
    pub(super) part: u32,
    pub(super) peer: u32,
    pub(super) lane: u32,
    /// Changes of slots that there were when that was asked for.
    pub(super) changes: u64,
    /// Servers that a write goes to, those that have it, and those that have refused it or were lost meanwhile.
    pub(super) targets: u32,
    pub(super) good: u32,
    pub(super) bad: u32,
    /// What becomes of a write that nobody keeps.
    pub(super) failed: i32,
    /// Pages that were sent to each, and answered.
    pub(super) sent: [u16; SERVERS],
    pub(super) answered: [u16; SERVERS],
    /// The frames of a read; the list of parts of a write, and its length.
    pub(super) address: usize,
    pub(super) parts: u32,
    /// Of a write where pages have a sum: pieces that are under way, and pages that are kept.
    pub(super) pieces: u32,
    pub(super) kept: u32,
    /// Of a read there: where the part lies that is asked for, and one more than the group that must stay for it.
    pub(super) store: u32,
    pub(super) at: u32,
    pub(super) pinned: u32,
    /// Of a read where a disk is below the servers: whether servers, and the disk, had a part of it, and when it was begun.
    pub(super) from_servers: u32,
    pub(super) from_disk: u32,
    pub(super) began: u64,
}

// SAFETY: integers.
unsafe impl Zeroable for Op {}

impl Op {
    /// A free place.
    const NONE: Op = Op {
        nature: 0,
        table: 0,
        slot: 0,
        pages: 0,
        done: 0,
        part: 0,
        peer: u32::MAX,
        lane: 0,
        changes: 0,
        targets: 0,
        good: 0,
        bad: 0,
        failed: 0,
        sent: [0; SERVERS],
        answered: [0; SERVERS],
        address: 0,
        parts: 0,
        pieces: 0,
        kept: 0,
        store: 0,
        at: 0,
        pinned: 0,
        from_servers: 0,
        from_disk: 0,
        began: 0,
    };

    pub(super) fn read(table: u32, slot: u32, pages: u32, address: usize, lane: usize) -> Op {
        Op { nature: 1, table, slot, pages, address, lane: lane as u32, ..Op::NONE }
    }

    pub(super) fn write(table: u32, slot: u32, pages: u32, address: usize, parts: usize) -> Op {
        Op { nature: 2, table, slot, pages, address, parts: parts as u32, ..Op::NONE }
    }

    pub(super) fn nature(&self) -> Nature {
        match self.nature {
            1 => Nature::Read,
            2 => Nature::Write,
            _ => Nature::None,
        }
    }

    /// Nothing is under way any more.
    pub(super) fn end(&mut self) {
        self.nature = 0;
    }

    /// Where the pages of a read that come next belong.
    pub(super) fn place(&self) -> usize {
        self.address + self.done as usize * PAGE_BYTES
    }

    /// Servers from which an answer to a write is still to come.
    pub(super) fn open(&self) -> u32 {
        self.targets & !(self.good | self.bad)
    }

    /// Whether it touches slots of a store.
    pub(super) fn touches(&self, table: u32, slot: u32, pages: u32) -> bool {
        self.table == table && self.slot < slot + pages && slot < self.slot + self.pages
    }
}
