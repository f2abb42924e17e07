//! Managed ranges that must stay in RAM where they are: while the program has locked them, or does not have them both
//! readable and writable (the kernel moves pages only between mappings of the same protection).

use crate::engine;
use crate::heap::in_session;
use crate::init;
use crate::kernel::*;
use crate::locks;
use crate::maps::{self, any_managed, managed_parts, valid};
use crate::pool;
use crate::pooled_shared;
use crate::regions::{Regions, rest};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ream_page::{Page, Run};
use ream_sys::Errno;
use ream_sys::process::{SignalSet, set_signal_mask};
use ream_sys::rwlock::{ReadGuard, RwLock};

/// Reasons to hold, as bits.
const PROTECTED: u8 = 1;
const LOCKED: u8 = 2;
/// The kernel uses it at any time.
const KEPT: u8 = 4;
/// The program has asked for it by the C interface.
const PINNED: u8 = 8;
/// No reason to hold, but kept here: children find zeros there (MADV_WIPEONFORK).
const WIPED: u8 = 16;
/// No reason to hold, either: children do not have it (MADV_DONTFORK). The kernel's own mark is on all that is paged.
const LEFT_OUT: u8 = 64;
/// Beside [`PROTECTED`]: the program cannot read it, or nobody knows.
const CLOSED: u8 = 128;
/// What is only kept here.
const NOTED: u8 = WIPED | LEFT_OUT;
/// The kernel has been asked to lock it, and it was not locked before.
const LOCKING: u8 = 32;

static HOLDS: RwLock<Regions<u8>> = RwLock::new(Regions::new());
/// Pages in `HOLDS`: most programs have none, and need not look.
static PAGES: AtomicU64 = AtomicU64::new(0);
/// The program has asked that all memory, also future memory, be locked: nothing new is managed then.
static ALL_LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether new mappings are locked from the start.
pub fn all_locked() -> bool {
    ALL_LOCKED.load(Ordering::Relaxed)
}

/// Runs `work` on the list with all signals blocked: a handler may come to use it, too.
fn with_list<T>(work: impl FnOnce(&mut Regions<u8>) -> T) -> T {
    let before = set_signal_mask(SignalSet::ALL);
    let mut list = HOLDS.write();
    let result = work(&mut list);
    PAGES.store(list.total(), Ordering::Relaxed);
    drop(list);
    set_signal_mask(before);
    result
}

/// The same for those who only look.
fn look<T>(work: impl FnOnce(&Regions<u8>) -> T) -> T {
    let before = set_signal_mask(SignalSet::ALL);
    let result = work(&HOLDS.read());
    set_signal_mask(before);
    result
}

/// Adds or takes away a reason on one managed run; tells the engine of pages that get their first or lose their last.
fn change(run: Run, reason: u8, on: bool) {
    let mut left = run;
    while left.pages > 0 {
        // The next stretch of pages with the same reasons.
        let (part, before) = look(|list| match list.first_in(left) {
            Some((part, reasons)) if part.start == left.start => (part, reasons),
            Some((part, _)) => (Run { start: left.start, pages: part.start.0 - left.start.0 }, 0),
            None => (left, 0),
        });
        left = rest(run, part.end());
        let after = if on { before | reason } else { before & !reason };
        if after == before {
            continue;
        }
        with_list(|list| {
            if after == 0 {
                list.remove(part);
            } else {
                // Without memory for the list the pages are held for good.
                let _ = list.insert(part, after);
            }
        });
        match (before & !NOTED == 0, after & !NOTED == 0) {
            // What is protected is held where it is; nothing is made for it.
            (true, false) if reason == PROTECTED => engine::hold(part, false),
            (true, false) => engine::hold(part, true),
            (false, true) => engine::unhold(part),
            _ => {}
        }
    }
}

/// Whether anything is known of the run.
pub fn any(run: Run) -> bool {
    PAGES.load(Ordering::Relaxed) > 0 && look(|list| list.first_in(run).is_some())
}

/// The run is about to be unmapped or replaced, or is not managed any more.
pub fn forget(run: Run) {
    if PAGES.load(Ordering::Relaxed) > 0 {
        with_list(|list| list.remove(run));
    }
}

/// The run has moved, and kept its protection and its locks.
pub fn moved(run: Run, to: Page) {
    if PAGES.load(Ordering::Relaxed) == 0 {
        return;
    }
    with_list(|list| {
        let mut left = run;
        while let Some((part, reasons)) = list.first_in(left) {
            left = rest(run, part.end());
            list.remove(part);
            let start = Page(to.0 + (part.start.0 - run.start.0));
            let _ = list.insert(Run { start, pages: part.pages }, reasons);
        }
    });
}

