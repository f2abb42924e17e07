//! The keyed hash that decides whether a page still equals its slot, and whether what was read is what was written.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999) over 64-bit words: for two different pages, the sums
//! of (m + k)(m' + k') modulo 2^128 agree for at most one key in 2^64. The 128-bit sum is then reduced to 64 bits by
//! multiply-shift on its two halves (Dietzfelbinger 1996, the vector form): two different sums agree with probability
//! at most 2^-63. In all two different pages have the same digest with probability below 2^-62, over the choice of
//! the key, which is random, drawn once per process family and not derived from any data.

use crate::memory::{self, Protection};
use crate::process;
use crate::{Digest, Errno};
use core::ptr::NonNull;
use ream_page::PAGE_BYTES;

const WORDS: usize = PAGE_BYTES / 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// A random key; digests of different keys have nothing to do with each other.
#[repr(C)]
pub struct Key {
    words: [u64; WORDS],
    low: u128,
    high: u128,
    /// Hash of a page of zeros under this key.
    zero: u64,
}

impl Key {
    /// Draws a key and keeps it in read-only memory of its own, which forked children inherit. It is never freed.
    pub fn draw() -> Result<&'static Key, Errno> {
        let place: NonNull<Key> = memory::map(size_of::<Key>(), PAGE_BYTES, Protection::ReadWrite)?.cast();
        // SAFETY: fresh memory, page-aligned, large enough, all of it valid as zeros, never unmapped.
        let key = unsafe { &mut *place.as_ptr() };
        // SAFETY: the bytes of integers, which may take any value; the reference ends before the next use of `key`.
        let bytes = unsafe { core::slice::from_raw_parts_mut(place.as_ptr().cast::<u8>(), size_of::<Key>()) };
        process::random(bytes)?;
        key.zero = key.hash(&[0; WORDS]);
        // SAFETY: nobody writes to it from here on.
        unsafe {
            memory::protect(place.as_ptr().cast(), size_of::<Key>(), Protection::Read)?;
            Ok(place.as_ref())
        }
    }

    /// Hashes a page.
    #[inline]
    pub fn hash(&self, page: &[u64; WORDS]) -> u64 {
        self.hash_ahead(page, Ahead::within(page))
    }

    #[inline]
    fn hash_ahead(&self, page: &[u64; WORDS], ahead: Ahead) -> u64 {
        let mut sums = [0u128; 4];
        for (line, (m, k)) in page.chunks_exact(8).zip(self.words.chunks_exact(8)).enumerate() {
            ahead.fetch(line);
            // Both have exactly 8 elements, which the compiler sees.
            if let ([m0, m1, m2, m3, m4, m5, m6, m7], [k0, k1, k2, k3, k4, k5, k6, k7]) = (m, k) {
                sums[0] = sums[0].wrapping_add(product(*m0, *k0, *m1, *k1));
                sums[1] = sums[1].wrapping_add(product(*m2, *k2, *m3, *k3));
                sums[2] = sums[2].wrapping_add(product(*m4, *k4, *m5, *k5));
                sums[3] = sums[3].wrapping_add(product(*m6, *k6, *m7, *k7));
            }
        }
        let [a, b, c, d] = sums;
        let sum = a.wrapping_add(b).wrapping_add(c).wrapping_add(d);
        let low = (sum as u64 as u128).wrapping_mul(self.low);
        let high = (sum >> 64).wrapping_mul(self.high);
        (low.wrapping_add(high) >> 64) as u64
    }

    /// Hashes a page, and tells whether it is all zeros. Only a page that hashes as zeros do is looked at twice.
    #[inline]
    pub fn digest(&self, page: &[u64; WORDS]) -> Digest {
        self.digest_ahead(page, Ahead::within(page))
    }

    #[inline]
    fn digest_ahead(&self, page: &[u64; WORDS], ahead: Ahead) -> Digest {
        let hash = self.hash_ahead(page, ahead);
        Digest { hash, zero: hash == self.zero && page.iter().fold(0, |all, word| all | word) == 0 }
    }

    /// Hashes the page at an address, while the one at `next`, which is hashed then, comes to the processor: nothing is read of
    /// it, and it may be anywhere.
    ///
    /// # Safety
    /// `page` is a multiple of 8, 4096 bytes are readable there, and nothing changes them meanwhile.
    pub unsafe fn digest_at(&self, page: *const u8, next: Option<*const u8>) -> Digest {
        // SAFETY: the caller's promise.
        let page = unsafe { &*page.cast::<[u64; WORDS]>() };
        self.digest_ahead(page, next.map_or(Ahead::within(page), |next| Ahead { page: next, lines: 0 }))
    }
}

