//! libream_inside.so: the same, for a process that runs already and loads us by dlopen. It exports no function of libc; what
//! it takes over it takes over by the symbol slots of the objects that are there ([`slots`]), and of those that are
//! loaded later ([`loads`]). Blocks that are to be on large pages are ours; all others come from the allocator that the
//! process has ([`small`]), and what that has given out goes back to it.
//!
//! It has no thread-local data: a library that comes later finds next to no room for such.

pub mod calls;
mod loads;
pub mod slots;
pub mod small;
pub mod symbols;

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use ream_sys::Errno;
use ream_sys::futex::Mutex;

/// All slots of what is loaded lead to us.
static TAKEN: AtomicBool = AtomicBool::new(false);
static TAKING: Mutex<()> = Mutex::new(());

/// Takes over the allocations of the process: what is loaded, and what will be. Once is enough.
///
/// # Errors
/// EBUSY: libream.so is in the process already, whose functions are to be used.
pub fn take_over() -> Result<(), Errno> {
    if TAKEN.load(SeqCst) {
        return Ok(());
    }
    if symbols::definitions(c"ream_status")[0] != 0 {
        return Err(Errno::BUSY);
    }
    let _one = TAKING.lock();
    if !TAKEN.load(SeqCst) {
        small::find();
        slots::lead_all_here();
        TAKEN.store(true, SeqCst);
    }
    Ok(())
}

/// In a child: no thread is there any more that was taking over.
///
/// # Safety
/// By the child's only thread.
pub unsafe fn fork_child() {
    // SAFETY: the caller's promise; what was begun is begun again.
    unsafe {
        TAKING.reset();
        slots::fork_child();
    }
}
