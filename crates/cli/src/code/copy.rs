//! A copy of a program with one thing changed: its segments ask for an alignment of 2 MiB, so that the kernel loads it at
//! a block. It lies in the user's cache, in a directory named after the original's device, inode, size and times, so that
//! another original never meets an old copy. What is written shows up only when it is whole (a file without a name is
//! given one), and nothing is used that somebody else could have put there.

use super::blocks::agrees;
use crate::elf::Layout;
use crate::failure::reason;
use crate::os::{self, BLOCK};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files larger than this are not copied.
const MOST_BYTES: u64 = 1 << 30;
/// Copies that nobody has used for so long are removed when another one is made.
const UNUSED: Duration = Duration::from_secs(60 * 24 * 3600);

/// A copy that can be run.
#[derive(Debug)]
pub struct Copy {
    /// Its path.
    pub path: PathBuf,
    /// The same, opened.
    pub file: File,
}

/// Where copies lie: `ream` in the user's cache directory.
pub fn directory(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let named = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || variable("HOME").map(PathBuf::from).filter(|path| path.is_absolute()).map(|home| home.join(".cache"));
    let base = named.or_else(home).ok_or("there is no place for an aligned copy; set XDG_CACHE_HOME to a directory")?;
    Ok(base.join("ream"))
}

/// The aligned copy of a program: the one there is, or a new one.
///
/// # Errors
/// Why there is none, in words.
pub fn aligned(path: &Path, original: &File, layout: &Layout, cache: &Path) -> Result<Copy, String> {
    let metadata = small_enough(path, original)?;
    let cannot = |place: &Path, error: &io::Error| {
        format!("an aligned copy cannot be kept in {}: {}; set XDG_CACHE_HOME", place.display(), reason(error))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(|error| cannot(cache, &error))?;
    let cache = fs::canonicalize(cache).map_err(|error| cannot(cache, &error))?;
    trusted(&cache)?;
    let name = path.file_name().unwrap_or(OsStr::new("program"));
    let place = cache.join(key(&metadata));
    let wanted = edited(layout);
    if let Some(copy) = usable(&place.join(name), &metadata, &wanted) {
        // Whoever tidies up sees by it when it was last used.
        let _ = File::open(&place).and_then(|opened| opened.set_modified(SystemTime::now()));
        return Ok(copy);
    }
    tidy(&cache, &metadata);
    match DirBuilder::new().mode(0o700).create(&place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(&place, &error)),
        _ => {}
    }
    // One that could not be used, under this name: made of something else than this original.
    let _ = fs::remove_file(place.join(name));
    let made = write(original, &metadata, layout, &place, name);
    if made.is_err() {
        let _ = fs::remove_dir(&place);
    }
    made.map_err(|error| cannot(&place, &error))?;
    usable(&place.join(name), &metadata, &wanted)
        .ok_or_else(|| format!("an aligned copy in {} is not usable, for example because of noexec", place.display()))
}

fn small_enough(path: &Path, original: &File) -> Result<Metadata, String> {
    let metadata = original.metadata().map_err(|error| format!("{}: {}", path.display(), reason(&error)))?;
    match metadata.len() > MOST_BYTES {
        true => Err(format!("{} are too much to copy", ream_options::show_size(metadata.len()))),
        false => Ok(metadata),
    }
}

/// The aligned copy of a program that there is; `None` where one would have to be made.
///
/// # Errors
/// Why none can be made, in words, as far as that is known without trying.
pub fn existing(path: &Path, original: &File, layout: &Layout, cache: &Path) -> Result<Option<Copy>, String> {
    let metadata = small_enough(path, original)?;
    let Ok(cache) = fs::canonicalize(cache) else { return Ok(None) };
    trusted(&cache)?;
    let name = path.file_name().unwrap_or(OsStr::new("program"));
    Ok(usable(&cache.join(key(&metadata)).join(name), &metadata, &edited(layout)))
}

/// What names an original: should it be another one by any of these, the copy is of no use.
fn key(metadata: &Metadata) -> String {
    let time = |seconds: i64, nanoseconds: i64| format!("{seconds:x}.{nanoseconds:x}");
    format!(
        "{}{:x}-{}-{}",
        family(metadata),
        metadata.len(),
        time(metadata.mtime(), metadata.mtime_nsec()),
        time(metadata.ctime(), metadata.ctime_nsec())
    )
}

