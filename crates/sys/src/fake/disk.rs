//! The fake's stores: slots with their contents, a capacity, bad slots, and the operations in flight on them.

use super::memory::Content;
use ream_page::{Page, Pages, Slot, VOLUMES};
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

pub(super) const EIO: u16 = 5;
pub(super) const ENOSPC: u16 = 28;

/// One store file. Forked processes share it.
#[derive(Default, Debug)]
pub(super) struct Disk {
    /// Written slots.
    pub slots: BTreeMap<u32, Content>,
    /// Slots with space behind them.
    allocated: BTreeSet<u32>,
    /// How many those are, by volume.
    taken: [u32; VOLUMES],
    /// By volume, how many of its first slots have been reserved at some time.
    pub reserved: [u32; VOLUMES],
    /// By volume, slots that there is space for; 0 where there is no such volume.
    pub capacity: [u32; VOLUMES],
    /// As at a memory server: a write claims space for so many slots side by side, and a reservation claims none. 0: as on a
    /// disk.
    pub unit: u32,
    /// Slots that answer EIO.
    pub bad: BTreeSet<u32>,
    /// Slots that alone hold what a forked child may still read.
    pub frozen: BTreeSet<u32>,
}

impl Disk {
    pub fn new(capacity: u32) -> Disk {
        let mut disk = Disk::default();
        disk.capacity[0] = capacity;
        disk
    }

    /// Claims space for one slot; false when the disk is full.
    pub fn claim(&mut self, slot: u32) -> bool {
        if self.allocated.contains(&slot) {
            return true;
        }
        let (volume, unit) = (Slot(slot).volume(), self.unit.max(1));
        if self.used(volume) + unit > self.capacity[volume as usize] {
            return false;
        }
        self.taken[volume as usize] += unit;
        self.allocated.extend((0..unit).map(|index| slot / unit * unit + index));
        true
    }

    /// Claims space for the first slots of a volume; what was claimed stays claimed when it fails, as fallocate leaves it.
    pub fn reserve(&mut self, volume: u8, slots: u32) -> bool {
        let reserved = self.reserved[volume as usize];
        if self.unit == 0 && !(reserved..slots).all(|place| self.claim(Slot::at(volume, place).0)) {
            return false;
        }
        self.reserved[volume as usize] = reserved.max(slots);
        true
    }

    pub fn punch(&mut self, slot: u32) {
        self.slots.remove(&slot);
        if self.allocated.remove(&slot) {
            self.taken[Slot(slot).volume() as usize] -= 1;
        }
    }

    /// Slots of a volume that take space.
    pub fn used(&self, volume: u8) -> u32 {
        self.taken[volume as usize]
    }
}

/// What an operation in flight does.
#[derive(Debug)]
pub(super) enum Work {
    Read {
        store: u8,
        slot: u32,
        frame: u32,
    },
    Write {
        slot: u32,
        frames: Vec<u32>,
    },
    /// The helper's MADV_POPULATE_WRITE, at this page.
    Unshare {
        pages: Pages,
        next: Page,
    },
}

/// How it will end, decided when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Whole,
    /// After so many bytes.
    Short(u32),
    Error(u16),
}

/// An operation in flight.
#[derive(Debug)]
pub(super) struct Op {
    pub tag: u32,
    pub work: Work,
    pub outcome: Outcome,
    /// Handed to the device by a poll; before that it cannot end.
    pub submitted: bool,
    /// When it ends, on the fake clock.
    pub finish_us: u64,
    /// Pages already transferred.
    pub moved: Vec<bool>,
}

impl Op {
    /// The slots it writes.
    pub fn written_slots(&self) -> Option<(u32, u32)> {
        match &self.work {
            Work::Write { slot, frames } => Some((*slot, slot + frames.len() as u32)),
            _ => None,
        }
    }
}
