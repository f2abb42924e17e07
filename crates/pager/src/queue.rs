//! First-in first-out queues of page runs, in memory of fixed size. Entries are hints: whoever takes one looks at the
//! pages' words for what is still true.

use ream_page::Page;
use ream_sys::Errno;
use ream_sys::memory::MapSlice;

/// Bits of an entry: pages less one, the block's epoch, the first page.
const PAGES: u32 = 9;
const EPOCH: u32 = 11;

fn entry(start: Page, pages: u32, epoch: u32) -> u64 {
    start.0 << (PAGES + EPOCH) | (epoch as u64 % (1 << EPOCH)) << PAGES | (pages - 1) as u64
}

/// A queue of runs of 1 to 512 pages within one block.
pub struct Fifo {
    ring: MapSlice<u64>,
    head: u64,
    tail: u64,
}

impl Fifo {
    /// An empty queue with room for `entries` runs.
    pub fn new(entries: usize) -> Result<Fifo, Errno> {
        Ok(Fifo { ring: MapSlice::new(entries.max(64))?, head: 0, tail: 0 })
    }

    /// Doubles the room.
    pub fn grow(&mut self) -> Result<(), Errno> {
        let mut larger = Fifo::new(self.ring.len() * 2)?;
        while let Some((start, pages, epoch)) = self.pop_of() {
            larger.push(start, pages, epoch);
        }
        *self = larger;
        Ok(())
    }

    fn place(&self, at: u64) -> usize {
        (at % self.ring.len() as u64) as usize
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.tail - self.head
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Whether nothing more can be pushed.
    pub fn is_full(&self) -> bool {
        self.len() >= self.ring.len() as u64
    }

    /// Adds a run with its block's epoch, of which the lowest bits are kept; returns false when the queue is full.
    pub fn push(&mut self, start: Page, pages: u32, epoch: u32) -> bool {
        debug_assert!((1..=512).contains(&pages));
        if self.is_full() {
            return false;
        }
        let place = self.place(self.tail);
        if let Some(place) = self.ring.get_mut(place) {
            *place = entry(start, pages, epoch);
            self.tail += 1;
        }
        true
    }

    /// Puts a run back in front, to be taken next; returns false when the queue is full.
    pub fn push_front(&mut self, start: Page, pages: u32) -> bool {
        if self.is_full() {
            return false;
        }
        // Counters start far from zero in neither direction: moving both keeps the difference.
        if self.head == 0 {
            self.head += self.ring.len() as u64;
            self.tail += self.ring.len() as u64;
        }
        self.head -= 1;
        let place = self.place(self.head);
        if let Some(place) = self.ring.get_mut(place) {
            *place = entry(start, pages, 0);
        }
        true
    }

    /// Takes the oldest run.
    pub fn pop(&mut self) -> Option<(Page, u32)> {
        self.pop_of().map(|(start, pages, _)| (start, pages))
    }

    /// The same with the lowest bits of its block's epoch.
    pub fn pop_of(&mut self) -> Option<(Page, u32, u32)> {
        if self.is_empty() {
            return None;
        }
        let entry = *self.ring.get(self.place(self.head))?;
        self.head += 1;
        let bits = |from: u32, count: u32| (entry >> from) as u32 % (1 << count);
        Some((Page(entry >> (PAGES + EPOCH)), bits(0, PAGES) + 1, bits(PAGES, EPOCH)))
    }

    /// Whether an entry with these bits is of this epoch.
    pub fn is_of(bits: u32, epoch: u32) -> bool {
        bits == epoch % (1 << EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_its_entries_in_order() {
        let mut fifo = Fifo::new(64).unwrap();
        for page in 0..100 {
            fifo.push(Page(page), 1, 0);
            if page < 40 {
                fifo.pop();
            }
        }
        assert_eq!(fifo.len(), 60);
        while fifo.push(Page(1000), 1, 0) {}
        fifo.grow().unwrap();
        assert_eq!(fifo.len(), 64);
        assert!(fifo.push(Page(2000), 3, 0));
        for page in 40..100 {
            assert_eq!(fifo.pop(), Some((Page(page), 1)));
        }
        for _ in 0..4 {
            assert_eq!(fifo.pop(), Some((Page(1000), 1)));
        }
        assert_eq!(fifo.pop(), Some((Page(2000), 3)));
        assert!(fifo.is_empty());
    }

    #[test]
    fn entries_keep_their_epoch() {
        let mut fifo = Fifo::new(64).unwrap();
        let last = Page((1 << 44) - 512);
        fifo.push(last, 512, 0xffff_ffff);
        fifo.push(Page(7), 1, 5);
        fifo.grow().unwrap();
        assert!(fifo.pop_of().is_some_and(|(page, pages, bits)| {
            (page, pages) == (last, 512) && Fifo::is_of(bits, 0xffff_ffff) && !Fifo::is_of(bits, 0)
        }));
        assert!(fifo.pop_of().is_some_and(|(_, _, bits)| Fifo::is_of(bits, 5) && !Fifo::is_of(bits, 6)));
    }

    #[test]
    fn wraps_and_refuses_when_full() {
        let mut fifo = Fifo::new(64).unwrap();
        for round in 0..10u64 {
            for i in 0..64 {
                assert!(fifo.push(Page(round * 100 + i), 512, 0));
            }
            assert!(!fifo.push(Page(1), 1, 0));
            for i in 0..64 {
                assert_eq!(fifo.pop(), Some((Page(round * 100 + i), 512)));
            }
            assert_eq!(fifo.pop(), None);
        }
    }

    #[test]
    fn front_comes_first() {
        let mut fifo = Fifo::new(64).unwrap();
        fifo.push(Page(1), 1, 0);
        fifo.push_front(Page(2), 3);
        assert_eq!(fifo.pop(), Some((Page(2), 3)));
        assert_eq!(fifo.pop(), Some((Page(1), 1)));
    }
}
