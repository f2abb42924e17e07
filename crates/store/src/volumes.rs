//! The slots of all files of a store: one slot allocator for each volume, behind the numbers by which slots are known.

use crate::slots::{Slots, SlotsFull};
use ream_page::{Slot, VOLUMES};
use ream_sys::Errno;

/// All slots of one process's store.
pub struct Volumes {
    /// By volume. The first is always there.
    list: [Option<Slots>; VOLUMES],
    /// Those to which nothing more is written.
    closed: [bool; VOLUMES],
}

/// A slot by its place in its volume.
fn local(slot: Slot) -> Slot {
    Slot(slot.place())
}

impl Volumes {
    /// A store with one volume of at most `limit` slots (rounded down to whole segments, at least one).
    pub fn new(limit: u32) -> Result<Volumes, Errno> {
        let mut list = [const { None }; VOLUMES];
        list[0] = Some(Slots::new(limit.min(Slot::most(0)))?);
        Ok(Volumes { list, closed: [false; VOLUMES] })
    }

    /// Adds a volume of at most `limit` slots, unless it is there.
    pub fn add(&mut self, volume: u8, limit: u32) -> Result<(), Errno> {
        let place = self.list.get_mut(volume as usize).ok_or(Errno::INVAL)?;
        if place.is_none() {
            *place = Some(Slots::new(limit.min(Slot::most(volume)))?);
        }
        Ok(())
    }

    /// Whether there is this volume.
    pub fn has(&self, volume: u8) -> bool {
        self.get(volume).is_some()
    }

    fn get(&self, volume: u8) -> Option<&Slots> {
        self.list.get(volume as usize)?.as_ref()
    }

    fn get_mut(&mut self, volume: u8) -> Option<&mut Slots> {
        self.list.get_mut(volume as usize)?.as_mut()
    }

    fn each_mut(&mut self) -> impl Iterator<Item = (u8, &mut Slots)> {
        self.list.iter_mut().enumerate().filter_map(|(volume, slots)| Some((volume as u8, slots.as_mut()?)))
    }

    /// Slots that hold content, limbo included.
    pub fn in_use(&self) -> u64 {
        self.list.iter().flatten().map(Slots::in_use).sum()
    }

    /// Slots that must exist in a volume's file: its length in slots.
    pub fn length(&self, volume: u8) -> u32 {
        self.get(volume).map_or(0, Slots::length)
    }

    /// Most slots that a volume may have.
    pub fn limit(&self, volume: u8) -> u32 {
        self.get(volume).map_or(0, Slots::limit)
    }

    /// Takes up to `want` (1 to 512) consecutive slots of a volume, as [`Slots::take`] does.
    pub fn take(&mut self, volume: u8, want: u32) -> Result<(Slot, u32), SlotsFull> {
        let open = self.closed.get(volume as usize) == Some(&false);
        let slots = self.get_mut(volume).filter(|_| open).ok_or(SlotsFull)?;
        let (slot, count) = slots.take(want)?;
        Ok((Slot::at(volume, slot.0), count))
    }

    /// Nothing more is written to a volume, which cannot be done any more; what it holds stays.
    pub fn close(&mut self, volume: u8) {
        if let Some(closed) = self.closed.get_mut(volume as usize) {
            *closed = true;
        }
    }

    /// Lowers a volume's limit to what its file has now, after the file system refused more.
    pub fn stop_growing(&mut self, volume: u8, slots: u32) {
        if let Some(known) = self.get_mut(volume) {
            known.stop_growing(slots);
        }
    }

    /// Sets the first volume's limit, within what it was made for: see [`Slots::set_limit`].
    pub fn set_limit(&mut self, slots: u32) {
        if let Some(first) = self.get_mut(0) {
            first.set_limit(slots);
        }
    }

    /// Raises the first volume's limit to what it was: the file system may have room again.
    pub fn grow_again(&mut self) {
        if let Some(slots) = self.get_mut(0) {
            slots.grow_again();
        }
    }

    /// What keeps the store had no space for a slot: see [`Slots::refuse`].
    pub fn refuse(&mut self, slot: Slot) {
        if let Some(slots) = self.get_mut(slot.volume()) {
            slots.refuse(local(slot));
        }
    }

