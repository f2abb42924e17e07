//! Which pages are mapped: PAGEMAP_SCAN on /proc/self/pagemap.
//! Kernels before 6.7 have no scan; there the entries are read one by one, and large pages are not recognised.

use crate::Errno;
use crate::file::{self, Fd};
use crate::memory::MapSlice;
use crate::syscall::{call3, number};
use crate::user::{Ask, Closed};
use ream_page::{BLOCK_PAGES, Block, PAGE_BYTES, Page, Run};

const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const PFNZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;
/// Not write-protected by a userfaultfd.
const WRITTEN: u64 = 1 << 1;

/// Categories of pages, see [`Pagemap::scan_for`].
const MAPPED: [u64; 3] = [0, 0, PRESENT | SWAPPED];
const GUARDED: [u64; 3] = [WRITTEN, WRITTEN | PRESENT, 0];

/// Regions of one scan.
const REGIONS: usize = 512;

/// struct pm_scan_arg.
type Scan = [u64; 12];
/// struct page_region: start, end, categories.
type Region = [u64; 3];

const PAGEMAP_SCAN: u32 = 3 << 30 | (size_of::<Scan>() as u32) << 16 | 0x66 << 8 | 16;

const _: () = {
    use linux_raw_sys::general as raw;
    assert!(PAGEMAP_SCAN == 0xc060_6610);
    assert!(size_of::<raw::pm_scan_arg>() == size_of::<Scan>());
    assert!(size_of::<raw::page_region>() == size_of::<Region>());
};

/// What is mapped at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mapped {
    /// By a large page.
    pub huge: bool,
    /// The shared page of zeros.
    pub zero: bool,
    /// Out in the kernel's swap, or being migrated.
    pub swapped: bool,
}

/// The page map of this process.
pub struct Pagemap {
    fd: Fd,
    regions: MapSlice<Region>,
    scans: bool,
}

impl Pagemap {
    /// Opens /proc/self/pagemap in the calling thread's descriptor table; where that is not allowed, asks for it.
    pub fn open(ask: Ask) -> Result<Pagemap, Errno> {
        let regions = MapSlice::new(REGIONS)?;
        let own = file::open(c"/proc/self/pagemap", file::flags::READ, 0);
        let fd = own.or_else(|error| ask(Closed::Pagemap).map_err(|_| error))?;
        let mut map = Pagemap { fd, regions, scans: true };
        let here = Run::covering(map.regions.as_ptr().addr(), 1);
        map.scans = map.scan(here.start.address(), here.bytes(), 1).is_ok();
        Ok(map)
    }

    /// Whether large pages are recognised.
    pub fn knows_large(&self) -> bool {
        self.scans
    }

