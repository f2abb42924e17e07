//! How a program or library is laid out: its segments, the libraries it needs, and where it has them looked for.

use super::{half, long, read_some, word};
use ream_sys::elf::{HEADER, SEGMENT_INTERPRETER, SEGMENT_LOADED, TYPE_MOVABLE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

const SEGMENT_DYNAMIC: u32 = 2;
const SEGMENT_NOTE: u32 = 4;
const SEGMENT_PROTECTED: u32 = 0x6474_e552;
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;
const READABLE: u32 = 4;
/// Where the alignment stands in a program header.
const ALIGN_AT: u64 = 48;
/// Program headers and dynamic entries that are read at most, in bytes.
const MOST: usize = 64 << 10;

/// A part of a file that is mapped when it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its program header's place in the file.
    pub header: u64,
    flags: u32,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its address; relative to where the file is loaded if that is open.
    pub address: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// What its address must be a multiple of, beside its offset.
    pub align: u64,
}

impl Segment {
    /// Whether it is machine code.
    pub fn is_code(&self) -> bool {
        self.flags & EXECUTABLE != 0
    }
    /// Whether the program may write to it.
    pub fn is_writable(&self) -> bool {
        self.flags & WRITABLE != 0
    }
    /// Whether the program may read it or execute it, but not write to it.
    pub fn is_constant(&self) -> bool {
        self.flags & (READABLE | EXECUTABLE) != 0 && !self.is_writable()
    }
    /// One of a file that there is not.
    #[cfg(test)]
    pub fn made_up(flags: u32, offset: u64, address: u64, bytes: u64, align: u64) -> Segment {
        Segment { header: 64, flags, offset, address, file_bytes: bytes, memory_bytes: bytes, align }
    }
    /// The place of its alignment in the file.
    pub fn align_at(&self) -> u64 {
        self.header + ALIGN_AT
    }
}

/// The layout of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    /// Whether it can be loaded anywhere.
    pub movable: bool,
    /// Whether a dynamic linker is named.
    pub interpreted: bool,
    /// What is loaded, in the order of addresses.
    pub segments: Vec<Segment>,
    /// Address and bytes of the data that become read-only once they are relocated.
    pub protected: Option<(u64, u64)>,
    /// Whether it is said to be a program that can be loaded anywhere (DF_1_PIE), which libraries are not.
    pub pie: bool,
    /// Whether it has the name by which others need it (DT_SONAME).
    pub has_library_name: bool,
    /// Whether it was made by Go's compiler.
    pub is_go: bool,
    /// Names of the libraries that it needs.
    pub needed: Vec<OsString>,
    /// Directories in which they and their own are looked for first (DT_RPATH).
    pub rpath: Option<OsString>,
    /// Directories in which they are looked for after those of the environment (DT_RUNPATH).
    pub runpath: Option<OsString>,
}

impl Layout {
    /// Reads it; `None` for other files, and where the headers make no sense.
    pub fn read(file: &impl FileExt) -> Option<Layout> {
        let mut start = [0; 64];
        if read_some(file, &mut start, 0).ok()? < 64 || !start.starts_with(b"\x7fELF") || start[4] != 2 {
            return None;
        }
        let (offset, size, count) = (long(&start, 32), usize::from(half(&start, 54)), usize::from(half(&start, 56)));
        if size < HEADER || size * count > MOST {
            return None;
        }
        let mut table = vec![0; size * count];
        if read_some(file, &mut table, offset).ok()? < table.len() {
            return None;
        }
        let mut layout = Layout { movable: half(&start, 16) == TYPE_MOVABLE, ..Layout::default() };
        let mut dynamic = None;
        for (number, header) in table.chunks_exact(size).enumerate() {
            match word(header, 0) {
                SEGMENT_LOADED => {
                    let (address, memory_bytes) = (long(header, 16), long(header, 40));
                    let (offset_in_file, file_bytes) = (long(header, 8), long(header, 32));
                    // Far from any end, so that nobody who counts on from here meets one.
                    let fits = |start: u64, bytes: u64| start.checked_add(bytes).is_some_and(|end| end < 1 << 62);
                    if !fits(address, memory_bytes.max(file_bytes)) || !fits(offset_in_file, file_bytes) {
                        return None;
                    }
                    layout.segments.push(Segment {
                        header: offset.checked_add((number * size) as u64)?,
                        flags: word(header, 4),
                        offset: offset_in_file,
                        address,
                        file_bytes,
                        memory_bytes,
                        align: long(header, 48),
                    });
                }
                SEGMENT_INTERPRETER => layout.interpreted = true,
                SEGMENT_DYNAMIC => dynamic = Some((long(header, 8), long(header, 32))),
                SEGMENT_PROTECTED => layout.protected = Some((long(header, 16), long(header, 40))),
                SEGMENT_NOTE => layout.is_go |= is_gos(file, long(header, 8)),
                _ => {}
            }
        }
        if let Some((at, bytes)) = dynamic {
            layout.read_dynamic(file, at, bytes);
        }
        Some(layout)
    }

