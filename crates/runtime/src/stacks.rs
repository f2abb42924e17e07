//! Stacks on large pages. They are never paged. The main stack is advised at the start, and mapped down to its limit
//! first: a large page needs its whole block inside the mapping, which otherwise grows by single pages. Thread stacks,
//! which the kernel excludes because libc maps them with MAP_STACK, are advised by each thread as it begins.

use crate::kernel::{MADV_COLLAPSE, MADV_HUGEPAGE, limit, madvise};
use crate::next::Next;
use crate::pages::wanted;
use crate::{locks, prefault};
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_ulong, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES};
use ream_stats::{Pages, Region};
use ream_sys::syscall::{call2, number};

/// Stacks smaller than this are left alone.
const LEAST: usize = 2 * BLOCK_BYTES;
/// Stack that most programs and threads do not use up: where less than this lies above a block's boundary, the block
/// below is given a page table first, so that it begins with small pages.
const SHALLOW: usize = 256 * 1024;
/// How far the main stack is mapped at most.
const MOST_MAPPED: usize = 64 << 20;
/// What is left of the main stack's limit.
const SPARE: usize = 128 * 1024;

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut c_ulong, *const c_void, Start, *mut c_void) -> c_int;

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn pthread_self() -> c_ulong;
    fn pthread_attr_getstacksize(attributes: *const c_void, bytes: *mut usize) -> c_int;
}

/// Whether anything is done for stacks.
fn concerned() -> bool {
    wanted(Region::Stack).large() || prefault::populated(Region::Stack)
}

/// Puts the calling thread's stack, which is the main one, on large pages, and brings it in, where that is wanted. False
/// where its limit has room for a large page and it cannot have one.
pub fn main_stack() -> bool {
    if !concerned() {
        return true;
    }
    const AT_EXECFN: c_ulong = 31;
    // SAFETY: no memory is passed.
    let name = unsafe { getauxval(AT_EXECFN) } as usize;
    if name == 0 {
        return false;
    }
    // SAFETY: the kernel's copy of the program's name, the last thing on the stack.
    let length = unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(name)) }.to_bytes_with_nul().len();
    let top = (name + length).next_multiple_of(PAGE_BYTES);
    let Some(low) = lowest(top, stack_limit()) else { return true };
    // Written by the kernel, which answers with an error where the stack cannot be mapped so far.
    const CLOCK_MONOTONIC: usize = 1;
    // SAFETY: below everything that lies on the stack, in nobody's memory or in the stack itself.
    let mapped = unsafe { call2(number::__NR_clock_gettime, CLOCK_MONOTONIC, low - PAGE_BYTES) }.is_ok();
    mapped && place(low - PAGE_BYTES, top)
}

/// The lowest whole block of a main stack with this top and limit, a page above what may be mapped.
fn lowest(top: usize, limit: usize) -> Option<usize> {
    let bytes = limit.min(MOST_MAPPED + SPARE).checked_sub(SPARE)?;
    let low = top.checked_sub(bytes)?.next_multiple_of(BLOCK_BYTES);
    (low + LEAST <= top).then_some(low)
}

fn stack_limit() -> usize {
    const RLIMIT_STACK: usize = 3;
    limit(RLIMIT_STACK).unwrap_or(0)
}

/// Whether the block below the one that holds this address is to begin with small pages: most threads go no deeper than
/// what is left above it, and it is all stack.
fn touches_below(here: usize, low: usize) -> bool {
    let boundary = here & !(BLOCK_BYTES - 1);
    here - boundary < SHALLOW && boundary.checked_sub(low).is_some_and(|below| below >= BLOCK_BYTES)
}