    /// Slots whose space is not needed soon: see [`Slots::spare`].
    pub fn spare(&mut self) -> Option<(Slot, u32)> {
        self.each_mut().find_map(|(volume, slots)| {
            let (slot, count) = slots.spare()?;
            Some((Slot::at(volume, slot.0), count))
        })
    }

    /// Lets go of a slot. One that a forked process may still read stays taken until [`Volumes::thaw`]: then false.
    pub fn free(&mut self, slot: Slot) -> bool {
        self.get_mut(slot.volume()).is_some_and(|slots| slots.free(local(slot)))
    }

    /// Takes a slot out of service that the device cannot write.
    pub fn abandon(&mut self, slot: Slot) {
        if let Some(slots) = self.get_mut(slot.volume()) {
            slots.abandon(local(slot));
        }
    }

    /// Whether the slot's content may be overwritten where it is.
    pub fn may_overwrite(&self, slot: Slot) -> bool {
        let open = self.closed.get(slot.volume() as usize) == Some(&false);
        open && self.get(slot.volume()).is_some_and(|slots| slots.may_overwrite(local(slot)))
    }

    /// A fork: what is taken now may be read by another process until [`Volumes::thaw`].
    pub fn freeze(&mut self) {
        self.each_mut().for_each(|(_, slots)| slots.freeze());
    }

    /// Whether a freeze is on.
    pub fn is_frozen(&self) -> bool {
        self.list.iter().flatten().any(Slots::is_frozen)
    }

    /// The last lease has ended: slots in limbo become free, which `freed` is told of.
    pub fn thaw(&mut self, freed: &mut dyn FnMut(Slot)) {
        self.each_mut().for_each(|(volume, slots)| slots.thaw(&mut |slot| freed(Slot::at(volume, slot.0))));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn volumes_are_filled_and_freed_apart() {
        let mut volumes = Volumes::new(1024).unwrap();
        assert_eq!(volumes.take(2, 8), Err(SlotsFull), "a volume that is not there");
        volumes.add(2, 512).unwrap();
        volumes.add(2, 1 << 20).unwrap();
        assert_eq!((volumes.has(1), volumes.has(2), volumes.limit(2)), (false, true, 512));
        assert!(volumes.add(VOLUMES as u8, 512).is_err());
        let (one, _) = volumes.take(0, 512).unwrap();
        let (other, count) = volumes.take(2, 512).unwrap();
        assert_eq!((one.volume(), other.volume(), other.place(), count), (0, 2, 0, 512));
        assert_eq!((volumes.in_use(), volumes.length(0), volumes.length(2)), (1024, 512, 512));
        assert_eq!(volumes.take(2, 1), Err(SlotsFull));
        volumes.freeze();
        assert!(volumes.is_frozen() && !volumes.may_overwrite(other));
        assert!(!volumes.free(other));
        let mut freed = Vec::new();
        volumes.thaw(&mut |slot| freed.push(slot));
        assert_eq!(freed, [other]);
        assert!(volumes.free(one) && volumes.free(other.plus(1)));
        assert_eq!(volumes.in_use(), 1021);
        assert_eq!(volumes.take(2, 2), Ok((other, 2)));
    }

    #[test]
    fn nothing_is_written_to_a_closed_volume() {
        let mut volumes = Volumes::new(1024).unwrap();
        volumes.add(1, 512).unwrap();
        let (slot, _) = volumes.take(1, 4).unwrap();
        volumes.close(1);
        assert_eq!(volumes.take(1, 4), Err(SlotsFull));
        assert!(!volumes.may_overwrite(slot) && volumes.free(slot));
        assert!(volumes.take(0, 4).is_ok());
        // Whose space is given back is told by the numbers of its own volume.
        let mut volumes = Volumes::new(512).unwrap();
        volumes.add(3, 40 * 512).unwrap();
        let taken: Vec<Slot> = (0..40).map(|_| volumes.take(3, 512).unwrap().0).collect();
        for slot in taken {
            (0..512).for_each(|index| _ = volumes.free(slot.plus(index)));
        }
        let (spare, pages) = volumes.spare().unwrap();
        assert_eq!((spare.volume(), pages), (3, 512));
    }
}
