//! Exact LRU over a trace: how often a cache of so many pages would have missed.

use crate::content::Zipf;

/// Seed of the zipf walk, so that the runner can compute the worker's trace.
pub const ZIPF_SEED: u64 = 17;

const NONE: u32 = u32::MAX;

/// A cache of pages in the order of their last use.
pub struct Lru {
    capacity: usize,
    held: usize,
    newest: u32,
    oldest: u32,
    /// For every page its neighbours, newer and older, or `None` when it is not held.
    links: Vec<Option<(u32, u32)>>,
}

impl Lru {
    /// An empty cache of `capacity` pages out of `pages`.
    pub fn new(capacity: usize, pages: usize) -> Lru {
        Lru { capacity, held: 0, newest: NONE, oldest: NONE, links: vec![None; pages] }
    }

    /// Uses a page; returns whether it was held.
    pub fn touch(&mut self, page: u64) -> bool {
        let page = page as u32;
        let hit = self.remove(page);
        if !hit {
            if self.held == self.capacity {
                let oldest = self.oldest;
                self.remove(oldest);
                self.held -= 1;
            }
            self.held += 1;
        }
        if let Some((newer, _)) = self.link(self.newest) {
            *newer = page;
        }
        self.links[page as usize] = Some((NONE, self.newest));
        self.newest = page;
        if self.oldest == NONE {
            self.oldest = page;
        }
        hit
    }

    fn link(&mut self, page: u32) -> Option<(&mut u32, &mut u32)> {
        let (newer, older) = self.links.get_mut(page as usize)?.as_mut()?;
        Some((newer, older))
    }

    fn remove(&mut self, page: u32) -> bool {
        let Some((newer, older)) = self.links.get_mut(page as usize).and_then(Option::take) else { return false };
        match self.link(newer) {
            Some((_, place)) => *place = older,
            None => self.newest = older,
        }
        match self.link(older) {
            Some((place, _)) => *place = newer,
            None => self.oldest = newer,
        }
        true
    }
}

/// Misses of exact LRU with `capacity` pages in the zipf walk over `pages` pages, which were all touched in order
/// before: after the first `warm` accesses, in the `measured` ones that follow.
pub fn zipf_misses(pages: u64, capacity: u64, warm: u64, measured: u64) -> u64 {
    let mut cache = Lru::new(capacity as usize, pages as usize);
    (0..pages).for_each(|page| {
        cache.touch(page);
    });
    let mut zipf = Zipf::new(pages, ZIPF_SEED);
    (0..warm).for_each(|_| {
        cache.touch(zipf.draw());
    });
    (0..measured).filter(|_| !cache.touch(zipf.draw())).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Random;

    #[test]
    fn agrees_with_a_plain_list() {
        let mut random = Random(5);
        let mut cache = Lru::new(7, 30);
        let mut list: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            let page = random.below(30).min(random.below(30));
            let place = list.iter().position(|held| *held == page);
            assert_eq!(cache.touch(page), place.is_some());
            if let Some(place) = place {
                list.remove(place);
            }
            list.push(page);
            if list.len() > 7 {
                list.remove(0);
            }
        }
    }

    #[test]
    fn everything_fits_in_a_large_cache() {
        assert_eq!(zipf_misses(1000, 1000, 10, 5000), 0);
        assert!(zipf_misses(1000, 100, 10, 5000) > 500);
    }
}
