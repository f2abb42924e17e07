//! Large blocks that were freed a moment ago, kept mapped so that a program which frees and allocates the same sizes
//! again and again does not pay for the pages each time. The bounds are those within which glibc keeps memory.

/// Largest block that is kept.
pub(crate) const MOST_EACH: usize = 32 << 20;
/// Most bytes kept together.
pub(crate) const MOST_TOGETHER: usize = 64 << 20;

const PLACES: usize = 16;

/// A mapping: address and length in bytes, and whether it is a plain one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) plain: bool,
}

/// Freed blocks, oldest first.
pub(crate) struct Cache {
    blocks: [Kept; PLACES],
    count: usize,
    bytes: usize,
}

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache { blocks: [Kept { address: 0, length: 0, plain: false }; PLACES], count: 0, bytes: 0 }
    }

    /// Whether there is room for a block without putting another one out.
    pub(crate) fn fits(&self, length: usize) -> bool {
        self.count < PLACES && self.bytes + length <= MOST_TOGETHER
    }

    /// Keeps a block for which there is room.
    pub(crate) fn keep(&mut self, block: Kept) {
        if let Some(place) = self.blocks.get_mut(self.count) {
            *place = block;
            self.count += 1;
            self.bytes += block.length;
        }
    }

    /// Takes the oldest block out.
    pub(crate) fn oldest(&mut self) -> Option<Kept> {
        self.take(0)
    }

    /// Takes the smallest block out that has `length` bytes and at most a quarter more, and is plain or not as asked for;
    /// of equal ones the newest.
    pub(crate) fn best(&mut self, length: usize, plain: bool) -> Option<Kept> {
        let most = length + length / 4;
        let kept = self.blocks.get(..self.count)?;
        let fits = |block: &Kept| block.plain == plain && (length..=most).contains(&block.length);
        let fitting = kept.iter().enumerate().rev().filter(|(_, block)| fits(block));
        let (index, _) = fitting.min_by_key(|(_, block)| block.length)?;
        self.take(index)
    }

    fn take(&mut self, index: usize) -> Option<Kept> {
        let kept = self.blocks.get_mut(..self.count)?;
        let block = *kept.get(index)?;
        kept.get_mut(index..)?.rotate_left(1);
        self.count -= 1;
        self.bytes -= block.length;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn block(address: usize, mib: usize) -> Kept {
        Kept { address, length: mib * MIB, plain: false }
    }

    #[test]
    fn the_best_fit_is_the_smallest_that_is_not_too_large() {
        let mut cache = Cache::new();
        for kept in [block(1, 12), block(2, 10), block(3, 8), block(4, 10)] {
            assert!(cache.fits(kept.length));
            cache.keep(kept);
        }
        assert_eq!(cache.best(9 * MIB, false), Some(block(4, 10)));
        assert_eq!(cache.best(9 * MIB, false), Some(block(2, 10)));
        assert_eq!(cache.best(9 * MIB, false), None);
        assert_eq!(cache.best(8 * MIB, true), None);
        assert_eq!(cache.best(8 * MIB, false), Some(block(3, 8)));
        assert_eq!(cache.oldest(), Some(block(1, 12)));
        assert_eq!(cache.oldest(), None);
        assert_eq!(cache.bytes, 0);
    }

    #[test]
    fn bytes_and_places_are_bounded() {
        let mut cache = Cache::new();
        cache.keep(block(1, 32));
        cache.keep(block(2, 30));
        assert!(cache.fits(2 * MIB) && !cache.fits(3 * MIB));
        cache.oldest();
        for address in 3..3 + PLACES - 1 {
            assert!(cache.fits(MIB));
            cache.keep(block(address, 1));
        }
        assert!(!cache.fits(1));
    }
}
