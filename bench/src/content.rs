//! What the benchmark's data hold: every word of a page is a number that looks random, from the word's place, plus the
//! page's generation. Distinct, incompressible, and verified without a copy at the speed of memory: what a program computes
//! for itself must not be what a row measures.

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const WORDS: usize = PAGE / 8;

/// A bijection on 64-bit numbers whose output looks random (splitmix64).
#[inline(always)]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The words of a page before its generation is added: a sequence of Weyl's that begins somewhere else in each page, its upper
/// bits folded into the lower ones. Multiplying for each word (`mix`) costs more than a fast device takes to bring it.
#[derive(Clone, Copy, Debug)]
pub struct Words(u64);

impl Words {
    /// The fractional part of the golden ratio, in 64 bits.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Those of this page.
    #[inline(always)]
    pub const fn of(page: u64) -> Words {
        Words(mix(page))
    }
    /// The word at this place.
    #[inline(always)]
    pub const fn word(self, place: u64) -> u64 {
        let word = self.0.wrapping_add(place.wrapping_mul(Words::STEP));
        word ^ word >> 29
    }
}

/// A stream of numbers that depends on its seed only.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// The next number below `n`, which is not 0.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }
    /// The next number in `[0, 1)`.
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Numbers of pages, some asked for far more often than others: rank `r` with a frequency of `1 / r^0.99`, ranks
/// scattered over all pages.
#[derive(Clone, Debug)]
pub struct Zipf {
    pages: u64,
    random: Random,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    /// Over this many pages.
    pub fn new(pages: u64, seed: u64) -> Zipf {
        let zeta: f64 = (1..=pages).map(|rank| (rank as f64).powf(-Zipf::THETA)).sum();
        let zeta_of_two = 1.0 + 0.5f64.powf(Zipf::THETA);
        let eta = (1.0 - (2.0 / pages as f64).powf(1.0 - Zipf::THETA)) / (1.0 - zeta_of_two / zeta);
        Zipf { pages, random: Random(seed), zeta, alpha: 1.0 / (1.0 - Zipf::THETA), eta }
    }
    /// The next page.
    pub fn draw(&mut self) -> u64 {
        let unit = self.random.unit();
        let scaled = unit * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(Zipf::THETA) {
            1
        } else {
            (self.pages as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64
        };
        mix(rank.min(self.pages - 1)) % self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_asks_for_the_first_ranks_most() {
        let mut zipf = Zipf::new(10_000, 1);
        let mut counts = vec![0u32; 10_000];
        for _ in 0..200_000 {
            counts[zipf.draw() as usize] += 1;
        }
        let first = mix(0) as usize % 10_000;
        let second = mix(1) as usize % 10_000;
        // 1 / H(10000, 0.99) is 0.098, and half of that for the second rank.
        assert!((16_000..24_000).contains(&counts[first]), "{}", counts[first]);
        assert!((8_000..13_000).contains(&counts[second]), "{}", counts[second]);
        assert!(counts.iter().filter(|count| **count > 0).count() > 5_000);
    }

    /// No compressor finds anything: all bytes are as frequent as others, and hardly any four of them come twice.
    #[test]
    fn words_cannot_be_compressed() {
        let bytes = |page: u64| (0..WORDS as u64).flat_map(move |place| Words::of(page).word(place).to_le_bytes());
        let mut counts = [0u32; 256];
        let (mut fours, mut words) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for page in 0..256 {
            let page: Vec<u8> = bytes(page).collect();
            page.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
            fours.extend(page.windows(4).map(|four| [four[0], four[1], four[2], four[3]]));
            words.extend(page.chunks(8).map(<[u8]>::to_vec));
        }
        // 4096 of each, with a deviation of 64.
        assert!(counts.iter().all(|count| (4096 - 400..4096 + 400).contains(count)), "{counts:?}");
        // Of 2^20 drawn among 2^32, 128 are drawn twice.
        assert!(fours.len() > (1 << 20) - 256 * 3 - 1000, "{}", fours.len());
        assert_eq!(words.len(), 256 * WORDS);
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random(3);
        assert!((0..10_000).all(|_| random.below(7) < 7));
    }
}
