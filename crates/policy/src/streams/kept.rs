//! Streams that others have displaced, found again by the page where they go on. A table that is searched from end to end is
//! small, and where more threads than it has places each walk through memory of their own, every one is displaced before its
//! next fault. Here a fault looks at three sets of four places.

/// Sets, a power of two, and places of each.
const SETS: usize = 128;
const WAYS: usize = 4;
/// Faults after which one that has gone on before gives way to any other.
const OLD: u32 = 4096;
/// Faults within which one goes on that has not yet: of few pages touched at random, many follow one touched some time ago.
const SOON: u32 = 256;
/// Faults within which one is counted as still being read.
const FRESH: u32 = 1024;

/// What is remembered of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    /// The page that continues it.
    pub(super) touch: u64,
    /// Pages beyond it that have been asked for.
    pub(super) ahead: u32,
    /// The fault that continued it last, modulo 2^32.
    pub(super) used: u32,
    /// Pages of the next extent; 0 for a free place.
    pub(super) extent: u16,
    /// How often it has gone on, at most 255.
    pub(super) runs: u8,
    /// Whole blocks asked for since the last probe, at most 255.
    pub(super) unprobed: u8,
    /// Towards lower addresses.
    pub(super) down: bool,
}

const FREE: Kept = Kept { touch: 0, ahead: 0, used: 0, extent: 0, runs: 0, unprobed: 0, down: false };

/// Such streams.
pub(super) struct Displaced {
    sets: [[Kept; WAYS]; SETS],
}

impl Displaced {
    /// None.
    pub(super) const fn none() -> Displaced {
        Displaced { sets: [[FREE; WAYS]; SETS] }
    }

    fn set(&mut self, touch: u64) -> &mut [Kept] {
        // Multiplicative hashing with 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        let hash = touch.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SETS.ilog2());
        self.sets.get_mut(hash as usize).map_or(&mut [], |set| set.as_mut_slice())
    }

    /// Remembers one. It replaces what has never gone on first, and gives way itself where it never has and all others go on.
    pub(super) fn keep(&mut self, kept: Kept) {
        let age = |other: &Kept| kept.used.wrapping_sub(other.used);
        let worth = |other: &Kept| (other.extent > 0, other.runs > 0 && age(other) < OLD, u32::MAX - age(other));
        let Some(place) = self.set(kept.touch).iter_mut().min_by_key(|other| worth(other)) else { return };
        if kept.runs > 0 || !worth(place).1 {
            *place = kept;
        }
    }

    /// Forgets and returns the one that a fault at `page` continues, the one with the number `now`. One that has not gone on yet
    /// may turn round.
    pub(super) fn take(&mut self, page: u64, now: u32) -> Option<Kept> {
        let is_known = |kept: &Kept| kept.extent > 0 && (kept.runs > 0 || now.wrapping_sub(kept.used) <= SOON);
        let continues = |kept: &&mut Kept| is_known(kept) && kept.touch == page;
        if let Some(kept) = self.set(page).iter_mut().find(continues) {
            return Some(core::mem::replace(kept, FREE));
        }
        let turned = page.wrapping_add(2);
        let turns = |kept: &&mut Kept| is_known(kept) && kept.touch == turned && kept.runs == 0 && !kept.down;
        self.set(turned).iter_mut().find(turns).map(|kept| core::mem::replace(kept, FREE))
    }

    /// How many are still being read, at the fault with the number `now`.
    pub(super) fn being_read(&self, now: u32) -> u32 {
        let fresh = |kept: &&Kept| kept.extent > 0 && kept.runs > 0 && now.wrapping_sub(kept.used) < FRESH;
        self.sets.iter().flatten().filter(fresh).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(touch: u64, used: u32, runs: u8) -> Kept {
        Kept { touch, used, runs, extent: 1, ..FREE }
    }

    #[test]
    fn one_is_found_where_it_goes_on_and_once() {
        let mut displaced = Displaced::none();
        displaced.keep(kept(100, 7, 3));
        assert_eq!((displaced.take(99, 8), displaced.take(101, 8)), (None, None));
        assert_eq!(displaced.take(100, 8), Some(kept(100, 7, 3)));
        assert_eq!(displaced.take(100, 8), None);
    }

    #[test]
    fn only_one_that_never_went_on_turns_round() {
        let mut displaced = Displaced::none();
        displaced.keep(kept(100, 1, 0));
        displaced.keep(kept(200, 2, 1));
        assert_eq!(displaced.take(98, SOON), Some(kept(100, 1, 0)));
        assert_eq!(displaced.take(198, 3), None);
        displaced.keep(kept(300, 1, 0));
        assert_eq!(displaced.take(300, 2 + SOON), None);
    }

    /// Random faults, each of which leaves one behind, do not make those forgotten that go on, before these are old.
    #[test]
    fn strays_give_way() {
        let mut displaced = Displaced::none();
        for stream in 0..100u64 {
            displaced.keep(kept((1 << 20) + (stream << 9), stream as u32, 2));
        }
        assert_eq!(displaced.being_read(100), 100);
        for stray in 0..10_000u64 {
            displaced.keep(kept((1 << 40) + stray * 7919, 100 + stray as u32 / 4, 0));
        }
        assert_eq!((0..100u64).filter(|stream| displaced.take((1 << 20) + (stream << 9), 9000).is_some()).count(), 100);
        displaced.keep(kept(5, 0, 2));
        for stray in 0..10_000u64 {
            displaced.keep(kept((1 << 40) + stray * 7919, 2 * OLD, 0));
        }
        assert_eq!(displaced.take(5, 2 * OLD), None);
    }
}
