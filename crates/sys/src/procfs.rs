//! Fields of /proc/PID/stat and /proc/self/task/TID/stat, read without memory of one's own.

use crate::file::{self, Fd};
use crate::syscall::{call3, number};
use core::ffi::CStr;

/// Opens the status line of a process (`b"/proc/"`) or of a thread (`b"/proc/self/task/"`).
pub(crate) fn open_status(folder: &[u8], id: u32) -> Option<Fd> {
    open(folder, id, b"/stat\0")
}

/// Opens a file or folder of a process or thread.
pub(crate) fn open(folder: &[u8], id: u32, last: &[u8]) -> Option<Fd> {
    let mut path = [0u8; 40];
    let (digits, skipped) = decimal(id);
    let name = folder.iter().chain(digits.iter().skip(skipped)).chain(last);
    for (place, letter) in path.iter_mut().zip(name) {
        *place = *letter;
    }
    file::open(CStr::from_bytes_until_nul(&path).ok()?, file::flags::READ, 0).ok()
}

/// A number as a name.
pub(crate) fn name(number: u32, place: &mut [u8; 12]) -> Option<&CStr> {
    let (digits, skipped) = decimal(number);
    *place = [0; 12];
    for (place, digit) in place.iter_mut().zip(digits.iter().skip(skipped)) {
        *place = *digit;
    }
    CStr::from_bytes_until_nul(place).ok()
}

/// The digits of a number, and how many places before them are empty.
fn decimal(number: u32) -> ([u8; 10], usize) {
    let (mut digits, mut rest, mut first) = ([0u8; 10], number, 10);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        first -= 1;
        if rest == 0 {
            break;
        }
    }
    (digits, first)
}

/// Reads a numeric field, counted from 1 and at least the third, of an open status line.
pub(crate) fn read_field(status: Fd, number: usize) -> Option<u64> {
    let mut text = [0u8; 1024];
    let bytes = file::read_at(status, &mut text, 0).ok()?;
    field(text.get(..bytes)?, number)
}

/// Whether a status line says that the whole process has ended, and only waits for its parent to hear of it. The main thread
/// alone may have ended, too, while others go on.
pub(crate) fn ended(text: &[u8]) -> bool {
    let Some(close) = text.iter().rposition(|byte| *byte == b')') else { return false };
    matches!(text.get(close + 2), Some(b'Z' | b'X')) && field(text, 20).is_some_and(|threads| threads <= 1)
}

/// The exit status of the main thread, if it has ended by itself, and how many threads there are, it among them.
pub(crate) fn main_ended(process: u32) -> Option<(i32, u64)> {
    // Its own line: that of the whole process adds up what all threads have used.
    let status = open_status(b"/proc/self/task/", process)?;
    let mut text = [0u8; 1024];
    let bytes = file::read_at(status, &mut text, 0);
    file::close(status);
    ended_alone(text.get(..bytes.ok()?)?)
}

/// The same, from the status line. Field 52 is as wait(2) tells it.
fn ended_alone(text: &[u8]) -> Option<(i32, u64)> {
    if state(text) != Some(b'Z') {
        return None;
    }
    let code = field(text, 52)?;
    (code & 0x7f == 0).then_some(((code >> 8 & 0xff) as i32, field(text, 20)?))
}

/// Whether a thread of this process is one that the kernel has made for input and output (io_uring).
pub(crate) fn is_of_io(thread: u32) -> bool {
    const PF_IO_WORKER: u64 = 0x10;
    let Some(status) = open_status(b"/proc/self/task/", thread) else { return false };
    let flags = read_field(status, 9);
    file::close(status);
    flags.is_some_and(|flags| flags & PF_IO_WORKER != 0)
}

/// Whether a thread runs or could, by its open status line; not when that cannot be told, since it has ended then.
pub(crate) fn is_running(status: Fd) -> bool {
    let mut text = [0u8; 128];
    let Ok(bytes) = file::read_at(status, &mut text, 0) else { return false };
    state(text.get(..bytes).unwrap_or(&[])) == Some(b'R')
}