    fn read_dynamic(&mut self, file: &impl FileExt, at: u64, bytes: u64) {
        const END: u64 = 0;
        const NEEDED: u64 = 1;
        const STRINGS: u64 = 5;
        const LIBRARY_NAME: u64 = 14;
        const RPATH: u64 = 15;
        const RUNPATH: u64 = 29;
        const FLAGS: u64 = 0x6fff_fffb;
        const PIE: u64 = 0x0800_0000;
        let mut table = vec![0; usize::try_from(bytes).unwrap_or(MOST).min(MOST)];
        let got = read_some(file, &mut table, at).unwrap_or(0);
        let entries = || table[..got].chunks_exact(16).map(|entry| (long(entry, 0), long(entry, 8)));
        let entries = || entries().take_while(|(tag, _)| *tag != END);
        self.pie = entries().any(|(tag, value)| tag == FLAGS && value & PIE != 0);
        self.has_library_name = entries().any(|(tag, _)| tag == LIBRARY_NAME);
        let Some((_, strings)) = entries().find(|(tag, _)| *tag == STRINGS) else { return };
        let Some(strings) = self.offset_of(strings) else { return };
        let text = |value: u64| string(file, strings.saturating_add(value));
        for (tag, value) in entries() {
            match tag {
                NEEDED => self.needed.extend(text(value)),
                RPATH => self.rpath = text(value),
                RUNPATH => self.runpath = text(value),
                _ => {}
            }
        }
    }

    /// Whether it is a shared library and no program. Some have an entry or name a dynamic linker all the same: ld.so, and
    /// libc.so.6, which says its version when it is executed. Old programs say nothing of what they are; these name a linker.
    pub fn is_library(&self) -> bool {
        self.movable && !self.pie && (self.has_library_name || !self.interpreted)
    }

    /// Where in the file an address lies.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |segment: &&Segment| address.checked_sub(segment.address).is_some_and(|at| at < segment.file_bytes);
        self.segments.iter().find(holds).map(|segment| address - segment.address + segment.offset)
    }

    /// Address space from the first page of it to the end of the last one.
    pub fn span(&self) -> u64 {
        let low = self.segments.iter().map(|segment| segment.address & !4095).min().unwrap_or(0);
        let end = |segment: &Segment| (segment.address + segment.memory_bytes).next_multiple_of(4096);
        self.segments.iter().map(end).max().unwrap_or(0) - low
    }

    /// The largest alignment that a segment asks for.
    pub fn align(&self) -> u64 {
        self.segments.iter().map(|segment| segment.align).filter(|align| align.is_power_of_two()).max().unwrap_or(1)
    }

    /// Whether what it needs is looked for where the file itself lies.
    pub fn searches_beside_itself(&self) -> bool {
        let names_origin = |path: &Option<OsString>| {
            path.as_ref().is_some_and(|path| {
                let text = path.to_string_lossy();
                text.contains("$ORIGIN") || text.contains("${ORIGIN}")
            })
        };
        names_origin(&self.rpath) || names_origin(&self.runpath)
    }
}

/// Whether a note is the one that Go's linker leaves: its name of four bytes, and the build's number.
fn is_gos(file: &impl FileExt, at: u64) -> bool {
    let mut note = [0; 16];
    read_some(file, &mut note, at).is_ok_and(|got| got == note.len())
        && (word(&note, 0), word(&note, 8)) == (4, 4)
        && note.ends_with(b"Go\0\0")
}

/// The text at a place of a file.
fn string(file: &impl FileExt, at: u64) -> Option<OsString> {
    let mut bytes = vec![0; 4096];
    let got = read_some(file, &mut bytes, at).ok()?;
    bytes.truncate(bytes[..got].iter().position(|byte| *byte == 0)?);
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::Bytes;
    use std::fs::File;

    #[test]
    fn this_program_is_laid_out() {
        let layout = Layout::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(layout.interpreted && layout.movable && !layout.is_library());
        assert!(layout.segments.iter().any(|segment| segment.is_code() && segment.is_constant()));
        assert!(layout.segments.iter().any(Segment::is_writable));
        assert!(layout.needed.iter().any(|name| name.to_string_lossy().starts_with("libc.so")), "{:?}", layout.needed);
        assert!(layout.span() > 100_000 && layout.align() >= 4096);
        assert_eq!(Layout::read(&File::open("/etc/passwd").unwrap()), None);
        // A static-PIE names no linker either; a library names itself, whatever else it has.
        let is_library = |pie, interpreted, has_library_name| {
            Layout { movable: true, pie, interpreted, has_library_name, ..Layout::default() }.is_library()
        };
        assert!(is_library(false, false, true) && is_library(false, false, false) && is_library(false, true, true));
        assert!(!is_library(true, false, false) && !is_library(false, true, false));
        assert!(!Layout::default().is_library());
    }

    #[test]
    fn libraries_of_this_process_are_libraries() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for name in ["/libc.so.6", "/ld-linux"] {
            let path = maps.lines().filter_map(|line| line.split_whitespace().last()).find(|path| path.contains(name));
            let layout = Layout::read(&File::open(path.expect("a library")).unwrap()).unwrap();
            assert!(layout.is_library(), "{path:?}");
        }
    }

    /// Damaged headers are answered, whatever they hold, without a panic, and quickly.
    #[test]
    fn damaged_headers() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let mut seed = 1u64;
        for _ in 0..5000 {
            let mut bytes = whole[..4096.min(whole.len())].to_vec();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes[16 + (seed >> 33) as usize % 900] = (seed >> 24) as u8;
            }
            if let Some(layout) = Layout::read(&Bytes(bytes)) {
                crate::code::expected(&layout);
                assert!(layout.span() < 1 << 62 && layout.align() > 0);
            }
        }
    }
}
