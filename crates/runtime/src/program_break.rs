//! The program break: what a program takes by brk or sbrk itself, past malloc, as allocators do that are linked into it.
//!
//! The kernel's break stays where it is, and with it what asks the kernel itself (the malloc of another copy of libc). The
//! program is shown another one, further up, where nothing is mapped by itself: what it takes there is a mapping like any of
//! its own, on large pages, managed, and made a good part ahead, so that small steps cost nothing. Who asks before there is a
//! session stays with the kernel's.

use crate::abi::switch;
use crate::heap::in_session;
use crate::holds;
use crate::kernel::*;
use crate::locks;
use crate::maps::{self, LARGE_FROM};
use crate::next::Next;
use crate::pages;
use crate::regions::Kind;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use ream_heap::placing;
use ream_page::{ADDRESS_BITS, BLOCK_BYTES, PAGE_BYTES, Run};
use ream_stats::Region;
use ream_sys::Errno;
use ream_sys::syscall::{call1, number};

/// Between the kernel's break and ours: left to those who use the kernel's.
const APART: usize = 1 << 30;
/// Nothing of ours lies lower: there are the places that MAP_32BIT asks for.
const LOWEST: usize = 4 << 30;
/// Most that is mapped ahead, in bytes.
const AHEAD: usize = 32 << 20;

/// Where the break began. All three are changed inside [`placing`].
static BASE: AtomicUsize = AtomicUsize::new(UNDECIDED);
/// The break as the program knows it.
static BREAK: AtomicUsize = AtomicUsize::new(0);
/// Up to here memory is mapped; the start of a page.
static END: AtomicUsize = AtomicUsize::new(0);

/// Values of `BASE` that are no addresses: nobody has asked yet; the process uses the kernel's break.
const UNDECIDED: usize = 0;
const KERNELS: usize = 1;

/// libc's brk: 0, or -1 with ENOMEM.
static BRK: Next = Next::of(c"brk");
/// libc's sbrk: the break before, or -1 with ENOMEM.
static SBRK: Next = Next::of(c"sbrk");

/// Whether the break is ours; decides on that.
fn is_ours() -> bool {
    if BASE.load(Relaxed) == UNDECIDED {
        let _placing = placing();
        if BASE.load(Relaxed) == UNDECIDED {
            // SAFETY: asks for the break and changes nothing.
            let theirs = unsafe { call1(number::__NR_brk, 0) }.unwrap_or(usize::MAX / 2);
            let base = (theirs + APART).max(LOWEST).next_multiple_of(BLOCK_BYTES);
            let ours = in_session() && base < 1 << (ADDRESS_BITS - 1);
            BREAK.store(base, Relaxed);
            END.store(base, Relaxed);
            BASE.store(if ours { base } else { KERNELS }, Relaxed);
        }
    }
    BASE.load(Relaxed) != KERNELS
}

/// brk(2) as libc has it.
///
/// # Errors
/// ENOMEM.
///
/// # Safety
/// What lies above is not used any more.
pub unsafe fn set(to: usize) -> Result<(), Errno> {
    if is_ours() {
        let _placing = placing();
        // SAFETY: the caller's promise.
        return unsafe { move_to(to) };
    }
    // SAFETY: libc's own.
    match unsafe { BRK.get::<unsafe extern "C" fn(usize) -> i32>() } {
        // SAFETY: the caller's promise.
        Some(brk) if unsafe { brk(to) } == 0 => Ok(()),
        _ => Err(ENOMEM),
    }
}

/// sbrk(3) as libc has it: the break before.
///
/// # Errors
/// ENOMEM.
///
/// # Safety
/// As for [`set`].
pub unsafe fn add(by: isize) -> Result<usize, Errno> {
    if is_ours() {
        let _placing = placing();
        let before = BREAK.load(Relaxed);
        let to = before.checked_add_signed(by).ok_or(ENOMEM)?;
        // SAFETY: the caller's promise.
        return unsafe { move_to(to) }.map(|()| before);
    }
    // SAFETY: libc's own.
    let sbrk = unsafe { SBRK.get::<unsafe extern "C" fn(isize) -> *mut c_void>() }.ok_or(ENOMEM)?;
    // SAFETY: the caller's promise.
    let before = unsafe { sbrk(by) }.expose_provenance();
    if before == usize::MAX { Err(ENOMEM) } else { Ok(before) }
}

/// # Safety
/// As for [`set`]; inside [`placing`].
unsafe fn move_to(to: usize) -> Result<(), Errno> {
    let (base, end) = (BASE.load(Relaxed), END.load(Relaxed));
    if to >= 1 << ADDRESS_BITS {
        return Err(ENOMEM);
    }
    // The kernel changes nothing, and libc does not notice.
    if to < base {
        return Ok(());
    }
    let needed = to.next_multiple_of(PAGE_BYTES);
    if needed > end {
        // The last step is no larger than asked for.
        let ahead = ((end - base) / 16).clamp(BLOCK_BYTES, AHEAD);
        let step = (needed + ahead).next_multiple_of(BLOCK_BYTES);
        let reached = map(end, step).map(|()| step).or_else(|_| map(end, needed).map(|()| needed))?;
        END.store(reached, Relaxed);
    } else if needed < BREAK.load(Relaxed).next_multiple_of(PAGE_BYTES) {
        // Whoever takes it again finds zeros.
        let gone = Run::covering(needed, end - needed);
        maps::forget(gone);
        // SAFETY: the caller's promise: all of it was mapped here.
        match unsafe { munmap(needed, gone.bytes()) } {
            Ok(()) => END.store(needed, Relaxed),
            // As many mappings as a process may have: it stays one, and holds nothing.
            Err(_) => {
                // SAFETY: as above.
                unsafe { madvise(needed, gone.bytes(), MADV_DONTNEED) }?;
                come_by(gone);
            }
        }
    }
    BREAK.store(to, Relaxed);
    Ok(())
}

/// More of the break's memory, which grows from `end` to `to`.
fn map(end: usize, to: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    unsafe { mmap(end, to - end, PROT_READ_WRITE, flags, -1, 0) }?;
    come_by(Run::covering(end, to - end));
    Ok(())
}

/// What was mapped of the break's memory lies on large pages, and is managed.
fn come_by(run: Run) {
    let base = BASE.load(Relaxed);
    let all = Run::covering(base, run.end().address() - base);
    if !switch::wanted(all.bytes()) || holds::all_locked() {
        return;
    }
    if all.bytes() >= LARGE_FROM && pages::wanted(Region::Heap).large() {
        let fresh = if all.bytes() - run.bytes() >= LARGE_FROM { run } else { all };
        // SAFETY: advice on memory of the program's.
        let _ = unsafe { madvise(fresh.start.address(), fresh.bytes(), MADV_HUGEPAGE) };
    }
    locks::manage(run, Kind::Mapped);
}