/// Field 3.
fn state(text: &[u8]) -> Option<u8> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    text.get(close + 2).copied()
}

/// Whether a thread of this process blocks a signal; also when that cannot be told, since it has ended then.
pub(crate) fn blocks(thread: u32, signal: u32) -> bool {
    let Some(fd) = open(b"/proc/self/task/", thread, b"/status\0") else { return true };
    let mut text = [0u8; 4096];
    let bytes = file::read_at(fd, &mut text, 0).unwrap_or(0);
    file::close(fd);
    blocked(text.get(..bytes).unwrap_or(&[])).is_none_or(|mask| mask >> (signal - 1) & 1 != 0)
}

/// The set of blocked signals in the text of a status file.
fn blocked(text: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigBlk:"))?;
    u64::from_str_radix(core::str::from_utf8(mask).ok()?.trim_ascii(), 16).ok()
}

/// Whether a range of this process's addresses lies in one mapping with this access (`rw-p`), of no file if that is wanted; not
/// when that cannot be told.
pub(crate) fn is_one_mapping(start: usize, bytes: usize, access: &[u8; 4], anonymous: bool) -> bool {
    mapping_at(start)
        .is_some_and(|(_, end, other, of_a_file)| end - start >= bytes && other == *access && !(anonymous && of_a_file))
}

/// The mapping of this process that an address lies in: start, end, access (`rw-p`), and whether it is of a file.
pub(crate) fn mapping_at(address: usize) -> Option<(usize, usize, [u8; 4], bool)> {
    let fd = file::open(c"/proc/self/maps", file::flags::READ, 0).ok()?;
    let mut text = [0u8; 4096];
    // The beginning of a line says it all; the rest is passed over.
    let mut line = [0u8; 64];
    let mut length = 0;
    let mut found = None;
    while let (None, Ok(read @ 1..)) = (found, file::read(fd, &mut text)) {
        for byte in text.iter().take(read) {
            if *byte == b'\n' {
                let line = line.get(..length).unwrap_or(&[]);
                let here = mapping(line).filter(|(from, to, _)| (*from..*to).contains(&address));
                found = found.or(here.map(|(from, to, access)| (from, to, access, is_of_a_file(line))));
                length = 0;
            } else if let Some(place) = line.get_mut(length) {
                *place = *byte;
                length += 1;
            }
        }
    }
    file::close(fd);
    found
}

/// Start, end and access at the beginning of a line of /proc/PID/maps.
fn mapping(line: &[u8]) -> Option<(usize, usize, [u8; 4])> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut ends = words.next()?.split(|byte| *byte == b'-');
    let mut number = || usize::from_str_radix(core::str::from_utf8(ends.next()?).ok()?, 16).ok();
    let (start, end) = (number()?, number()?);
    Some((start, end, words.next()?.try_into().ok()?))
}

/// Whether the mapping in a line of /proc/PID/maps is of a file: its device and inode are not 0.
fn is_of_a_file(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ').skip(3);
    (words.next(), words.next()) != (Some(b"00:00"), Some(b"0"))
}

/// Names the threads of this process whose folder of /proc is open, or the descriptors: what is called by a number in it.
pub(crate) fn each_number(folder: Fd, found: &mut dyn FnMut(u32)) {
    // SAFETY: an offset in a file.
    let _ = unsafe { call3(number::__NR_lseek, folder.0 as usize, 0, 0) };
    let mut entries = [0u8; 4096];
    loop {
        let (place, room) = (entries.as_mut_ptr().expose_provenance(), entries.len());
        // SAFETY: the kernel writes at most so many bytes.
        let got = unsafe { call3(number::__NR_getdents64, folder.0 as usize, place, room) }.unwrap_or(0);
        let mut rest = entries.get(..got).unwrap_or(&[]);
        if rest.is_empty() {
            return;
        }
        // Number and offset, of 8 bytes each; length, of 2; kind, of 1; name.
        while let Some(length) = rest.get(16..18).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes) {
            let name = rest.get(19..length as usize).unwrap_or(&[]);
            let digits = name.split(|byte| *byte == 0).next().and_then(|name| core::str::from_utf8(name).ok());
            if let Some(id) = digits.and_then(|digits| digits.parse().ok()) {
                found(id);
            }
            rest = rest.get((length as usize).max(1)..).unwrap_or(&[]);
        }
    }
}

