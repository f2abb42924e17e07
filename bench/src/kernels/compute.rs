//! The computations: how programs that are known to gain from large pages, or to lose by them, walk through memory.

use ream_bench::content::mix;
use std::time::Instant;

/// A computation over some memory: seconds it took once all was touched, and a checksum of the result.
pub type Kernel = fn(&mut [u64]) -> (f64, u64);

/// By name.
pub const KERNELS: &[(&str, Kernel)] = &[
    ("chase", chase),
    ("gather", gather),
    ("update", update),
    ("copy", copy),
    ("scale", scale),
    ("add", add),
    ("triad", triad),
    ("sparse", sparse),
    ("smooth", smooth),
    ("transform", transform),
    ("sort", sort),
    ("transpose", transpose),
];

fn timed(work: impl FnOnce() -> u64) -> (f64, u64) {
    let begun = Instant::now();
    let sum = std::hint::black_box(work());
    (begun.elapsed().as_secs_f64(), sum)
}

/// Words of a cache line.
const LINE: usize = 8;

/// Numbers of `bits` bits in a scattered order, one to one, and back: twice a shift and a multiplication by an odd number.
#[derive(Clone, Copy)]
struct Scattered {
    bits: u32,
}

impl Scattered {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

    fn masked(self, number: u64) -> u64 {
        number & ((1 << self.bits) - 1)
    }
    /// Its own inverse, since the shift is at least half of the bits.
    fn folded(self, number: u64) -> u64 {
        number ^ number >> self.bits.div_ceil(2)
    }
    fn place(self, turn: u64) -> u64 {
        let once = self.folded(self.masked(turn.wrapping_mul(Scattered::ODD)));
        self.folded(self.masked(once.wrapping_mul(Scattered::ODD)))
    }
    fn turn(self, place: u64) -> u64 {
        // Newton's iteration: each step doubles the bits that are right, of which an odd number has three of itself.
        let inverse = (0..5).fold(Scattered::ODD, |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(Scattered::ODD.wrapping_mul(inverse)))
        });
        let once = self.masked(self.folded(place).wrapping_mul(inverse));
        self.masked(self.folded(once).wrapping_mul(inverse))
    }
}

/// Dependent loads: one cycle through the cache lines (as many as a power of two has) in a scattered order. Each line is
/// written once, in order, so that gigabytes are ready in seconds.
fn chase(memory: &mut [u64]) -> (f64, u64) {
    let order = Scattered { bits: (memory.len() / LINE).ilog2() };
    for line in 0..1u64 << order.bits {
        memory[line as usize * LINE] = order.place(order.masked(order.turn(line) + 1));
    }
    timed(|| {
        let (mut at, mut sum) = (0, 0u64);
        for _ in 0..4_000_000 {
            at = memory[at * LINE] as usize;
            sum = sum.wrapping_mul(31).wrapping_add(at as u64);
        }
        sum
    })
}

/// Independent loads: cache lines at random, none of which waits for another.
fn gather(memory: &mut [u64]) -> (f64, u64) {
    let lines = (memory.len() / LINE) as u64;
    (0..lines).for_each(|line| memory[line as usize * LINE] = line);
    timed(|| {
        (0..16_000_000).fold(0u64, |sum, index| sum.wrapping_add(memory[(mix(index) % lines) as usize * LINE] ^ index))
    })
}

/// Independent updates of random words (after the GUPS benchmark).
fn update(memory: &mut [u64]) -> (f64, u64) {
    memory.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    let words = memory.len() as u64;
    timed(|| {
        for index in 0..16_000_000 {
            let value = mix(index);
            memory[(value % words) as usize] ^= value;
        }
        memory.iter().fold(0, |sum, word| sum ^ word)
    })
}

