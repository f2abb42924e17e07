//! The limit on the sizes of files (`ulimit -f`), which is meant for the program's: Ream's shared memory is a file, too.

use std::io;

/// Does what may make a file as large as the hard limit allows; beyond that it fails with EFBIG, instead of ending the process by
/// SIGXFSZ. Limit and signal are afterwards as they were, for the program that this process becomes. To be called where no other
/// thread writes.
pub fn beyond_the_limit<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: an action is plain bits; the places live until the calls end, and ignoring a signal runs no code.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut ignore: libc::sigaction = std::mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        let ignored = libc::sigaction(libc::SIGXFSZ, &ignore, &mut before) == 0;
        let known = libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0;
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        let raised = known && limit.rlim_cur != limit.rlim_max && libc::setrlimit(libc::RLIMIT_FSIZE, &raised) == 0;
        let result = work();
        if raised {
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        if ignored {
            libc::sigaction(libc::SIGXFSZ, &before, std::ptr::null_mut());
        }
        result
    }
}

/// Lifts it for this process as far as an ordinary user may; what is larger fails, and does not end the process.
pub fn lift_size_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable, then readable; ignoring a signal runs no code.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
    }
}

/// Whether that is what has failed.
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFBIG)
}
