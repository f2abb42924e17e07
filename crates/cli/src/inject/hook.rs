//! Where a static program's libc makes the system calls mprotect and mmap, and how its instructions there are replaced by a
//! jump. Nothing is replaced that is not exactly what glibc has there, found once in all of the program's code.

use crate::elf;
use crate::os::hook::{self, Code};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A page of code.
pub const PAGE: usize = 4096;
/// Code that is searched at most: to read more would take longer than is worth it at a start.
const MOST_CODE: u64 = 64 << 20;
/// Symbols and their names that are read at most, in bytes.
const MOST_SYMBOLS: u64 = 32 << 20;
/// `jmp rel32`: as long as the instruction that it takes the place of, the one that loads the call's number.
const JUMP: usize = 5;
/// From there to what follows the system call.
const AFTER: usize = 7;

/// What is looked for; `None` is any byte.
struct Pattern {
    bytes: &'static [Option<u8>],
    /// Where the instruction that is replaced stands in it.
    place: usize,
    /// What the function is called.
    names: [&'static [u8]; 4],
}

macro_rules! bytes {
    (@ __) => { None };
    (@ $byte:literal) => { Some($byte) };
    ($($byte:tt)*) => { &[$(bytes!(@ $byte)),*] };
}

/// As of glibc 2.31 to 2.42: `mov $10, %eax; syscall; cmp $-4095, %rax; jae; ret`, and `test $0xfff, %r9d; jne; mov $9, %eax;
/// syscall; cmp $-4096, %rax; ja; ret`. In another version that is not found, and nothing is done.
const PATTERNS: [Pattern; 2] = [
    Pattern {
        bytes: bytes!(0xb8 0x0a 0 0 0 0x0f 0x05 0x48 0x3d 0x01 0xf0 0xff 0xff 0x73 0x01 0xc3),
        place: 0,
        names: [b"mprotect", b"__mprotect", b"", b""],
    },
    Pattern {
        bytes: bytes!(0x41 0xf7 0xc1 0xff 0x0f 0 0 0x75 __ 0xb8 0x09 0 0 0 0x0f 0x05
            0x48 0x3d 0 0xf0 0xff 0xff 0x77 __ 0xc3),
        place: 9,
        names: [b"mmap", b"__mmap", b"mmap64", b"__mmap64"],
    },
];

impl Pattern {
    /// Where this begins, if it is there once.
    fn find(&self, code: &[u8]) -> Found {
        let same =
            |part: &[u8]| part.iter().zip(self.bytes).all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte));
        let mut places = code.windows(self.bytes.len()).enumerate().filter(|(_, part)| same(part)).map(|(at, _)| at);
        match (places.next(), places.next()) {
            (None, _) => Found::None,
            (Some(at), None) => Found::Once(at),
            _ => Found::Often,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    None,
    Once(usize),
    Often,
}

/// Where the two instructions stand in the file: mprotect's and mmap's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sites(pub [Option<u64>; 2]);

impl Sites {
    /// Looks for them in a program's file. None where that is not certain.
    pub fn find(file: &impl FileExt) -> Sites {
        Sites::look(file).unwrap_or_default()
    }

