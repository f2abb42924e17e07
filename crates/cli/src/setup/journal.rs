//! What `ream setup` has changed, in a file: each change is on the disk before it is made, so that it can be taken
//! back even when setup was killed in between.
//!
//! A line is a change: `+` (made, or about to be) or `-` (taken back, or never made), kind, path, state before, state
//! after, with tabs between them. Lines are added at the end, and only their first byte is ever changed. A last line
//! without its end is of a change that was not begun.

use super::change::{Change, Kind};
use crate::failure::{Failure, reason};
use crate::os;
use crate::tree::Tree;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// Where the journal is, named from the root.
pub const PATH: &str = "/var/lib/ream/setup.journal";
const HEAD: &[u8] = b"ream setup 1\n";

/// The journal of one tree, held by this process alone.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Each change that has not been taken back, and where its line is.
    live: Vec<(u64, Change)>,
    end: u64,
}

impl Journal {
    /// Opens the journal, or with `make` makes one. `None` where there is none.
    ///
    /// # Errors
    /// It cannot be opened, another setup has it, or it is not a journal.
    pub fn open(tree: &Tree, make: bool) -> Result<Option<Journal>, Failure> {
        let path = tree.at(PATH);
        let failed = |error: io::Error| Failure::new(format!("setup: {}: {}", path.display(), reason(&error)));
        loop {
            if make {
                fs::create_dir_all(path.with_file_name("")).map_err(failed)?;
            }
            let opened = OpenOptions::new().read(true).write(true).create(make).mode(0o600).open(&path);
            let mut file = match opened {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            if !os::lock(&file, true).map_err(failed)? {
                return Err(Failure::new(format!(
                    "setup: {}: another ream setup is at work; wait for it to end",
                    path.display()
                )));
            }
            // Whoever had it until now may have been the last to need it.
            if path.metadata().map(|there| there.ino()).ok() != file.metadata().map(|ours| ours.ino()).ok() {
                continue;
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(failed)?;
            if !HEAD.starts_with(&bytes) && !bytes.starts_with(HEAD) {
                return Err(Failure::new(format!(
                    "setup: {}: not a journal of this version of ream; move it away to go on without it",
                    path.display()
                )));
            }
            if bytes.len() < HEAD.len() {
                bytes = HEAD.to_vec();
                file.set_len(0).and_then(|()| file.write_all_at(HEAD, 0)).map_err(failed)?;
            }
            let (live, end) = read(&bytes);
            return Ok(Some(Journal { path, file, live, end }));
        }
    }

    /// The changes that have not been taken back, the first one first.
    pub fn live(&self) -> Vec<(u64, Change)> {
        self.live.clone()
    }

    /// Writes down a change that is about to be made. It is on the disk when this returns.
    ///
    /// # Errors
    /// It could not be written; the change must not be made then.
    pub fn begin(&mut self, change: &Change) -> io::Result<u64> {
        let fields = [change.kind.name().as_bytes(), change.path.as_bytes(), &change.old, &change.new];
        let mut line = b"+".to_vec();
        for field in fields {
            line.push(b'\t');
            escape(field, &mut line);
        }
        line.push(b'\n');
        let at = self.end;
        // A last line without its end is overwritten.
        self.file.set_len(at)?;
        self.file.write_all_at(&line, at)?;
        self.file.sync_all()?;
        if let Some(directory) = self.path.parent() {
            File::open(directory)?.sync_all()?;
        }
        self.end += line.len() as u64;
        self.live.push((at, change.clone()));
        Ok(at)
    }

    /// Strikes out the change written at this place: it is no longer in force.
    ///
    /// # Errors
    /// It could not be written.
    pub fn strike(&mut self, at: u64) -> io::Result<()> {
        self.file.write_all_at(b"-", at)?;
        self.file.sync_all()?;
        self.live.retain(|(place, _)| *place != at);
        Ok(())
    }

    /// Removes the journal when nothing is left to take back.
    pub fn close(self) {
        if self.live.is_empty() {
            let _ = fs::remove_file(&self.path);
            if let Some(directory) = self.path.parent() {
                // Not when something else is in it.
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

/// The live changes of a journal's bytes, and where its last whole line ends.
fn read(bytes: &[u8]) -> (Vec<(u64, Change)>, u64) {
    let mut live = Vec::new();
    let mut at = HEAD.len();
    while let Some(length) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
        let line = &bytes[at..at + length];
        let mut fields = line.split(|byte| *byte == b'\t').map(unescape);
        if let [Some(state), Some(kind), Some(path), Some(old), Some(new)] = std::array::from_fn(|_| fields.next()) {
            let path = String::from_utf8(path);
            if let (b"+", Some(kind), Ok(path)) = (state.as_slice(), Kind::named(&kind), path) {
                live.push((at as u64, Change { kind, path, old, new }));
            }
        }
        at += length + 1;
    }
    (live, at as u64)
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\\' => out.extend(b"\\\\"),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            byte => out.push(*byte),
        }
    }
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        out.push(match (byte, byte == &b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(other) => *other,
                None => b'\\',
            },
            (byte, false) => *byte,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).chain(*b"\\n\\\\\t\n").collect();
        let mut line = Vec::new();
        escape(&bytes, &mut line);
        assert!(!line.contains(&b'\n') && !line.contains(&b'\t'));
        assert_eq!(unescape(&line), bytes);
    }

    #[test]
    fn a_line_cut_short_is_a_change_not_begun() {
        let whole = b"ream setup 1\n+\tknob\t/a\t1\t2\n-\tknob\t/b\t1\t2\n";
        let (live, end) = read(whole);
        assert_eq!((live.len(), end), (1, whole.len() as u64));
        for cut in HEAD.len()..whole.len() {
            let (live, end) = read(&whole[..cut]);
            assert_eq!(live.len(), usize::from(cut > 26), "{cut}");
            assert!(end <= cut as u64);
        }
    }
}
