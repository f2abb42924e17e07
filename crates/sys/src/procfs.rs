//! Fields of /proc/PID/stat and /proc/self/task/TID/stat, read without memory of one's own.

use crate::file::{self, Fd};
use core::ffi::CStr;

/// Opens the status line of a process (`b"/proc/"`) or of a thread (`b"/proc/self/task/"`).
pub(crate) fn open_status(folder: &[u8], id: u32) -> Option<Fd> {
    let mut path = [0u8; 40];
    let mut digits = [0u8; 10];
    let mut rest = id;
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let name = folder.iter().chain(digits.iter().skip(10 - count)).chain(b"/stat\0");
    for (place, letter) in path.iter_mut().zip(name) {
        *place = *letter;
    }
    file::open(CStr::from_bytes_until_nul(&path).ok()?, file::flags::READ, 0).ok()
}

/// Reads a numeric field, counted from 1 and at least the third, of an open status line.
pub(crate) fn read_field(status: Fd, number: usize) -> Option<u64> {
    let mut text = [0u8; 1024];
    let bytes = file::read_at(status, &mut text, 0).ok()?;
    field(text.get(..bytes)?, number)
}

/// Whether a status file says that the whole process has ended, and only waits for its parent to hear of it. The main
/// thread alone may have ended, too, while others go on.
pub(crate) fn has_ended(status: Fd) -> bool {
    let mut text = [0u8; 1024];
    let Ok(bytes) = file::read_at(status, &mut text, 0) else { return true };
    ended(text.get(..bytes).unwrap_or(&[]))
}

fn ended(text: &[u8]) -> bool {
    let Some(close) = text.iter().rposition(|byte| *byte == b')') else { return false };
    matches!(text.get(close + 2), Some(b'Z' | b'X')) && field(text, 20).is_some_and(|threads| threads <= 1)
}

/// The name, field 2, is in parentheses and may hold anything, so the count begins behind the last of them.
fn field(text: &[u8], number: usize) -> Option<u64> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let field = text.get(close + 2..)?.split(|byte| *byte == b' ').nth(number.checked_sub(3)?)?;
    core::str::from_utf8(field).ok()?.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::process;

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let line = |state: &str, threads: u32| {
            std::format!("7 (a) Z) {state} 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 {threads} 21 22 23")
        };
        assert!(ended(line("Z", 1).as_bytes()) && ended(line("X", 0).as_bytes()));
        assert!(!ended(line("Z", 2).as_bytes()) && !ended(line("S", 1).as_bytes()));
    }

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let text =
            b"1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 \
                     35 36 37 38 3 40 41\n";
        assert_eq!(field(text, 39), Some(3));
        assert_eq!(field(text, 4), Some(4));
        assert_eq!(field(text, 41), Some(41));
        assert_eq!(field(text, 2), None);
        assert_eq!(field(text, 3), None);
        assert_eq!(field(b"garbage", 4), None);
    }

    #[test]
    fn the_parent_is_field_4() {
        let status = open_status(b"/proc/", process::process_id()).unwrap();
        assert_eq!(read_field(status, 4), Some(process::parent_id() as u64));
        file::close(status);
        assert!(open_status(b"/proc/", u32::MAX).is_none());
    }
}