/// STREAM: one of its four loops over arrays of floating-point numbers, a third of the memory each.
fn stream(memory: &mut [u64], one: impl Fn(&mut [u64], &[u64], &[u64])) -> (f64, u64) {
    let third = memory.len() / 3;
    let (a, rest) = memory.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    a.fill(1f64.to_bits());
    b.iter_mut().zip(0u32..).for_each(|(word, index)| *word = f64::from(index).to_bits());
    c.fill(0.5f64.to_bits());
    let c = &c[..third];
    timed(|| {
        for _ in 0..24 {
            one(a, b, c);
            std::hint::black_box(&mut *a);
        }
        a.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    })
}

/// A floating-point number that is kept as its bits.
fn real(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// a = b
fn copy(memory: &mut [u64]) -> (f64, u64) {
    stream(memory, |a, b, _| a.copy_from_slice(b))
}

/// a = s b
fn scale(memory: &mut [u64]) -> (f64, u64) {
    stream(memory, |a, b, _| a.iter_mut().zip(b).for_each(|(a, b)| *a = (3.0 * real(*b)).to_bits()))
}

/// a = b + c
fn add(memory: &mut [u64]) -> (f64, u64) {
    stream(memory, |a, b, c| {
        a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = (real(*b) + real(*c)).to_bits());
    })
}

/// a = b + s c
fn triad(memory: &mut [u64]) -> (f64, u64) {
    stream(memory, |a, b, c| {
        a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = (real(*b) + 3.0 * real(*c)).to_bits());
    })
}

/// Conjugate gradients (after NAS's CG): a sparse matrix of seven elements a row in random columns, and a diagonal that
/// outweighs them, times a vector; two scalar products, and three vectors brought up to date. Columns are read in order, the
/// vector anywhere.
fn sparse(memory: &mut [u64]) -> (f64, u64) {
    const ELEMENTS: usize = 7;
    let rows = memory.len() / (ELEMENTS + 4);
    let (columns, vectors) = memory.split_at_mut(rows * ELEMENTS);
    let (x, rest) = vectors.split_at_mut(rows);
    let (r, rest) = rest.split_at_mut(rows);
    let (p, q) = rest.split_at_mut(rows);
    columns.iter_mut().zip(0..).for_each(|(column, index)| *column = mix(index) % rows as u64);
    x.fill(0f64.to_bits());
    r.iter_mut().zip(0u64..).for_each(|(word, index)| *word = ((mix(index) % 1000) as f64).to_bits());
    p.copy_from_slice(r);
    q.fill(0);
    let product = |one: &[u64], other: &[u64]| one.iter().zip(other).fold(0.0, |sum, (a, b)| sum + real(*a) * real(*b));
    timed(|| {
        let mut rho = product(r, r);
        for _ in 0..3 {
            for ((columns, q), own) in columns.chunks_exact(ELEMENTS).zip(q.iter_mut()).zip(p.iter()) {
                let sum = columns.iter().fold(0.0, |sum, column| sum + real(p[*column as usize]));
                *q = (16.0 * real(*own) + sum).to_bits();
            }
            let alpha = rho / product(p, q);
            x.iter_mut().zip(p.iter()).for_each(|(x, p)| *x = (real(*x) + alpha * real(*p)).to_bits());
            r.iter_mut().zip(q.iter()).for_each(|(r, q)| *r = (real(*r) - alpha * real(*q)).to_bits());
            let before = std::mem::replace(&mut rho, product(r, r));
            let beta = rho / before;
            p.iter_mut().zip(r.iter()).for_each(|(p, r)| *p = (real(*r) + beta * real(*p)).to_bits());
        }
        x.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    })
}

/// Side of the cube that fits so many words.
fn side(words: usize) -> usize {
    (1..).take_while(|side| side * side * side <= words).last().unwrap_or(1)
}

