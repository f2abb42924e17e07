//! Page, block, frame and slot numbers, and runs of pages.

/// Bytes of a page, the unit of state.
pub const PAGE_BYTES: usize = 4096;
/// Pages of a block.
pub const BLOCK_PAGES: u32 = 512;
/// Bytes of a block, the unit of large-page mapping.
pub const BLOCK_BYTES: usize = PAGE_BYTES * BLOCK_PAGES as usize;
/// Bits of the addresses of memory that can be managed. With page tables of five levels (x86-64) or addresses of 52 bits
/// (aarch64) there is more, for programs that ask for it by address; such memory is left to the kernel.
pub const ADDRESS_BITS: u32 = 48;

/// A page of the program's address space: its address divided by 4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Page(pub u64);

impl Page {
    /// The page that holds the byte at `address`.
    pub const fn containing(address: usize) -> Page {
        Page((address / PAGE_BYTES) as u64)
    }
    /// The first page that starts at or after `address`.
    pub const fn at_or_after(address: usize) -> Page {
        Page((address as u64).div_ceil(PAGE_BYTES as u64))
    }
    /// Address of the page's first byte.
    pub const fn address(self) -> usize {
        self.0 as usize * PAGE_BYTES
    }
    /// The block that the page lies in.
    pub const fn block(self) -> Block {
        Block(self.0 / BLOCK_PAGES as u64)
    }
    /// Position within its block, 0 to 511.
    pub const fn in_block(self) -> usize {
        (self.0 % BLOCK_PAGES as u64) as usize
    }
    /// The page `n` pages further on.
    pub const fn plus(self, n: u32) -> Page {
        Page(self.0 + n as u64)
    }
}

/// A 2 MiB aligned block of the address space: 512 pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Block(pub u64);

impl Block {
    /// The block's first page.
    pub const fn first(self) -> Page {
        Page(self.0 * BLOCK_PAGES as u64)
    }
    /// All its pages.
    pub const fn run(self) -> Run {
        Run { start: self.first(), pages: BLOCK_PAGES as u64 }
    }
}

/// Consecutive pages of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First page.
    pub start: Page,
    /// Number of pages, may be 0.
    pub pages: u64,
}

impl Run {
    /// The pages that lie wholly inside `[address, address + bytes)`.
    pub const fn inside(address: usize, bytes: usize) -> Run {
        let start = Page::at_or_after(address);
        let end = Page::containing(address.saturating_add(bytes));
        Run { start, pages: end.0.saturating_sub(start.0) }
    }
    /// Every page that `[address, address + bytes)` touches.
    pub const fn covering(address: usize, bytes: usize) -> Run {
        let start = Page::containing(address);
        let end = Page::at_or_after(address.saturating_add(bytes));
        Run { start, pages: end.0.saturating_sub(start.0) }
    }
    /// The page after the last.
    pub const fn end(self) -> Page {
        Page(self.start.0 + self.pages)
    }
    /// Length in bytes.
    pub const fn bytes(self) -> usize {
        self.pages as usize * PAGE_BYTES
    }
    /// Whether `page` is one of them.
    pub const fn contains(self, page: Page) -> bool {
        page.0 >= self.start.0 && page.0 < self.start.0 + self.pages
    }
    /// The pages both runs hold.
    pub fn and(self, other: Run) -> Run {
        let start = self.start.0.max(other.start.0);
        let end = self.end().0.min(other.end().0);
        Run { start: Page(start), pages: end.saturating_sub(start) }
    }
}

/// Physical memory in the staging area, by its 4 KiB place there. A place is *populated* when memory backs it,
/// *empty* when it is a hole into which pages can be moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// The place `n` places further on.
    pub const fn plus(self, n: u32) -> Frame {
        Frame(self.0 + n)
    }
}

/// Files that a process's store may consist of: the first, where pages go, and others for those that the program wants
/// elsewhere.
pub const VOLUMES: usize = 4;
/// Numbers of slots of the first volume, 12 TiB, and of each other, 1 TiB.
const FIRST_SLOTS: u32 = 3 << 30;
const OTHER_SLOTS: u32 = 1 << 28;
/// Numbers at a volume's end that no slot has: so slots of different volumes never have consecutive numbers.
const UNUSED: u32 = 1024;

/// A page's place in a store, in units of 4 KiB. Each volume has a range of numbers of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot `n` slots further on.
    pub const fn plus(self, n: u32) -> Slot {
        Slot(self.0 + n)
    }
    /// The slot at this place of a volume, below [`Slot::most`].
    pub const fn at(volume: u8, place: u32) -> Slot {
        match volume {
            0 => Slot(place),
            _ => Slot(FIRST_SLOTS + (volume as u32 - 1) * OTHER_SLOTS + place),
        }
    }
    /// Slots that a volume can have.
    pub const fn most(volume: u8) -> u32 {
        match volume {
            0 => FIRST_SLOTS - UNUSED,
            _ => OTHER_SLOTS - UNUSED,
        }
    }
    /// Its volume, below [`VOLUMES`].
    pub const fn volume(self) -> u8 {
        match self.0.checked_sub(FIRST_SLOTS) {
            None => 0,
            // The last range of numbers is no volume's.
            Some(beyond) if beyond / OTHER_SLOTS >= VOLUMES as u32 - 1 => VOLUMES as u8 - 1,
            Some(beyond) => (beyond / OTHER_SLOTS) as u8 + 1,
        }
    }
    /// Its place in its volume.
    pub const fn place(self) -> u32 {
        self.0 - Slot::at(self.volume(), 0).0
    }
    /// Offset of the slot's first byte from its volume's beginning.
    pub const fn offset(self) -> u64 {
        self.place() as u64 * PAGE_BYTES as u64
    }
}

/// Which store file a slot belongs to: 0 is the process's own, others are those of the processes it was forked from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct StoreId(pub u8);

impl StoreId {
    /// The process's own store.
    pub const OWN: StoreId = StoreId(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_inside_and_covering() {
        assert_eq!(Run::inside(4097, 8192), Run { start: Page(2), pages: 1 });
        assert_eq!(Run::inside(4097, 4096).pages, 0);
        assert_eq!(Run::covering(4097, 1), Run { start: Page(1), pages: 1 });
        assert_eq!(Run::covering(4095, 2), Run { start: Page(0), pages: 2 });
        assert_eq!(Run::covering(0, 0).pages, 0);
    }

    #[test]
    fn slots_of_volumes() {
        let mut last = None;
        for volume in 0..VOLUMES as u8 {
            for place in [0, 1, 511, Slot::most(volume) - 1] {
                let slot = Slot::at(volume, place);
                assert_eq!((slot.volume(), slot.place()), (volume, place));
                assert_eq!(slot.offset(), place as u64 * 4096);
                assert!(last.is_none_or(|last: Slot| last < slot), "{slot:?}");
                assert!(place != 0 || last.is_none_or(|last| last.plus(1) != slot), "neighbours: {slot:?}");
                last = Some(slot);
            }
        }
        assert_eq!(Slot(u32::MAX).volume(), VOLUMES as u8 - 1);
    }

    #[test]
    fn intersection() {
        let a = Run { start: Page(10), pages: 10 };
        let b = Run { start: Page(15), pages: 10 };
        assert_eq!(a.and(b), Run { start: Page(15), pages: 5 });
        assert_eq!(a.and(Run { start: Page(30), pages: 1 }).pages, 0);
    }
}