/// How all keys of the same file begin.
fn family(metadata: &Metadata) -> String {
    format!("{:x}-{:x}-", metadata.dev(), metadata.ino())
}

/// The layout with what is changed.
fn edited(layout: &Layout) -> Layout {
    let mut layout = layout.clone();
    for segment in layout.segments.iter_mut().filter(|segment| agrees(segment) && segment.align < BLOCK as u64) {
        segment.align = BLOCK as u64;
    }
    layout
}

/// Whether nobody but this user and the superuser can change what lies at a path, which has no symbolic links.
fn trusted(path: &Path) -> Result<(), String> {
    let (user, _) = os::user_and_group();
    for directory in path.ancestors() {
        let metadata =
            fs::symlink_metadata(directory).map_err(|error| format!("{}: {}", path.display(), reason(&error)))?;
        let others_write = metadata.mode() & 0o022 != 0 && metadata.mode() & libc::S_ISVTX == 0;
        let strangers = metadata.uid() != user && metadata.uid() != 0;
        if !metadata.is_dir() || others_write || strangers {
            return Err(format!(
                "{}, where an aligned copy would be kept, can be changed by others ({}); set XDG_CACHE_HOME",
                path.display(),
                directory.display()
            ));
        }
    }
    let own = fs::symlink_metadata(path).map_err(|error| format!("{}: {}", path.display(), reason(&error)))?;
    match own.uid() == user && own.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(format!("{} is not private to this user; chmod 700, or set XDG_CACHE_HOME", path.display())),
    }
}

/// The copy at a path, if it is ours, whole, and can be executed.
fn usable(path: &Path, original: &Metadata, wanted: &Layout) -> Option<Copy> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let ours = metadata.is_file() && metadata.uid() == os::user_and_group().0 && metadata.mode() & 0o6022 == 0;
    let whole = metadata.len() == original.len() && Layout::read(&file).as_ref() == Some(wanted);
    (ours && whole && os::may_execute(path)).then(|| Copy { path: path.to_owned(), file })
}

/// Writes a copy. It is written in blocks, which the page cache then holds as such.
fn write(original: &File, metadata: &Metadata, layout: &Layout, place: &Path, name: &OsStr) -> io::Result<()> {
    let file = OpenOptions::new().write(true).mode(0o700).custom_flags(libc::O_TMPFILE).open(place)?;
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < metadata.len() {
        let bytes = &mut block[..BLOCK.min((metadata.len() - at) as usize)];
        original.read_exact_at(bytes, at)?;
        for segment in layout.segments.iter().filter(|segment| agrees(segment) && segment.align < BLOCK as u64) {
            for (from, byte) in (segment.align_at()..).zip((BLOCK as u64).to_ne_bytes()) {
                if let Some(place) = from.checked_sub(at).and_then(|from| bytes.get_mut(usize::try_from(from).ok()?)) {
                    *place = byte;
                }
            }
        }
        file.write_all_at(bytes, at)?;
        at += bytes.len() as u64;
    }
    // Once it has a name, a crash of the machine must not leave it half written.
    file.sync_data()?;
    let now = original.metadata()?;
    if key(&now) != key(metadata) {
        return Err(io::Error::other("the program was changed meanwhile"));
    }
    // What is open for writing is not executed; others may do so as soon as it has its name.
    let closed = os::reopen(&file)?;
    drop(file);
    match os::give_name(&closed, &place.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes copies of earlier states of a file, and those that nobody uses.
fn tidy(cache: &Path, of: &Metadata) {
    let (family, key) = (family(of), key(of));
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let age = |metadata: Metadata| metadata.modified().ok()?.elapsed().ok();
        let unused = || entry.metadata().ok().and_then(age).is_some_and(|age| age > UNUSED);
        // Names of ours only: four numbers and more, of these signs.
        let ours = name.split('-').count() == 5 && name.chars().all(|c| c.is_ascii_hexdigit() || "-.".contains(c));
        if ours && name != key && (name.starts_with(&family) || unused()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