/// Calls `each` for every part of a run that the program has not protected. (What it has is held, and what has content was
/// brought in before; it may not be readable.)
pub fn open_parts(run: Run, each: impl FnMut(Run)) {
    parts_without(run, PROTECTED, each);
}

/// Calls `each` for every part of a run that can be read, whether or not the program has protected it.
pub fn readable_parts(run: Run, each: impl FnMut(Run)) {
    parts_without(run, CLOSED, each);
}

fn parts_without(run: Run, reason: u8, mut each: impl FnMut(Run)) {
    let mut left = run;
    while left.pages > 0 {
        let next = look(|list| {
            let mut rest_of = left;
            while let Some((part, reasons)) = list.first_in(rest_of) {
                if reasons & reason != 0 {
                    return Some(part);
                }
                rest_of = rest(left, part.end());
            }
            None
        });
        let end = next.map_or(left.end(), |part| part.start);
        let open = Run { start: left.start, pages: end.0 - left.start.0 };
        if open.pages > 0 {
            each(open);
        }
        left = rest(run, next.map_or(end, |part| part.end()));
    }
}

/// Children find zeros in a managed run, or what was there.
pub fn wipe(run: Run, on: bool) {
    change(run, WIPED, on);
}

/// Children do not have a managed run, or they do.
pub fn leave_out(run: Run, on: bool) {
    change(run, LEFT_OUT, on);
}

/// Calls `each` for every run that children do not have, in order of address.
pub fn each_left_out(each: impl FnMut(Run)) {
    each_of(EVERYTHING, LEFT_OUT, each);
}

/// In a child, when the engine runs again: what the kernel has left out is not in the store either, and nothing is locked there.
pub fn fork_child() {
    each_left_out(forget);
    each_of(EVERYTHING, WIPED, engine::discard);
    each_of(EVERYTHING, LOCKED | LOCKING, |run| {
        change(run, LOCKED, false);
        change(run, LOCKING, false);
    });
    ALL_LOCKED.store(false, Ordering::Relaxed);
}

/// Calls `each` for every part of a run that has one of these reasons, in order of address.
fn each_of(run: Run, any: u8, mut each: impl FnMut(Run)) {
    let mut left = run;
    while PAGES.load(Ordering::Relaxed) > 0 {
        let Some((part, reasons)) = look(|list| list.first_in(left)) else { return };
        left = rest(run, part.end());
        if reasons & any != 0 {
            each(part);
        }
    }
}

/// Keeps a managed run resident for as long as it is mapped.
pub fn keep(run: Run) {
    change(run, KEPT, true);
}

/// Keeps the managed part of a run resident until [`unpin`]. More than half of the budget in all is refused.
pub fn pin(run: Run) -> Result<(), Errno> {
    let mut pages = 0;
    managed_parts(run, |part| pages += part.pages);
    // Pages that are pinned already cost nothing more.
    each_of(EVERYTHING, PINNED, |part| pages += part.pages - part.and(run).pages);
    if pages > holdable_pages() {
        return Err(ENOMEM);
    }
    managed_parts(run, |part| change(part, PINNED, true));
    Ok(())
}

/// Lets what [`pin`] keeps be paged again.
pub fn unpin(run: Run) {
    managed_parts(run, |part| change(part, PINNED, false));
}

/// Whether the program has pinned the page.
pub fn is_pinned(page: Page) -> bool {
    look(|list| list.kind_of(page).is_some_and(|reasons| reasons & PINNED != 0))
}

/// Whether the program has locked any page of the run.
pub fn any_locked(run: Run) -> bool {
    any_for(run, LOCKED)
}

/// Whether a page of the run has this reason.
fn any_for(run: Run, reason: u8) -> bool {
    look(|list| {
        let mut left = run;
        while let Some((part, reasons)) = list.first_in(left) {
            if reasons & reason != 0 {
                return true;
            }
            left = rest(run, part.end());
        }
        false
    })
}

/// # Safety
/// As for mprotect and pkey_mprotect.
pub unsafe fn protect(address: usize, bytes: usize, protection: usize, key: Option<usize>) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { mprotect(address, bytes, protection, key) };
    if !in_session() || !valid(address, bytes) {
        return kernel();
    }
    let run = Run::covering(address, bytes);
    if pooled_shared::any(run) {
        let whole = pooled_shared::changed(run);
        // SAFETY: the caller's promise; what is more is not in use.
        return unsafe { mprotect(whole.start.address(), whole.bytes(), protection, key) }
            .inspect_err(|_| pooled_shared::say_whole_only(run));
    }
    pool::can_change(run)?;
    let keyless = matches!(key, None | Some(0) | Some(usize::MAX));
    let (open, closed) = (protection == PROT_READ_WRITE && keyless, protection & PROT_READ_WRITE == 0 || !keyless);
    let managed = any_managed(run);
    // Of a call that fails a part may have been done, and what was protected before still is: both stay held.
    let before = managed && !open && any_for(run, PROTECTED);
    if managed && !open {
        managed_parts(run, |part| {
            change(part, PROTECTED, true);
            if closed {
                change(part, CLOSED, true);
            }
        });
    }
    let result = kernel();
    let none = !open && !before && matches!(result, Err(EINVAL | EACCES));
    if managed && (none || !closed && result.is_ok()) {
        managed_parts(run, |part| change(part, CLOSED, false));
    }
    if managed && if open { result.is_ok() } else { none } {
        managed_parts(run, |part| change(part, PROTECTED, false));
    }
    if result.is_ok() {
        maps::protection_changed(run, open);
    }
    result
}

