//! Namespaces of process numbers. A number means something in its own only, and /proc shows those of the namespace in which it
//! was mounted, which a process that has begun a new one sees until it mounts another.

use crate::file::{self, Fd, flags};
use crate::process;
use crate::syscall::{call2, call3, call4, number};
use core::ffi::CStr;
use core::mem::MaybeUninit;

type Stat = linux_raw_sys::general::stat;

/// The lower bits of the number that the kernel has for the namespace of this process's number, as many as a state word of the
/// session has room for. 0 where it does not say.
pub fn own() -> u32 {
    inode(c"/proc/self/ns/pid").or_else(told_without_proc).map_or(0, tag)
}

/// The same of the number of a namespace.
pub fn tag(inode: u64) -> u32 {
    inode as u32 & u32::MAX >> 3
}

fn inode(path: &CStr) -> Option<u64> {
    const HERE: usize = linux_raw_sys::general::AT_FDCWD as usize;
    let mut stat = MaybeUninit::<Stat>::uninit();
    let (path, place) = (path.as_ptr().expose_provenance(), stat.as_mut_ptr().expose_provenance());
    // SAFETY: the path ends with a zero byte, and the kernel fills in a structure of this type.
    unsafe {
        call4(number::__NR_newfstatat, HERE, path, place, 0).ok()?;
        Some(stat.assume_init().st_ino)
    }
}

/// Where there is no /proc, or one that does not show this process (Linux 6.11).
fn told_without_proc() -> Option<u64> {
    const PIDFD_GET_PID_NAMESPACE: usize = 0xff06;
    let me = process::watch_process(process::process_id()).ok()?;
    // SAFETY: numbers only.
    let space = unsafe { call3(number::__NR_ioctl, me.0 as usize, PIDFD_GET_PID_NAMESPACE, 0) };
    file::close(me);
    let space = Fd(space.ok()? as i32);
    let mut stat = MaybeUninit::<Stat>::uninit();
    // SAFETY: the kernel fills in a structure of this type.
    let told = unsafe { call2(number::__NR_fstat, space.0 as usize, stat.as_mut_ptr().expose_provenance()) };
    file::close(space);
    // SAFETY: filled in where the call has succeeded.
    told.ok().map(|_| unsafe { stat.assume_init().st_ino })
}

/// Whether /proc calls this process by the number that it has itself: then it is that of its namespace.
pub fn procfs_is_of_it() -> bool {
    let mut name = [0u8; 16];
    let length = file::read_link(c"/proc/self", &mut name).unwrap_or(0);
    let digits = name.get(..length).and_then(|name| core::str::from_utf8(name).ok());
    digits.and_then(|digits| digits.parse().ok()) == Some(process::process_id())
}

/// The status line of this process, whatever /proc calls it.
pub(crate) fn open_own_status() -> Option<Fd> {
    file::open(c"/proc/self/stat", flags::READ, 0).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn the_namespace_is_told_with_and_without_proc() {
        let known = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        assert_eq!(own(), tag(known));
        assert!(own() > 0);
        // Kernels before 6.11 do not say.
        assert!(told_without_proc().is_none_or(|told| told == known));
        assert_eq!(inode(c"/nonexistent"), None);
    }

    #[test]
    fn this_process_is_called_by_its_number() {
        assert!(procfs_is_of_it());
    }
}
