//! Where a program's static data, stack and the kernel's code lie when it has just been executed, and which blocks of them
//! can be large.

use std::ops::Range;

/// A large page.
pub const BLOCK: usize = 2 << 20;
const PAGE: usize = 4096;
/// Stacks of fewer blocks are left alone.
const LEAST_STACK: usize = 2 * BLOCK;
/// How far the main stack is mapped at most, and what is left of its limit: as `libream.so` does it.
const MOST_STACK: usize = 64 << 20;
const SPARE_STACK: usize = 128 << 10;
/// Stack that most programs do not use up.
const SHALLOW: usize = 256 << 10;

/// What was found. Nothing but what the kernel itself maps is there yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Whole blocks of writable data mapped from a file.
    pub data: Vec<Range<usize>>,
    /// Writable data that begin as zeros, with a whole block at least.
    pub zeros: Vec<Range<usize>>,
    /// The main stack.
    pub stack: Option<Range<usize>>,
    /// The kernel's code.
    pub kernel_code: Option<Range<usize>>,
    /// Code mapped from a file, and where in the file it begins.
    pub code: Vec<(Range<usize>, u64)>,
    /// Everything, in the order of addresses.
    pub mapped: Vec<Range<usize>>,
}

impl Layout {
    /// Reads it off the text of /proc/PID/maps.
    pub fn of(maps: &str) -> Layout {
        let mut layout = Layout::default();
        for line in maps.lines() {
            let mut words = line.splitn(6, ' ');
            let (Some(range), Some(access)) = (words.next().and_then(range), words.next()) else { continue };
            let offset = words.next().and_then(|text| u64::from_str_radix(text, 16).ok());
            let inode = words.nth(1);
            layout.mapped.push(range.clone());
            let name = words.next().unwrap_or("").trim_start();
            let whole = whole_blocks(&range);
            match (name, access) {
                ("[stack]", _) => layout.stack = Some(range),
                ("[vdso]", _) => layout.kernel_code = Some(range),
                (_, "r-xp") if inode != Some("0") => layout.code.extend(offset.map(|offset| (range, offset))),
                ("", "rw-p") if !whole.is_empty() => layout.zeros.push(range),
                (_, "rw-p") if !whole.is_empty() && inode != Some("0") => layout.data.push(whole),
                _ => {}
            }
        }
        layout
    }

    /// Where a place in the program's file lies, if it is code.
    pub fn address_of(&self, place: u64) -> Option<usize> {
        self.code.iter().find_map(|(range, offset)| {
            let distance = usize::try_from(place.checked_sub(*offset)?).ok()?;
            (distance < range.len()).then_some(range.start + distance)
        })
    }
}

fn range(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn whole_blocks(range: &Range<usize>) -> Range<usize> {
    range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK
}

/// How a main stack is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack {
    /// What is mapped, from here to its top.
    pub low: usize,
    /// The block that holds the stack pointer; whole only if it ends below the top.
    pub block: usize,
    /// Whether the block below that one begins with small pages, since most programs go no deeper.
    pub shallow: bool,
}

/// How to place a main stack with this top, limit in bytes and stack pointer; `None` where it is too small.
pub fn stack(top: usize, limit: usize, pointer: usize) -> Option<Stack> {
    let bytes = limit.min(MOST_STACK + SPARE_STACK).checked_sub(SPARE_STACK)?;
    let low = top.checked_sub(bytes)?.next_multiple_of(BLOCK);
    let block = pointer / BLOCK * BLOCK;
    let shallow = pointer - block < SHALLOW && block.checked_sub(low).is_some_and(|below| below >= BLOCK);
    (low + LEAST_STACK <= top).then_some(Stack { low: low - PAGE, block, shallow })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_at_a_fixed_place() {
        let layout = Layout::of(
            "00400000-00401000 r--p 00000000 fe:00 10109469                           /d/a program\n\
             00401000-0097a000 r-xp 00001000 fe:00 10109469                           /d/a program\n\
             004a2000-004a6000 rw-p 000a1000 fe:00 10109469                           /d/a program\n\
             004a6000-014a9000 rw-p 000a5000 fe:00 10109469                           /d/a program\n\
             014a9000-054ae000 rw-p 00000000 00:00 0 \n\
             054ae000-054af000 rw-p 00000000 00:00 0 \n\
             7fcb0a0c4000-7fcb0a0c8000 r--p 00000000 00:00 0                          [vvar]\n\
             7fcb0a0ca000-7fcb0a0cc000 r-xp 00000000 00:00 0                          [vdso]\n\
             7ffc697d1000-7ffc697f2000 rw-p 00000000 00:00 0                          [stack]\n",
        );
        assert!(layout.data.len() == 1 && layout.data[0] == (0x60_0000..0x140_0000));
        assert!(layout.zeros.len() == 1 && layout.zeros[0] == (0x14a_9000..0x54a_e000));
        assert_eq!(layout.stack, Some(0x7ffc_697d_1000..0x7ffc_697f_2000));
        assert_eq!(layout.kernel_code, Some(0x7fcb_0a0c_a000..0x7fcb_0a0c_c000));
        assert_eq!((layout.address_of(0x1abc), layout.address_of(0xabc)), (Some(0x40_1abc), None));
        assert_eq!((layout.address_of(0x57_a000), layout.mapped.len()), (None, 9));
        assert_eq!(Layout::of("odd\n\n0-z rw-p\n"), Layout::default());
    }

    #[test]
    fn the_stack_is_mapped_down_to_its_limit() {
        let top = 0x7fff_0001_3000;
        let pointer = top - 0x2000;
        let placed = stack(top, 8 << 20, pointer).unwrap();
        let low = placed.low + PAGE;
        assert!(low % BLOCK == 0 && top - low <= (8 << 20) - SPARE_STACK && top - low > (6 << 20) - SPARE_STACK);
        assert!(placed.block == 0x7fff_0000_0000 && placed.shallow);
        assert!(!stack(top + (1 << 20), 8 << 20, pointer + (1 << 20)).unwrap().shallow);
        let unlimited = stack(top, usize::MAX, pointer).unwrap().low;
        assert!(top - unlimited <= MOST_STACK && top - unlimited > MOST_STACK - BLOCK);
        assert_eq!((stack(top, 4 << 20, pointer), stack(top, 0, pointer)), (None, None));
    }
}
