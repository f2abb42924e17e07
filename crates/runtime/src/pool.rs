//! Memory on pages of the kernel's pools (hugetlb). It is never paged, and taken out of the session's budget when it is
//! mapped. The kernel reserves the pages of a private mapping at that time, so a touch finds one; where a limit could
//! refuse it all the same, they are brought in at once.
//!
//! A forked child is not promised any page: it gets its copy on ordinary memory before it goes on, and the parent,
//! whose next write would take a page from it, waits for that.

mod fork;
mod parts;

pub use fork::{fork_child, fork_parent, fork_prepare};
pub use parts::{advise, any, can_change, gone};

use crate::engine::{self, warn};
use crate::kernel::*;
use crate::pages::wanted;
use crate::prefault;
use crate::regions::Regions;
use crate::reserve;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_stats::{Config, Pages, Region};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::Zeroable;
use ream_sys::syscall::{call3, number};

/// The size of a gigantic page.
pub const GIGANTIC_BYTES: usize = 1 << 30;

/// What lies on pages of a pool, and how large they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Pooled {
    /// malloc's, on pages of 2 MiB.
    Heap = 0,
    /// malloc's, on pages of 1 GiB.
    GiganticHeap = 1,
    /// Static data, on pages of 2 MiB.
    Static = 2,
    /// Static data, on pages of 1 GiB.
    GiganticStatic = 3,
}

impl Pooled {
    fn of(region: Region, unit: usize) -> Pooled {
        match (region, unit == GIGANTIC_BYTES) {
            (Region::Static, false) => Pooled::Static,
            (Region::Static, true) => Pooled::GiganticStatic,
            (_, false) => Pooled::Heap,
            (_, true) => Pooled::GiganticHeap,
        }
    }
    fn unit(self) -> usize {
        match self {
            Pooled::Heap | Pooled::Static => BLOCK_BYTES,
            Pooled::GiganticHeap | Pooled::GiganticStatic => GIGANTIC_BYTES,
        }
    }
}

// SAFETY: zero is `Heap`; nothing happens at drop.
unsafe impl Zeroable for Pooled {}

/// Taken inside [`ream_heap::placing`] where that is held, and last of all.
static POOLED: Mutex<Regions<Pooled>> = Mutex::new(Regions::new());
/// Pages in `POOLED`: most programs have none, and need not look.
static PAGES: AtomicUsize = AtomicUsize::new(0);

/// Fresh memory for malloc whose session wants it on pages of a pool: address and length, at least `bytes`, and if
/// possible as much as is `welcome`. `None` where it does not, or pools or budget do not suffice, which is said once.
pub fn take(bytes: usize, align: usize, welcome: usize) -> Option<(usize, usize)> {
    let wanted = wanted(Region::Heap);
    if !wanted.pooled() {
        return None;
    }
    // What is more than that will be used, too.
    let shared = welcome > bytes;
    let mut refused = None;
    let mut smaller = None;
    for (unit, bytes) in [(GIGANTIC_BYTES, welcome), (BLOCK_BYTES, welcome), (BLOCK_BYTES, bytes)] {
        let Some(length) = bytes.checked_next_multiple_of(unit) else { continue };
        let wasteful = length - bytes > length / 8 && !shared;
        if unit == GIGANTIC_BYTES && (wanted != Pages::Gigantic || wasteful) || align > unit {
            continue;
        }
        match map(Region::Heap, length, unit) {
            Ok(address) => {
                if let Some(error) = smaller.filter(|_| unit == BLOCK_BYTES) {
                    fell("the heap", error);
                }
                return Some((address, length));
            }
            Err(error) => {
                smaller = smaller.or((unit == GIGANTIC_BYTES).then_some(error));
                refused = refused.or(Some(error));
            }
        }
    }
    if let Some(error) = refused {
        static SAID: AtomicBool = AtomicBool::new(false);
        let mib = bytes.next_multiple_of(BLOCK_BYTES) >> 20;
        say_once(
            &SAID,
            format_args!("{mib} MiB of the heap do not come to lie on pages of a pool: {}", Shortage(error)),
        );
    }
    None
}

/// Pages of 1 GiB were wanted, and what lies on those of 2 MiB in their place could have had them.
static FELL: AtomicBool = AtomicBool::new(false);

/// What was to lie on pages of 1 GiB comes to lie on those of 2 MiB, which is said once.
fn fell(what: &str, error: Errno) {
    let why = Shortage(error);
    say_once(&FELL, format_args!("{what} gets pages of 2 MiB in place of 1 GiB: {why}"));
}

