//! The computations: how programs that are known to gain from large pages, or to lose by them, walk through memory. Each knows
//! what must come of it, and looks at all of its memory afterwards, which is not timed.

use ream_bench::content::mix;
use std::time::Instant;

/// What a computation came to.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Seconds that it took once all was touched.
    pub seconds: f64,
    /// A checksum of the result.
    pub sum: u64,
    /// Everything is what it must be.
    pub right: bool,
}

/// A computation over some memory. With `true` one value is spoilt beforehand, which must be found.
pub type Kernel = fn(&mut [u64], bool) -> Outcome;

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

impl Outcome {
    fn of((seconds, sum): (f64, u64), right: bool) -> Outcome {
        Outcome { seconds, sum, right }
    }
}

/// Spoils the word in the middle, if it is to be.
fn spoil(memory: &mut [u64], corrupt: bool) {
    let middle = memory.len() / 2;
    if corrupt {
        memory[middle] ^= 1;
    }
}

/// Whether words are what their places say.
fn all(memory: &[u64], is: impl Fn(u64) -> u64) -> bool {
    memory.iter().zip(0..).all(|(word, index)| *word == is(index))
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
fn chase(memory: &mut [u64], corrupt: bool) -> Outcome {
    let order = Scattered { bits: (memory.len() / LINE).ilog2() };
    for line in 0..1u64 << order.bits {
        memory[line as usize * LINE] = order.place(order.masked(order.turn(line) + 1));
    }
    let last = (1usize << order.bits) / 2 * LINE;
    memory[last] ^= u64::from(corrupt);
    let mut at = 0;
    let ran = timed(|| {
        let mut sum = 0u64;
        for _ in 0..STEPS {
            at = memory[at * LINE] as usize;
            sum = sum.wrapping_mul(31).wrapping_add(at as u64);
        }
        sum
    });
    let lines = memory.chunks_exact(LINE).take(1 << order.bits).zip(0..);
    let whole = lines.map(|(line, number)| line[0] == order.place(order.masked(order.turn(number) + 1)));
    let there = at as u64 == order.place(order.masked(order.turn(0) + STEPS));
    Outcome::of(ran, whole.fold(true, |whole, one| whole & one) && there)
}

/// Loads of a chase.
const STEPS: u64 = 4_000_000;

/// Independent loads: cache lines at random, none of which waits for another.
fn gather(memory: &mut [u64], corrupt: bool) -> Outcome {
    let lines = (memory.len() / LINE) as u64;
    (0..lines).for_each(|line| memory[line as usize * LINE] = line);
    memory[lines as usize / 2 * LINE] ^= u64::from(corrupt);
    let ran = timed(|| {
        (0..16_000_000).fold(0u64, |sum, index| sum.wrapping_add(memory[(mix(index) % lines) as usize * LINE] ^ index))
    });
    let sum = (0..16_000_000).fold(0u64, |sum, index| sum.wrapping_add((mix(index) % lines) ^ index));
    let whole = memory.chunks_exact(LINE).zip(0..).all(|(line, number)| line[0] == number);
    Outcome::of(ran, whole && ran.1 == sum)
}

/// Independent updates of random words (after the GUPS benchmark).
fn update(memory: &mut [u64], corrupt: bool) -> Outcome {
    memory.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    spoil(memory, corrupt);
    let words = memory.len() as u64;
    let updates = |memory: &mut [u64]| {
        for index in 0..16_000_000 {
            let value = mix(index);
            memory[(value % words) as usize] ^= value;
        }
    };
    let ran = timed(|| {
        updates(memory);
        memory.iter().fold(0, |sum, word| sum ^ word)
    });
    // The same again takes everything back.
    updates(memory);
    Outcome::of(ran, all(memory, |index| index))
}

/// STREAM: one of its four loops over arrays of floating-point numbers, a third of the memory each.
fn stream(
    memory: &mut [u64],
    corrupt: bool,
    one: impl Fn(&mut [u64], &[u64], &[u64]),
    is: impl Fn(f64) -> f64,
) -> Outcome {
    let third = memory.len() / 3;
    let (a, rest) = memory.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    a.fill(1f64.to_bits());
    b.iter_mut().zip(0u32..).for_each(|(word, index)| *word = f64::from(index).to_bits());
    c.fill(0.5f64.to_bits());
    spoil(b, corrupt);
    let c = &c[..third];
    let ran = timed(|| {
        for _ in 0..24 {
            one(a, b, c);
            std::hint::black_box(&mut *a);
        }
        a.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    });
    // Whole numbers and halves: no sum is rounded.
    Outcome::of(ran, all(a, |index| is(f64::from(index as u32)).to_bits()))
}

/// A floating-point number that is kept as its bits.
fn real(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// a = b
fn copy(memory: &mut [u64], corrupt: bool) -> Outcome {
    stream(memory, corrupt, |a, b, _| a.copy_from_slice(b), |b| b)
}

/// a = s b
fn scale(memory: &mut [u64], corrupt: bool) -> Outcome {
    let one = |a: &mut [u64], b: &[u64], _: &[u64]| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = (3.0 * real(*b)).to_bits());
    };
    stream(memory, corrupt, one, |b| 3.0 * b)
}