    /// Reports the mapped pages of a run in ascending order.
    pub fn walk(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped)) {
        self.walk_while(run, &mut |part, mapped| {
            found(part, mapped);
            true
        });
    }

    /// The same, until told to end by `false`.
    pub fn walk_while(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped) -> bool) {
        if !self.scans {
            return self.read(run, found);
        }
        let (mut start, end) = (run.start.address(), run.end().address());
        while start < end {
            let Ok((count, next)) = self.scan(start, end - start, REGIONS) else { return };
            for [first, last, kind] in self.regions.as_slice().iter().take(count) {
                let pages = Run { start: Page(first / PAGE_BYTES as u64), pages: (last - first) / PAGE_BYTES as u64 };
                let mapped = Mapped { huge: kind & HUGE != 0, zero: kind & PFNZERO != 0, swapped: kind & PRESENT == 0 };
                if !found(pages, mapped) {
                    return;
                }
            }
            if next <= start {
                return;
            }
            start = next;
        }
    }

    /// Reports the parts of a run that are mapped and write-protected by a userfaultfd. None where the kernel does not tell.
    pub fn guarded(&mut self, run: Run, found: &mut dyn FnMut(Run)) {
        let (mut start, end) = (run.start.address(), run.end().address());
        while self.scans && start < end {
            let Ok((count, next)) = self.scan_for(start, end - start, REGIONS, GUARDED) else { return };
            for [first, last, _] in self.regions.as_slice().iter().take(count) {
                found(Run { start: Page(first / PAGE_BYTES as u64), pages: (last - first) / PAGE_BYTES as u64 });
            }
            if next <= start {
                return;
            }
            start = next;
        }
    }

    /// What is mapped at one page, if anything.
    pub fn at(&mut self, page: Page) -> Option<Mapped> {
        let mut answer = None;
        self.walk(Run { start: page, pages: 1 }, &mut |_, mapped| answer = Some(mapped));
        answer
    }

    /// Whether nothing is mapped in the whole run.
    pub fn none(&mut self, run: Run) -> bool {
        let mut none = true;
        self.walk_while(run, &mut |_, _| {
            none = false;
            false
        });
        none
    }

    /// Whether the page is mapped here and somewhere else too, as after a fork.
    pub fn shared(&self, page: Page) -> bool {
        const EXCLUSIVE: u64 = 1 << 56;
        const PRESENT: u64 = 1 << 63;
        let mut entry = [0u8; 8];
        let read = file::read_at(self.fd, &mut entry, page.0 * 8);
        let entry = u64::from_le_bytes(entry);
        read == Ok(8) && entry & PRESENT != 0 && entry & EXCLUSIVE == 0
    }

    /// Whether no page of the block is mapped somewhere else too.
    pub fn exclusive(&self, block: Block) -> bool {
        const EXCLUSIVE: u64 = 1 << 56;
        const PRESENT: u64 = 1 << 63;
        let mut entries = [0u8; BLOCK_PAGES as usize * 8];
        let read = file::read_at(self.fd, &mut entries, block.first().0 * 8);
        let shared = |entry: &[u8]| {
            let entry = entry.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
            entry & PRESENT != 0 && entry & EXCLUSIVE == 0
        };
        read == Ok(entries.len()) && !entries.chunks_exact(8).any(shared)
    }

    fn scan(&mut self, start: usize, bytes: usize, regions: usize) -> Result<(usize, usize), Errno> {
        self.scan_for(start, bytes, regions, MAPPED)
    }

    /// One scan for pages of these categories: inverted ones, all of which and any of which they must be of. How many regions it
    /// filled, and where the next has to start.
    fn scan_for(
        &mut self,
        start: usize,
        bytes: usize,
        regions: usize,
        [inverted, all, any]: [u64; 3],
    ) -> Result<(usize, usize), Errno> {
        let vector = self.regions.as_ptr().expose_provenance() as u64;
        let (start, end) = (start as u64, (start + bytes) as u64);
        let wanted = PRESENT | SWAPPED | HUGE | PFNZERO;
        // Size, flags, start, end, where it got to, vector, its length, most pages, then category masks: inverted,
        // all of, any of, and which to report.
        let mut argument: Scan =
            [size_of::<Scan>() as u64, 0, start, end, 0, vector, regions as u64, 0, inverted, all, any, wanted];
        let place = argument.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes the structure and at most `regions` regions of the vector, which has REGIONS.
        let count = unsafe { call3(number::__NR_ioctl, self.fd.arg(), PAGEMAP_SCAN as usize, place) }?;
        Ok((count.min(REGIONS), argument[4] as usize))
    }

    fn read(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped) -> bool) {
        let mut page = run.start;
        while page.0 < run.end().0 {
            let mut entries = [0u8; 512 * 8];
            let wanted = (run.end().0 - page.0).min(512) as usize;
            let Some(room) = entries.get_mut(..wanted * 8) else { return };
            let Ok(got) = file::read_at(self.fd, room, page.0 * 8) else { return };
            let mut first = page;
            let mut pages = 0u64;
            let mut swapped = false;
            for entry in entries.chunks_exact(8).take(got / 8) {
                let entry = entry.iter().rev().fold(0u64, |all, byte| all << 8 | *byte as u64);
                let out = entry >> 62 & 1 != 0;
                if entry >> 62 != 0 && pages > 0 && out == swapped {
                    pages += 1;
                } else {
                    let before = Run { start: first, pages };
                    if pages > 0 && !found(before, Mapped { huge: false, zero: false, swapped }) {
                        return;
                    }
                    pages = (entry >> 62 != 0) as u64;
                    (first, swapped) = (page, out);
                }
                page = page.plus(1);
            }
            let before = Run { start: first, pages };
            if pages > 0 && !found(before, Mapped { huge: false, zero: false, swapped }) {
                return;
            }
            if got < 8 {
                return;
            }
        }
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        file::close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_touched_pages() {
        let mut memory = MapSlice::<[u64; 512]>::new(600).unwrap();
        for index in [3usize, 4, 5, 300, 599] {
            memory.get_mut(index).unwrap()[7] = 1;
        }
        let all = Run::inside(memory.as_ptr().addr(), 600 * PAGE_BYTES);
        let mut map = Pagemap::open(crate::user::nobody).unwrap();
        for scans in [map.scans, false] {
            map.scans = scans;
            let mut seen = [0u8; 600];
            map.walk(all, &mut |run, mapped| {
                assert!(!mapped.huge);
                for page in run.start.0..run.end().0 {
                    seen[(page - all.start.0) as usize] += 1;
                }
            });
            for (index, times) in seen.iter().enumerate() {
                assert_eq!(*times == 1, [3, 4, 5, 300, 599].contains(&index), "page {index}: {times}");
            }
            let mut parts = 0;
            map.walk_while(all, &mut |run, _| {
                assert_eq!(run.start.0 - all.start.0, 3);
                parts += 1;
                false
            });
            assert_eq!(parts, 1, "it ends when told so");
            assert!(map.at(all.start).is_none() && map.at(all.start.plus(3)).is_some());
            assert!(map.none(Run { start: all.start.plus(6), pages: 294 }));
        }
        assert!(!map.shared(all.start.plus(3)));
    }
}
