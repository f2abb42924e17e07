//! Blocks that are not ours: the allocator that the process has.

use crate::next::Next;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Aligned = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Usable = unsafe extern "C" fn(*mut c_void) -> usize;
type Trim = unsafe extern "C" fn(usize) -> c_int;

static MALLOC: Next = Next::of(c"malloc");
static CALLOC: Next = Next::of(c"calloc");
static REALLOC: Next = Next::of(c"realloc");
static FREE: Next = Next::of(c"free");
static USABLE: Next = Next::of(c"malloc_usable_size");
static ALIGNED: Next = Next::of(c"posix_memalign");
static TRIM: Next = Next::of(c"malloc_trim");

/// Looks all of them up, before anybody calls them who must not wait for the linker.
pub fn find() {
    for next in [&MALLOC, &CALLOC, &REALLOC, &FREE, &USABLE, &ALIGNED, &TRIM] {
        // SAFETY: a pointer to a function, which is not called.
        let _ = unsafe { next.get::<*const c_void>() };
    }
}

/// malloc(3).
///
/// # Safety
/// As the manual says.
pub unsafe fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the function's type; the caller's promise.
    unsafe { MALLOC.get::<Malloc>().map_or(null_mut(), |next| next(bytes)) }
}

/// calloc(3).
///
/// # Safety
/// As the manual says.
pub unsafe fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: the function's type; the caller's promise.
    unsafe { CALLOC.get::<Calloc>().map_or(null_mut(), |next| next(count, size)) }
}

/// realloc(3).
///
/// # Safety
/// As the manual says; the block is not ours.
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the function's type; the caller's promise.
    unsafe { REALLOC.get::<Realloc>().map_or(null_mut(), |next| next(block, bytes)) }
}

/// free(3).
///
/// # Safety
/// As the manual says; the block is not ours.
pub unsafe fn free(block: *mut c_void) {
    // SAFETY: the function's type; the caller's promise.
    unsafe { FREE.get::<Free>().into_iter().for_each(|next| next(block)) }
}

/// malloc_usable_size(3).
///
/// # Safety
/// As the manual says; the block is not ours.
pub unsafe fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the function's type; the caller's promise.
    unsafe { USABLE.get::<Usable>().map_or(0, |next| next(block)) }
}

/// A block at a multiple of `align`, a power of two; null when there is no memory.
pub fn aligned(align: usize, bytes: usize) -> *mut c_void {
    let mut block = null_mut();
    // SAFETY: the function's type, and a place for its result.
    let failed = unsafe {
        ALIGNED.get::<Aligned>().is_none_or(|next| next(&raw mut block, align.max(size_of::<usize>()), bytes) != 0)
    };
    if failed { null_mut() } else { block }
}

/// Gives back what is free. True when that could be asked for.
pub fn purge_all() -> bool {
    // SAFETY: the function's type.
    unsafe { TRIM.get::<Trim>().is_some_and(|next| next(0) != 0) }
}