/// a = b + c
fn add(memory: &mut [u64], corrupt: bool) -> Outcome {
    let one = |a: &mut [u64], b: &[u64], c: &[u64]| {
        a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = (real(*b) + real(*c)).to_bits());
    };
    stream(memory, corrupt, one, |b| b + 0.5)
}

/// a = b + s c
fn triad(memory: &mut [u64], corrupt: bool) -> Outcome {
    let one = |a: &mut [u64], b: &[u64], c: &[u64]| {
        a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = (real(*b) + 3.0 * real(*c)).to_bits());
    };
    stream(memory, corrupt, one, |b| b + 1.5)
}

/// Conjugate gradients (after NAS's CG): a sparse matrix of seven elements a row in random columns, and a diagonal that
/// outweighs them, times a vector; two scalar products, and three vectors brought up to date. Columns are read in order, the
/// vector anywhere.
fn sparse(memory: &mut [u64], corrupt: bool) -> Outcome {
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
    let middle = rows / 2;
    columns[middle * ELEMENTS] = (columns[middle * ELEMENTS] + u64::from(corrupt)) % rows as u64;
    let product = |one: &[u64], other: &[u64]| one.iter().zip(other).fold(0.0, |sum, (a, b)| sum + real(*a) * real(*b));
    let ran = timed(|| {
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
    });
    // What is left over is what the solution so far leaves, with the matrix as it was made; rounding apart.
    let near = |row: usize| {
        let sum = (0..ELEMENTS).map(|element| mix((row * ELEMENTS + element) as u64) % rows as u64);
        let sum: f64 = sum.map(|column| real(x[column as usize])).sum();
        let left = (mix(row as u64) % 1000) as f64 - 16.0 * real(x[row]) - sum;
        (left - real(r[row])).abs() < 1e-6 * (1.0 + left.abs())
    };
    Outcome::of(ran, (0..rows).all(near))
}

/// Side of the cube that fits so many words.
fn side(words: usize) -> usize {
    (1..).take_while(|side| side * side * side <= words).last().unwrap_or(1)
}

/// A seven-point sum over a cube, every point from its neighbours, and a coarser pass with stride two (as a multigrid
/// step has).
fn smooth(memory: &mut [u64], corrupt: bool) -> Outcome {
    let half = memory.len() / 2;
    let n = side(half);
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    to.fill(0);
    from[(n / 2 * n + n / 2) * n + n / 2] ^= u64::from(corrupt);
    let ran = timed(|| {
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
    });
    // What is more in one neighbour is less in the other.
    let inside = |place: usize| (1..n.saturating_sub(1)).contains(&place);
    let is = |at: u64| {
        let at = at as usize;
        if inside(at % n) && inside(at / n % n) && inside(at / (n * n)) { at as u64 * 7 } else { 0 }
    };
    Outcome::of(ran, all(to, is))
}

