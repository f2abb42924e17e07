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

/// Blocks of all sizes whose bytes say whose they are, one of which at random is replaced each time: whether each still holds
/// what it was filled with when it is freed. That is not timed.
fn whole(me: u64, corrupt: bool) -> bool {
    let (mut held, mut random) = (vec![(std::ptr::null_mut::<u8>(), 0usize); HELD], Random(me));
    let byte = |place: usize, size: usize| (place * 31 + size) as u8 ^ me as u8;
    let end = |(block, size): (*mut u8, usize), place: usize| {
        // SAFETY: the block was allocated with as many bytes, all of them written; or is null, and there are none.
        let right = (0..size).all(|at| unsafe { block.add(at).read() } == byte(place, size));
        release(block);
        right
    };
    let mut right = true;
    for round in 0..HELD * 8 {
        let place = random.below(HELD as u64) as usize;
        right &= end(held[place], place);
        let size = if round % 64 == 0 { 1 + random.below(1 << 16) } else { 1 + random.below(1024) } as usize;
        let block = allocate(size);
        // SAFETY: the block has so many bytes.
        unsafe { block.write_bytes(byte(place, size), size) };
        held[place] = (block, size);
    }
    if let Some((block, _)) = held.iter().find(|(block, _)| corrupt && !block.is_null()) {
        // SAFETY: it has at least one byte.
        unsafe { **block ^= 1 };
    }
    held.into_iter().zip(0..).fold(right, |right, (block, place)| right & end(block, place))
}

/// Runs each pattern in every thread and prints the wall time of each; ends with 1 when blocks do not hold what was written.
pub fn run(threads: u64, rounds: u64, corrupt: bool) {
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
    let right = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|me| scope.spawn(move || whole(me, false))).collect();
        let own = whole(0, corrupt);
        others.into_iter().fold(own, |right, other| right & other.join().unwrap_or(false))
    });
    if !right {
        eprintln!("ream-bench-worker: malloc: WRONG RESULT: a block does not hold what was written");
        std::process::exit(1);
    }
    println!("{}", times.join(" "));
}

/// Names of the patterns, in the order in which their times are printed.
pub use ream_bench::malloc::PATTERNS;

const _: () = assert!(PATTERNS.len() == 4);
