//! Whether the library is certain to enter a program that is about to be executed, as far as that can be seen from its file
//! without allocating: where pages are promised, what may be otherwise is left to the command.

use super::{PATH, mode};
use core::ffi::CStr;
use ream_sys::elf::{HEADER, MACHINE, SEGMENT_INTERPRETER};
use ream_sys::file;
use ream_sys::syscall::{call0, call4, number};

/// The dynamic linkers of the C library that the library is made for.
const LINKERS: [&[u8]; 2] = [b"/ld-linux-x86-64.so.2", b"/ld-linux-aarch64.so.1"];
/// The kernel follows as many interpreters.
const MOST: usize = 5;

/// What a file's beginning says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found<'a> {
    /// Entered, or nothing that the kernel executes by itself.
    Sure,
    Doubtful,
    /// A script of this interpreter.
    Script(&'a [u8]),
}

/// True also where the kernel is going to refuse, so that the error is its own.
pub fn sure(file: &CStr) -> bool {
    const SET_ID: u32 = 0o6000;
    let mut room = [0u8; PATH];
    let mut name = file;
    for _ in 0..MOST {
        let Some(mode) = mode(name) else { return true };
        if mode & SET_ID != 0 || gains_capabilities(name) {
            return false;
        }
        // What may be executed and not read.
        let Ok(fd) = file::open(name, file::flags::READ | file::flags::NONBLOCK, 0) else { return false };
        let mut start = [0; 1024];
        let read = file::read_at(fd, &mut start, 0);
        file::close(fd);
        let Some(text) = read.ok().and_then(|read| start.get(..read)) else { return false };
        match look(text) {
            Found::Sure => return true,
            Found::Doubtful => return false,
            Found::Script(interpreter) => {
                room.fill(0);
                let Some(place) = room.get_mut(..interpreter.len()) else { return false };
                place.copy_from_slice(interpreter);
                let Ok(next) = CStr::from_bytes_until_nul(&room) else { return false };
                name = next;
            }
        }
    }
    true
}

/// Whether an ordinary user is given capabilities by executing a file.
fn gains_capabilities(file: &CStr) -> bool {
    let name = c"security.capability".as_ptr().expose_provenance();
    // SAFETY: strings that end with zero bytes; only a size is asked for.
    unsafe {
        call0(number::__NR_geteuid) != Ok(0)
            && call4(number::__NR_getxattr, file.as_ptr().expose_provenance(), name, 0, 0).is_ok()
    }
}

fn look(start: &[u8]) -> Found<'_> {
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line).trim_ascii_start();
        let interpreter = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).next().unwrap_or(line);
        // Whom env executes is looked up by the command.
        let env = interpreter.ends_with(b"/env") || interpreter.is_empty();
        return if env { Found::Doubtful } else { Found::Script(interpreter) };
    }
    if !start.starts_with(b"\x7fELF") {
        return Found::Sure;
    }
    match linker(start) {
        Some(linker) if LINKERS.iter().any(|known| linker.ends_with(known)) => Found::Sure,
        // The kernel hands a marked one to the command by itself.
        _ if start.get(48..52) == Some(b"REAM") => Found::Sure,
        _ => Found::Doubtful,
    }
}

/// The dynamic linker that a program for this processor names.
fn linker(start: &[u8]) -> Option<&[u8]> {
    let half = |at: usize| Some(u16::from_le_bytes(start.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(start.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| usize::try_from(u64::from_le_bytes(start.get(at..at + 8)?.try_into().ok()?)).ok();
    if !start.starts_with(b"\x7fELF\x02\x01") || half(18)? != MACHINE || usize::from(half(54)?) != HEADER {
        return None;
    }
    for header in 0..usize::from(half(56)?) {
        let at = long(32)?.checked_add(header * HEADER).filter(|at| *at < start.len())?;
        if word(at)? == SEGMENT_INTERPRETER {
            let (from, bytes) = (long(at + 8)?, long(at + 32)?);
            return start.get(from..from.checked_add(bytes)?)?.strip_suffix(&[0]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_how_they_begin() {
        assert!(sure(c"/proc/self/exe") && sure(c"/bin/sh"));
        // The kernel's own errors.
        assert!(sure(c"/no/such/program") && sure(c"/etc/passwd") && sure(c"/"));
        assert_eq!(look(b"#! /bin/sh -e\necho"), Found::Script(b"/bin/sh"));
        assert_eq!(look(b"#!/usr/bin/env sh\n"), Found::Doubtful);
        assert_eq!(look(b"echo\n"), Found::Sure);
        let fd = file::open(c"/proc/self/exe", file::flags::READ, 0).unwrap();
        let mut start = [0; 1024];
        assert_eq!(file::read_at(fd, &mut start, 0), Ok(1024));
        file::close(fd);
        assert_eq!(look(&start), Found::Sure);
        let at = start.windows(9).position(|nine| nine == b"/ld-linux").expect("its linker");
        let foreign = {
            let mut start = start;
            start[at..at + 9].copy_from_slice(b"/ld-musl-");
            start
        };
        assert_eq!(look(&foreign), Found::Doubtful);
        let mut marked = foreign;
        marked[48..52].copy_from_slice(b"REAM");
        assert_eq!(look(&marked), Found::Sure);
        // Of another processor or word size, and cut off anywhere.
        for (place, byte) in [(4, 1), (18, 3)] {
            let mut other = start;
            other[place] = byte;
            assert_eq!(look(&other), Found::Doubtful);
        }
        for length in 4..start.len() {
            let _ = look(&start[..length]);
        }
    }
}
