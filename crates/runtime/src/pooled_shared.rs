//! Anonymous shared mappings on pages of a pool. The kernel unmaps and protects whole pages of 2 MiB only, and the program
//! thinks of pages of 4 KiB: what it gives up of a page is remembered, and a page of which it uses nothing any more goes.
//! What is behind the length that was asked for counts as given up from the start.

use crate::kernel::*;
use crate::pool::say_once;
use crate::regions::{Regions, rest};
use core::sync::atomic::{AtomicBool, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::Zeroable;
use ream_sys::process::{SignalSet, set_signal_mask};

/// What the program makes of a part of a pool's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Part {
    Used = 0,
    /// Unmapped, as far as the program knows.
    GivenUp = 1,
}

// SAFETY: zero is `Used`; nothing happens at drop.
unsafe impl Zeroable for Part {}

/// Taken last of all.
static PARTS: Mutex<Regions<Part>> = Mutex::new(Regions::new());
/// Whether there ever was any: most programs have none, and need not look.
static ANY: AtomicBool = AtomicBool::new(false);

/// Runs `work` on the list with all signals blocked: a handler may come to use it, too. `None` where it is empty.
fn with_list<T>(work: impl FnOnce(&mut Regions<Part>) -> T) -> Option<T> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let before = set_signal_mask(SignalSet::ALL);
    let result = work(&mut PARTS.lock());
    set_signal_mask(before);
    Some(result)
}

/// While it exists, in a fork, the list does not change.
pub struct Frozen {
    _parts: Guard<'static, Regions<Part>>,
}

/// Takes the lock for the duration of a fork.
pub fn freeze() -> Frozen {
    Frozen { _parts: PARTS.lock() }
}

/// Pages of a pool have been mapped; the program uses the first of them.
///
/// # Errors
/// No memory for the list.
pub fn enter(all: Run, used: Run) -> Result<(), Errno> {
    ANY.store(true, Ordering::Relaxed);
    with_list(|list| {
        list.insert(all, Part::GivenUp)?;
        list.insert(used, Part::Used).inspect_err(|_| list.remove(all))
    })
    .unwrap_or(Ok(()))
}

/// Whether any of the run lies on such pages.
pub fn any(run: Run) -> bool {
    with_list(|list| list.first_in(run).is_some()).unwrap_or(false)
}

/// The edges of a run, moved to the edges of pages of the pool where these cut it in two: outwards where nothing of such
/// a page is in use beyond the run, else, with `inwards`, inwards.
fn widened(list: &Regions<Part>, run: Run, inwards: bool) -> Run {
    const PAGES: u64 = (BLOCK_BYTES / PAGE_BYTES) as u64;
    let (mut start, mut end) = (run.start.0, run.end().0);
    let unused = |from: u64, to: u64| {
        let outside = Run { start: Page(from), pages: to - from };
        list.first_in(outside).is_some_and(|(part, what)| part == outside && what == Part::GivenUp)
    };
    let below = start / PAGES * PAGES;
    if below < start && list.contains(Page(start)) {
        start = match unused(below, start) {
            true => below,
            false if inwards => below + PAGES,
            false => start,
        };
    }
    let below = end / PAGES * PAGES;
    if below < end && list.contains(Page(end - 1)) {
        end = match unused(end, below + PAGES) {
            true => below + PAGES,
            false if inwards => below,
            false => end,
        };
    }
    Run { start: Page(start), pages: end.saturating_sub(start) }
}

/// What the kernel has to unmap, and nobody knows of any more, where the program gives up a run in which pages of a pool
/// lie; it may be nothing. `None` where there are no such pages in it.
pub fn give_up(run: Run) -> Option<Run> {
    with_list(|list| {
        list.first_in(run)?;
        let mut left = run;
        while let Some((part, _)) = list.first_in(left) {
            left = rest(run, part.end());
            // Without memory for the list, the page stays mapped for good.
            let _ = list.insert(part, Part::GivenUp);
        }
        let gone = widened(list, run, true);
        list.remove(gone);
        Some(gone)
    })
    .flatten()
}

/// The run to pass to the kernel where it changes what may be done with `run`.
pub fn changed(run: Run) -> Run {
    with_list(|list| widened(list, run, false)).unwrap_or(run)
}

