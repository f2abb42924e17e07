//! Ranges whose pages go to another volume of the store than the first, as long as there is room.

use crate::shard::Shard;
use ream_page::{Page, Run, Slot};
use ream_store::SEGMENT;
use ream_sys::memory::{MapSlice, Zeroable};
use ream_sys::{Errno, Machine};

/// Ranges that can have a volume at a time.
pub const PLACES: usize = 4096;
/// A volume grows in steps of so many slots (64 MiB), or an eighth of its size; where others share its limit, no more than an
/// eighth of what is left of that, so that none has what it does not need while others find no room.
const GROW: u32 = 16 * 1024;

#[derive(Clone, Copy)]
#[repr(C)]
struct Placed {
    start: u64,
    pages: u64,
    volume: u64,
}

// SAFETY: three integers.
unsafe impl Zeroable for Placed {}

impl Placed {
    fn run(&self) -> Run {
        Run { start: Page(self.start), pages: self.pages }
    }
}

/// Which volume the pages of ranges go to. Sorted by address.
pub struct Places {
    list: MapSlice<Placed>,
    len: usize,
}

impl Places {
    /// All pages go to the first volume.
    pub const fn new() -> Places {
        Places { list: MapSlice::empty(), len: 0 }
    }

    fn known(&self) -> &[Placed] {
        self.list.as_slice().get(..self.len).unwrap_or(&[])
    }

    /// The place of the first range that ends behind a page.
    fn behind(&self, page: Page) -> usize {
        self.known().partition_point(|placed| placed.run().end().0 <= page.0)
    }

    /// The volume that a page goes to.
    pub fn of(&self, page: Page) -> u8 {
        if self.len == 0 {
            return 0;
        }
        let placed = self.known().get(self.behind(page)).filter(|placed| placed.run().contains(page));
        placed.map_or(0, |placed| placed.volume as u8)
    }

    /// Tells each range.
    pub fn each(&self, mut tell: impl FnMut(Run, u8)) {
        self.known().iter().for_each(|placed| tell(placed.run(), placed.volume as u8));
    }

    fn insert(&mut self, at: usize, placed: Placed) -> Result<(), Errno> {
        if self.len == PLACES {
            return Err(Errno::NOMEM);
        }
        let list = self.list.as_mut_slice();
        list.get_mut(at..=self.len).ok_or(Errno::NOMEM)?.rotate_right(1);
        *list.get_mut(at).ok_or(Errno::NOMEM)? = placed;
        self.len += 1;
        Ok(())
    }

    /// The pages of a range go to a volume from now on.
    ///
    /// # Errors
    /// ENOMEM: there are [`PLACES`] such ranges.
    pub fn set(&mut self, run: Run, volume: u8) -> Result<(), Errno> {
        self.forget(run);
        if volume == 0 || run.pages == 0 {
            return Ok(());
        }
        if self.list.is_empty() {
            self.list = MapSlice::new(PLACES)?;
        }
        self.insert(self.behind(run.start), Placed { start: run.start.0, pages: run.pages, volume: volume.into() })
    }

    /// The pages of a range go to the first volume again. Of a range that is cut in two where there is no place for
    /// another, so do those behind the cut.
    pub fn forget(&mut self, run: Run) {
        let mut at = self.behind(run.start);
        while let Some(placed) = self.known().get(at).copied().filter(|placed| placed.run().and(run).pages > 0) {
            let before = run.start.0.saturating_sub(placed.start);
            let end = placed.run().end().0;
            let after = end.saturating_sub(run.end().0);
            if let (true, Some(left)) = (before > 0, self.list.get_mut(at)) {
                left.pages = before;
                at += 1;
                if after > 0 {
                    let _ = self.insert(at, Placed { start: end - after, pages: after, ..placed });
                }
            } else if let (true, Some(right)) = (after > 0, self.list.get_mut(at)) {
                *right = Placed { start: end - after, pages: after, ..placed };
            } else {
                if let Some(rest) = self.list.as_mut_slice().get_mut(at..self.len) {
                    rest.rotate_left(1);
                }
                self.len -= 1;
                continue;
            }
            if after > 0 {
                return;
            }
        }
    }
}

