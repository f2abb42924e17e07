//! First-in first-out queues of page runs, in memory of fixed size. Entries are hints: whoever takes one looks at the
//! pages' words for what is still true.

use ream_page::Page;
use ream_sys::Errno;
use ream_sys::memory::MapSlice;

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
        while let Some((start, pages)) = self.pop() {
            larger.push(start, pages);
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

    /// Adds a run; returns false when the queue is full.
    pub fn push(&mut self, start: Page, pages: u32) -> bool {
        debug_assert!((1..=512).contains(&pages));
        if self.is_full() {
            return false;
        }
        let place = self.place(self.tail);
        if let Some(entry) = self.ring.get_mut(place) {
            *entry = start.0 << 10 | (pages - 1) as u64;
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
        if let Some(entry) = self.ring.get_mut(place) {
            *entry = start.0 << 10 | (pages - 1) as u64;
        }
        true
    }

    /// Takes the oldest run.
    pub fn pop(&mut self) -> Option<(Page, u32)> {
        if self.is_empty() {
            return None;
        }
        let entry = *self.ring.get(self.place(self.head))?;
        self.head += 1;
        Some((Page(entry >> 10), (entry & 0x3ff) as u32 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_its_entries_in_order() {
        let mut fifo = Fifo::new(64).unwrap();
        for page in 0..100 {
            fifo.push(Page(page), 1);
            if page < 40 {
                fifo.pop();
            }
        }
        assert_eq!(fifo.len(), 60);
        while fifo.push(Page(1000), 1) {}
        fifo.grow().unwrap();
        assert_eq!(fifo.len(), 64);
        assert!(fifo.push(Page(2000), 3));
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
    fn wraps_and_refuses_when_full() {
        let mut fifo = Fifo::new(64).unwrap();
        for round in 0..10u64 {
            for i in 0..64 {
                assert!(fifo.push(Page(round * 100 + i), 512));
            }
            assert!(!fifo.push(Page(1), 1));
            for i in 0..64 {
                assert_eq!(fifo.pop(), Some((Page(round * 100 + i), 512)));
            }
            assert_eq!(fifo.pop(), None);
        }
    }

    #[test]
    fn front_comes_first() {
        let mut fifo = Fifo::new(64).unwrap();
        fifo.push(Page(1), 1);
        fifo.push_front(Page(2), 3);
        assert_eq!(fifo.pop(), Some((Page(2), 3)));
        assert_eq!(fifo.pop(), Some((Page(1), 1)));
    }
}
