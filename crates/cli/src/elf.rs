//! What kind of program a file is, from its first bytes and program headers: dynamic, static, script, foreign.

mod layout;

pub use layout::{Layout, Segment};
use ream_sys::elf::{HEADER, MACHINE, SEGMENT_INTERPRETER, TYPE_MOVABLE};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What a file would be executed as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Image {
    /// A dynamically linked program of this machine, and the dynamic linker it names.
    Dynamic {
        /// The dynamic linker.
        linker: PathBuf,
    },
    /// A program without a dynamic linker.
    Static {
        /// Whether it can be loaded anywhere (static-PIE).
        movable: bool,
    },
    /// A text that begins with `#!`.
    Script {
        /// The interpreter it names.
        interpreter: PathBuf,
        /// What follows on that line, if anything.
        argument: Option<OsString>,
    },
    /// A program for another machine or word size.
    Foreign,
    /// A program whose headers make no sense.
    Damaged,
    /// Anything else.
    Other,
}

/// Address space from the first page that a program or library is loaded to, to the end of the last one; `None` for other
/// files.
pub fn span(file: &impl FileExt) -> Option<u64> {
    Layout::read(file).map(|layout| layout.span()).filter(|span| *span > 0)
}

/// Finds out what a file is.
///
/// # Errors
/// The file could not be read.
pub fn inspect(file: &impl FileExt) -> io::Result<Image> {
    // The kernel reads as much of a script's first line.
    let mut start = [0; 256];
    let got = read_some(file, &mut start, 0)?;
    let start = &start[..got];
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Image::Other);
    }
    if start.len() < 64 {
        return Ok(Image::Damaged);
    }
    let native_endian = if cfg!(target_endian = "little") { 1 } else { 2 };
    if start[4] != 2 || start[5] != native_endian || half(start, 18) != MACHINE {
        return Ok(Image::Foreign);
    }
    let (offset, size, count) = (long(start, 32), usize::from(half(start, 54)), half(start, 56));
    if size < HEADER {
        return Ok(Image::Damaged);
    }
    for number in 0..u64::from(count) {
        let mut header = [0; HEADER];
        let Some(at) = number.checked_mul(size as u64).and_then(|distance| distance.checked_add(offset)) else {
            return Ok(Image::Damaged);
        };
        if read_some(file, &mut header, at)? < HEADER {
            return Ok(Image::Damaged);
        }
        if word(&header, 0) == SEGMENT_INTERPRETER {
            let length = usize::try_from(long(&header, 32)).unwrap_or(usize::MAX);
            let mut path = vec![0; length.min(4096)];
            let got = read_some(file, &mut path, long(&header, 8))?;
            path.truncate(path[..got].iter().position(|b| *b == 0).unwrap_or(got));
            return Ok(match path.is_empty() {
                true => Image::Damaged,
                false => Image::Dynamic { linker: OsString::from_vec(path).into() },
            });
        }
    }
    Ok(Image::Static { movable: half(start, 16) == TYPE_MOVABLE })
}

fn script(line: &[u8]) -> Image {
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
    let end = line.iter().position(|b| *b == b' ' || *b == b'\t').unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    match end {
        0 => Image::Other,
        _ => Image::Script {
            interpreter: OsString::from_vec(line[..end].to_vec()).into(),
            argument: (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
        },
    }
}

/// Reads until the buffer is full or the file ends.
fn read_some(file: &impl FileExt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An offset beyond what the kernel takes: nothing is there.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A file in memory.
    pub struct Bytes(pub Vec<u8>);

    impl FileExt for Bytes {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if offset > i64::MAX as u64 {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            unreachable!("only read")
        }
    }

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn this_program_spans_what_it_is_mapped_to() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let span = span(&file).unwrap();
        assert!(span > 100_000 && span % 4096 == 0, "{span}");
        assert_eq!(super::span(&std::fs::File::open("/etc/passwd").unwrap()), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        match inspect(&File::open("/proc/self/exe").unwrap()).unwrap() {
            Image::Dynamic { linker } => assert!(linker.to_string_lossy().contains("ld-"), "{linker:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_an_interpreter_it_is_static() {
        let mut bytes = own();
        let offset = long(&bytes, 32) as usize;
        let count = usize::from(half(&bytes, 56));
        for header in 0..count {
            let at = offset + header * HEADER;
            if word(&bytes, at) == SEGMENT_INTERPRETER {
                bytes[at..at + 4].fill(0);
            }
        }
        assert_eq!(inspect(&Bytes(bytes.clone())).unwrap(), Image::Static { movable: true });
        bytes[16..18].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(inspect(&Bytes(bytes)).unwrap(), Image::Static { movable: false });
    }

    #[test]
    fn other_machines_are_foreign() {
        let mut bytes = own();
        bytes[18] ^= 0xff;
        assert_eq!(inspect(&Bytes(bytes)).unwrap(), Image::Foreign);
        let mut bytes = own();
        bytes[4] = 1;
        assert_eq!(inspect(&Bytes(bytes)).unwrap(), Image::Foreign);
    }

    #[test]
    fn scripts() {
        let of = |text: &str| inspect(&Bytes(text.as_bytes().to_vec())).unwrap();
        let script = |path: &str, argument: Option<&str>| Image::Script {
            interpreter: path.into(),
            argument: argument.map(OsString::from),
        };
        assert_eq!(of("#!/bin/sh\nx"), script("/bin/sh", None));
        assert_eq!(of("#! /usr/bin/env  python3 -u \nx"), script("/usr/bin/env", Some("python3 -u")));
        assert_eq!(of("#!"), Image::Other);
        assert_eq!(of("#!\n/bin/sh"), Image::Other);
        assert_eq!(of("echo\n"), Image::Other);
        assert_eq!(of(""), Image::Other);
    }

    /// Damaged headers are answered, whatever they hold, without a panic.
    #[test]
    fn damaged_headers() {
        assert_eq!(inspect(&Bytes(b"\x7fELF".to_vec())).unwrap(), Image::Damaged);
        let whole = own();
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut bytes = whole[..4096.min(whole.len())].to_vec();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes[16 + (seed >> 33) as usize % 48] = (seed >> 24) as u8;
            }
            inspect(&Bytes(bytes)).unwrap();
        }
    }
}
