//! Small blocks: jemalloc, with hooks through which its arenas take extents from managed chunks and give pages back.
//! jemalloc's own data stays outside the chunks: a page fault inside malloc then never waits for the pager twice, and
//! freeing an object whose page is not in RAM touches nothing of it.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use ream_page::Run;
use ream_sys::memory::{self, Advice};
use tikv_jemalloc_sys as jemalloc;

pub use jemalloc::{calloc, free, malloc, malloc_usable_size, realloc};

use crate::{Chunks, Engine};

/// The table of functions that an arena calls.
pub type Hooks = jemalloc::extent_hooks_t;

/// An engine that has its chunks in one known place.
pub trait Arenas: Engine + Sized + 'static {
    /// The chunks of the process.
    fn chunks() -> &'static Chunks<Self>;
}

/// The hooks of every arena. There is no `dalloc`: jemalloc then keeps the addresses of what it does not need and gives
/// back only the pages, through `purge_forced`.
pub const fn hooks<A: Arenas>() -> Hooks {
    Hooks {
        alloc: Some(alloc::<A>),
        dalloc: None,
        destroy: None,
        commit: None,
        decommit: None,
        purge_lazy: None,
        purge_forced: Some(purge::<A>),
        split: Some(split),
        merge: Some(merge),
    }
}

unsafe extern "C" fn alloc<A: Arenas>(
    _hooks: *mut Hooks,
    at: *mut c_void,
    bytes: usize,
    align: usize,
    zeroed: *mut bool,
    committed: *mut bool,
    _arena: c_uint,
) -> *mut c_void {
    let Some(start) = A::chunks().carve(bytes, align, at.addr()) else { return null_mut() };
    // SAFETY: jemalloc passes pointers to two of its variables.
    unsafe {
        zeroed.write(true);
        committed.write(true);
    }
    core::ptr::with_exposed_provenance_mut(start)
}

unsafe extern "C" fn purge<A: Arenas>(
    _hooks: *mut Hooks,
    start: *mut c_void,
    _bytes: usize,
    offset: usize,
    length: usize,
    _arena: c_uint,
) -> bool {
    let address = start.addr() + offset;
    if A::pool_unit(address).is_some() {
        return true;
    }
    let _discarding = A::discard(Run::inside(address, length));
    // SAFETY: jemalloc holds no object in these pages; on failure (true) it knows that they are not zero.
    unsafe { memory::advise(address, length, Advice::DontNeed) }.is_err()
}

unsafe extern "C" fn split(
    _hooks: *mut Hooks,
    _start: *mut c_void,
    _bytes: usize,
    _first: usize,
    _second: usize,
    _committed: bool,
    _arena: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn merge(
    _hooks: *mut Hooks,
    _first: *mut c_void,
    _first_bytes: usize,
    _second: *mut c_void,
    _second_bytes: usize,
    _committed: bool,
    _arena: c_uint,
) -> bool {
    false
}

/// A block at a multiple of `align`, a power of two; null when there is no memory.
#[inline]
pub fn aligned(align: usize, bytes: usize) -> *mut c_void {
    // In jemalloc's flags the lowest six bits are the logarithm of the alignment.
    // SAFETY: bytes is not 0.
    unsafe { jemalloc::mallocx(bytes.max(1), align.trailing_zeros() as c_int) }
}

/// Threads that are in [`purge_all`].
static PURGING: AtomicU32 = AtomicU32::new(0);

/// Whether somebody has asked that all free pages be given back.
pub fn purging() -> bool {
    PURGING.load(Ordering::Relaxed) != 0
}

/// Gives back the pages of all free extents, at once. True when that could be asked for.
pub fn purge_all() -> bool {
    let none = null_mut();
    // The number 4096 names all arenas.
    let purge: *const c_char = c"arena.4096.purge".as_ptr();
    PURGING.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a control that takes and returns nothing.
    let result = unsafe { jemalloc::mallctl(purge, none, null_mut(), none, 0) };
    PURGING.fetch_sub(1, Ordering::Relaxed);
    result == 0
}
