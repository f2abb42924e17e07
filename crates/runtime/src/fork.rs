//! fork(): libc calls our handlers last before the copy is made and first after it, because they are registered first.
//! Locks are taken from the outside in: libc's on its list of streams, jemalloc's, the heap's, the mappings', the engine's,
//! and the list of what is held, which whoever engages reads under the engine's; and let go in reverse.
//!
//! libc takes the lock on its list of streams itself, but after our handler, when no pager runs: whoever had it might wait for
//! another thread that sleeps in a fault, and the fork for him.

use crate::{abi, blocks, engine, heap, holds, locks, maps, pool, pooled_shared};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

unsafe extern "C" {
    /// libc's pthread_atfork for libraries: the last argument says whose handlers they are, null for the program's.
    fn __register_atfork(
        prepare: unsafe extern "C" fn(),
        parent: unsafe extern "C" fn(),
        child: unsafe extern "C" fn(),
        library: *mut c_void,
    ) -> c_int;
    /// libc's recursive lock on its list of open streams, which it exports for its own older parts.
    fn _IO_list_lock();
    fn _IO_list_unlock();
    /// In a child: makes it free.
    fn _IO_list_resetlock();
}

/// Locks that are held while the copy is made.
struct Locks {
    _large: ream_heap::FrozenLarge<'static>,
    _chunks: ream_heap::FrozenChunks<'static>,
    _placing: ream_heap::Placing,
    _maps: maps::Frozen,
    _pool: pool::Frozen,
    _locks: locks::Frozen,
    _shared: pooled_shared::Frozen,
}

struct Kept(UnsafeCell<Option<(Locks, holds::Frozen, abi::Frozen)>>);
// SAFETY: libc lets one fork happen at a time, and calls all handlers on its thread.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(None));

/// Registers the handlers; before any other library can.
pub fn register() {
    engine::find_libc_data();
    // SAFETY: the handlers are there as long as the library, which is never unloaded.
    unsafe { __register_atfork(prepare, parent, child, core::ptr::null_mut()) };
}

unsafe extern "C" fn prepare() {
    // SAFETY: `parent` and `child` let go of it. Whoever has it does not wait for any of our locks, none of which we have yet.
    unsafe { _IO_list_lock() };
    pool::fork_prepare();
    #[cfg(not(any(test, feature = "inside")))]
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().prepare {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    let locks = Locks {
        _large: heap::LARGE.freeze(),
        _chunks: heap::freeze_chunks(),
        _placing: ream_heap::placing(),
        _maps: maps::freeze(),
        _pool: pool::freeze(),
        _locks: locks::freeze(),
        _shared: pooled_shared::freeze(),
    };
    let (holds, abi) = engine::fork_prepare(|| (holds::freeze(), abi::freeze()));
    // SAFETY: see `Kept`.
    unsafe { *KEPT.0.get() = Some((locks, holds, abi)) };
}

unsafe extern "C" fn parent() {
    // See `engine::fork_prepare`.
    let failed = blocks::errno() != 0;
    engine::fork_parent();
    // SAFETY: see `Kept`.
    drop(unsafe { (*KEPT.0.get()).take() });
    pool::fork_parent(failed);
    #[cfg(not(any(test, feature = "inside")))]
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().parent {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    // SAFETY: `prepare` took it, on this thread.
    unsafe { _IO_list_unlock() };
}

unsafe extern "C" fn child() {
    engine::fork_child();
    // SAFETY: see `Kept`.
    drop(unsafe { (*KEPT.0.get()).take() });
    holds::fork_child();
    locks::fork_child();
    // SAFETY: libc calls us on the child's only thread.
    unsafe {
        abi::fork_child();
        #[cfg(not(feature = "inside"))]
        crate::loaded::fork_child();
    }
    pool::fork_child();
    #[cfg(not(any(test, feature = "inside")))]
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().child {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    // SAFETY: no other thread is there. libc may have done the same already, so it cannot be unlocked.
    unsafe { _IO_list_resetlock() };
}