impl Default for Places {
    fn default() -> Places {
        Places::new()
    }
}

/// Why there is no slot.
enum Lack {
    /// None is free.
    Slots,
    /// The file cannot grow: the volume has no more slots now than it has space for. Holes are left.
    Length,
    /// A segment's space had been given back, and cannot be had again: it is not handed out for a while.
    Segment,
}

impl<M: Machine> Shard<M> {
    /// A volume is there, with a file behind it in the machine, and may have so many slots.
    ///
    /// # Errors
    /// When there is no memory for what is known of its slots.
    pub fn add_volume(&mut self, volume: u8, slots: u32) -> Result<(), Errno> {
        self.slots.add(volume, slots)
    }

    /// The first volume may have so many slots from now on, no more than it was made for. What was refused for want of room
    /// is tried again.
    pub fn set_store_limit(&mut self, slots: u32) {
        self.slots.set_limit(slots);
        self.try_store_again();
    }

    /// What keeps the store may have room again.
    pub fn try_store_again(&mut self) {
        (self.store_full, self.tried_again) = (None, false);
        self.slots.grow_again();
    }

    /// Tries again what the limit that others share did not allow, should they have left some of it.
    pub fn look_for_store(&mut self) {
        if self.machine.has_room_again() {
            self.try_store_again();
        }
    }

    /// Whether there is a volume.
    pub fn has_volume(&self, volume: u8) -> bool {
        self.slots.has(volume)
    }

    /// The pages of a range go to this volume from now on, as long as it has room: what is stored already stays where it
    /// is until it changes.
    ///
    /// # Errors
    /// See [`Places::set`].
    pub fn set_volume(&mut self, run: Run, volume: u8) -> Result<(), Errno> {
        self.places.set(run, volume)
    }

    /// Takes slots for up to `want` pages, with space in the file behind them: of this volume, and where that has none of
    /// the first.
    pub(crate) fn take_slots(&mut self, volume: u8, want: u32) -> Option<(Slot, u32)> {
        let found = self.take_of(volume, want);
        let found = if found.is_err() && volume != 0 { self.take_of(0, want) } else { found };
        found.map_err(|errno| _ = self.store_full.get_or_insert(errno)).ok()
    }

    fn take_of(&mut self, volume: u8, want: u32) -> Result<(Slot, u32), Errno> {
        let mut grows = true;
        loop {
            match self.take_with_space(volume, want) {
                Err(Lack::Length) if grows => grows = false,
                // One fewer each time.
                Err(Lack::Segment) => {}
                found => return found.map_err(|_| self.no_room),
            }
        }
    }

    /// The same, once.
    fn take_with_space(&mut self, volume: u8, want: u32) -> Result<(Slot, u32), Lack> {
        let (slot, count) = self.slots.take(volume, want).map_err(|_| Lack::Slots)?;
        let reserved = self.reserved.get_mut(volume as usize).ok_or(Lack::Slots)?;
        if slot.place() + count <= *reserved {
            if self.machine.reserve_again(slot, count) {
                return Ok((slot, count));
            }
            self.slots.refuse(slot);
            (0..count).for_each(|index| _ = self.slots.free(slot.plus(index)));
            self.no_room = Errno::NOSPC;
            return Err(Lack::Segment);
        }
        let least = self.slots.length(volume);
        // Whole segments: of one that has space for some of its slots only, those would be handed out again and again.
        let machine = &mut self.machine;
        let step = GROW.max(least / 8).min(machine.room(volume) / 8);
        let target = least.saturating_add(step) / SEGMENT * SEGMENT;
        let target = target.min(self.slots.limit(volume));
        let grown = machine.reserve(volume, target).map(|()| target);
        match grown.or_else(|_| machine.reserve(volume, least).map(|()| least)) {
            Ok(slots) => {
                *reserved = slots;
                Ok((slot, count))
            }
            Err(errno) => {
                let reserved = *reserved;
                for index in 0..count {
                    self.slots.free(slot.plus(index));
                }
                self.slots.stop_growing(volume, reserved);
                self.no_room = errno;
                Err(Lack::Length)
            }
        }
    }
}
