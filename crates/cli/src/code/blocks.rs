//! Which whole blocks of 2 MiB the constant segments of a program or library hold once it is loaded, and where in its
//! file they lie: the page cache can keep those as large pages, and the kernel can map them as such.

use crate::elf::{Layout, Segment};
use crate::os::BLOCK;

const BYTES: u64 = BLOCK as u64;

/// How a file's addresses come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// They are fixed, or multiples of 2 MiB are added to them.
    Blocks,
    /// It can be loaded at any page (PIE).
    AnyPage,
}

impl Base {
    /// Of a program, which the kernel loads at a multiple of its largest alignment.
    pub fn of_program(layout: &Layout) -> Base {
        if !layout.movable || layout.align() >= BYTES { Base::Blocks } else { Base::AnyPage }
    }
}

/// Offsets in the file of the whole blocks, which are multiples of 2 MiB.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Blocks {
    /// Of machine code.
    pub code: Vec<u64>,
    /// Of read-only data.
    pub data: Vec<u64>,
    /// Whether code of 2 MiB or more lies at other distances in memory than in the file, which no large page can follow.
    pub displaced: bool,
}

impl Blocks {
    /// Those of a file that is loaded at a multiple of 2 MiB.
    pub fn of(layout: &Layout) -> Blocks {
        let mut blocks = Blocks::default();
        for segment in layout.segments.iter().filter(|segment| segment.is_constant()) {
            match (whole(segment), segment.is_code()) {
                (Some(offsets), true) => blocks.code.extend(offsets),
                (Some(offsets), false) => blocks.data.extend(offsets),
                (None, is_code) => blocks.displaced |= is_code && segment.file_bytes >= BYTES,
            }
        }
        blocks
    }

    /// All of them, code first.
    pub fn all(&self) -> Vec<u64> {
        [self.code.as_slice(), &self.data].concat()
    }
}

/// Whether addresses and places in the file agree as a large page needs it.
pub fn agrees(segment: &Segment) -> bool {
    segment.address.wrapping_sub(segment.offset) % BYTES == 0
}

/// Blocks of one segment that are counted; a damaged header could name any number.
const MOST: usize = 4096;

/// The blocks of a segment; `None` where addresses and places in the file do not agree.
fn whole(segment: &Segment) -> Option<impl Iterator<Item = u64> + use<>> {
    if !agrees(segment) {
        return None;
    }
    // The kernel maps whole pages, at the beginning and at the end.
    let first = (segment.offset & !4095).next_multiple_of(BYTES);
    let end = (segment.offset + segment.file_bytes).next_multiple_of(4096) / BYTES * BYTES;
    Some((first..end.max(first)).step_by(BLOCK).take(MOST))
}

/// Bytes of machine code.
pub fn code_bytes(layout: &Layout) -> u64 {
    layout.segments.iter().filter(|segment| segment.is_code()).map(|segment| segment.file_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    const R: u32 = 4;
    const RX: u32 = 5;
    const RW: u32 = 6;

    fn layout(movable: bool, align: u64, segments: &[(u32, u64, u64, u64)]) -> Layout {
        let segments = segments
            .iter()
            .map(|&(flags, offset, address, bytes)| Segment::made_up(flags, offset, address, bytes, align))
            .collect();
        Layout { movable, segments, ..Layout::default() }
    }

    #[test]
    fn a_program_at_a_fixed_place() {
        // As GNU ld lays out: the file from 4 MiB on.
        let layout = layout(
            false,
            4096,
            &[
                (R, 0, 4 * M, M / 2),
                (RX, M / 2, 9 * M / 2, 6 * M),
                (R, 7 * M, 11 * M, 3 * M),
                (RW, 11 * M, 15 * M, 8 * M),
            ],
        );
        assert_eq!(Base::of_program(&layout), Base::Blocks);
        let blocks = Blocks::of(&layout);
        // Code from 0.5 to 6.5 MiB, data from 7 to 10.
        assert_eq!(blocks, Blocks { code: vec![2 * M, 4 * M], data: vec![8 * M], displaced: false });
        assert_eq!(blocks.all(), [2 * M, 4 * M, 8 * M]);
        assert_eq!(code_bytes(&layout), 6 * M);
    }

    #[test]
    fn pages_at_the_ends_are_whole() {
        let blocks = |offset, bytes| Blocks::of(&layout(false, 4096, &[(RX, offset, 4 * M + offset, bytes)])).code;
        // The first page is mapped from its beginning, the last to its end.
        assert_eq!(blocks(2 * M + 8, 2 * M - 100), [2 * M]);
        assert_eq!(blocks(2 * M - 8, 2 * M), [2 * M]);
        assert!(blocks(2 * M + 8, 2 * M - 5000).is_empty());
        assert!(blocks(2 * M + 4096, 2 * M).is_empty());
        assert!(blocks(0, 0).is_empty() && blocks(3 * M, M / 2).is_empty());
    }

    #[test]
    fn code_that_lies_elsewhere_than_in_the_file() {
        // As lld lays out: a page further in memory than in the file.
        let shifted = layout(true, 4096, &[(R, 0, 0, M), (RX, M, M + 4096, 8 * M)]);
        assert_eq!(Blocks::of(&shifted), Blocks { displaced: true, ..Blocks::default() });
        assert_eq!(Base::of_program(&shifted), Base::AnyPage);
        assert!(!Blocks::of(&layout(true, 4096, &[(RX, M, M + 4096, M)])).displaced);
    }

    #[test]
    fn alignment_decides_where_a_movable_program_begins() {
        let with = |align| Base::of_program(&layout(true, align, &[(RX, 0, 0, 8 * M)]));
        assert_eq!(with(4096), Base::AnyPage);
        assert_eq!(with(2 * M), Base::Blocks);
        // Alignments that are none count for nothing.
        assert_eq!(with(3 * M), Base::AnyPage);
    }
}
