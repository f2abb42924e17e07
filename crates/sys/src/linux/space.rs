//! The space of the own store's files: had in steps, given back in segments, and counted with the session where that has a
//! limit for all of its processes.

use super::{LinuxMachine, PUNCHED};
use crate::file::{self, Fd};
use crate::memory::MapSlice;
use crate::{Errno, Wait};
use ream_page::{PAGE_BYTES, Slot, StoreId, VOLUMES};
use ream_stats::{Ledger, Process};

/// Slots in which space is given back.
const SEGMENT: u32 = 512;

/// What is known of it.
pub(super) struct Space {
    /// Slots of the own store that have space, by volume.
    reserved: [u32; VOLUMES],
    /// Where that of the first volume is counted.
    account: Option<(&'static Ledger, &'static Process)>,
    /// Segments of the first volume, below the mark, that are not counted: their space was given back. A bit each.
    given: MapSlice<u64>,
    given_count: u32,
    /// What was asked for last was more than the session has.
    refused: bool,
}

fn bytes(slots: u32) -> u64 {
    slots as u64 * PAGE_BYTES as u64
}

impl Space {
    pub(super) fn new() -> Space {
        Space { reserved: [0; VOLUMES], account: None, given: MapSlice::empty(), given_count: 0, refused: false }
    }

    /// Counts more; false when the session has no more.
    fn acquire(&mut self, volume: u8, slots: u32) -> bool {
        let Some((ledger, process)) = self.account.filter(|_| volume == 0) else { return true };
        self.refused = !process.acquire_store(ledger, bytes(slots));
        !self.refused
    }

    fn give_back(&mut self, volume: u8, slots: u32) {
        if let Some((ledger, process)) = self.account.filter(|_| volume == 0) {
            process.give_back_store(ledger, bytes(slots));
        }
    }

    /// The word and the bit of the segment in which a slot lies.
    fn bit(&mut self, place: u32) -> Option<(&mut u64, u64)> {
        let segment = place / SEGMENT;
        Some((self.given.get_mut(segment as usize / 64)?, 1 << (segment % 64)))
    }

    /// The space of slots was given back.
    fn gave(&mut self, slot: Slot, pages: u32) {
        if self.account.is_none() || slot.volume() != 0 || slot.place() % SEGMENT != 0 {
            return;
        }
        if self.given.is_empty() {
            // Addresses only, until it is used. Where there are none, what is given back stays counted.
            let words = Slot::most(0).div_ceil(SEGMENT * 64) as usize;
            self.given = MapSlice::new(words).unwrap_or(MapSlice::empty());
        }
        for segment in 0..pages / SEGMENT {
            let Some((word, bit)) = self.bit(slot.place() + segment * SEGMENT) else { return };
            if *word & bit == 0 {
                *word |= bit;
                self.given_count += 1;
                self.give_back(0, SEGMENT);
            }
        }
    }

    /// Counts the segment of a slot again, should its space have been given back; false when the session has no more.
    fn take_again(&mut self, slot: Slot) -> bool {
        let given = self.bit(slot.place()).is_some_and(|(word, bit)| *word & bit != 0);
        if !given {
            return true;
        }
        let taken = self.acquire(0, SEGMENT);
        if let Some((word, bit)) = self.bit(slot.place()).filter(|_| taken) {
            *word &= !bit;
            self.given_count -= 1;
        }
        taken
    }
}

impl LinuxMachine {
    /// The space of the first volume's file is counted there from now on, and is no more than what is left there.
    pub fn count_space(&mut self, ledger: &'static Ledger, process: &'static Process) {
        self.space.account = Some((ledger, process));
    }

    pub(super) fn grow(&mut self, volume: u8, slots: u32) -> Result<(), Errno> {
        let fd = self.file(StoreId::OWN, volume);
        let Some(reserved) = self.space.reserved.get(volume as usize).copied() else { return Err(Errno::INVAL) };
        // Only what is beyond the mark: space that was punched out comes back when it is written.
        if slots <= reserved || fd == Fd::NONE {
            return Ok(());
        }
        if !self.space.acquire(volume, slots - reserved) {
            return Err(Errno::NOSPC);
        }
        let from = Slot(reserved).offset();
        file::allocate(fd, from, Slot(slots).offset() - from)
            .inspect_err(|_| self.space.give_back(volume, slots - reserved))?;
        if let Some(reserved) = self.space.reserved.get_mut(volume as usize) {
            *reserved = slots;
        }
        Ok(())
    }

    pub(super) fn take_space_again(&mut self, slot: Slot, pages: u32) -> bool {
        if slot.volume() != 0 || self.space.account.is_none() {
            return true;
        }
        // It is counted until then.
        self.settle_punches(slot, pages);
        self.space.given_count == 0 || self.space.take_again(slot)
    }

    pub(super) fn give_space(&mut self, slot: Slot, pages: u32) {
        if let Some(remote) = &mut self.remote {
            remote.forget(slot, pages);
        }
        let fd = self.file(StoreId::OWN, slot.volume());
        if fd == Fd::NONE {
            return;
        }
        let free = self.punches.iter_mut().enumerate().find(|(_, (_, count))| *count == 0);
        if let Some((index, punch)) = free {
            if self.io.punch(fd, slot.offset(), bytes(pages), PUNCHED | index as u64).is_ok() {
                *punch = (slot.0, pages);
                return;
            }
        }
        if file::punch(fd, slot.offset(), bytes(pages)).is_ok() {
            self.space.gave(slot, pages);
        }
    }

    /// A punch has ended.
    pub(super) fn punched(&mut self, index: u32, result: i32) {
        let Some(punch) = self.punches.get_mut(index as usize) else { return };
        let (slot, pages) = core::mem::take(punch);
        if result >= 0 && pages > 0 {
            self.space.gave(Slot(slot), pages);
        }
    }

    /// Waits until no punch in flight touches the slots: a late punch would erase what is written to them.
    pub(super) fn settle_punches(&mut self, slot: Slot, pages: u32) {
        let touches = |punches: &[(u32, u32)]| {
            punches.iter().any(|(first, count)| {
                *count > 0 && *first < slot.0.saturating_add(pages) && slot.0 < first.saturating_add(*count)
            })
        };
        while touches(&self.punches) {
            if self.io.enter(Wait::Forever).is_err() {
                return;
            }
            while let Some(completion) = self.io.take() {
                if let Some((tag, result)) = self.complete(completion) {
                    self.end(tag, result);
                }
            }
        }
    }

    pub(super) fn space_left(&self, volume: u8) -> u32 {
        match self.space.account.filter(|_| volume == 0) {
            Some((ledger, _)) => (ledger.store_free() / PAGE_BYTES as u64).min(u32::MAX.into()) as u32,
            None => u32::MAX,
        }
    }

    pub(super) fn has_space_again(&mut self) -> bool {
        let again = self.space.refused && self.space_left(0) >= SEGMENT;
        self.space.refused &= !again;
        again
    }
}