/// Whether something that could lie on pages of 1 GiB, and was to, does not.
pub fn has_fallen() -> bool {
    FELL.load(Ordering::Relaxed)
}

/// Stands for a budget that is too small, which no call of the kernel answers.
const BUDGET: Errno = Errno(u16::MAX);

/// Warns, unless that has been said.
pub fn say_once(said: &AtomicBool, line: core::fmt::Arguments<'_>) {
    if !said.swap(true, Ordering::Relaxed) {
        warn(line);
    }
}

fn map(region: Region, length: usize, unit: usize) -> Result<usize, Errno> {
    let reserved = if region == Region::Heap { reserve::take(length, unit) } else { None };
    let address = reserved.map_or_else(|| map_private(length, unit), Ok)?;
    let run = Run::inside(address, length);
    enter(run, Pooled::of(region, unit)).inspect_err(|_| {
        // SAFETY: handed out to nobody yet.
        let _ = unsafe { munmap(address, length) };
        if let Some((entry, session)) = engine::account() {
            entry.unpin(session.ledger(), run.pages);
        }
    })?;
    prefault::pooled(address, length, region).inspect_err(|_| {
        // SAFETY: handed out to nobody yet.
        let _ = unsafe { munmap(address, length) };
        unmapped(run);
    })?;
    Ok(address)
}

/// Maps private pages of a pool, which are taken out of the budget.
fn map_private(length: usize, unit: usize) -> Result<usize, Errno> {
    let (entry, session) = engine::account().ok_or(Errno(0))?;
    let pages = (length / PAGE_BYTES) as u64;
    if !entry.pin(session.ledger(), pages) {
        return Err(BUDGET);
    }
    let mapped = map_pages(length, unit, MAP_PRIVATE, session.config().populate != 0);
    mapped.inspect_err(|_| entry.unpin(session.ledger(), pages))
}

/// Reserves what the session wants of the heap to be sure of its pages.
pub fn reserve(config: &Config) {
    let wanted = wanted(Region::Heap);
    let bytes = config.prefault_bytes.get(Region::Heap as usize).map_or(0, |bytes| *bytes as usize);
    if wanted.pooled() && bytes > 0 {
        let units = reserve::units(wanted == Pages::Gigantic);
        let short = |error| fell("a part of what is reserved for the heap", error);
        if let Err((left, error)) = reserve::begin(bytes, units, map_private, short) {
            prefault::not_reserved(left, Shortage(error));
        }
    }
}

/// Maps pages of a pool; `kind` is private or shared. With `populate` they are brought in, or it fails.
pub fn map_pages(length: usize, unit: usize, kind: usize, populate: bool) -> Result<usize, Errno> {
    const SIZE_SHIFT: u32 = 26;
    let size = (unit.trailing_zeros() as usize) << SIZE_SHIFT;
    let flags = kind | MAP_ANONYMOUS | MAP_HUGETLB | size;
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
    let address = unsafe { mmap(0, length, PROT_READ_WRITE, flags, -1, 0) }?.expose_provenance();
    if populate {
        // SAFETY: brings pages of the new mapping in; where they are refused, it is an error here and not a SIGBUS later.
        unsafe { madvise(address, length, MADV_POPULATE_WRITE) }.inspect_err(|_| {
            // SAFETY: mapped just now.
            let _ = unsafe { munmap(address, length) };
        })?;
    }
    Ok(address)
}

fn enter(run: Run, what: Pooled) -> Result<(), Errno> {
    POOLED.lock().insert(run, what)?;
    PAGES.fetch_add(run.pages as usize, Ordering::Relaxed);
    Ok(())
}

/// Size of the pages when the address lies on pages of a pool.
pub fn unit(address: usize) -> Option<usize> {
    if PAGES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    POOLED.lock().kind_of(Page::containing(address)).map(Pooled::unit)
}

/// Private memory that [`take`] gave has been unmapped.
pub fn unmapped(run: Run) {
    let what = POOLED.lock().kind_of(run.start);
    forget(run);
    let heap = what.filter(|what| matches!(what, Pooled::Heap | Pooled::GiganticHeap));
    let renewed = heap.is_some_and(|what| {
        let populate = engine::account().is_some_and(|(_, session)| session.config().populate != 0);
        reserve::renew(run.bytes(), what.unit(), |bytes, unit| map_pages(bytes, unit, MAP_PRIVATE, populate))
    });
    if let Some((entry, session)) = engine::account().filter(|_| !renewed) {
        entry.unpin(session.ledger(), run.pages);
    }
}

