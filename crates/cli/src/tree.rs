//! The machine's files: below the root, or below another directory that stands for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where files are, and how the kernel's are written.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    /// Writes to a file of /proc or /sys. Tests put a kernel here that answers as they want.
    pub kernel: fn(&Path, &[u8]) -> io::Result<()>,
}

impl Tree {
    /// The tree below a directory.
    pub fn new(root: &Path) -> Tree {
        Tree { root: root.to_owned(), kernel: |path, bytes| fs::write(path, bytes) }
    }
    /// Whether this is the machine itself.
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }
    /// The directory that stands for the root.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Where a file, named from the root, is.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
    /// Whether there is such a file, a dangling link included.
    pub fn has(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }
    /// A file without blanks around it; `None` where it cannot be read.
    pub fn setting(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok().map(|text| text.trim().to_owned())
    }
    /// A file that holds one number.
    pub fn count(&self, path: &str) -> Option<u64> {
        self.setting(path)?.parse().ok()
    }
    /// The numbers N of the entries `PREFIXn SUFFIX` of a directory, in order.
    pub fn numbered(&self, directory: &str, prefix: &str, suffix: &str) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.at(directory)) else { return Vec::new() };
        let number = |name: &str| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        let mut found: Vec<_> = entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        found.sort_unstable();
        found
    }
}

/// The word in brackets, where a setting shows all its words; else the whole text.
pub fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word)
}
