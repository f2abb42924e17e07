//! Blocks with hints for programs that take functions of an allocator with a context in front, as numpy does: large ones
//! are those of `ream_alloc`, smaller ones come from the functions that the program used before.

use super::blocks;
use crate::blocks::set_errno;
use core::ffi::c_void;
use ream_page::PAGE_BYTES;

type Address = *mut c_void;

/// `struct ream_allocator` of the header.
#[repr(C)]
pub struct Allocator {
    size: usize,
    min: usize,
    hints: *const c_void,
    context: Address,
    malloc: unsafe extern "C" fn(Address, usize) -> Address,
    calloc: unsafe extern "C" fn(Address, usize, usize) -> Address,
    realloc: unsafe extern "C" fn(Address, Address, usize) -> Address,
    free: unsafe extern "C" fn(Address, Address, usize),
}

/// A block with the allocator's hints; null with errno set when there is none.
fn block(allocator: &Allocator, bytes: usize) -> Address {
    match blocks::allocate(bytes, allocator.hints.expose_provenance()) {
        Ok(address) => core::ptr::with_exposed_provenance_mut(address),
        Err(error) => {
            set_errno(error.0.into());
            core::ptr::null_mut()
        }
    }
}

/// Whether it may be a block of ours, which all begin with a page: no other needs to be looked up.
fn may_be_ours(address: Address) -> bool {
    !address.is_null() && address.addr() % PAGE_BYTES == 0
}

/// A block.
///
/// # Safety
/// The allocator is a structure as the header says, whose functions may be called.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_allocator_malloc(allocator: *const Allocator, bytes: usize) -> Address {
    // SAFETY: the caller's promise.
    let it = unsafe { &*allocator };
    if bytes == 0 || bytes < it.min {
        // SAFETY: the caller's promise.
        return unsafe { (it.malloc)(it.context, bytes) };
    }
    block(it, bytes)
}

/// A block that reads as zeros.
///
/// # Safety
/// As of [`ream_allocator_malloc`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_allocator_calloc(allocator: *const Allocator, count: usize, each: usize) -> Address {
    // SAFETY: the caller's promise.
    let it = unsafe { &*allocator };
    match count.checked_mul(each) {
        Some(bytes) if bytes != 0 && bytes >= it.min => block(it, bytes),
        // SAFETY: the caller's promise. What cannot be counted is refused there.
        _ => unsafe { (it.calloc)(it.context, count, each) },
    }
}

/// A block of another size with the same content.
///
/// # Safety
/// As of [`ream_allocator_malloc`]; the block is null, or one of this allocator's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_allocator_realloc(allocator: *const Allocator, old: Address, bytes: usize) -> Address {
    // SAFETY: the caller's promise.
    let it = unsafe { &*allocator };
    let ours = if may_be_ours(old) { blocks::bytes_of(old.expose_provenance()) } else { None };
    let Some(before) = ours else {
        // SAFETY: the caller's promise; the block came from there.
        return unsafe { (it.realloc)(it.context, old, bytes) };
    };
    // SAFETY: as above.
    let new = unsafe { ream_allocator_malloc(allocator, bytes) };
    if !new.is_null() {
        // SAFETY: two blocks, of which each has as many bytes.
        unsafe { core::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), before.min(bytes)) };
        let _ = blocks::free(old.expose_provenance());
    }
    new
}

/// Gives a block back.
///
/// # Safety
/// As of [`ream_allocator_realloc`]; `bytes` is its size.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_allocator_free(allocator: *const Allocator, block: Address, bytes: usize) {
    // SAFETY: the caller's promise.
    let it = unsafe { &*allocator };
    if !may_be_ours(block) || blocks::free(block.expose_provenance()).is_err() {
        // SAFETY: the caller's promise; the block came from there.
        unsafe { (it.free)(it.context, block, bytes) };
    }
}
