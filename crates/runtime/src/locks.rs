//! `--lock`: what lies on large pages stays in RAM once it was touched. Locked memory is none of the engine's: it is taken
//! out of the session's budget when it is mapped, as pages of a pool are, and neither registered nor moved. Where budget
//! or kernel refuse, it is managed like all other memory, which is said, or stops the program.
//!
//! The kernel locks mappings on fault: what is reserved and never touched takes no RAM. A forked child has nothing
//! locked: what it inherits comes under its own management, and so does what it maps later.

use crate::engine::{self, tell, warn};
use crate::kernel::*;
use crate::lending;
use crate::pages::wanted;
use crate::prefault;
use crate::regions::{Kind, Regions, rest};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ream_page::{Page, Run};
use ream_stats::{Config, Lock, Region};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::process::{self, SignalSet, set_signal_mask};

/// Of mlock2: lock pages as they come.
const ONFAULT: usize = 1;

/// Taken inside [`ream_heap::placing`] where that is held, before the engine's.
static LOCKED: Mutex<Regions<Kind>> = Mutex::new(Regions::new());
/// Pages in `LOCKED`: without `--lock` nobody need look.
static PAGES: AtomicUsize = AtomicUsize::new(0);
/// Stored form of [`Lock`].
static MODE: AtomicU32 = AtomicU32::new(Lock::Off as u32);
/// The run that [`Moving`] has unlocked, by first page and number of pages. Changed inside [`ream_heap::placing`].
static AWAY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn mode() -> Lock {
    Lock::from_u32(MODE.load(Ordering::Relaxed))
}

/// Runs `work` on the list with all signals blocked: a handler may map memory, too.
fn with_list<T>(work: impl FnOnce(&mut Regions<Kind>) -> T) -> T {
    let before = set_signal_mask(SignalSet::ALL);
    let mut list = LOCKED.lock();
    let result = work(&mut list);
    PAGES.store(list.total() as usize, Ordering::Relaxed);
    drop(list);
    set_signal_mask(before);
    result
}

/// From now on memory is locked, where the session wants that; also what the heap has already.
pub fn begin(config: &Config) {
    MODE.store(config.lock, Ordering::Relaxed);
    let mut from = Page(0);
    // Nothing is paged yet, so all of it is still where it was.
    while let Some((run, kind)) = engine::next_labelled(from).filter(|_| engine::idle()) {
        from = run.end();
        if mode() != Lock::Off {
            engine::remove(run);
            manage(run, kind);
        } else {
            prefault::mapped(run, region_of(kind), true);
        }
    }
}

fn region_of(kind: Kind) -> Region {
    if kind == Kind::Static { Region::Static } else { Region::Heap }
}

/// A range of anonymous private memory, readable and writable, is locked or comes under management, and is brought in
/// where the session wants that.
pub fn manage(run: Run, kind: Kind) {
    let locked = take(run, kind);
    if !locked {
        engine::add(run, kind);
    }
    prefault::mapped(run, region_of(kind), locked || engine::idle());
}

/// Locks a range, if the session wants that; false when it is to be managed.
pub fn take(run: Run, kind: Kind) -> bool {
    if run.pages == 0 || mode() == Lock::Off || !wanted(region_of(kind)).large() {
        return false;
    }
    let Some((entry, session)) = engine::account() else { return false };
    let fresh = run.pages - known_pages(run);
    if !entry.pin(session.ledger(), fresh) {
        refused(run, Why::Budget);
        return false;
    }
    let locked = mlock(run.start.address(), run.bytes(), ONFAULT).and_then(|()| {
        with_list(|list| list.insert(run, kind)).inspect_err(|_| {
            let _ = munlock(run.start.address(), run.bytes());
        })
    });
    if let Err(error) = locked {
        entry.unpin(session.ledger(), fresh);
        refused(run, Why::Kernel(error));
    }
    locked.is_ok()
}

/// Locks the part of a stack between these addresses. Stacks are outside the budget.
pub fn stack(low: usize, top: usize) {
    if mode() != Lock::Off && wanted(Region::Stack).large() {
        if let Err(error) = mlock(low, top - low, ONFAULT) {
            refused(Run::inside(low, top - low), Why::Kernel(error));
        }
    }
}

enum Why {
    Budget,
    Kernel(Errno),
}

/// Says, once, that a range is not locked; or ends the process, where it must be.
fn refused(run: Run, why: Why) {
    const RLIMIT_MEMLOCK: usize = 8;
    static SAID: AtomicBool = AtomicBool::new(false);
    let required = mode() == Lock::Require;
    if !required && SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let kib = run.bytes() >> 10;
    let say = |line: core::fmt::Arguments<'_>| {
        if required {
            tell(format_args!("--lock=require: {line}; the program is stopped"));
        } else {
            warn(format_args!("--lock: {line}; it is paged when memory is short"));
        }
    };
    match why {
        Why::Budget => say(format_args!(
            "{kib} KiB more than --memory lets be locked: a quarter of the budget, and 16 MiB, are kept for what is paged"
        )),
        Why::Kernel(error) => say(format_args!(
            "{kib} KiB cannot be locked (errno {}; RLIMIT_MEMLOCK is {} KiB, see ulimit -l)",
            error.0,
            limit(RLIMIT_MEMLOCK).map_or(0, |bytes| bytes >> 10)
        )),
    }
    if required {
        process::end_process(125);
    }
}

