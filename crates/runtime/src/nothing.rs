//! An allocator that has nothing to give. Nothing in this library allocates; but `ring`, which seals pages, links the
//! allocating part of the library of Rust for helpers of its tests, and then the compiler wants to be shown one.

use core::alloc::{GlobalAlloc, Layout};

/// See above.
struct Nothing;

// SAFETY: it never hands out memory, which is what null says.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;
