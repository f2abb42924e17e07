//! The size of pages that the session asks for.

use core::sync::atomic::{AtomicU32, Ordering};
use ream_stats::Pages;
use ream_sys::syscall::{call6, number};

static WANTED: AtomicU32 = AtomicU32::new(Pages::Small as u32);

/// The size that is wanted; small pages where there is no session.
pub fn wanted() -> Pages {
    Pages::from_u32(WANTED.load(Ordering::Relaxed))
}

/// The session wants this size. Small ones: also in what the program, and those it starts, map or have mapped otherwise.
pub fn want(size: Pages) {
    WANTED.store(size as u32, Ordering::Relaxed);
    if size == Pages::Small {
        const PR_SET_THP_DISABLE: usize = 41;
        // SAFETY: a setting of this process and those it makes; no memory is passed.
        let _ = unsafe { call6(number::__NR_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0, 0) };
    }
}