/// What is fetched while a page is hashed. A processor's own prefetching ends with each page, and what is hashed comes from a
/// device or has not been used for long: from memory, 6.1 GB/s without this, 8.3 within a page, 10.3 over several; 12 from a cache.
#[derive(Clone, Copy)]
struct Ahead {
    page: *const u8,
    /// By how many lines it is ahead of what is hashed; it goes on at the page's beginning.
    lines: usize,
}

impl Ahead {
    /// The same page, of which so many lines are under way.
    #[inline(always)]
    fn within(page: &[u64; WORDS]) -> Ahead {
        Ahead { page: page.as_ptr().cast(), lines: 16 }
    }

    #[inline(always)]
    fn fetch(self, line: usize) {
        let _at = self.page.wrapping_add((line + self.lines) * LINE % PAGE_BYTES);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which reads nothing and faults nowhere.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(_at.cast());
        }
    }
}

#[inline(always)]
fn product(m0: u64, k0: u64, m1: u64, k1: u64) -> u128 {
    m0.wrapping_add(k0) as u128 * m1.wrapping_add(k1) as u128
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn some_page(mut seed: u64) -> [u64; WORDS] {
        core::array::from_fn(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        })
    }

    /// The definition, written out the slow way.
    fn plain(key: &Key, page: &[u64; WORDS]) -> u64 {
        let mut sum = 0u128;
        for i in 0..WORDS / 2 {
            let a = page[2 * i].wrapping_add(key.words[2 * i]);
            let b = page[2 * i + 1].wrapping_add(key.words[2 * i + 1]);
            sum = sum.wrapping_add(a as u128 * b as u128);
        }
        let (low, high) = (sum & u64::MAX as u128, sum >> 64);
        (low.wrapping_mul(key.low).wrapping_add(high.wrapping_mul(key.high)) >> 64) as u64
    }

    #[test]
    fn the_fast_way_is_the_definition() {
        let key = Key::draw().unwrap();
        for seed in 1..200 {
            let page = some_page(seed);
            assert_eq!(key.hash(&page), plain(key, &page));
            // What is said to come next matters not, whatever it is.
            for next in [None, Some(core::ptr::null()), Some(core::ptr::dangling()), Some(page.as_ptr().cast())] {
                // SAFETY: a page of our own.
                let digest = unsafe { key.digest_at(page.as_ptr().cast(), next) };
                assert_eq!(digest, key.digest(&page));
            }
        }
        assert_eq!(key.zero, plain(key, &[0; WORDS]));
    }

    /// Changing one word by d changes the sum by d times its partner's masked value; with a key chosen by hand the
    /// digest can be computed on paper.
    #[test]
    fn a_hand_made_key_gives_the_sum_itself() {
        let key = Key { words: [0; WORDS], low: 1 << 64, high: 0, zero: 0 };
        let mut page = [0; WORDS];
        page[0] = 3;
        page[1] = 5;
        page[510] = 7;
        page[511] = 11;
        assert_eq!(key.hash(&page), 3 * 5 + 7 * 11);
        page[0] += 2;
        assert_eq!(key.hash(&page), 3 * 5 + 7 * 11 + 2 * 5);
        let upper = Key { words: [0; WORDS], low: 0, high: 1 << 64, zero: 0 };
        page[0] = 1 << 63;
        page[1] = 6;
        assert_eq!(upper.hash(&page), 3);
    }

    #[test]
    fn every_single_bit_counts() {
        let key = Key::draw().unwrap();
        for start in [[0; WORDS], some_page(9)] {
            let whole = key.hash(&start);
            for bit in 0..WORDS * 64 {
                let mut page = start;
                page[bit / 64] ^= 1 << (bit % 64);
                assert_ne!(key.hash(&page), whole, "bit {bit}");
            }
        }
    }

    #[test]
    fn swapped_words_and_shifted_pages_differ() {
        let key = Key::draw().unwrap();
        let page = some_page(5);
        let mut swapped = page;
        swapped.swap(0, 1);
        assert_ne!(key.hash(&page), key.hash(&swapped));
        let mut shifted = page;
        shifted.rotate_left(8);
        assert_ne!(key.hash(&page), key.hash(&shifted));
    }

    #[test]
    fn zero_is_exact() {
        let key = Key::draw().unwrap();
        let mut page = [0; WORDS];
        assert!(key.digest(&page).zero);
        page[WORDS - 1] = 1;
        assert!(!key.digest(&page).zero);
        // Under a key that hashes everything alike, only the content can tell.
        let blind = Key { words: [0; WORDS], low: 0, high: 0, zero: 0 };
        assert!(!blind.digest(&page).zero);
        page[WORDS - 1] = 0;
        assert!(blind.digest(&page).zero);
    }

    #[test]
    fn keys_differ() {
        let page = some_page(1);
        assert_ne!(Key::draw().unwrap().hash(&page), Key::draw().unwrap().hash(&page));
    }
}
