//! Moving pages with UFFDIO_MOVE, with everything that the kernel's answers can mean.
//! The count returned is exact: pages beyond it are where they were.

use crate::inbox::Inbox;
use crate::pagemap::Pagemap;
use crate::pieces::{Next, piecewise};
use crate::{Errno, Moved, Stop, memory, process};
use ream_page::{BLOCK_PAGES, PAGE_BYTES, Page, Run};

/// How long a passing EBUSY is waited out, in microseconds. Of those seen, the longest took 160.
const PATIENCE_IN: u64 = 200;
/// The same for a victim, beside which there are others.
const PATIENCE_OUT: u64 = 20;

/// Which end of a move is the program's memory; the other is the staging area.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Moves `pages` pages from `source` to `destination`.
///
/// # Safety
/// Content leaves the source: nobody but sleepers on its pages may rely on it.
pub(crate) unsafe fn move_pages(
    inbox: &mut Inbox,
    pagemap: &mut Pagemap,
    (destination, source): (Page, Page),
    pages: u32,
    direction: Direction,
) -> Moved {
    let mut busy_since = None;
    let mut retries = 0;
    let patience = if direction == Direction::In { PATIENCE_IN } else { PATIENCE_OUT };
    if inbox.has_changed() {
        return Moved { pages: 0, stop: Some(Stop::Busy) };
    }
    piecewise(pages, |done, part| {
        let (to, from) = (destination.plus(done), source.plus(done));
        // SAFETY: the caller's promise.
        let progress = unsafe {
            let bytes = part as usize * PAGE_BYTES;
            inbox.uffd.move_pages(to.address(), from.address(), bytes, direction == Direction::In)
        };
        let moved = ((progress.bytes / PAGE_BYTES) as u32).min(part);
        if moved > 0 {
            (busy_since, retries) = (None, 0);
        }
        let next = match progress.result {
            Ok(()) => Next::Rest,
            // Some were moved; the next call says why not more.
            Err(Errno::AGAIN | Errno::INTR) if moved > 0 => Next::Rest,
            // A thread is unmapping or moving something, and waits until its message has been read.
            Err(Errno::AGAIN | Errno::INTR) if inbox.wait_for_change(retries) => {
                retries += 1;
                Next::Again
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM) => Next::Stop(Stop::Busy),
            Err(Errno::BUSY) => {
                let now = process::now_us();
                let since = *busy_since.get_or_insert(now);
                // Shared with a forked child: that does not pass.
                if now - since < patience && !pagemap.shared(from) {
                    pause(now - since, direction);
                    Next::Again
                } else {
                    Next::Stop(Stop::Busy)
                }
            }
            Err(Errno::EXIST) => match arrived(pagemap, to, from, pages - done) {
                0 => Next::Stop(Stop::Exists),
                // The kernel moved these and forgot to count them.
                more => {
                    if direction == Direction::In {
                        inbox.uffd.wake(to.address(), more as usize * PAGE_BYTES);
                    }
                    return (more, Next::Rest);
                }
            },
            Err(Errno::NOENT) => {
                let program = if direction == Direction::In { to } else { from };
                // ENOENT of the mapping is told for the first page only, so one of several went away just now.
                if memory::is_mapped(program.address()) { Next::Stop(Stop::Absent) } else { Next::One }
            }
            Err(_) => Next::Half,
        };
        (moved, next)
    })
}

/// How many pages, counted from the first, are absent at the source and mapped at the destination: one, or the rest
/// of a large page.
fn arrived(pagemap: &mut Pagemap, to: Page, from: Page, rest: u32) -> u32 {
    let Some(mapped) = pagemap.at(to) else { return 0 };
    let pages = if mapped.huge { (BLOCK_PAGES - to.in_block() as u32).min(rest) } else { 1 };
    if pagemap.none(Run { start: from, pages: pages as u64 }) { pages } else { 0 }
}

/// Waits a moment for whoever holds a page; for a victim not as long as the processor may be given away.
fn pause(waited_us: u64, direction: Direction) {
    if waited_us < 10 || direction == Direction::Out {
        for _ in 0..50 {
            core::hint::spin_loop();
        }
    } else {
        process::yield_now();
    }
}
