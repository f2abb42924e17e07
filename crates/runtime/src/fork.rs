//! fork(): libc calls our handlers last before the copy is made and first after it, because they are registered first.
//! Locks are taken from the outside in: libc's on its list of streams, jemalloc's, the heap's, the mappings', the engine's,
//! and the list of what is held, which whoever engages reads under the engine's; and let go in reverse.
//!
//! libc takes the lock on its list of streams itself, but after our handler, when no pager runs: whoever had it might wait for
//! another thread that sleeps in a fault, and the fork for him.
//!
//! Like libc we take no lock of the heap or of streams where there is one thread: it may have any of them itself, when it forks
//! in a signal handler. A child that returns from that handler finds them as its parent does. Our own threads use neither.

use crate::{abi, blocks, engine, heap, holds, locks, maps, pool, pooled_shared};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

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
    _maps: maps::Frozen,
    _pool: pool::Frozen,
    _locks: locks::Frozen,
    _shared: pooled_shared::Frozen,
    /// Last: with it handlers of signals may run again, which find all others free.
    _placing: ream_heap::Placing,
}

struct Kept(UnsafeCell<Option<(Locks, holds::Frozen, abi::Frozen)>>);
// SAFETY: libc lets one fork happen at a time, and calls all handlers on its thread.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(None));

/// libc's `__libc_single_threaded`; null where it has none (glibc before 2.32).
static SINGLE: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
/// Whether there was one thread when the fork began.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Whether libc knows of one thread only. Where that is not told, there may be several.
fn alone() -> bool {
    let told = SINGLE.load(Relaxed);
    // SAFETY: a variable of libc's, or the program's copy of it.
    !told.is_null() && unsafe { told.read_volatile() } != 0
}

/// Registers the handlers; before any other library can.
pub fn register() {
    engine::find_libc_data();
    // The one that is used: programs may have copies of their own.
    #[cfg(not(feature = "inside"))]
    SINGLE.store(crate::loaded::find(c"__libc_single_threaded").cast(), Relaxed);
    // SAFETY: the handlers are there as long as the library, which is never unloaded.
    unsafe { __register_atfork(prepare, parent, child, core::ptr::null_mut()) };
}

unsafe extern "C" fn prepare() {
    let alone = alone();
    ALONE.store(alone, Relaxed);
    if !alone {
        // SAFETY: `parent` and `child` let go of it. Whoever has it may wait for a lock of ours: we have none yet.
        unsafe { _IO_list_lock() };
    }
    pool::fork_prepare();
    #[cfg(not(any(test, feature = "inside")))]
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().prepare.filter(|_| !alone) {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    let locks = Locks {
        _large: heap::LARGE.freeze(alone),
        _chunks: heap::freeze_chunks(alone),
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

/// Lets go of the locks; of that which keeps signals out last.
fn release(kept: Option<(Locks, holds::Frozen, abi::Frozen)>) {
    if let Some((locks, holds, abi)) = kept {
        drop((holds, abi));
        drop(locks);
    }
}

unsafe extern "C" fn parent() {
    let alone = ALONE.load(Relaxed);
    // See `engine::fork_prepare`.
    let failed = blocks::errno() != 0;
    // SAFETY: see `Kept`.
    let locks = unsafe { (*KEPT.0.get()).take() }.map(|(locks, holds, abi)| {
        // Before the watcher is told of anything: it may be about to begin paging, and want to read these lists first.
        drop((holds, abi));
        locks
    });
    engine::fork_parent();
    drop(locks);
    pool::fork_parent(failed);
    #[cfg(not(any(test, feature = "inside")))]
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().parent.filter(|_| !alone) {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    if !alone {
        // SAFETY: `prepare` took it, on this thread.
        unsafe { _IO_list_unlock() };
    }
}

unsafe extern "C" fn child() {
    let alone = ALONE.load(Relaxed);
    // SAFETY: see `Kept`; libc calls us on the child's only thread.
    if let Some((_, holds, _)) = unsafe { &*KEPT.0.get() } {
        // SAFETY: as above.
        unsafe { holds.forget_others() };
    }
    engine::fork_child();
    // SAFETY: see `Kept`.
    release(unsafe { (*KEPT.0.get()).take() });
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
    if let Some(handler) = heap::seams::jemalloc_fork_handlers().child.filter(|_| !alone) {
        // SAFETY: what jemalloc asked to be called here.
        unsafe { handler() };
    }
    if !alone {
        // SAFETY: no other thread is there. libc may have done the same already, so it cannot be unlocked.
        unsafe { _IO_list_resetlock() };
    }
    engine::fork_child_watched();
}
