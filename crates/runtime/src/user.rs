//! The standard error that `ream run` had, at the end of a process: programs close theirs on the way out, or open other
//! files in its place, and a second opening of the same file would have a position of its own.

use crate::say::Line;
use core::ffi::CStr;
use core::fmt::Write;
use core::mem::MaybeUninit;
use ream_sys::file::{self, Fd};
use ream_sys::process;
use ream_sys::syscall::{call4, number};

/// A descriptor for the user's standard error, of which the agent has one.
pub struct User {
    fd: Fd,
    ours: bool,
}

impl User {
    /// Our own standard error while it is still the user's, else a copy of the agent's, else none.
    pub fn find(agent: u32) -> Option<User> {
        const STANDARD_ERROR: Fd = Fd(2);
        let mut path = Line::<48>::new();
        write!(path, "/proc/{agent}/fd/2\0").ok()?;
        let path = CStr::from_bytes_until_nul(path.as_bytes()).ok()?;
        let theirs = identity(Fd(-1), path, 0);
        const AT_EMPTY_PATH: usize = 0x1000;
        if theirs.is_some() && theirs == identity(STANDARD_ERROR, c"", AT_EMPTY_PATH) {
            return Some(User { fd: STANDARD_ERROR, ours: false });
        }
        let agent = process::watch_process(agent).ok()?;
        let copy = process::copy_descriptor(agent, STANDARD_ERROR);
        file::close(agent);
        Some(User { fd: copy.ok()?, ours: true })
    }

    /// Where to write.
    pub fn fd(&self) -> Fd {
        self.fd
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if self.ours {
            file::close(self.fd);
        }
    }
}

/// Device and number of an open file, or of the one at a path.
fn identity(fd: Fd, path: &CStr, flags: usize) -> Option<(u64, u64)> {
    type Stat = linux_raw_sys::general::stat;
    let mut stat = MaybeUninit::<Stat>::uninit();
    let (path, place) = (path.as_ptr().expose_provenance(), stat.as_mut_ptr().expose_provenance());
    // SAFETY: the path ends with a zero byte, and the kernel fills in a structure of this type.
    let stat = unsafe {
        call4(number::__NR_newfstatat, fd.0 as usize, path, place, flags).ok()?;
        stat.assume_init()
    };
    Some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart() {
        let (a, b) = (file::memory_file(c"a").unwrap(), file::memory_file(c"b").unwrap());
        let of = |fd| identity(fd, c"", 0x1000);
        assert!(of(a).is_some());
        assert!(of(a) == of(a) && of(a) != of(b));
        assert_eq!(of(Fd(-1)), None);
        file::close(a);
        file::close(b);
    }

    #[test]
    fn our_own_standard_error_is_found() {
        let user = User::find(process::process_id()).unwrap();
        assert_eq!(user.fd(), Fd(2));
    }
}