    fn look(file: &impl FileExt) -> Option<Sites> {
        hook::code()?;
        let layout = elf::Layout::read(file).filter(|layout| !layout.interpreted)?;
        let code: Vec<_> =
            layout.segments.iter().filter(|segment| segment.is_code() && !segment.is_writable()).collect();
        if code.iter().map(|segment| segment.file_bytes).sum::<u64>() > MOST_CODE {
            return None;
        }
        let mut found = [Found::None; 2];
        let mut sites = Sites::default();
        let mut addresses = [0; 2];
        for segment in code {
            let mut bytes = vec![0; usize::try_from(segment.file_bytes).ok()?];
            file.read_exact_at(&mut bytes, segment.offset).ok()?;
            for (number, pattern) in PATTERNS.iter().enumerate() {
                found[number] = match (found[number], pattern.find(&bytes)) {
                    (before, Found::None) => before,
                    (Found::None, now) => now,
                    _ => Found::Often,
                };
                sites.0[number] = match found[number] {
                    Found::Once(_) if sites.0[number].is_some() => sites.0[number],
                    Found::Once(at) => {
                        addresses[number] = segment.address + at as u64;
                        Some(segment.offset + (at + pattern.place) as u64)
                    }
                    _ => None,
                };
            }
        }
        let symbols = symbols(file).ok()?;
        for (number, pattern) in PATTERNS.iter().enumerate() {
            if symbols.as_ref().is_some_and(|symbols| !symbols.agree(pattern, addresses[number])) {
                sites.0[number] = None;
            }
        }
        Some(sites)
    }
}

/// The symbols of a file: each of 24 bytes, and their names.
struct Symbols {
    table: Vec<u8>,
    names: Vec<u8>,
}

/// Bytes before the instructions found in which their function may begin: an `endbr64`, a register that is moved.
const PROLOGUE: u64 = 16;

impl Symbols {
    /// Whether one of the pattern's names stands for code that begins there, or shortly before.
    fn agree(&self, pattern: &Pattern, address: u64) -> bool {
        self.table.chunks_exact(24).any(|symbol| {
            let name = u32::from_le_bytes(symbol[..4].try_into().expect("four bytes")) as usize;
            let value = u64::from_le_bytes(symbol[8..16].try_into().expect("eight bytes"));
            let near = address.checked_sub(value).is_some_and(|distance| distance <= PROLOGUE);
            let name = self.names.get(name..).and_then(|text| text.split(|byte| *byte == 0).next());
            near && name.is_some_and(|name| !name.is_empty() && pattern.names.contains(&name))
        })
    }
}

/// A file's symbols; `None` where it has none.
fn symbols(file: &impl FileExt) -> io::Result<Option<Symbols>> {
    const SECTION: usize = 64;
    const SYMBOLS: u32 = 2;
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (start, size, count) = (long(&header, 40), half(58), half(60));
    if start == 0 || count == 0 {
        return Ok(None);
    }
    if size != SECTION {
        return Err(damaged());
    }
    let mut sections = vec![0; size * count];
    file.read_exact_at(&mut sections, start)?;
    let section = |number: usize| sections.chunks_exact(SECTION).nth(number);
    let read = |section: &[u8]| -> io::Result<Vec<u8>> {
        let bytes = long(section, 32);
        if bytes > MOST_SYMBOLS {
            return Err(damaged());
        }
        let mut content = vec![0; bytes as usize];
        file.read_exact_at(&mut content, long(section, 24))?;
        Ok(content)
    };
    let Some(table) = sections.chunks_exact(SECTION).find(|section| word(section, 4) == SYMBOLS) else {
        return Ok(None);
    };
    let names = section(word(table, 40) as usize).ok_or_else(damaged)?;
    Ok(Some(Symbols { table: read(table)?, names: read(names)? }))
}

/// A change to the program's code: at this address these bytes come to stand in the place of those before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub address: usize,
    pub before: [u8; 8],
    pub after: [u8; 8],
}

/// The page of code for a program whose instructions stand at these addresses, and what is changed there. `None` where a
/// jump does not reach so far.
pub fn page(sites: [Option<usize>; 2], place: usize, wishes: u8) -> Option<(Vec<u8>, Vec<Change>)> {
    let Code { bytes, entries, exits } = hook::code()?;
    let mut page = bytes.to_vec();
    *page.last_mut()? = wishes;
    let mut changes = Vec::new();
    for (number, pattern) in PATTERNS.iter().enumerate() {
        let Some(site) = sites[number] else { continue };
        let before: [u8; 8] = core::array::from_fn(|at| pattern.bytes[pattern.place + at].unwrap_or(0));
        let mut after = before;
        after[0] = 0xe9;
        after[1..JUMP].copy_from_slice(&distance(site + JUMP, place + entries[number])?);
        changes.push(Change { address: site, before, after });
        let back = distance(place + exits[number], site + AFTER)?;
        page[exits[number] - 4..exits[number]].copy_from_slice(&back);
    }
    (!changes.is_empty() && page.len() <= PAGE).then_some((page, changes))
}

fn distance(from: usize, to: usize) -> Option<[u8; 4]> {
    i32::try_from(to as i128 - from as i128).ok().map(i32::to_le_bytes)
}

/// Free pages below the program, the nearest first, and not below what any process may map.
pub fn places(mapped: &[Range<usize>], program: usize) -> impl Iterator<Item = usize> + '_ {
    const LOWEST: usize = 64 << 10;
    const TRIED: usize = 1024;
    let free = |place: &usize| mapped.iter().all(|range| range.end <= *place || *place + PAGE <= range.start);
    let below = program.saturating_sub(LOWEST) / PAGE;
    (1..=below.min(TRIED)).map(move |pages| program - pages * PAGE).filter(free)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
