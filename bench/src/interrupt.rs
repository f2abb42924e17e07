//! Ctrl-C and its like: noted down, and heeded where a benchmark can stop without leaving anything behind.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Whether signals are noted down.
static HEEDED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From now on writing to a worker that has ended is an error instead of the end of this process. Programs that are started
/// get the signal as it was.
pub fn outlive_workers() {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted down instead of ending this process.
pub fn heed() {
    HEEDED.store(true, Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler does nothing but store a number, which is async-signal-safe; no flags: calls that wait
        // are to come back.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Whoever read standard output has gone away: the same as SIGPIPE, which [`outlive_workers`] has switched off. What does not
/// heed signals ends by it.
pub(crate) fn nobody_reads() {
    if HEEDED.load(Ordering::Relaxed) {
        return note(libc::SIGPIPE);
    }
    // SAFETY: the signal's default runs no code of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

/// The signal that came, if one did.
pub fn signal() -> Option<i32> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// What a measurement that is not finished says of its end; [`signal`] tells which one it was.
pub const INTERRUPTED: &str = "interrupted";

/// An error when a signal came.
///
/// # Errors
/// [`INTERRUPTED`].
pub fn check() -> Result<(), String> {
    if signal().is_some() { Err(INTERRUPTED.to_owned()) } else { Ok(()) }
}
