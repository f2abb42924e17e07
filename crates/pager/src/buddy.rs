//! A buddy allocator: free places in power-of-two runs, so that extents find contiguous room.

use ream_sys::Errno;
use ream_sys::memory::MapSlice;

const ORDERS: usize = 10;
const NIL: u32 = u32::MAX;

/// A buddy allocator over places; knows nothing of what they hold.
pub(crate) struct Buddy {
    next: MapSlice<u32>,
    previous: MapSlice<u32>,
    /// Order + 1 of the free run that starts at a place; 0 when none does.
    free: MapSlice<u8>,
    heads: [u32; ORDERS],
    /// Free places.
    pub(crate) count: u64,
}

impl Buddy {
    /// No place is free.
    pub(crate) fn new(places: usize) -> Result<Buddy, Errno> {
        Ok(Buddy {
            next: MapSlice::new(places)?,
            previous: MapSlice::new(places)?,
            free: MapSlice::new(places)?,
            heads: [NIL; ORDERS],
            count: 0,
        })
    }

    /// No place is free any more.
    pub(crate) fn clear(&mut self) {
        self.heads = [NIL; ORDERS];
        self.count = 0;
        // Only what was used is written: the rest of the mapping stays without memory.
        for place in self.free.as_mut_slice() {
            if *place != 0 {
                *place = 0;
            }
        }
    }

    fn link(&mut self, start: u32, order: usize) {
        let Some(head) = self.heads.get_mut(order) else { return };
        let old = core::mem::replace(head, start);
        if let (Some(next), Some(previous), Some(free)) = (
            self.next.get_mut(start as usize),
            self.previous.get_mut(start as usize),
            self.free.get_mut(start as usize),
        ) {
            *next = old;
            *previous = NIL;
            *free = order as u8 + 1;
        }
        if let Some(previous) = self.previous.get_mut(old as usize) {
            *previous = start;
        }
    }

    fn unlink(&mut self, start: u32, order: usize) {
        let next = self.next.get(start as usize).copied().unwrap_or(NIL);
        let previous = self.previous.get(start as usize).copied().unwrap_or(NIL);
        match self.next.get_mut(previous as usize) {
            Some(link) => *link = next,
            None => {
                if let Some(head) = self.heads.get_mut(order) {
                    *head = next;
                }
            }
        }
        if let Some(link) = self.previous.get_mut(next as usize) {
            *link = previous;
        }
        if let Some(free) = self.free.get_mut(start as usize) {
            *free = 0;
        }
    }

    fn release_order(&mut self, mut start: u32, mut order: usize) {
        self.count += 1 << order;
        while order + 1 < ORDERS {
            let buddy = start ^ (1 << order);
            if self.free.get(buddy as usize) != Some(&(order as u8 + 1)) {
                break;
            }
            self.unlink(buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.link(start, order);
    }

    /// Frees a run.
    pub(crate) fn release(&mut self, mut start: u32, mut pages: u32) {
        while pages > 0 {
            let aligned = if start == 0 { 9 } else { start.trailing_zeros().min(9) };
            let order = aligned.min(31 - pages.leading_zeros());
            self.release_order(start, order as usize);
            start += 1 << order;
            pages -= 1 << order;
        }
    }

    /// Takes a run, which does not cross a multiple of its length's next power of two.
    pub(crate) fn take(&mut self, pages: u32) -> Option<u32> {
        let order = pages.next_power_of_two().trailing_zeros() as usize;
        let found = (order..ORDERS).find(|order| self.heads.get(*order).is_some_and(|head| *head != NIL))?;
        let start = *self.heads.get(found)?;
        self.unlink(start, found);
        self.count -= 1 << found;
        // What the request does not need goes back.
        self.release(start + pages, (1 << found) - pages);
        Some(start)
    }

    /// Takes the largest free run of at most `most` pages' order; used to give memory back.
    pub(crate) fn take_any(&mut self, most: u32) -> Option<(u32, u32)> {
        let order = (0..ORDERS).rev().find(|order| self.heads.get(*order).is_some_and(|head| *head != NIL))?;
        let pages = (1u32 << order).min(most.max(1));
        Some((self.take_exact(order, pages)?, pages))
    }

    fn take_exact(&mut self, order: usize, pages: u32) -> Option<u32> {
        let start = *self.heads.get(order)?;
        self.unlink(start, order);
        self.count -= 1 << order;
        self.release(start + pages, (1 << order) - pages);
        Some(start)
    }
}