/// A seven-point sum over a cube, every point from its neighbours, and a coarser pass with stride two (as a multigrid
/// step has).
fn smooth(memory: &mut [u64]) -> (f64, u64) {
    let half = memory.len() / 2;
    let n = side(half);
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    to.fill(0);
    timed(|| {
        for step in [1, 2, 4] {
            let (row, plane) = (n * step, n * n * step);
            for z in (step..n - step).step_by(step) {
                for y in (step..n - step).step_by(step) {
                    for x in (step..n - step).step_by(step) {
                        let at = (z * n + y) * n + x;
                        let near = [at - step, at + step, at - row, at + row, at - plane, at + plane];
                        to[at] = near.iter().fold(from[at], |sum, near| sum.wrapping_add(from[*near]));
                    }
                }
            }
        }
        to.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    })
}

/// Butterflies along the slowest dimension of a cube, as a three-dimensional Fourier transform has them: every pair of
/// points lies planes apart.
fn transform(memory: &mut [u64]) -> (f64, u64) {
    let n = side(memory.len());
    memory.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    timed(|| {
        for column in (0..n * n).step_by(16) {
            let mut half = 1;
            while half * 2 <= n {
                for z in (0..n - half).step_by(half * 2) {
                    for z in z..(z + half).min(n - half) {
                        let (low, high) = (z * n * n + column, (z + half) * n * n + column);
                        let (a, b) = (memory[low], memory[high]);
                        memory[low] = a.wrapping_add(b);
                        memory[high] = a.wrapping_sub(b);
                    }
                }
                half *= 2;
            }
        }
        memory.iter().fold(0, |sum, word| sum ^ word)
    })
}

/// One pass of a radix sort into 2048 buckets (as integer sort): reads in order, writes to as many places.
fn sort(memory: &mut [u64]) -> (f64, u64) {
    const BUCKETS: usize = 2048;
    let half = memory.len() / 2;
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = mix(index));
    to.fill(0);
    timed(|| {
        let bucket = |word: u64| (word >> 53) as usize;
        let mut places = vec![0usize; BUCKETS];
        from.iter().for_each(|word| places[bucket(*word)] += 1);
        let mut next = 0;
        for place in &mut places {
            next += std::mem::replace(place, next);
        }
        for word in from.iter() {
            let place = &mut places[bucket(*word)];
            to[*place] = *word;
            *place += 1;
        }
        to.iter().zip(0u64..).fold(0, |sum, (word, index)| sum.wrapping_add(word ^ index))
    })
}

/// A square matrix is transposed into another: read along rows, written along columns.
fn transpose(memory: &mut [u64]) -> (f64, u64) {
    let half = memory.len() / 2;
    let n = (1..).take_while(|n| n * n <= half).last().unwrap_or(1);
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    to.fill(0);
    timed(|| {
        for row in 0..n {
            for column in 0..n {
                to[column * n + row] = from[row * n + column];
            }
        }
        to.iter().zip(0u64..).fold(0, |sum, (word, index)| sum.wrapping_add(word ^ index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_numbers_come_once_each() {
        for bits in [1, 2, 5, 12, 13] {
            let order = Scattered { bits };
            let mut seen = vec![false; 1 << bits];
            for turn in 0..1u64 << bits {
                let place = order.place(turn);
                assert!(!std::mem::replace(&mut seen[place as usize], true), "{bits}: {place} twice");
                assert_eq!(order.turn(place), turn);
            }
        }
    }

    #[test]
    fn a_chase_comes_to_every_line_before_it_comes_to_one_again() {
        let mut memory = vec![0; LINE << 12];
        chase(&mut memory);
        let mut at = 0;
        let lengths = (1..).find(|_| {
            at = memory[at * LINE] as usize;
            at == 0
        });
        assert_eq!(lengths, Some(1 << 12));
    }

    #[test]
    fn every_computation_depends_on_its_memory_alone() {
        for (name, kernel) in KERNELS {
            let sums: Vec<u64> = (0..2).map(|_| kernel(&mut vec![0; 3 << 15]).1).collect();
            assert_eq!(sums[0], sums[1], "{name}");
            assert_ne!(sums[0], 0, "{name}");
        }
    }
}
