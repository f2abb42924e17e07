//! What writes to a process's memory by itself: devices and the kernel's own threads, to which a program has given pages. Whoever
//! copies pages instead of moving them cannot tell which those are (UFFDIO_MOVE refuses them), but by whose means they are given.

use crate::Errno;
use crate::file::{self, Fd, flags};
use crate::procfs;
use core::ffi::CStr;

/// Beginnings of what /proc calls such descriptors, and names for them.
const KINDS: [(&[u8], &str); 6] = [
    (b"anon_inode:[io_uring]", "io_uring"),
    (b"/dev/infiniband/", "RDMA"),
    (b"/dev/nvidia", "a graphics processor"),
    (b"/dev/kfd", "a graphics processor"),
    (b"/dev/dri/", "a graphics processor"),
    (b"/dev/vfio/", "a device (VFIO)"),
];

/// By which of its descriptors this process may have given pages away: a ring, a device, a file past the page cache. `None` when
/// by none.
///
/// # Errors
/// That cannot be told: it may not be seen, or its first thread has ended.
pub fn written() -> Result<Option<&'static str>, Errno> {
    // Not by its number, which may be another one's in this /proc.
    let list = file::open(c"/proc/self/fd", flags::READ, 0)?;
    let states = file::open(c"/proc/self/fdinfo", flags::READ, 0).unwrap_or(Fd::NONE);
    let (mut found, mut any) = (None, false);
    procfs::each_number(list, &mut |number| {
        any = true;
        found = found.or_else(|| kind(list, states, number));
    });
    file::close(list);
    if states != Fd::NONE {
        file::close(states);
    }
    if any { Ok(found) } else { Err(Errno::SRCH) }
}

/// The same for one descriptor; `None` also when it has been closed meanwhile.
fn kind(list: Fd, states: Fd, number: u32) -> Option<&'static str> {
    let mut place = [0u8; 12];
    let name = procfs::name(number, &mut place)?;
    let mut target = [0u8; 64];
    let length = file::read_link_at(list, name, &mut target).ok()?;
    let target = target.get(..length)?;
    if let Some((_, kind)) = KINDS.iter().find(|(beginning, _)| target.starts_with(beginning)) {
        return Some(kind);
    }
    // A pipe of packets has the same flag.
    (target.starts_with(b"/") && is_direct(states, name)).then_some("O_DIRECT")
}

/// Whether a descriptor's file is read and written past the page cache.
fn is_direct(states: Fd, name: &CStr) -> bool {
    let Ok(state) = file::open_at(states, name, flags::READ, 0) else { return false };
    let mut text = [0u8; 256];
    let bytes = file::read_at(state, &mut text, 0).unwrap_or(0);
    file::close(state);
    let flags = text.get(..bytes).unwrap_or(&[]).split(|byte| *byte == b'\n');
    let flags = flags.filter_map(|line| line.strip_prefix(b"flags:")).next();
    let flags = flags.and_then(|flags| core::str::from_utf8(flags).ok()).map(str::trim_ascii);
    flags.and_then(|flags| u32::from_str_radix(flags, 8).ok()).is_some_and(|bits| bits & flags::DIRECT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use crate::ring::Ring;

    #[test]
    fn rings_and_direct_files_are_told_from_others() {
        let list = procfs::open(b"/proc/", process::process_id(), b"/fd\0").unwrap();
        let states = procfs::open(b"/proc/", process::process_id(), b"/fdinfo\0").unwrap();
        let kind = |fd: Fd| kind(list, states, fd.0 as u32);
        let open = |direct| file::open(c".", flags::READ_WRITE | flags::UNNAMED | direct, 0o600);
        let file = open(0).unwrap();
        assert_eq!(kind(file), None);
        // Not every file system has it.
        if let Ok(direct) = open(flags::DIRECT) {
            assert_eq!(kind(direct), Some("O_DIRECT"));
            file::close(direct);
        }
        // Nor does every container allow rings.
        if let Ok(ring) = Ring::new(8, 16) {
            assert_eq!(kind(ring.descriptor()), Some("io_uring"));
            assert!(matches!(written(), Ok(Some(_))));
        }
        for fd in [file, list, states] {
            file::close(fd);
        }
    }
}
