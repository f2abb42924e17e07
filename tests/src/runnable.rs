//! Programs that a test has written itself, before it runs them.

use std::fs::{self, File, Permissions};
use std::io::Error;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Gives a file that was just written its mode, and waits until it can be executed: see [`wait_until_written`].
///
/// # Panics
/// When there is no such file.
pub fn make_runnable(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("setting permissions");
    wait_until_written(path);
}

/// Waits until no process has the file open for writing: until then the kernel executes it for nobody (ETXTBSY). Whoever
/// wrote it has closed it; but a child that another thread of the tests has forked meanwhile has all descriptors of that
/// moment until it executes its program.
///
/// # Panics
/// When the file cannot be read, or is still being written after ten seconds.
pub fn wait_until_written(path: &Path) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lease = |kind: libc::c_int| {
        // SAFETY: changes nothing but the lease on a descriptor of ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // A lease for reading is only had of what nobody writes.
    for _ in 0..10_000 {
        if lease(libc::F_RDLCK) {
            // Explicitly: such a child may have this descriptor, too, and the lease would be broken by a signal.
            lease(libc::F_UNLCK);
            return;
        }
        match Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => sleep(Duration::from_millis(1)),
            // Of another user, or on a file system without leases.
            _ => return sleep(Duration::from_millis(20)),
        }
    }
    panic!("{} is being written", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    /// Programs are started the whole time by other threads.
    #[test]
    fn what_was_written_can_be_run_at_once() {
        let scratch = Scratch::new("runnable");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(SeqCst) {
                        let _ = Command::new("/bin/true").status();
                    }
                });
            }
            for round in 0..300 {
                let path = scratch.file(&format!("script-{round}"));
                fs::write(&path, "#!/bin/sh\n").expect("writing a script");
                make_runnable(&path, 0o755);
                let status = Command::new(&path).status();
                if !status.as_ref().is_ok_and(|status| status.success()) {
                    done.store(true, SeqCst);
                    panic!("round {round}: {status:?}");
                }
            }
            done.store(true, SeqCst);
        });
    }
}
