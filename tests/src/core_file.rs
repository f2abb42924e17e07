//! Core dumps: what a process's memory held, as the kernel or a debugger wrote it down.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Pages of data that a program made by fill() of `programs/c/common.h`, as a dump has them.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// As they were.
    pub whole: usize,
    /// Zeros, or not in the dump.
    pub absent: usize,
    /// Anything else.
    pub wrong: usize,
}

/// The one file in a directory whose name begins with `core`.
pub fn core_in(directory: &Path) -> Option<PathBuf> {
    let mut all = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    all.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")))
}

/// The word that fill() writes at this index.
fn mix(index: u64) -> u64 {
    let x = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Compares `words` words at `address` with those of fill(..., first, 0), page by page of the dump.
///
/// # Panics
/// When the dump cannot be read.
pub fn dumped(core: &Path, address: u64, words: u64, first: u64) -> Dumped {
    let file = File::open(core).expect("the dump");
    let number = |at: u64, bytes: usize| {
        let mut value = [0; 8];
        file.read_exact_at(&mut value[..bytes], at).expect("a number of the dump");
        u64::from_le_bytes(value)
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let segments: Vec<[u64; 3]> = (0..count)
        .map(|index| table + index * size)
        .filter(|at| number(*at, 4) == 1)
        .map(|at| [number(at + 8, 8), number(at + 16, 8), number(at + 32, 8)])
        .collect();
    let mut found = Dumped::default();
    let mut page = [0; 4096];
    let mut index = 0;
    while index < words {
        let at = address + index * 8;
        let length = (4096 - at % 4096).min((words - index) * 8);
        let bytes = &mut page[..length as usize];
        bytes.fill(0);
        if let Some([offset, start, _]) = segments.iter().find(|[_, start, held]| (*start..start + held).contains(&at))
        {
            file.read_exact_at(bytes, offset + at - start).expect("a page of the dump");
        }
        let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let as_it_was = words.zip(first + index..).all(|(word, index)| word == mix(index));
        match (as_it_was, bytes.iter().all(|byte| *byte == 0)) {
            (true, _) => found.whole += 1,
            (_, true) => found.absent += 1,
            _ => found.wrong += 1,
        }
        index += length / 8;
    }
    found
}
