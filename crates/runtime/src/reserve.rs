//! `--prefault=heap=SIZE` with pages of a pool: so much is mapped, and with that reserved in the pool, before the program
//! begins. The heap is handed parts of it; a part that is freed is mapped anew, so that nobody else gets its pages. Nothing
//! is populated here: whoever touches a page first decides on which node it lies.

use crate::pool;
use crate::regions::Regions;
use core::sync::atomic::{AtomicUsize, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{self, Zeroable};

/// The pages of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Unit {
    Block = 0,
    Gigantic = 1,
}

// SAFETY: zero is `Block`; nothing happens at drop.
unsafe impl Zeroable for Unit {}

impl Unit {
    fn of(unit: usize) -> Unit {
        if unit == BLOCK_BYTES { Unit::Block } else { Unit::Gigantic }
    }
}

/// What is reserved and not handed out. Taken last of all.
static FREE: Mutex<Regions<Unit>> = Mutex::new(Regions::new());
/// Pages that were reserved when the program began; 0: there is nothing to look for.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
/// Pages handed out of what was reserved, which return to it.
static OUT: AtomicUsize = AtomicUsize::new(0);

/// Reserves `bytes` of the heap, on the largest of these pages that there are. `map` maps so many bytes of a unit; `short` is
/// told why a unit does not suffice where a smaller one follows.
pub fn begin(
    bytes: usize,
    units: &[usize],
    map: impl Fn(usize, usize) -> Result<usize, Errno>,
    short: impl Fn(Errno),
) -> Result<(), (usize, Errno)> {
    let (mut left, mut refused) = (bytes, Errno(0));
    for (index, unit) in units.iter().enumerate() {
        if index > 0 && left > 0 {
            short(refused);
        }
        left = left.next_multiple_of(*unit);
        let mut piece = left;
        while piece > 0 && left > 0 {
            match map(piece, *unit) {
                Ok(address) => {
                    let run = Run::inside(address, piece);
                    if let Err(error) = FREE.lock().insert(run, Unit::of(*unit)) {
                        return Err((left, error));
                    }
                    RESERVED.fetch_add(run.pages as usize, Ordering::Relaxed);
                    left -= piece;
                    piece = piece.min(left);
                }
                Err(error) => {
                    refused = error;
                    piece = piece / 2 / unit * unit;
                }
            }
        }
    }
    if left > 0 { Err((left, refused)) } else { Ok(()) }
}

/// A part of what is reserved; `length` is a multiple of `unit`.
pub fn take(length: usize, unit: usize) -> Option<usize> {
    if RESERVED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut free = FREE.lock();
    let mut from = Page(0);
    while let Some((run, of)) = free.next_from(from) {
        if of == Unit::of(unit) && run.bytes() >= length {
            let part = Run::inside(run.start.address(), length);
            free.remove(part);
            OUT.fetch_add(part.pages as usize, Ordering::Relaxed);
            return Some(run.start.address());
        }
        from = run.end();
    }
    None
}

/// The heap has unmapped a part. Whether as much is reserved again, which may lie elsewhere.
pub fn renew(length: usize, unit: usize, map: impl Fn(usize, usize) -> Result<usize, Errno>) -> bool {
    let pages = length / PAGE_BYTES;
    // What came from elsewhere goes back to where it came from.
    let owed = |out: usize| out.checked_sub(pages);
    if RESERVED.load(Ordering::Relaxed) == 0 || OUT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, owed).is_err() {
        return false;
    }
    let Ok(address) = map(length, unit) else { return false };
    let entered = FREE.lock().insert(Run::inside(address, length), Unit::of(unit)).is_ok();
    if !entered {
        unmap(Run::inside(address, length));
    }
    entered
}

fn unmap(run: Run) {
    let start: *mut u8 = core::ptr::with_exposed_provenance_mut(run.start.address());
    // SAFETY: ours, and handed out to nobody.
    let _ = unsafe { memory::unmap(start, run.bytes()) };
}

/// While it exists, in a fork, nothing is handed out.
pub struct Frozen {
    _free: Guard<'static, Regions<Unit>>,
}

/// Takes the lock for the duration of a fork.
pub fn freeze() -> Frozen {
    Frozen { _free: FREE.lock() }
}

/// In a child: the kernel promises it no pages.
pub fn fork_child() {
    if RESERVED.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    OUT.store(0, Ordering::Relaxed);
    let mut free = FREE.lock();
    while let Some((run, _)) = free.next_from(Page(0)) {
        free.remove(run);
        unmap(run);
    }
}

/// Sizes of pages from which the heap's are reserved, the largest first.
pub fn units(gigantic: bool) -> &'static [usize] {
    if gigantic { &[pool::GIGANTIC_BYTES, BLOCK_BYTES] } else { &[BLOCK_BYTES] }
}