/// Most managed pages that may be locked: half the budget.
fn holdable_pages() -> u64 {
    init::session().map_or(u64::MAX, |session| session.ledger().total_pages() / 2)
}

/// While it exists, in a fork or when paging begins, the list does not change. Signals are blocked meanwhile.
pub struct Frozen {
    list: ReadGuard<'static, Regions<u8>>,
}

/// Takes the lock for the duration of a fork, or until paging has begun.
pub fn freeze() -> Frozen {
    Frozen { list: HOLDS.write().show() }
}

impl Frozen {
    /// In a forked child, first of all: who else looked at the list stayed behind.
    ///
    /// # Safety
    /// It has this thread only.
    pub unsafe fn forget_others(&self) {
        // SAFETY: the caller's promise.
        unsafe { HOLDS.forget_others(&self.list) };
    }

    /// Tells each run that is held, in order of address.
    pub fn each(&self, tell: &mut dyn FnMut(Run)) {
        let mut left = EVERYTHING;
        while let Some((part, reasons)) = self.list.first_in(left) {
            left = rest(EVERYTHING, part.end());
            if reasons & !NOTED != 0 {
                tell(part);
            }
        }
    }
}

/// mlock and mlock2. More managed memory at once than half the budget is refused, as by the limit on locked memory.
pub fn lock(address: usize, bytes: usize, flags: usize) -> Result<(), Errno> {
    let run = Run::covering(address, bytes);
    if !in_session() || bytes == 0 || !any_managed(run) {
        return mlock(address, bytes, flags);
    }
    let mut pages = 0;
    managed_parts(run, |part| pages += part.pages);
    if pages > holdable_pages() {
        return Err(ENOMEM);
    }
    managed_parts(run, |part| {
        let mut left = part;
        each_of(part, LOCKED, |locked| {
            change(Run { start: left.start, pages: locked.start.0 - left.start.0 }, LOCKING, true);
            left = rest(part, locked.end());
        });
        change(left, LOCKING, true);
    });
    let result = mlock(address, bytes, flags);
    each_of(run, LOCKING, |part| {
        match result {
            Ok(()) => change(part, LOCKED, true),
            // Of a call that fails a part may have been done.
            Err(_) => {
                let _ = munlock(part.start.address(), part.bytes());
            }
        }
        change(part, LOCKING, false);
    });
    result
}

/// munlock.
pub fn unlock(address: usize, bytes: usize) -> Result<(), Errno> {
    let result = munlock(address, bytes);
    if in_session() && bytes > 0 && result.is_ok() {
        managed_parts(Run::covering(address, bytes), |part| change(part, LOCKED, false));
        locks::again(Run::covering(address, bytes));
    }
    result
}

const MCL_CURRENT: usize = 1;
const MCL_FUTURE: usize = 2;
const MCL_ONFAULT: usize = 4;
const EVERYTHING: Run = Run { start: Page(0), pages: 1 << 44 };

/// mlockall. In a session, future mappings are locked as they are touched: reserved address space stays that.
pub fn lock_all(flags: usize) -> Result<(), Errno> {
    if !in_session() || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 {
        return mlockall(flags);
    }
    let mut pages = 0;
    managed_parts(EVERYTHING, |part| pages += part.pages);
    if flags & MCL_CURRENT != 0 && pages > holdable_pages() {
        return Err(ENOMEM);
    }
    mlockall(flags | MCL_ONFAULT)?;
    if flags & MCL_CURRENT != 0 {
        managed_parts(EVERYTHING, |part| change(part, LOCKED, true));
    }
    ALL_LOCKED.store(flags & MCL_FUTURE != 0, Ordering::Relaxed);
    Ok(())
}

/// munlockall.
pub fn unlock_all() -> Result<(), Errno> {
    munlockall()?;
    ALL_LOCKED.store(false, Ordering::Relaxed);
    if in_session() {
        managed_parts(EVERYTHING, |part| change(part, LOCKED, false));
        locks::again(EVERYTHING);
    }
    Ok(())
}
