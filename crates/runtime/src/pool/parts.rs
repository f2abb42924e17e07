//! What the program does with parts of memory that has come to lie on pages of a pool, of which it does not know. The kernel
//! discards, protects, unmaps and replaces whole pages of the pool only.

use super::fork::is_there;
use super::{PAGES, POOLED, say_once};
use crate::abi::caller;
use crate::engine::{self, masked};
use crate::kernel::*;
use crate::regions::rest;
use core::sync::atomic::{AtomicBool, Ordering};
use ream_page::Run;
use ream_sys::Errno;

/// The first part of a run that lies on pages of a pool, and the size of these.
fn first_in(run: Run) -> Option<(Run, usize)> {
    if PAGES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    masked(|| POOLED.lock().first_in(run).map(|(part, what)| (part, what.unit())))
}

/// Whether any private memory of the run lies on pages of a pool.
pub fn any(run: Run) -> bool {
    first_in(run).is_some()
}

/// madvise on a run of which a part lies on such pages; `elsewhere` is for what lies beside them.
///
/// # Errors
/// As the kernel does, where a part of the range is not mapped the rest is done.
///
/// # Safety
/// As for madvise.
pub unsafe fn advise(
    run: Run,
    advice: usize,
    elsewhere: &mut dyn FnMut(Run) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (mut left, mut result) = (run, Ok(()));
    while left.pages > 0 {
        let (part, unit) = first_in(left).unwrap_or((Run { start: left.end(), pages: 0 }, 0));
        let beside = Run { start: left.start, pages: part.start.0 - left.start.0 };
        left = rest(run, part.end());
        for done in [
            if beside.pages > 0 { elsewhere(beside) } else { Ok(()) },
            // SAFETY: the caller's promise.
            if part.pages > 0 { unsafe { advise_part(part, unit, advice) } } else { Ok(()) },
        ] {
            match done {
                Ok(()) => {}
                Err(ENOMEM) => result = done,
                Err(_) => return done,
            }
        }
    }
    result
}

/// # Safety
/// As for madvise.
unsafe fn advise_part(part: Run, unit: usize, advice: usize) -> Result<(), Errno> {
    match advice {
        MADV_DONTNEED | MADV_DONTNEED_LOCKED => discard(part, unit),
        // Content may stay, and pages of a pool stay where and as they are.
        MADV_FREE | MADV_COLD | MADV_PAGEOUT | MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL => Ok(()),
        MADV_HUGEPAGE | MADV_NOHUGEPAGE | MADV_COLLAPSE => Ok(()),
        _ => {
            // SAFETY: the caller's promise.
            unsafe { madvise(part.start.address(), part.bytes(), advice) }.inspect_err(|_| _ = can_change(part))
        }
    }
}

/// What is there reads as zeros afterwards. The pages stay: one that is given back to the pool may be another's when it is
/// touched again, and the program would be killed.
fn discard(part: Run, unit: usize) -> Result<(), Errno> {
    let (mut at, end) = (part.start.address(), part.end().address());
    while at < end {
        let page = at / unit * unit;
        let stop = end.min(page + unit);
        if is_there(page)? && !zeroed(at, stop)? {
            // Protected: the kernel discards it as a whole. Of a part it says that it has, and does nothing.
            can_change(Run::inside(at, stop - at))?;
            // SAFETY: the program discards the range.
            unsafe { madvise(at, stop - at, MADV_DONTNEED) }?;
        }
        at = stop;
    }
    Ok(())
}

/// Writes zeros; false where the program may not write.
fn zeroed(from: usize, to: usize) -> Result<bool, Errno> {
    static ZEROS: [u8; 1 << 14] = [0; 1 << 14];
    let mut at = from;
    while at < to {
        let zeros = ZEROS.get(..ZEROS.len().min(to - at)).unwrap_or(&[]);
        match caller::put_where_allowed(at, zeros) {
            Ok(true) => {}
            // SAFETY: the program discards it; where the kernel does not write for us, nobody looks whether it may be written.
            Ok(false) => unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(0, zeros.len()) },
            Err(Errno::FAULT) => return Ok(false),
            Err(error) => return Err(error),
        }
        at += zeros.len();
    }
    Ok(true)
}

/// The run has been unmapped or replaced by the program.
pub fn gone(run: Run) {
    while let Some((part, _)) = first_in(run) {
        masked(|| super::forget(part));
        if let Some((entry, session)) = engine::account() {
            entry.unpin(session.ledger(), part.pages);
        }
    }
}

/// Whether the kernel can protect, unmap or replace a run: not where an end of it lies within a page of a pool, which is said
/// once.
///
/// # Errors
/// What the kernel then answers, before anything is done.
pub fn can_change(run: Run) -> Result<(), Errno> {
    let within = |page| {
        let found = first_in(Run { start: page, pages: 1 });
        found.is_some_and(|(part, unit)| part.start.address() % unit != 0)
    };
    if !within(run.start) && !within(run.end()) {
        return Ok(());
    }
    say_whole_only(run);
    Err(EINVAL)
}

fn say_whole_only(run: Run) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let (start, kib) = (run.start.address(), run.bytes() >> 10);
    say_once(
        &SAID,
        format_args!(
            "memory on pages of a pool cannot be protected, unmapped or replaced in pieces ({start:#x}, {kib} KiB), which the \
             program is told (errno 22); --pages=huge has no such limit"
        ),
    );
}
