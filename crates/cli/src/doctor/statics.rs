//! Writable static data as libream.so will find them (its statics.rs has the same rules): parts of 1 MiB and more go to
//! large pages, block by block, where neither what becomes read-only nor the other part of the segment has a share.

use crate::code::Base;
use crate::elf::{Layout, Segment};
use crate::os::BLOCK;

const BYTES: u64 = BLOCK as u64;
const PAGE: u64 = 4096;
/// Smaller parts are left alone.
const LEAST: u64 = 1 << 20;

/// Static data of a program or library.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statics {
    /// Bytes of data that the file holds.
    pub data: u64,
    /// Bytes that begin as zeros.
    pub zeros: u64,
    /// Whole blocks that go to large pages, at least.
    pub blocks: u64,
    /// Whether some bytes lie in a block with other data.
    pub shared: bool,
}

impl Statics {
    /// Of a file.
    pub fn of(layout: &Layout) -> Statics {
        let known = Base::of_program(layout) == Base::Blocks;
        let mut statics = Statics::default();
        for segment in layout.segments.iter().filter(|segment| segment.is_writable() && !segment.is_code()) {
            statics.data += segment.file_bytes;
            statics.zeros += segment.memory_bytes.saturating_sub(segment.file_bytes);
            for (start, end) in parts(layout, segment) {
                if end - start < LEAST {
                    continue;
                }
                let blocks = blocks(start, end, known);
                statics.blocks += blocks;
                statics.shared |= end - start > blocks * BYTES;
            }
        }
        statics
    }
}

/// The pages that come from the file, and those behind them, of a segment.
fn parts(layout: &Layout, segment: &Segment) -> [(u64, u64); 2] {
    let start = segment.address;
    let file_end = start + segment.file_bytes;
    let protected_end = layout.protected.map(|(address, bytes)| address.saturating_add(bytes));
    let writable = protected_end.filter(|end| (start..=file_end).contains(end)).unwrap_or(start);
    let file_end = file_end.next_multiple_of(PAGE);
    let pages = |from: u64, to: u64| {
        let from = from.next_multiple_of(PAGE);
        (from, (to / PAGE * PAGE).max(from))
    };
    [pages(writable, file_end), pages(file_end, start + segment.memory_bytes)]
}

/// Whole blocks of a range; the least there can be where only its bytes, not its address, are known.
fn blocks(start: u64, end: u64, known: bool) -> u64 {
    match known {
        true => (end / BYTES).saturating_sub(start.div_ceil(BYTES)),
        false => (end - start).saturating_sub(BYTES - PAGE) / BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn layout(movable: bool, address: u64, file: u64, memory: u64) -> Layout {
        let mut segment = Segment::made_up(6, address, address, file, PAGE);
        segment.memory_bytes = memory;
        Layout { movable, segments: vec![segment], ..Layout::default() }
    }

    #[test]
    fn whole_blocks_of_zeros() {
        let fixed = Statics::of(&layout(false, 5 * M, 8, 64 * M));
        assert_eq!((fixed.data, fixed.zeros, fixed.blocks, fixed.shared), (8, 64 * M - 8, 31, true));
        // Somewhere: 31 or, if it is unlucky, 30 whole ones in just less than 64 MiB.
        assert_eq!(Statics::of(&layout(true, 5 * M, 8, 64 * M)).blocks, 31);
        assert_eq!(Statics::of(&layout(true, 5 * M, 8, 62 * M)).blocks, 30);
        let whole = Statics::of(&layout(false, 4 * M, 8 * M, 8 * M));
        assert_eq!((whole.blocks, whole.shared), (4, false));
    }

    #[test]
    fn little_and_read_only_data_are_left_alone() {
        assert_eq!(Statics::of(&layout(false, 4 * M, 8, M / 2)).blocks, 0);
        let mut with = layout(false, 4 * M, 8 * M, 8 * M);
        with.protected = Some((4 * M, 4096));
        assert_eq!(Statics::of(&with).blocks, 3);
        // Data and zeros that meet in a block have it on small pages.
        assert_eq!(Statics::of(&layout(false, 4 * M, 3 * M, 8 * M)).blocks, 1 + 2);
    }
}