/// The name, field 2, is in parentheses and may hold anything, so the count begins behind the last of them.
pub(crate) fn field(text: &[u8], number: usize) -> Option<u64> {
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
    fn mappings_are_told_by_their_lines() {
        let line = b"7f0716a00000-7f0716c00000 rw-p 00000000 00:00 0 ";
        assert_eq!(mapping(line), Some((0x7f07_16a0_0000, 0x7f07_16c0_0000, *b"rw-p")));
        assert_eq!(mapping(b"7f07-x rw-p"), None);
        assert_eq!(mapping(b""), None);
        let word = 7u64;
        let here = (&raw const word).addr();
        assert!(is_one_mapping(here, 8, b"rw-p", false) && !is_one_mapping(here, 1 << 46, b"rw-p", false));
        let known = process::mapping_at(here).unwrap();
        assert!(known.protection == 3 && (known.start..known.end).contains(&here));
        assert_eq!(process::mapping_at(16), None);
        assert!(!is_one_mapping(here, 8, b"r--p", false) && !is_one_mapping(16, 8, b"rw-p", false));
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let line = |state: &str, threads: u32| {
            std::format!("7 (a) Z) {state} 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 {threads} 21 22 23")
        };
        assert!(ended(line("Z", 1).as_bytes()) && ended(line("X", 0).as_bytes()));
        assert!(!ended(line("Z", 2).as_bytes()) && !ended(line("S", 1).as_bytes()));
    }

    #[test]
    fn a_main_thread_that_has_ended_tells_its_status() {
        let line = |state: &str, code: u32| {
            let between: std::string::String = (21..52).map(|field| std::format!("{field} ")).collect();
            std::format!("7 (a) R) {state} 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 3 {between}{code}\n")
        };
        assert_eq!(ended_alone(line("Z", 4 << 8).as_bytes()), Some((4, 3)));
        assert_eq!(ended_alone(line("S", 4 << 8).as_bytes()), None);
        // A signal ends all threads.
        assert_eq!(ended_alone(line("Z", 9).as_bytes()), None);
        assert_eq!(ended_alone(b"garbage"), None);
        assert_eq!(main_ended(process::process_id()), None);
        assert!(!is_of_io(process::thread_id()) && !is_of_io(u32::MAX));
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
    fn threads_and_what_they_block_are_found() {
        assert_eq!(blocked(b"State:\tR\nSigBlk:\t0000000000400000\nSigIgn:\t0\n"), Some(1 << 22));
        assert_eq!(blocked(b"garbage"), None);
        let folder = file::open(c"/proc/self/task", file::flags::READ, 0).unwrap();
        for _ in 0..2 {
            let mut own = 0;
            each_number(folder, &mut |id| own += u32::from(id == process::thread_id()));
            assert_eq!(own, 1);
        }
        file::close(folder);
        let before = process::set_signal_mask(process::SignalSet(1 << 22));
        assert!(blocks(process::thread_id(), 23) && !blocks(process::thread_id(), 22) && blocks(u32::MAX, 22));
        process::set_signal_mask(before);
        let status = open_status(b"/proc/self/task/", process::thread_id()).unwrap();
        assert!(is_running(status));
        file::close(status);
        assert_eq!(state(b"1 (a) b) S 4"), Some(b'S'));
    }

    #[test]
    fn the_parent_is_field_4() {
        let status = open_status(b"/proc/", process::process_id()).unwrap();
        assert_eq!(read_field(status, 4), Some(process::parent_id() as u64));
        file::close(status);
        assert!(open_status(b"/proc/", u32::MAX).is_none());
    }
}
