//! One thread at a time between the moment at which the kernel assigns or frees addresses and the moment at which the
//! engine knows of it. Without this, one thread's mapping could get the addresses that another's has just left, and be
//! taken for that one.

use ream_sys::futex::{Guard, Mutex};
use ream_sys::process::{SignalSet, set_signal_mask};

static LOCK: Mutex<()> = Mutex::new(());

/// While it exists, no other thread places mappings. Signals are blocked: a handler may map memory, too.
pub struct Placing {
    guard: Option<Guard<'static, ()>>,
    signals: SignalSet,
}

/// Waits until no other thread is placing. Taken after every other lock of the heap, before those of the engine.
pub fn placing() -> Placing {
    let signals = set_signal_mask(SignalSet::ALL);
    Placing { guard: Some(LOCK.lock()), signals }
}

impl Drop for Placing {
    fn drop(&mut self) {
        self.guard = None;
        set_signal_mask(self.signals);
    }
}
