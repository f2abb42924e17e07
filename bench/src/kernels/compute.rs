//! The computations: how programs that are known to gain from large pages, or to lose by them, walk through memory.

use ream_bench::content::mix;
use std::time::Instant;

/// A computation over some memory: seconds it took once all was touched, and a checksum of the result.
pub type Kernel = fn(&mut [u64]) -> (f64, u64);

/// By name.
pub const KERNELS: &[(&str, Kernel)] = &[
    ("chase", chase),
    ("update", update),
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

/// Dependent loads: one cycle through all cache lines in random order (Sattolo's algorithm).
fn chase(memory: &mut [u64]) -> (f64, u64) {
    const LINE: usize = 8;
    let lines = memory.len() / LINE;
    for line in 0..lines {
        memory[line * LINE] = line as u64;
    }
    for line in (1..lines).rev() {
        let other = (mix(line as u64) % line as u64) as usize;
        memory.swap(line * LINE, other * LINE);
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

/// a = b + s c over three arrays (after STREAM's triad).
fn triad(memory: &mut [u64]) -> (f64, u64) {
    let third = memory.len() / 3;
    let (a, rest) = memory.split_at_mut(third);
    let (b, c) = rest.split_at_mut(third);
    a.fill(1);
    b.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    c.fill(3);
    timed(|| {
        for pass in 0..24u64 {
            for ((a, b), c) in a.iter_mut().zip(b.iter()).zip(c.iter()) {
                *a = b.wrapping_add(c.wrapping_mul(pass));
            }
        }
        a.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    })
}

/// A sparse matrix of eight random elements a row times a vector, as in conjugate gradients: columns and values are
/// read in order, the vector anywhere.
fn sparse(memory: &mut [u64]) -> (f64, u64) {
    const ELEMENTS: usize = 8;
    let rows = memory.len() / (ELEMENTS + 2);
    let (columns, vectors) = memory.split_at_mut(rows * ELEMENTS);
    let (x, y) = vectors.split_at_mut(rows);
    columns.iter_mut().zip(0..).for_each(|(column, index)| *column = mix(index) % rows as u64);
    x.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    y.fill(0);
    timed(|| {
        for _ in 0..2 {
            for (columns, y) in columns.chunks_exact(ELEMENTS).zip(y.iter_mut()) {
                *y = columns.iter().fold(0, |sum: u64, column| sum.wrapping_add(x[*column as usize]));
            }
            x[..rows].copy_from_slice(&y[..rows]);
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
