//! What malloc and its relatives do, in the terms of glibc's manual: which requests fail and how, what sizes of zero
//! give, how blocks are aligned. Small blocks go to jemalloc by tail call; large ones begin at a multiple of 2 MiB, so
//! that one look at an address tells that a block is not large.

use crate::heap::{self, LARGE};
use crate::small;
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use ream_heap::LARGE_BYTES;
use ream_page::{BLOCK_BYTES, PAGE_BYTES};

/// Blocks have at least this size, and so this alignment: jemalloc aligns smaller ones to their own size only.
const LEAST: usize = 16;
/// No block below this is large.
const LEAST_LARGE: usize = 64 << 10;
/// Size from which blocks are large at the latest.
pub const MOST_SHARED: usize = 512 << 20;
/// Size from which blocks are large.
static LARGE_FROM: AtomicUsize = AtomicUsize::new(LARGE_BYTES);

/// Makes blocks from this size on large: smaller ones where only large ones are paged, larger ones where several are to
/// share one page.
pub fn set_large_from(bytes: usize) {
    LARGE_FROM.store(bytes.clamp(LEAST_LARGE, MOST_SHARED), Ordering::Relaxed);
}

#[inline(always)]
fn is_large(bytes: usize) -> bool {
    // Where the process has an allocator of its own, that makes whatever is not to be on large pages.
    bytes >= LEAST_LARGE
        && bytes >= LARGE_FROM.load(Ordering::Relaxed)
        && (!cfg!(feature = "inside") || crate::abi::switch::wanted(bytes))
}

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

pub fn errno() -> c_int {
    // SAFETY: libc's own variable of this thread.
    unsafe { __errno_location().read() }
}

pub fn set_errno(error: c_int) {
    // SAFETY: libc's own variable of this thread.
    unsafe { __errno_location().write(error) };
}

#[cold]
fn out_of_memory() -> *mut c_void {
    set_errno(ENOMEM);
    null_mut()
}

/// A large block, of zeros if `zeroed`; null when there is no memory.
#[cold]
fn large(bytes: usize, align: usize, zeroed: bool) -> *mut c_void {
    match LARGE.allocate(bytes, align, zeroed) {
        Some(block) => block.as_ptr().cast(),
        None => out_of_small(bytes, align, zeroed),
    }
}

/// Where the kernel has no addresses left (RLIMIT_AS) a block may fit among those of small ones that were freed, which are never
/// given back. Free neighbours become one only when their pages are.
fn out_of_small(bytes: usize, align: usize, zeroed: bool) -> *mut c_void {
    if cfg!(feature = "inside") || bytes > heap::small_bytes() || !small::purge_all() {
        return out_of_memory();
    }
    let block = match zeroed {
        // SAFETY: any size is fine.
        true => unsafe { small::calloc(1, bytes) },
        false => small::aligned(align, bytes),
    };
    if block.is_null() { out_of_memory() } else { block }
}

/// Whether a large block may begin here: no small one needs another look.
#[inline(always)]
fn may_be_large(block: *mut c_void) -> bool {
    block.addr() % BLOCK_BYTES == 0
}

#[inline(always)]
pub fn malloc(bytes: usize) -> *mut c_void {
    if is_large(bytes) {
        return large(bytes, LEAST, false);
    }
    // SAFETY: any size is fine.
    unsafe { small::malloc(bytes.max(LEAST)) }
}

#[inline(always)]
pub fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    if is_large(bytes) {
        return large(bytes, LEAST, true);
    }
    // SAFETY: any size is fine.
    unsafe { small::calloc(1, bytes.max(LEAST)) }
}

/// # Safety
/// `block` is null or a block of ours that is not used afterwards.
#[inline(always)]
pub unsafe fn free(block: *mut c_void) {
    if may_be_large(block) {
        // SAFETY: the caller's promise.
        return unsafe { free_aligned(block) };
    }
    // SAFETY: the caller's promise.
    unsafe { small::free(block) }
}

/// # Safety
/// As for [`free`].
#[cold]
unsafe fn free_aligned(block: *mut c_void) {
    if !block.is_null() && !LARGE.free(block.cast()) {
        // SAFETY: the caller's promise; a small block may lie at a multiple of 2 MiB by chance.
        unsafe { small::free(block) }
    }
}

/// # Safety
/// As for [`free`]; on failure (null, and bytes not 0) the block stays as it is.
#[inline(always)]
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 || is_large(bytes) || may_be_large(block) {
        // SAFETY: the caller's promise.
        return unsafe { realloc_other(block, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { small::realloc(block, bytes.max(LEAST)) }
}

/// # Safety
/// As for [`realloc`].
#[cold]
unsafe fn realloc_other(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(bytes);
    }
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { free(block) };
        return null_mut();
    }
    match LARGE.length(block.cast()) {
        // One that shrinks much becomes a small one.
        Some(_) if is_large(bytes.saturating_mul(4)) => {
            if let Some(Some(resized)) = LARGE.resize(block.cast(), bytes) {
                return resized.as_ptr().cast();
            }
            // Elsewhere, if at all.
        }
        // SAFETY: the caller's promise: a small block.
        None if !is_large(bytes) => return unsafe { small::realloc(block, bytes.max(LEAST)) },
        _ => {}
    }
    // From small to large, or back.
    // SAFETY: the caller's promise.
    let old = unsafe { usable_size(block) };
    let new = malloc(bytes);
    if !new.is_null() {
        // SAFETY: both blocks have so many bytes, and the new one is nobody else's.
        unsafe {
            core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(bytes));
            free(block);
        }
    }
    new
}

/// # Safety
/// As for [`realloc`].
pub unsafe fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return out_of_memory() };
    // SAFETY: the caller's promise.
    unsafe { realloc(block, bytes) }
}

/// A block at a multiple of `align`, which is a power of two.
fn aligned(align: usize, bytes: usize) -> Option<NonNull<c_void>> {
    if is_large(bytes) || align > BLOCK_BYTES && !cfg!(feature = "inside") {
        return NonNull::new(large(bytes, align, false));
    }
    NonNull::new(small::aligned(align, bytes.max(LEAST)))
}

/// Any alignment: as glibc does, one that is not a power of two is rounded up to the next.
pub fn memalign(align: usize, bytes: usize) -> *mut c_void {
    let Some(align) = align.max(LEAST).checked_next_power_of_two() else {
        set_errno(EINVAL);
        return null_mut();
    };
    aligned(align, bytes).map_or_else(out_of_memory, NonNull::as_ptr)
}

/// # Safety
/// `to` may be written.
pub unsafe fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || align % size_of::<*mut c_void>() != 0 {
        return EINVAL;
    }
    let Some(block) = aligned(align, bytes) else { return ENOMEM };
    // SAFETY: the caller's promise.
    unsafe { to.write(block.as_ptr()) };
    0
}

/// Whole pages, at the start of one.
pub fn pvalloc(bytes: usize) -> *mut c_void {
    let Some(bytes) = bytes.checked_next_multiple_of(PAGE_BYTES) else { return out_of_memory() };
    memalign(PAGE_BYTES, bytes)
}

/// # Safety
/// `block` is null or a block of ours.
#[inline(always)]
pub unsafe fn usable_size(block: *mut c_void) -> usize {
    if may_be_large(block) {
        if block.is_null() {
            return 0;
        }
        if let Some(length) = LARGE.length(block.cast()) {
            return length;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { small::malloc_usable_size(block) }
}

/// Gives back what is free; whether that could be anything.
pub fn trim() -> bool {
    let large = LARGE.drain();
    small::purge_all() || large
}
