//! The rows of `ream bench paging`: what is done, what it is held against, and what it has to reach.

use crate::raw::Pattern;
use crate::work::Walk;

/// Pages read in order in one turn of the walk that changes its ways.
pub const PHASE_ORDERED: u64 = 16384;
/// Pages read at random in one turn of it.
pub const PHASE_RANDOM: u64 = 500;

/// What the device does for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Against {
    /// Reads in order, the best size and depth.
    Reads,
    /// A write for every read, in order, the best size and depth.
    Mixed,
    /// This pattern at this depth.
    Pattern(Pattern, usize),
    /// Reads in order, then single pages at random, in the same proportion as the walk.
    Phases,
    /// Nothing: the data do not leave memory.
    Nothing,
    /// Exact LRU, computed from the trace.
    Lru,
}

/// What is compared with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Bytes accessed per second.
    Bytes,
    /// Pages that had to be read per second.
    Misses,
    /// Microseconds per page that had to be read.
    MissTime,
    /// Accesses per second, against plain RAM.
    Accesses,
    /// How often a page had to be read.
    Count,
}

/// What must be reached.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Must {
    /// At least this share of the device's figure.
    OfRaw(f64),
    /// At most so many microseconds more than the device.
    RawPlus(f64),
    /// At least so many times swap at its default page-cluster.
    OfSwap(f64),
    /// At least so many times swap at the better of the other page-clusters.
    OfBestSwap(f64),
    /// At most so many times the misses of exact LRU.
    OfLruMisses(f64),
    /// At most so many times the bytes that exact LRU reads.
    OfLruBytes(f64),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// What the worker does.
    pub walk: Walk,
    /// With how many threads.
    pub threads: u64,
    /// What it is compared with.
    pub against: Against,
    /// In what.
    pub measure: Measure,
    /// What it must reach.
    pub musts: &'static [Must],
}

const fn row(
    name: &'static str,
    walk: Walk,
    threads: u64,
    against: Against,
    measure: Measure,
    musts: &'static [Must],
) -> Row {
    Row { name, walk, threads, against, measure, musts }
}

const ONE_OF_16: Walk = Walk::Strided { pages: 1, step: 16 };
const FOUR_OF_64: Walk = Walk::Strided { pages: 4, step: 64 };
const RAW_ONE: Against = Against::Pattern(Pattern::Strided { pages: 1, step: 16 }, 16);
const RAW_FOUR: Against = Against::Pattern(Pattern::Strided { pages: 4, step: 64 }, 16);

const IN_ORDER: &[Must] = &[Must::OfRaw(0.9), Must::OfSwap(4.0), Must::OfBestSwap(2.0)];
const NEARLY: &[Must] = &[Must::OfRaw(0.75)];

/// All rows but zipf, in the order in which they are measured: what leaves the store in order comes first.
pub const ROWS: &[Row] = &[
    row("sequential-read", Walk::Sequential, 1, Against::Reads, Measure::Bytes, IN_ORDER),
    row("reverse-read", Walk::Reverse, 1, Against::Reads, Measure::Bytes, IN_ORDER),
    row("sequential-change", Walk::Change, 1, Against::Mixed, Measure::Bytes, IN_ORDER),
    row("sequential-write", Walk::Overwrite, 1, Against::Mixed, Measure::Bytes, &[]),
    row("strided-4k-of-64k", ONE_OF_16, 1, RAW_ONE, Measure::Bytes, NEARLY),
    row("strided-16k-of-256k", FOUR_OF_64, 1, RAW_FOUR, Measure::Bytes, NEARLY),
    row("streams-4", Walk::Streams, 1, Against::Reads, Measure::Bytes, NEARLY),
    row("threads-64", Walk::Parts, 64, Against::Reads, Measure::Bytes, NEARLY),
    row("rounds", Walk::Rounds(0), 1, Against::Reads, Measure::Bytes, &[]),
    row("phases", Walk::Phases, 1, Against::Phases, Measure::Bytes, &[]),
    row(
        "random-read-1",
        Walk::Random,
        1,
        Against::Pattern(Pattern::Random, 1),
        Measure::MissTime,
        &[Must::RawPlus(12.0), Must::OfBestSwap(1.0)],
    ),
    row("random-read-4", Walk::Random, 4, Against::Pattern(Pattern::Random, 4), Measure::Misses, &[]),
    row(
        "random-read-16",
        Walk::Random,
        16,
        Against::Pattern(Pattern::Random, 16),
        Measure::Misses,
        &[Must::OfRaw(0.8)],
    ),
    row("working-set-fits", Walk::Hot(0), 1, Against::Nothing, Measure::Accesses, &[]),
    row(
        "random-change-16",
        Walk::RandomChange,
        16,
        Against::Pattern(Pattern::RandomMixed, 16),
        Measure::Misses,
        &[Must::OfRaw(0.7), Must::OfBestSwap(1.2)],
    ),
    row("sequential-read-after", Walk::Sequential, 1, Against::Reads, Measure::Bytes, &[]),
    row("zipf", Walk::Zipf, 1, Against::Lru, Measure::Count, &[Must::OfLruMisses(1.1), Must::OfLruBytes(1.5)]),
];
