//! Small allocations through malloc and free, as programs make them; prints one time in seconds per pattern.

use ream_bench::content::Random;
use std::time::Instant;

/// Blocks that one thread holds at a time.
const HELD: usize = 4096;

fn allocate(bytes: usize) -> *mut u8 {
    // SAFETY: malloc may be called with any size; the result is checked.
    let block = unsafe { libc::malloc(bytes).cast::<u8>() };
    assert!(!block.is_null(), "malloc of {bytes} bytes");
    // SAFETY: the block has at least one byte. A volatile write keeps the pair from being optimised away.
    unsafe { block.write_volatile(bytes as u8) };
    block
}

fn release(block: *mut u8) {
    // SAFETY: every block is released once, by whoever holds it.
    unsafe { libc::free(block.cast()) };
}

/// The same size again and again, freed at once.
fn pairs(rounds: u64, _: &mut Random) {
    (0..rounds * 4).for_each(|_| release(allocate(64)));
}

/// Blocks of 16 to 1039 bytes, of which one at random is replaced each time.
fn mixed(rounds: u64, random: &mut Random) {
    let mut held = [std::ptr::null_mut::<u8>(); HELD];
    for _ in 0..rounds {
        let place = random.below(HELD as u64) as usize;
        release(held[place]);
        held[place] = allocate(16 + random.below(1024) as usize);
    }
    held.into_iter().for_each(release);
}

/// Many blocks of one size, then all of them freed in the order of their birth, as a list or a tree is.
fn waves(rounds: u64, _: &mut Random) {
    let mut held = [std::ptr::null_mut::<u8>(); HELD];
    for _ in 0..rounds / HELD as u64 {
        held.iter_mut().for_each(|place| *place = allocate(48));
        held.iter().for_each(|block| release(*block));
    }
}

/// Medium blocks: 1 to 64 KiB.
fn medium(rounds: u64, random: &mut Random) {
    let mut held = [std::ptr::null_mut::<u8>(); 64];
    for _ in 0..rounds / 4 {
        let place = random.below(64) as usize;
        release(held[place]);
        held[place] = allocate(1024 << random.below(7));
    }
    held.into_iter().for_each(release);
}

/// Runs each pattern in every thread and prints the wall time of each.
pub fn run(threads: u64, rounds: u64) {
    let patterns: [fn(u64, &mut Random); 4] = [pairs, mixed, waves, medium];
    let times = patterns.map(|pattern| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for me in 1..threads {
                scope.spawn(move || pattern(rounds, &mut Random(me)));
            }
            pattern(rounds, &mut Random(0));
        });
        begun.elapsed().as_secs_f64().to_string()
    });
    println!("{}", times.join(" "));
}

/// Names of the patterns, in the order in which their times are printed.
pub use ream_bench::malloc::PATTERNS;

const _: () = assert!(PATTERNS.len() == 4);
