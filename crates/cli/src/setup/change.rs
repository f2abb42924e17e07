//! One thing that `ream setup` changes: what it is now, how it is set, and how a change of it is shown.
//!
//! What a thing is at a time is one string of bytes. To set a thing to a state and to restore it are therefore one
//! operation, and a state can be compared, written down and read back.

use super::binfmt;
use crate::os;
use crate::tree::{Tree, chosen};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What is not there.
pub const ABSENT: &[u8] = b"absent";
/// What is there and has no contents of interest.
pub const PRESENT: &[u8] = b"present";
/// A file with more bytes than this is not saved, and so not replaced.
const LARGEST: u64 = 1 << 20;

/// Kinds of things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory of settings: absent or present.
    Directory,
    /// A file of settings: absent, `link TARGET`, or `file MODE UID GID` and the contents in the next line.
    File,
    /// A setting of the kernel: its value.
    Knob,
    /// The number of pages in a hugetlb pool.
    Pool,
    /// A device: `MODE UID GID`.
    Device,
    /// The file system binfmt_misc: absent or present.
    Mount,
    /// An entry of binfmt_misc: absent, or the line that registers it.
    Entry,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Directory, "directory"),
    (Kind::File, "file"),
    (Kind::Knob, "knob"),
    (Kind::Pool, "pool"),
    (Kind::Device, "device"),
    (Kind::Mount, "mount"),
    (Kind::Entry, "entry"),
];

impl Kind {
    /// Its name in the journal.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
    /// The kind of this name.
    pub fn named(name: &[u8]) -> Option<Kind> {
        KINDS.iter().find(|(_, known)| known.as_bytes() == name).map(|(kind, _)| *kind)
    }
}

/// A change of one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// What kind of thing.
    pub kind: Kind,
    /// Where it is, named from the root.
    pub path: String,
    /// What it was.
    pub old: Vec<u8>,
    /// What it is to be.
    pub new: Vec<u8>,
}

/// The state of a file with these contents.
pub fn file(mode: u32, owner: (u32, u32), contents: &[u8]) -> Vec<u8> {
    [format!("file {mode:o} {} {}\n", owner.0, owner.1).as_bytes(), contents].concat()
}

/// The state of a device.
pub fn device(mode: u32, owner: (u32, u32)) -> Vec<u8> {
    format!("{mode:o} {} {}", owner.0, owner.1).into_bytes()
}

/// Mode, owner and contents from the state of a file or device.
pub fn parts(state: &[u8]) -> Option<(u32, (u32, u32), &[u8])> {
    let state = state.strip_prefix(b"file ").unwrap_or(state);
    let (head, contents) = match state.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&state[..at], &state[at + 1..]),
        None => (state, &[][..]),
    };
    let mut words = std::str::from_utf8(head).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    Some((mode, (words.next()?.parse().ok()?, words.next()?.parse().ok()?), contents))
}

fn no_such_state() -> io::Error {
    io::Error::other("not a state that it can have")
}

/// What a thing is now.
pub fn look(tree: &Tree, kind: Kind, path: &str) -> io::Result<Vec<u8>> {
    let place = tree.at(path);
    let found = match place.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match kind {
                Kind::Knob | Kind::Pool | Kind::Device => Err(error),
                _ => Ok(ABSENT.to_vec()),
            };
        }
        Err(error) => return Err(error),
    };
    let owner = (found.uid(), found.gid());
    match kind {
        Kind::Directory if place.is_dir() => Ok(PRESENT.to_vec()),
        Kind::Directory => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        Kind::File if found.is_symlink() => Ok([b"link ", fs::read_link(&place)?.as_os_str().as_bytes()].concat()),
        Kind::File if !found.is_file() => Err(io::Error::other("not a file")),
        Kind::File if found.len() > LARGEST => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        Kind::File => Ok(file(found.mode() & 0o7777, owner, &fs::read(&place)?)),
        Kind::Knob | Kind::Pool => {
            let text = fs::read_to_string(&place)?;
            Ok(chosen(text.trim()).as_bytes().to_vec())
        }
        Kind::Device => Ok(device(found.mode() & 0o7777, owner)),
        Kind::Mount => Ok(if place.join("register").exists() { PRESENT } else { ABSENT }.to_vec()),
        Kind::Entry => {
            let name = path.rsplit('/').next().unwrap_or(path);
            let line = binfmt::of_kernel(name, &fs::read_to_string(&place)?);
            line.map(String::into_bytes).ok_or_else(|| io::Error::other("an entry that is not understood"))
        }
    }
}

