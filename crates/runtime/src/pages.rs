//! The size of pages that the session asks for, by region.

use core::sync::atomic::{AtomicU32, Ordering};
use ream_stats::{Config, Pages, Region};
use ream_sys::syscall::{call6, number};

/// Bit by region: other pages are refused.
static REQUIRED: AtomicU32 = AtomicU32::new(0);
/// What follows the pool's pages in shared memory.
static NEXT_FOR_SHARED: AtomicU32 = AtomicU32::new(Pages::Small as u32);
static WANTED: [AtomicU32; 5] = [const { AtomicU32::new(Pages::Small as u32) }; 5];

/// The size that is wanted in a region; small pages where there is no session.
pub fn wanted(region: Region) -> Pages {
    WANTED.get(region as usize).map_or(Pages::Small, |size| Pages::from_u32(size.load(Ordering::Relaxed)))
}

/// Whether memory of a region must not lie on other pages.
pub fn required(region: Region) -> bool {
    REQUIRED.load(Ordering::Relaxed) >> region as u32 & 1 != 0
}

/// What shared memory gets that the pool cannot hold.
pub fn next_for_shared() -> Pages {
    Pages::from_u32(NEXT_FOR_SHARED.load(Ordering::Relaxed))
}

/// Whether a program of the session was promised any pages of its memory.
#[cfg(not(feature = "inside"))]
pub fn promised() -> bool {
    REQUIRED.load(Ordering::Relaxed) & !(1 << Region::Code as u32) != 0
}

/// The regions whose pages are promised, as a session keeps them.
#[cfg(not(feature = "inside"))]
pub fn promises() -> u32 {
    REQUIRED.load(Ordering::Relaxed)
}

/// Whether this process was kept from large pages and must have some.
pub fn switched_off(config: &Config) -> bool {
    const PR_GET_THP_DISABLE: usize = 42;
    let transparent = |region| config.pages_required(region) && config.pages(region).large();
    let concerned = [Region::Heap, Region::Static, Region::Stack, Region::Shared].into_iter().any(transparent);
    // SAFETY: asks for a setting of this process; no memory is passed. 1: for whatever it is.
    concerned && unsafe { call6(number::__NR_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0, 0) } == Ok(1)
}

/// The session wants these sizes. Small ones in all that the program has for itself: also in what it, and those it
/// starts, map or have mapped otherwise.
pub fn want(config: &Config) {
    for (place, size) in WANTED.iter().zip(config.pages) {
        place.store(size, Ordering::Relaxed);
    }
    REQUIRED.store(config.pages_required, Ordering::Relaxed);
    NEXT_FOR_SHARED.store(config.shared_next, Ordering::Relaxed);
    if [Region::Heap, Region::Static, Region::Stack].into_iter().all(|region| wanted(region) == Pages::Small) {
        const PR_SET_THP_DISABLE: usize = 41;
        const EXCEPT_ADVISED: usize = 2;
        // Linux 6.18. Before that, with shared memory on large pages, what nobody advises stays as the machine has it.
        let except = if wanted(Region::Shared).large() { EXCEPT_ADVISED } else { 0 };
        // SAFETY: a setting of this process and those it makes; no memory is passed.
        let _ = unsafe { call6(number::__NR_prctl, PR_SET_THP_DISABLE, 1, except, 0, 0, 0) };
    }
}
