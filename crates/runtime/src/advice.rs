//! madvise on managed memory: what discards content is told to the engine first, and hints that would only cut the
//! mapping in pieces are not passed on.

use crate::engine;
use crate::heap::in_session;
use crate::holds;
use crate::kernel::*;
use crate::maps::{any_managed, managed_parts, valid};
use ream_page::Run;
use ream_sys::Errno;

/// # Safety
/// As for madvise.
pub unsafe fn advise(address: usize, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let kernel = |advice| unsafe { madvise(address, bytes, advice) };
    let run = Run::covering(address, bytes);
    if !in_session() || !valid(address, bytes) || !any_managed(run) {
        return kernel(advice);
    }
    match advice {
        // Locked pages refuse it, and keep their content.
        MADV_DONTNEED | MADV_FREE if holds::any_locked(run) => kernel(advice),
        // Pages that are freed lazily are neither here nor there: they are freed at once.
        MADV_DONTNEED | MADV_FREE | MADV_DONTNEED_LOCKED => {
            managed_parts(run, engine::discard);
            kernel(if advice == MADV_FREE { MADV_DONTNEED } else { advice })
        }
        // Without effect on anonymous memory, except that they split the mapping.
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL => Ok(()),
        // Whether a child inherits the range is settled at the fork.
        MADV_DOFORK => Ok(()),
        MADV_GUARD_INSTALL => {
            engine::remove(run);
            kernel(advice)
        }
        _ => kernel(advice),
    }
}