/// Makes a thing what it was or is to be.
pub fn set(tree: &Tree, kind: Kind, path: &str, state: &[u8]) -> io::Result<()> {
    let place = tree.at(path);
    match (kind, state) {
        (Kind::Directory, ABSENT) => fs::remove_dir(&place),
        (Kind::Directory, _) => {
            fs::create_dir(&place)?;
            // Whatever the caller's mask: services read it.
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755))
        }
        (Kind::File, _) => set_file(&place, state),
        (Kind::Knob | Kind::Pool, value) => (tree.kernel)(&place, &[value, b"\n"].concat()),
        (Kind::Device, _) => {
            let (mode, owner, _) = parts(state).ok_or_else(no_such_state)?;
            let now = place.symlink_metadata()?;
            // Narrowed first, so that nobody has it in between who is to have it neither before nor after.
            fs::set_permissions(&place, fs::Permissions::from_mode(mode & now.mode()))?;
            if (now.uid(), now.gid()) != owner {
                std::os::unix::fs::chown(&place, Some(owner.0), Some(owner.1))?;
            }
            fs::set_permissions(&place, fs::Permissions::from_mode(mode))
        }
        (Kind::Mount, ABSENT) => match fs::read_dir(&place)?.count() {
            // Nothing but `register` and `status`: no entries of others.
            ..=2 => os::unmount(&place),
            _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        },
        (Kind::Mount, _) => os::mount_binfmt(&place),
        (Kind::Entry, _) => set_entry(tree, &place, state),
    }
}

fn set_entry(tree: &Tree, place: &Path, state: &[u8]) -> io::Result<()> {
    if place.exists() {
        (tree.kernel)(place, b"-1")?;
    }
    if state == ABSENT {
        return Ok(());
    }
    let (line, off) = match state.strip_suffix(binfmt::OFF) {
        Some(line) => (line, true),
        None => (state, false),
    };
    (tree.kernel)(&place.with_file_name("register"), line)?;
    if off { (tree.kernel)(place, b"0") } else { Ok(()) }
}

/// The name under which a file is written before it takes its own: a hidden one, that no reader of such directories
/// takes.
fn unfinished(place: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(".ream");
    place.with_file_name(name)
}

/// Takes away what a setup that was killed in the middle of writing a file has left.
pub fn clear(tree: &Tree, kind: Kind, path: &str) {
    if kind == Kind::File {
        let _ = fs::remove_file(unfinished(&tree.at(path)));
    }
}

/// Makes a file what it is to be, at once: at no time is there half a file.
fn set_file(place: &Path, state: &[u8]) -> io::Result<()> {
    let next = unfinished(place);
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    ignore_missing(fs::remove_file(&next))?;
    let made = || -> io::Result<()> {
        if state == ABSENT {
            return ignore_missing(fs::remove_file(place));
        }
        if let Some(target) = state.strip_prefix(b"link ") {
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &next)?;
        } else {
            let (mode, owner, contents) = parts(state).ok_or_else(no_such_state)?;
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
            file.write_all(contents)?;
            let now = file.metadata()?;
            if (now.uid(), now.gid()) != owner {
                std::os::unix::fs::fchown(&file, Some(owner.0), Some(owner.1))?;
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
        }
        fs::rename(&next, place)
    };
    let done = made();
    if done.is_err() {
        let _ = fs::remove_file(&next);
    }
    done?;
    place.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}

/// What a state looks like to the user.
pub fn shown(kind: Kind, state: &[u8]) -> String {
    let text = String::from_utf8_lossy(state);
    match (kind, state) {
        (Kind::File, ABSENT) => "no file".to_owned(),
        (Kind::Entry, ABSENT) => "no entry".to_owned(),
        (Kind::Mount, ABSENT) => "not mounted".to_owned(),
        (Kind::Mount, _) => "mounted".to_owned(),
        (Kind::Directory, ABSENT) => "no directory".to_owned(),
        (Kind::Directory, _) => "directory".to_owned(),
        (Kind::File, _) => match parts(state) {
            Some((_, _, contents)) => {
                let counts = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
                match String::from_utf8_lossy(contents).lines().filter(counts).count() {
                    1 => "1 line".to_owned(),
                    lines => format!("{lines} lines"),
                }
            }
            None => text.replacen("link ", "link to ", 1),
        },
        (Kind::Device, _) => match parts(state) {
            Some((mode, (user, group), _)) => format!("mode {mode:04o}, owner {user}:{group}"),
            None => text.into_owned(),
        },
        (Kind::Pool, b"1") => "1 page".to_owned(),
        (Kind::Pool, _) => format!("{text} pages"),
        (Kind::Knob | Kind::Entry, _) => text.replace('\n', ", "),
    }
}

/// One change as the user sees it: `PATH: OLD -> NEW`, and below it the lines that a file gains.
pub fn line(kind: Kind, path: &str, from: &[u8], to: &[u8]) -> String {
    let mut text = format!("{path}: {} -> {}\n", shown(kind, from), shown(kind, to));
    if let (Kind::File, Some((_, _, contents))) = (kind, parts(to)) {
        let had = parts(from).map(|(_, _, contents)| String::from_utf8_lossy(contents)).unwrap_or_default();
        for line in String::from_utf8_lossy(contents).lines().filter(|line| !line.starts_with('#')) {
            if !line.trim().is_empty() && !had.lines().any(|old| old == line) {
                text += &format!("    {line}\n");
            }
        }
    }
    text
}
