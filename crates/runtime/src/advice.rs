//! madvise on managed memory: what discards content is told to the engine first, and hints that would only cut the
//! mapping in pieces are not passed on.

use crate::engine;
use crate::heap::in_session;
use crate::holds;
use crate::kernel::*;
use crate::locks;
use crate::maps::{any_managed, managed_parts, unmanaged_parts, valid};
use crate::pool;
use crate::pooled_shared;
use ream_page::Run;
use ream_sys::Errno;

/// # Safety
/// As for madvise.
pub unsafe fn advise(address: usize, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let kernel = |advice| unsafe { madvise(address, bytes, advice) };
    let run = Run::covering(address, bytes);
    if advice == MADV_DONTFORK {
        engine::give_nothing();
    }
    if !in_session() || !valid(address, bytes) {
        return kernel(advice);
    }
    if pool::any(run) {
        // SAFETY: the caller's promise.
        let mut elsewhere = |part: Run| unsafe { advise(part.start.address(), part.bytes(), advice) };
        // SAFETY: the caller's promise.
        return unsafe { pool::advise(run, advice, &mut elsewhere) };
    }
    if locks::any(run) {
        // SAFETY: the caller's promise.
        return unsafe { advise_locked(run, advice) };
    }
    if pooled_shared::any(run) {
        return match advice {
            // Shared memory keeps its content, and pages of a pool stay where they are.
            MADV_DONTNEED | MADV_DONTNEED_LOCKED | MADV_COLD | MADV_PAGEOUT => Ok(()),
            MADV_HUGEPAGE | MADV_NOHUGEPAGE | MADV_COLLAPSE => Ok(()),
            _ => {
                let whole = pooled_shared::changed(run);
                // SAFETY: the caller's promise; what is more is not in use.
                unsafe { madvise(whole.start.address(), whole.bytes(), advice) }
            }
        };
    }
    if !any_managed(run) {
        return kernel(advice);
    }
    match advice {
        // Locked pages refuse it, and keep their content. Whether they are locked, the kernel knows.
        MADV_DONTNEED | MADV_FREE if holds::any_locked(run) && kernel(MADV_DONTNEED).is_err() => kernel(advice),
        // Pages that are freed lazily are neither here nor there: they are freed at once.
        MADV_DONTNEED | MADV_FREE | MADV_DONTNEED_LOCKED => {
            let _discarding = engine::discarding(|| managed_parts(run, engine::discard));
            kernel(if advice == MADV_FREE { MADV_DONTNEED } else { advice })
        }
        // Without effect on anonymous memory, except that they split the mapping.
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL => Ok(()),
        // Once it is paged the kernel's mark is ours: the fork goes by what is noted.
        MADV_DONTFORK => {
            let result = kernel(advice);
            // Of a call that fails a part may be done.
            managed_parts(run, |part| holds::leave_out(part, true));
            result
        }
        MADV_DOFORK => {
            let result = engine::unless_engaged(|| kernel(advice)).unwrap_or_else(|| {
                unmanaged_parts(run, |part| {
                    // SAFETY: the caller's promise.
                    unsafe { madvise(part.start.address(), part.bytes(), advice) }
                })
            });
            // Where a part of the range is not mapped, all the rest is done.
            if matches!(result, Ok(()) | Err(ENOMEM)) {
                managed_parts(run, |part| holds::leave_out(part, false));
            }
            result
        }
        // The kernel leaves the pages out of a child; what is in the store, the child's pager must leave out.
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            let result = kernel(advice);
            // Of a call that fails a part may be done.
            if result.is_ok() || advice == MADV_WIPEONFORK {
                managed_parts(run, |part| holds::wipe(part, advice == MADV_WIPEONFORK));
            }
            result
        }
        MADV_GUARD_INSTALL => {
            // A kernel that knows no such advice (before 6.13) leaves everything as it is.
            // SAFETY: of no bytes.
            unsafe { madvise(run.start.address(), 0, advice) }?;
            let _placing = ream_heap::placing();
            engine::remove(run);
            holds::forget(run);
            kernel(advice)
        }
        _ => kernel(advice),
    }
}

/// Advice on what we have locked, of which the program does not know: what the kernel refuses for locked memory is done
/// or left undone without its noticing.
///
/// # Safety
/// As for madvise.
unsafe fn advise_locked(run: Run, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let kernel = |advice| unsafe { madvise(run.start.address(), run.bytes(), advice) };
    match advice {
        MADV_DONTNEED | MADV_FREE | MADV_DONTNEED_LOCKED => {
            let _discarding = engine::discarding(|| managed_parts(run, engine::discard));
            // SAFETY: the caller's promise.
            unsafe { locks::discard(run) }
        }
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_COLD | MADV_PAGEOUT => Ok(()),
        MADV_GUARD_INSTALL => {
            // SAFETY: of no bytes.
            unsafe { madvise(run.start.address(), 0, advice) }?;
            locks::forget(run);
            engine::remove(run);
            holds::forget(run);
            let _ = munlock(run.start.address(), run.bytes());
            kernel(advice)
        }
        _ => kernel(advice),
    }
}