/// Butterflies along the slowest dimension of a cube, as a three-dimensional Fourier transform has them: every pair of
/// points lies planes apart.
fn transform(memory: &mut [u64], corrupt: bool) -> Outcome {
    let n = side(memory.len());
    memory.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    spoil(memory, corrupt);
    let stages = |half: &usize| Some(half * 2).filter(|half| half * 2 <= n);
    let halves: Vec<usize> = std::iter::successors(Some(1).filter(|_| n > 1), stages).collect();
    let ran = timed(|| {
        for column in (0..n * n).step_by(16) {
            for half in halves.iter().copied() {
                for z in (0..n - half).step_by(half * 2) {
                    for z in z..(z + half).min(n - half) {
                        let (low, high) = (z * n * n + column, (z + half) * n * n + column);
                        let (a, b) = (memory[low], memory[high]);
                        memory[low] = a.wrapping_add(b);
                        memory[high] = a.wrapping_sub(b);
                    }
                }
            }
        }
        memory.iter().fold(0, |sum, word| sum ^ word)
    });
    // And back: numbers are small, so that none was wrapped for good.
    for column in (0..n * n).step_by(16) {
        for half in halves.iter().rev().copied() {
            for z in (0..n - half).step_by(half * 2) {
                for z in z..(z + half).min(n - half) {
                    let (low, high) = (z * n * n + column, (z + half) * n * n + column);
                    let (sum, difference) = (memory[low] as i64, memory[high] as i64);
                    memory[low] = ((sum + difference) / 2) as u64;
                    memory[high] = ((sum - difference) / 2) as u64;
                }
            }
        }
    }
    Outcome::of(ran, all(memory, |index| index))
}

/// One pass of a radix sort into 2048 buckets (as integer sort): reads in order, writes to as many places.
fn sort(memory: &mut [u64], corrupt: bool) -> Outcome {
    const BUCKETS: usize = 2048;
    let half = memory.len() / 2;
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = mix(index));
    to.fill(0);
    spoil(from, corrupt);
    let bucket = |word: u64| (word >> 53) as usize;
    let ran = timed(|| {
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
    });
    let ordered = to[..from.len()].is_sorted_by_key(|word| bucket(*word));
    // The same words, whatever their order: their sum, and that of what they are mixed to.
    let joined = |(sum, mixed): (u64, u64), word: u64| (sum.wrapping_add(word), mixed.wrapping_add(mix(word)));
    let there = to[..from.len()].iter().fold((0, 0), |sums, word| joined(sums, *word));
    let made = (0..from.len() as u64).fold((0, 0), |sums, index| joined(sums, mix(index)));
    Outcome::of(ran, ordered && there == made)
}

/// A square matrix is transposed into another: read along rows, written along columns.
fn transpose(memory: &mut [u64], corrupt: bool) -> Outcome {
    let half = memory.len() / 2;
    let n = (1..).take_while(|n| n * n <= half).last().unwrap_or(1);
    let (from, to) = memory.split_at_mut(half);
    from.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    to.fill(0);
    spoil(&mut from[..n * n], corrupt);
    let ran = timed(|| {
        for row in 0..n {
            for column in 0..n {
                to[column * n + row] = from[row * n + column];
            }
        }
        to.iter().zip(0u64..).fold(0, |sum, (word, index)| sum.wrapping_add(word ^ index))
    });
    let side = n as u64;
    Outcome::of(ran, all(&to[..n * n], |at| at % side * side + at / side))
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
        assert!(chase(&mut memory, false).right);
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
            let outcomes = [0, 1].map(|_| kernel(&mut vec![0; 3 << 15], false));
            assert_eq!(outcomes[0].sum, outcomes[1].sum, "{name}");
            assert_ne!(outcomes[0].sum, 0, "{name}");
            assert!(outcomes.iter().all(|outcome| outcome.right), "{name}");
        }
    }

    #[test]
    fn one_spoilt_value_is_found() {
        for (name, kernel) in KERNELS {
            assert!(!kernel(&mut vec![0; 3 << 15], true).right, "{name}");
        }
    }
}