fn forget(run: Run) {
    POOLED.lock().remove(run);
    PAGES.fetch_sub(run.pages as usize, Ordering::Relaxed);
}

/// Puts the whole blocks of static data onto pages of a pool, as far as that has any, and tells which parts remain.
/// `fresh`: what is not in RAM reads as zeros, and need not be copied. No other thread may run. Returns whether all whole
/// blocks lie on such pages now.
pub fn replace_static(run: Run, fresh: bool, remains: &mut dyn FnMut(Run)) -> bool {
    let unit = if wanted(Region::Static) == Pages::Gigantic { GIGANTIC_BYTES } else { BLOCK_BYTES };
    replace_by(run, unit, fresh, remains)
}

fn replace_by(run: Run, unit: usize, fresh: bool, remains: &mut dyn FnMut(Run)) -> bool {
    let (start, end) = (run.start.address(), run.end().address());
    let (first, last) = (start.next_multiple_of(unit), end / unit * unit);
    let mut smaller = |from: usize, to: usize, whole: bool| match unit {
        _ if from >= to => true,
        GIGANTIC_BYTES => replace_by(Run::inside(from, to - from), BLOCK_BYTES, fresh, remains) && whole,
        _ => {
            remains(Run::inside(from, to - from));
            whole
        }
    };
    if first >= last {
        return smaller(start, end, true);
    }
    let placed =
        map(Region::Static, last - first, unit).and_then(|place| move_static(first, last - first, place, fresh));
    if let Err(error) = placed {
        if unit == GIGANTIC_BYTES {
            fell("static data", error);
        }
        if unit == BLOCK_BYTES {
            static SAID: AtomicBool = AtomicBool::new(false);
            let (mib, why) = ((last - first) >> 20, Shortage(error));
            say_once(&SAID, format_args!("{mib} MiB of static data do not come to lie on pages of a pool: {why}"));
        }
        return smaller(start, end, false);
    }
    let before = smaller(start, first, true);
    smaller(last, end, true) && before
}

/// Copies static data to `place`, on pages of a pool, and has that take the data's address.
fn move_static(address: usize, length: usize, place: usize, fresh: bool) -> Result<(), Errno> {
    let mut at = 0;
    while at < length {
        let mut resident = [1u8; BLOCK_BYTES / PAGE_BYTES];
        if fresh {
            // SAFETY: room for a byte a page; where this fails, all of the block is copied.
            let _ = unsafe {
                call3(number::__NR_mincore, address + at, BLOCK_BYTES, resident.as_mut_ptr().expose_provenance())
            };
        }
        for (page, _) in resident.iter().enumerate().filter(|(_, byte)| **byte & 1 != 0) {
            let offset = at + page * PAGE_BYTES;
            let from: *const u8 = core::ptr::with_exposed_provenance(address + offset);
            let to: *mut u8 = core::ptr::with_exposed_provenance_mut(place + offset);
            // SAFETY: a page of data that nobody changes now, and one of the new mapping.
            unsafe { core::ptr::copy_nonoverlapping(from, to, PAGE_BYTES) };
        }
        at += BLOCK_BYTES;
    }
    // SAFETY: the same content takes the place of the old one, which stays where this fails.
    match unsafe { mremap(place, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address) } {
        Ok(_) => {
            let mut pooled = POOLED.lock();
            let what = pooled.kind_of(Page::containing(place)).unwrap_or(Pooled::Static);
            pooled.remove(Run::inside(place, length));
            pooled.insert(Run::inside(address, length), what)
        }
        Err(error) => {
            // SAFETY: mapped for this, and known to nobody.
            let _ = unsafe { munmap(place, length) };
            unmapped(Run::inside(place, length));
            Err(error)
        }
    }
}

/// Why there are no pages.
struct Shortage(Errno);

impl core::fmt::Display for Shortage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            BUDGET => f.write_str("they do not fit the budget"),
            ENOMEM => f.write_str("the pool has too few left"),
            error => write!(f, "errno {}", error.0),
        }
    }
}

/// While it exists, nothing comes to lie on pages of a pool or leaves them.
pub struct Frozen {
    _pooled: Guard<'static, Regions<Pooled>>,
    _reserve: reserve::Frozen,
}

/// Takes the lock for the duration of a fork, last of all.
pub fn freeze() -> Frozen {
    let pooled = POOLED.lock();
    fork::look(&pooled);
    Frozen { _pooled: pooled, _reserve: reserve::freeze() }
}