/// Whether any page of the run is locked by us.
pub fn any(run: Run) -> bool {
    PAGES.load(Ordering::Relaxed) > 0 && with_list(|list| list.first_in(run).is_some())
}

/// Pages that are locked by us.
pub fn pages() -> u64 {
    PAGES.load(Ordering::Relaxed) as u64
}

/// How many pages of the run are locked by us.
pub fn known_pages(run: Run) -> u64 {
    let mut pages = 0;
    each_part(run, |part, _| pages += part.pages);
    pages
}

/// Calls `each` for every locked part of a run.
fn each_part(run: Run, mut each: impl FnMut(Run, Kind)) {
    let mut left = run;
    while PAGES.load(Ordering::Relaxed) > 0 {
        let Some((part, kind)) = with_list(|list| list.first_in(left)) else { return };
        left = rest(run, part.end());
        each(part, kind);
    }
}

/// The run is about to be unmapped or replaced, or is none of ours any more.
pub fn forget(run: Run) {
    if PAGES.load(Ordering::Relaxed) == 0 {
        return;
    }
    let gone = with_list(|list| {
        let before = list.total();
        list.remove(run);
        before - list.total()
    });
    if let Some((entry, session)) = engine::account().filter(|_| gone > 0) {
        entry.unpin(session.ledger(), gone);
    }
}

/// While it exists, a run that is about to be moved or resized is not locked for the kernel, whose limit on locked memory
/// would be asked about the growth before we are, and which populates it.
pub struct Moving {
    any: bool,
}

/// The kernel is about to move or resize a run. Called inside [`ream_heap::placing`].
pub fn moving(run: Run) -> Moving {
    let any = any(run);
    if any {
        each_part(run, |part, _| {
            let _ = munlock(part.start.address(), part.bytes());
        });
        AWAY[0].store(run.start.0, Ordering::Relaxed);
        AWAY[1].store(run.pages, Ordering::Relaxed);
    }
    Moving { any }
}

/// The kernel has moved a run.
pub fn moved(from: Run, to: Page) {
    let mut any = false;
    each_part(from, |part, kind| {
        let place = Run { start: Page(to.0 + (part.start.0 - from.start.0)), pages: part.pages };
        let entered = with_list(|list| {
            list.remove(part);
            list.insert(place, kind)
        });
        if entered.is_err() {
            // No memory for the list: it is locked, and stays out of the budget for good.
            let _ = mlock(place.start.address(), place.bytes(), ONFAULT);
        }
        any = true;
    });
    if any && AWAY[0].load(Ordering::Relaxed) == from.start.0 {
        AWAY[0].store(to.0, Ordering::Relaxed);
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if self.any {
            let [start, pages] = &AWAY;
            again(Run { start: Page(start.load(Ordering::Relaxed)), pages: pages.load(Ordering::Relaxed) });
        }
    }
}

/// Locks what is ours of a run once more: the program, or a move, has unlocked it.
pub fn again(run: Run) {
    each_part(run, |part, kind| {
        if let Err(error) = mlock(part.start.address(), part.bytes(), ONFAULT) {
            forget(part);
            hand_over(part, kind);
            refused(part, Why::Kernel(error));
        }
    });
}

/// Discards the content of a run, locked or not.
///
/// # Safety
/// As for madvise with MADV_DONTNEED.
pub unsafe fn discard(run: Run) -> Result<(), Errno> {
    let (address, bytes) = (run.start.address(), run.bytes());
    // SAFETY: the caller's promise.
    unsafe { madvise(address, bytes, MADV_DONTNEED_LOCKED) }.or_else(|_| {
        // Kernels before 5.18.
        munlock(address, bytes)?;
        // SAFETY: the caller's promise.
        let done = unsafe { madvise(address, bytes, MADV_DONTNEED) };
        again(run);
        done
    })
}

/// While it exists, in a fork, the list does not change. Signals are blocked meanwhile.
pub struct Frozen {
    _list: Guard<'static, Regions<Kind>>,
}

/// Takes the lock for the duration of a fork, before the engine's.
pub fn freeze() -> Frozen {
    Frozen { _list: LOCKED.lock() }
}

/// In a child, when the engine runs again: the kernel passes no locks on, and the budget counts what its parent locks.
pub fn fork_child() {
    MODE.store(Lock::Off as u32, Ordering::Relaxed);
    if PAGES.load(Ordering::Relaxed) == 0 {
        return;
    }
    let _placing = ream_heap::placing();
    while let Some((run, kind)) = with_list(|list| {
        let first = list.next_from(Page(0));
        first.inspect(|(run, _)| list.remove(*run))
    }) {
        // Those parts that the child has.
        each_mapped(run, &mut |part, mapped| {
            if mapped {
                hand_over(part, kind);
            }
        });
    }
}

/// What was locked is the engine's from now on; but for what the kernel could not use then.
fn hand_over(run: Run, kind: Kind) {
    if kind != Kind::Small || !lending::on() {
        engine::add(run, kind);
    }
}