/// Says that the kernel does not change a part of a page.
pub fn say_whole_only(run: Run) {
    static SAID: AtomicBool = AtomicBool::new(false);
    say_once(
        &SAID,
        format_args!(
            "shared memory on pages of a pool cannot be changed in pieces ({:#x}, {} KiB); --pages=shm=huge has no such \
             limit",
            run.start.address(),
            run.bytes() >> 10
        ),
    );
}

/// Clears the way for a mapping at a fixed place, which would cut pages of the pool in two: those of which nothing else is in
/// use are replaced by nothing.
pub fn make_way(run: Run) {
    let Some(gone) = give_up(run).filter(|gone| gone.pages > 0 && *gone != run) else { return };
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the program gives it up, and the rest of the pages nobody uses.
    if unsafe { mmap(gone.start.address(), gone.bytes(), PROT_NONE, flags, -1, 0) }.is_err() {
        return;
    }
    for (from, to) in [(gone.start, run.start), (run.end(), gone.end())] {
        if from.0 < to.0 {
            // SAFETY: replaced just now.
            let _ = unsafe { munmap(from.address(), (to.0 - from.0) as usize * PAGE_BYTES) };
        }
    }
}

/// mremap of shared memory on pages of a pool; `None` where there is none at `old`.
///
/// # Safety
/// As for mremap.
pub unsafe fn remap(
    old: usize,
    old_bytes: usize,
    bytes: usize,
    flags: usize,
    new: usize,
) -> Option<Result<usize, Errno>> {
    let from = Run::covering(old, old_bytes);
    if !any(from) {
        return None;
    }
    // Any number where no flag says that it is a place, and here the kernel looks at it all the same.
    let new = if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 { new } else { 0 };
    // SAFETY: the caller's promise. The kernel rounds the lengths to whole pages of the pool.
    let place = match unsafe { mremap(old, old_bytes, bytes, flags, new) } {
        Ok(place) => place,
        Err(error) => {
            say_whole_only(from);
            return Some(Err(error));
        }
    };
    let whole = |address: usize, bytes: usize| Run::inside(address, bytes.next_multiple_of(BLOCK_BYTES));
    with_list(|list| {
        if flags & MREMAP_DONTUNMAP == 0 {
            list.remove(whole(old, old_bytes));
        }
        // Without memory for the list it can be unmapped in whole pages only.
        let _ = list.insert(whole(place, bytes), Part::GivenUp);
        let _ = list.insert(Run::covering(place, bytes), Part::Used);
    });
    Some(Ok(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, pages: u64) -> Run {
        Run { start: Page(start), pages }
    }

    #[test]
    fn a_page_goes_when_all_of_it_has_been_given_up() {
        let base = 512 << 20;
        // Three pages of a pool, of which two and a half are asked for.
        enter(run(base, 1536), run(base, 1280)).unwrap();
        assert!(any(run(base + 1500, 1)) && !any(run(base + 1536, 512)));
        assert_eq!(give_up(run(base + 1536, 4)), None);
        // Protected with the length that was asked for, and in pieces.
        assert_eq!(changed(run(base, 1280)), run(base, 1536));
        assert_eq!(changed(run(base + 3, 600)), run(base + 3, 600));
        assert_eq!(changed(run(base + 512, 512)), run(base + 512, 512));
        // A piece in the middle takes its whole page only.
        assert_eq!(give_up(run(base + 500, 600)), Some(run(base + 512, 512)));
        assert!(!any(run(base + 512, 512)) && any(run(base, 512)));
        assert_eq!(give_up(run(base + 10, 20)).map(|gone| gone.pages), Some(0));
        // The rest of the first page, and beyond its end.
        assert_eq!(give_up(run(base, 500)), Some(run(base, 512)));
        assert_eq!(give_up(run(base + 1100, 180)), Some(run(base + 1024, 512)));
        assert!(!any(run(base, 1536)));
    }

    #[test]
    fn what_lies_beside_is_unmapped_as_it_is() {
        let base = 512 << 21;
        enter(run(base, 512), run(base, 100)).unwrap();
        assert_eq!(give_up(run(base - 7, 107)), Some(run(base - 7, 519)));
        enter(run(base, 512), run(base, 512)).unwrap();
        assert_eq!(give_up(run(base - 7, 519 + 3)), Some(run(base - 7, 522)));
        assert!(!any(run(base, 512)));
    }
}
