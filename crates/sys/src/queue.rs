//! A first-in, first-out queue of fixed capacity on a mapping of its own.

use crate::Errno;
use crate::memory::{MapSlice, Zeroable};

/// The queue.
pub struct Queue<T: Zeroable> {
    ring: MapSlice<T>,
    first: usize,
    len: usize,
}

impl<T: Zeroable> Queue<T> {
    /// An empty queue with room for `capacity` values.
    pub fn new(capacity: usize) -> Result<Queue<T>, Errno> {
        Ok(Queue { ring: MapSlice::new(capacity)?, first: 0, len: 0 })
    }
    /// One without room.
    pub const fn none() -> Queue<T> {
        Queue { ring: MapSlice::empty(), first: 0, len: 0 }
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether none wait.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether a value can be added.
    pub fn has_room(&self) -> bool {
        self.len < self.ring.len()
    }
    /// Adds a value at the end; false when full.
    pub fn push(&mut self, value: T) -> bool {
        let capacity = self.ring.len();
        if self.len == capacity {
            return false;
        }
        let at = (self.first + self.len) % capacity;
        let Some(place) = self.ring.get_mut(at) else { return false };
        *place = value;
        self.len += 1;
        true
    }
    /// Takes the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.ring.get(self.first).copied();
        self.first = (self.first + 1) % self.ring.len();
        self.len -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_around_the_end() {
        let mut queue = Queue::<u32>::new(3).unwrap();
        for round in 0..10 {
            assert!(queue.push(round) && queue.push(round + 100));
            assert_eq!(queue.pop(), Some(round));
            assert_eq!(queue.pop(), Some(round + 100));
            assert_eq!(queue.pop(), None);
        }
        assert!(queue.push(1) && queue.push(2) && queue.push(3) && !queue.push(4));
        assert!(!queue.is_empty());
    }
}