/// Advises the calling thread's stack, where that is wanted; false where that is refused.
fn place(low: usize, top: usize) -> bool {
    let here = 0u8;
    let here = (&raw const here).addr();
    let boundary = here & !(BLOCK_BYTES - 1);
    if wanted(Region::Stack) == Pages::Auto && touches_below(here, low) {
        // SAFETY: below everything that lies on this thread's own stack.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(boundary - 1).write_volatile(0) };
    }
    let mut advised = true;
    if wanted(Region::Stack).large() {
        // SAFETY: advice loses nothing.
        unsafe {
            advised = madvise(low, top - low, MADV_HUGEPAGE).is_ok();
            if wanted(Region::Stack) != Pages::Auto && boundary >= low && boundary + BLOCK_BYTES <= top {
                let _ = madvise(boundary, BLOCK_BYTES, MADV_COLLAPSE);
            }
        }
    }
    // The lowest page stays as it is: of a locked one the kernel lets no stack grow beyond the limit on locked memory.
    locks::stack(low + PAGE_BYTES, top);
    prefault::stack(low + PAGE_BYTES, top);
    advised
}

/// pthread_create: the thread advises its stack, then runs `start`.
///
/// # Safety
/// As the manual says.
pub unsafe fn create(thread: *mut c_ulong, attributes: *const c_void, start: Start, argument: *mut c_void) -> c_int {
    // None where threads are in a library that is not loaded.
    static NEXT: Next = Next::of(c"pthread_create");
    // SAFETY: this is its type.
    let Some(next) = (unsafe { NEXT.get::<Create>() }) else {
        const EAGAIN: c_int = 11;
        return EAGAIN;
    };
    let bytes = if concerned() { stack_bytes(attributes) } else { 0 };
    let waiting = if bytes >= LEAST { Waiting::take(First { start, argument }, bytes) } else { None };
    let Some(waiting) = waiting else {
        // SAFETY: the caller's promise.
        return unsafe { next(thread, attributes, start, argument) };
    };
    let place = core::ptr::from_ref(waiting).cast_mut().cast();
    // SAFETY: the caller's promise; the new thread empties the place, or we do when there is none.
    let outcome = unsafe { next(thread, attributes, ream_thread, place) };
    if outcome != 0 {
        waiting.taken.store(false, Ordering::Release);
    }
    outcome
}

/// Size of the stack that a thread with these attributes gets, its guard included.
fn stack_bytes(attributes: *const c_void) -> usize {
    static DEFAULT: AtomicUsize = AtomicUsize::new(0);
    let mut bytes = 0;
    // SAFETY: attributes that the caller made, and room for the size.
    if !attributes.is_null() && unsafe { pthread_attr_getstacksize(attributes, &raw mut bytes) } == 0 {
        return bytes;
    }
    // libc's default: the limit of the main stack when the program started.
    bytes = DEFAULT.load(Ordering::Relaxed);
    if bytes == 0 {
        bytes = Some(stack_limit()).filter(|limit| *limit < 1 << 40).unwrap_or(1);
        DEFAULT.store(bytes, Ordering::Relaxed);
    }
    bytes
}

/// What a thread is to run, until it does. Not from the heap: freeing it would be the thread's first use of that, which
/// costs 8 µs.
struct Waiting {
    taken: AtomicBool,
    first: UnsafeCell<MaybeUninit<First>>,
    stack_bytes: AtomicUsize,
}

// SAFETY: `first` belongs to whoever made `taken` true, and then to the thread that is told of it.
unsafe impl Sync for Waiting {}

/// Threads that may be about to begin at the same time; the stacks of more are left alone.
static WAITING: [Waiting; 64] = [const {
    Waiting {
        taken: AtomicBool::new(false),
        first: UnsafeCell::new(MaybeUninit::uninit()),
        stack_bytes: AtomicUsize::new(0),
    }
}; 64];

impl Waiting {
    fn take(first: First, stack_bytes: usize) -> Option<&'static Waiting> {
        let free =
            |place: &&Waiting| !place.taken.load(Ordering::Relaxed) && !place.taken.swap(true, Ordering::Acquire);
        let place = WAITING.iter().find(free)?;
        // SAFETY: see `Sync`.
        unsafe { place.first.get().write(MaybeUninit::new(first)) };
        place.stack_bytes.store(stack_bytes, Ordering::Relaxed);
        Some(place)
    }
}

