//! Waiting for the signals that tell a server to end.

/// Blocks SIGTERM and SIGINT in this thread and those that it starts. What is returned waits for one of them.
#[allow(unsafe_code)]
pub fn end_signals() -> impl Fn() + Send + 'static {
    // SAFETY: a signal set is plain bits, emptied before it is used.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    move || {
        let mut signal = 0;
        // SAFETY: the set was filled above; the number is written.
        while unsafe { libc::sigwait(&set, &mut signal) } != 0 {}
    }
}
