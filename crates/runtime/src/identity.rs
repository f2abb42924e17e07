//! Who a process is: its number and, because numbers are used again, when it began.

use crate::say::Line;
use core::ffi::CStr;
use core::fmt::Write;
use ream_stats::Identity;
use ream_sys::file;
use ream_sys::process;

/// The calling process.
pub fn me() -> Identity {
    let pid = process::process_id();
    Identity { pid, start: start_time(pid).unwrap_or(0) }
}

/// Whether a process lives; with start time 0, whether any process has the number.
pub fn alive(who: Identity) -> bool {
    match start_time(who.pid) {
        Some(start) => who.start == 0 || who.start == start,
        // Its file could not be read (hidden processes): then only the number can be asked about.
        None => process::kill(who.pid, 0) != Err(ream_sys::Errno::SRCH),
    }
}

/// Start of a process in clock ticks since boot; `None` when there is none that may be looked at, or it is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let mut path = Line::<32>::new();
    write!(path, "/proc/{pid}/stat\0").ok()?;
    let fd = file::open(CStr::from_bytes_until_nul(path.as_bytes()).ok()?, file::flags::READ, 0).ok()?;
    let mut text = [0; 512];
    let length = file::read(fd, &mut text);
    file::close(fd);
    field_22(text.get(..length.ok()?)?)
}

/// The 22nd field; the second is the program's name in brackets and may hold anything.
fn field_22(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let field = stat.get(name_end + 2..)?.split(|byte| *byte == b' ').nth(19)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_brackets_and_blanks() {
        let stat = b"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(field_22(stat), Some(4711));
        assert_eq!(field_22(b"7 (a) S 1"), None);
    }

    #[test]
    fn this_process_lives_and_its_twin_does_not() {
        let me = me();
        assert!(me.start > 0);
        assert!(alive(me));
        assert!(alive(Identity { start: 0, ..me }));
        assert!(!alive(Identity { start: me.start + 1, ..me }));
        assert!(!alive(Identity { pid: u32::MAX >> 1, start: 0 }));
    }
}
