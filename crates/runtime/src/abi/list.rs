//! The regions of a process (`ream_regions`): blocks of `ream_alloc` and large blocks of malloc one by one, and what else
//! is managed as it lies together. They are found one after the other, so no lock is held between two of them.

use super::blocks::{self, Block};
use super::caller::{self, Plain};
use crate::engine::{self, wishes};
use crate::heap::LARGE;
use crate::holds;
use crate::regions::Kind;
use ream_page::{PAGE_BYTES, Page, Run};
use ream_sys::Errno;
use ream_sys::pagemap::Pagemap;
use ream_sys::user;

/// `struct ream_region` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Region {
    size: usize,
    id: u64,
    address: usize,
    length: u64,
    resident: u64,
    large: u64,
    staged: u64,
    stored: u64,
    kind: u32,
    flags: u32,
    name: [u8; 32],
}

// SAFETY: eight numbers of eight bytes, two of four, and bytes: nothing lies between.
unsafe impl Plain for Region {}
// SAFETY: as above.
unsafe impl Plain for super::Status {}

const OF_REAM: u32 = 1;
const BLOCK: u32 = 2;
const SMALL: u32 = 3;
const MAPPING: u32 = 4;
const STATIC: u32 = 5;

const MANAGED: u32 = 1;
const PINNED: u32 = 2;

/// The page behind the last.
const END: Page = Page(1 << 44);

impl Region {
    fn new(run: Run, kind: u32, managed: bool) -> Region {
        Region {
            size: size_of::<Region>(),
            id: run.start.0,
            address: run.start.address(),
            length: run.bytes() as u64,
            resident: 0,
            large: 0,
            staged: 0,
            stored: 0,
            kind,
            flags: if managed { MANAGED } else { 0 },
            name: [0; 32],
        }
    }

    fn of(block: &Block) -> Region {
        let run = Run::inside(block.start, block.bytes);
        Region { name: block.name, ..Region::new(run, OF_REAM, block.managed != 0) }
    }

    fn run(&self) -> Run {
        Run::inside(self.address, self.length as usize)
    }

    /// Looks where its pages are.
    fn look(&mut self, map: Option<&mut Pagemap>) {
        let run = self.run();
        if let Some(map) = map {
            let (mut resident, mut large) = (0, 0);
            map.walk(run, &mut |part, mapped| {
                if !mapped.zero && !mapped.swapped {
                    resident += part.bytes() as u64;
                    large += if mapped.huge { part.bytes() as u64 } else { 0 };
                }
            });
            (self.resident, self.large) = (resident, large);
        }
        if let (MANAGED, Some(found)) = (self.flags & MANAGED, wishes::whereabouts(run)) {
            self.staged = found.staged * PAGE_BYTES as u64;
            self.stored = found.stored * PAGE_BYTES as u64;
        }
        if holds::is_pinned(run.start) {
            self.flags |= PINNED;
        }
    }
}

/// The first region that begins at `page` or behind it, or what is left of one from `page` on.
fn next(page: Page) -> Option<Region> {
    let own = blocks::next(page).filter(|block| block.start >= page.address());
    let large = LARGE.next(page.address()).map(|(address, length)| {
        let run = Run::inside(address, length);
        Region::new(run, BLOCK, engine::is_managed(run.start))
    });
    let mut first = match (own.as_ref().map(Region::of), large) {
        (Some(own), Some(large)) if own.address <= large.address => Some(own),
        (own, None) => own,
        (_, large) => large,
    };
    let mut from = page;
    // What is managed otherwise, and begins before that. (Large blocks that are not in use are left out.)
    while let Some((run, kind)) = wishes::next_region(from) {
        let before = first.as_ref().map_or(END, |first| Page::containing(first.address));
        if run.start.0 >= before.0 {
            break;
        }
        let kind = match kind {
            Kind::Large => {
                from = run.end();
                continue;
            }
            Kind::Small => SMALL,
            Kind::Mapped => MAPPING,
            Kind::Static => STATIC,
        };
        let pages = run.end().0.min(before.0) - run.start.0;
        first = Some(Region::new(Run { start: run.start, pages }, kind, true));
        break;
    }
    first
}

/// The page map of this process, where it may be opened. (The agent, who would, is not asked: it is only for figures.)
fn pagemap() -> Option<Pagemap> {
    Pagemap::open(user::nobody).ok()
}

/// Calls `tell` with each region until it returns false.
pub fn each(mut tell: impl FnMut(&Region) -> bool) {
    let mut from = Page(0);
    while let Some(mut region) = next(from) {
        from = region.run().end();
        region.look(pagemap().as_mut());
        if !tell(&region) {
            return;
        }
    }
}

/// Copies regions into the caller's memory, `each` bytes apart, as many as there is room for; returns how many there are.
pub fn fill(to: usize, count: usize, each: usize) -> Result<usize, Errno> {
    if count > 0 && (each < size_of::<usize>() || each % size_of::<usize>() != 0) {
        return Err(Errno::INVAL);
    }
    let bytes = count.checked_mul(each).ok_or(Errno::INVAL)?;
    if count > 0 && (to == 0 || to.checked_add(bytes).is_none()) {
        return Err(Errno::FAULT);
    }
    let (mut map, mut found, mut from) = (None, 0, Page(0));
    while let Some(mut region) = next(from) {
        from = region.run().end();
        if found < count {
            if found == 0 {
                map = pagemap();
            }
            region.look(map.as_mut());
            region.size = region.size.min(each);
            caller::put_front(to + found * each, &region, each)?;
        }
        found += 1;
    }
    Ok(found)
}

/// Bytes of managed memory, and of blocks of `ream_alloc`, that are mapped to RAM.
pub fn resident_bytes() -> u64 {
    let Some(mut map) = pagemap() else { return 0 };
    let (mut bytes, mut from) = (0, Page(0));
    while let Some(region) = next(from) {
        from = region.run().end();
        map.walk(region.run(), &mut |part, mapped| {
            bytes += if mapped.zero || mapped.swapped { 0 } else { part.bytes() as u64 };
        });
    }
    bytes
}

/// Whether all of a run is in large blocks of malloc or the program's own mappings, so that only its owner uses it.
pub fn may_drop(run: Run) -> bool {
    let mut at = run.start;
    while at.0 < run.end().0 {
        match wishes::next_region(at) {
            Some((found, Kind::Large | Kind::Mapped)) if found.start == at => at = found.end(),
            _ => return false,
        }
    }
    true
}