/// What a thread is to run.
#[repr(C)]
#[derive(Clone, Copy)]
struct First {
    start: Start,
    argument: *mut c_void,
}

// Leaves no frame of ours behind: debuggers see the program's own, and unwinding by pthread_exit meets no Rust.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".p2align 4",
    ".type ream_thread, @function",
    ".hidden ream_thread",
    ".globl ream_thread",
    "ream_thread:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {first}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "mov rdi, rdx",
    "jmp rax",
    ".cfi_endproc",
    ".size ream_thread, . - ream_thread",
    first = sym first,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".p2align 4",
    ".type ream_thread, %function",
    ".hidden ream_thread",
    ".globl ream_thread",
    "ream_thread:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_adjust_cfa_offset 16",
    ".cfi_rel_offset x29, 0",
    ".cfi_rel_offset x30, 8",
    "bl {first}",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_adjust_cfa_offset -16",
    "mov x16, x0",
    "mov x0, x1",
    "br x16",
    ".cfi_endproc",
    ".size ream_thread, . - ream_thread",
    first = sym first,
);

unsafe extern "C" {
    /// Begins a thread: [`first`], then what it returns.
    fn ream_thread(first: *mut c_void) -> *mut c_void;
}

/// Takes over what the new thread is to run, and advises its stack.
///
/// # Safety
/// Called by a thread made in [`create`], with what that passed.
unsafe extern "C" fn first(waiting: &'static Waiting) -> First {
    // SAFETY: see above: the place was filled, and is ours until it is free again.
    let read = unsafe { waiting.first.get().read().assume_init() };
    let bytes = waiting.stack_bytes.load(Ordering::Relaxed);
    waiting.taken.store(false, Ordering::Release);
    // libc keeps what it knows of a thread at the top of its stack, some 2 KiB from where the thread's handle points.
    const HANDLE: usize = 2304;
    // SAFETY: always succeeds.
    let top = (unsafe { pthread_self() } as usize + HANDLE).next_multiple_of(PAGE_BYTES);
    let here = (&raw const read).addr();
    // A page for the guard.
    let low = top.saturating_sub(bytes) + PAGE_BYTES;
    if (low..top).contains(&here) {
        place(low, top);
    }
    read
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_main_stack_is_mapped_down_to_its_limit() {
        let top = 0x7fff_0001_3000;
        let low = lowest(top, 8 << 20).unwrap();
        assert!(low % BLOCK_BYTES == 0 && top - low <= (8 << 20) - SPARE && top - low > (6 << 20) - SPARE);
        let unlimited = lowest(top, usize::MAX).unwrap();
        assert!(top - unlimited <= MOST_MAPPED && top - unlimited > MOST_MAPPED - BLOCK_BYTES);
        assert_eq!(lowest(top, 4 << 20), None);
        assert_eq!(lowest(top, 0), None);
    }

    #[test]
    fn nothing_below_the_stack_is_touched() {
        let low = 0x7f00_0010_1000;
        // Two blocks above the lowest whole one, shallow and deep inside its block.
        let block = 0x7f00_0060_0000;
        assert!(touches_below(block + 4096, low) && !touches_below(block + SHALLOW, low));
        // The block below is not all stack, or the stack begins inside this one.
        assert!(!touches_below(0x7f00_0020_0000 + 64, low));
        assert!(!touches_below(low + 64, low));
    }

    #[test]
    fn only_so_many_threads_wait() {
        unsafe extern "C" fn start(argument: *mut c_void) -> *mut c_void {
            argument
        }
        let first = First { start, argument: core::ptr::null_mut() };
        let taken: std::vec::Vec<_> = core::iter::from_fn(|| Waiting::take(first, LEAST)).collect();
        assert!(!taken.is_empty() && taken.len() <= WAITING.len());
        taken.iter().for_each(|place| place.taken.store(false, Ordering::Release));
        assert!(Waiting::take(first, LEAST).is_some_and(|place| place.taken.swap(false, Ordering::Release)));
    }
}
