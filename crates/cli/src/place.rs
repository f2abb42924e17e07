//! The place for the store: which directory, and how much of its disk may be taken.

use crate::failure::{Failure, reason};
use crate::os;
use crate::settings::{Settings, Source};
use ream_options::show_size;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory that can hold a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory, absolute.
    pub directory: PathBuf,
    /// Most bytes that the stores of the session may take.
    pub limit: u64,
}

/// Why a directory cannot hold a store.
#[derive(Debug)]
pub enum Unfit {
    /// It cannot be looked at.
    Unreachable(io::Error),
    /// It is no directory.
    NotADirectory,
    /// Its file system lies in RAM.
    InMemory(&'static str),
    /// No file can be made in it.
    NotWritable(io::Error),
    /// Its file system has no direct I/O.
    NoDirectIo(io::Error),
    /// What is free must be left free.
    NoRoom {
        /// Free bytes.
        available: u64,
        /// Bytes to leave.
        reserve: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MEND: &str = "name a directory on a local disk";
        match self {
            Unfit::Unreachable(error) => write!(f, "{}; {MEND}", reason(error)),
            Unfit::NotADirectory => write!(f, "not a directory; {MEND}"),
            Unfit::InMemory(kind) => write!(f, "lies in RAM ({kind}), where nothing is gained; {MEND}"),
            Unfit::NotWritable(error) => write!(f, "not writable ({}); name a directory of yours", reason(error)),
            Unfit::NoDirectIo(error) => write!(f, "no direct I/O ({}); {MEND}", reason(error)),
            Unfit::NoRoom { available, reserve } => write!(
                f,
                "no room: {} free, of which {} are to stay free; make room, or say --store-limit",
                show_size(*available),
                show_size(*reserve)
            ),
        }
    }
}

/// The least that a store without a limit of its own must be able to take, in bytes.
const LEAST: u64 = 64 << 20;

/// What a file system must keep free: 10 %, and at least 10 GiB.
fn reserve(total: u64) -> u64 {
    (total / 10).max(10 << 30)
}

/// Looks whether a directory can hold a store, and of what size; `limit` is what the user allows.
///
/// # Errors
/// Why it cannot.
pub fn examine(directory: &Path, limit: Option<u64>) -> Result<Place, Unfit> {
    let metadata = std::fs::metadata(directory).map_err(Unfit::Unreachable)?;
    if !metadata.is_dir() {
        return Err(Unfit::NotADirectory);
    }
    let system = os::file_system(directory).map_err(Unfit::Unreachable)?;
    if let Some(kind) = in_memory(system.kind, metadata.dev()) {
        return Err(Unfit::InMemory(kind));
    }
    drop(open_store(directory)?);
    let limit = match limit {
        Some(limit) => limit,
        None => {
            let reserve = reserve(system.total);
            let free = system.available.saturating_sub(reserve);
            if free < LEAST {
                return Err(Unfit::NoRoom { available: system.available, reserve });
            }
            free
        }
    };
    Ok(Place { directory: directory.to_owned(), limit })
}

/// Makes a file without a name for direct I/O, as the store is one.
///
/// # Errors
/// Whether the directory or direct I/O is the obstacle.
pub fn open_store(directory: &Path) -> Result<File, Unfit> {
    let open = |path: &Path, flags: i32| {
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags | libc::O_CLOEXEC).open(path)
    };
    let named = || {
        let path = directory.join(format!(".ream-{}-{:016x}", std::process::id(), os::random()?));
        let file = open(&path, libc::O_CREAT | libc::O_EXCL)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    };
    let file = match open(directory, libc::O_TMPFILE) {
        // The file system has no files without names, or the kernel does not know of them.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => named(),
        other => other,
    }
    .map_err(Unfit::NotWritable)?;
    os::set_direct(&file).map_err(Unfit::NoDirectIo)?;
    Ok(file)
}

/// What kind of memory a file system lies in, if it does.
fn in_memory(kind: u64, device: u64) -> Option<&'static str> {
    match kind {
        0x0102_1994 => return Some("tmpfs"),
        0x8584_58f6 => return Some("ramfs"),
        0x9584_58f6 => return Some("hugetlbfs"),
        _ => {}
    }
    let (major, minor) = (libc::major(device), libc::minor(device));
    let target = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = target.file_name()?.to_string_lossy().into_owned();
    match name {
        name if name.starts_with("zram") => Some("zram"),
        name if name.starts_with("ram") => Some("a RAM disk"),
        _ => None,
    }
}

/// The directories in which a store may lie, best first: those the user named, or else the usual ones.
pub fn candidates(settings: &Settings, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut list = settings.stores.clone();
    // What flags and the file name is meant; a variable is a preference, as the other variables are.
    // Where a memory server is the store, what is asked for is what would be used without it.
    let preferred = settings.stores_given.as_ref().is_none_or(|given| given.source == Source::Environment);
    if preferred || !settings.memory_servers.is_empty() && settings.stores.is_empty() {
        let usual = ["SLURM_TMPDIR", "TMPDIR"].into_iter().filter_map(variable).filter(|path| !path.is_empty());
        list.extend(usual.map(PathBuf::from).filter(|path| path.is_absolute()));
        list.push(PathBuf::from("/var/tmp"));
    }
    let mut seen = Vec::new();
    list.retain(|path| !seen.contains(path) && (seen.push(path.clone()), true).1);
    list
}

/// Where there is compressed memory only: how much comes into it is not known beforehand, so that many slots.
pub fn compressed(settings: &Settings) -> Place {
    let limit = settings.zip.saturating_mul(MOST_RATIO).min(settings.store_limit.unwrap_or(u64::MAX));
    Place { directory: PathBuf::from(format!("zip:{}", settings.zip)), limit }
}

/// How much smaller pages become at most.
const MOST_RATIO: u64 = 64;

/// Chooses the first candidate that can hold a store. Whoever was named by the user and passed over is reported
/// through `warn`.
///
/// # Errors
/// What is wrong with the one that the user named, or with each of the usual ones.
pub fn choose(
    settings: &Settings,
    variable: &dyn Fn(&str) -> Option<OsString>,
    warn: &mut dyn FnMut(String),
) -> Result<Place, Failure> {
    let mut refused = Vec::new();
    for directory in candidates(settings, variable) {
        match examine(&directory, settings.store_limit) {
            Ok(place) => {
                for (passed, why) in &refused {
                    if settings.stores.contains(passed) {
                        let using = place.directory.display();
                        warn(format!("store: {}: {why}; using {using} instead", passed.display()));
                    }
                }
                return Ok(place);
            }
            Err(why) => refused.push((directory, why)),
        }
    }
    let all: Vec<_> = refused.iter().map(|(directory, why)| format!("{}: {why}", directory.display())).collect();
    Err(Failure::new(format!("store: {}", all.join(" | "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Given;
    use ream_options::find;

    fn settings(stores: &[&str], source: Source) -> Settings {
        let spec = find("run", "store").unwrap();
        let flags = match source {
            Source::Flag => {
                stores.iter().map(|path| Given { spec, source: Source::Flag, text: Some(path.into()) }).collect()
            }
            _ => Vec::new(),
        };
        let text = (source == Source::Environment).then(|| OsString::from(stores.join(":")));
        let variable = |name: &str| if name == "REAM_STORE" { text.clone() } else { None };
        Settings::settle("run", flags, &variable, Vec::new()).unwrap()
    }

    #[test]
    fn the_usual_places_in_their_order() {
        let variable = |name: &str| match name {
            "TMPDIR" => Some("/t".into()),
            "SLURM_TMPDIR" => Some("/s".into()),
            _ => None,
        };
        let list = |stores: &[&str], source| candidates(&settings(stores, source), &variable);
        assert_eq!(list(&[], Source::Flag), ["/s", "/t", "/var/tmp"].map(PathBuf::from));
        assert_eq!(list(&["/a", "/b"], Source::Flag), ["/a", "/b"].map(PathBuf::from));
        assert_eq!(list(&["/a", "/t"], Source::Environment), ["/a", "/t", "/s", "/var/tmp"].map(PathBuf::from));
    }

    #[test]
    fn unfit_directories_are_named_with_their_reason() {
        let why = |path: &str| examine(Path::new(path), None).unwrap_err().to_string();
        assert!(why("/proc/self/status").starts_with("not a directory"));
        assert!(why("/no/such").starts_with("No such file or directory; name"));
        assert!(why("/dev/shm").starts_with("lies in RAM (tmpfs)"));
        let failure = choose(&settings(&["/dev/shm", "/no"], Source::Flag), &|_| None, &mut |_| {}).unwrap_err();
        assert!(failure.text.starts_with("store: /dev/shm: lies in RAM") && failure.text.contains(" | /no: No such"));
    }

    #[test]
    fn a_preference_that_fails_is_passed_over_aloud() {
        let settings = Settings { store_limit: Some(1 << 20), ..settings(&["/dev/shm"], Source::Environment) };
        let mut said = Vec::new();
        let place = choose(&settings, &|_| None, &mut |line| said.push(line)).unwrap();
        assert_eq!(place, Place { directory: "/var/tmp".into(), limit: 1 << 20 });
        assert!(said.len() == 1 && said[0].ends_with("using /var/tmp instead"), "{said:?}");
    }

    #[test]
    fn what_stays_free() {
        assert_eq!(reserve(50 << 30), 10 << 30);
        assert_eq!(reserve(1 << 40), (1 << 40) / 10);
    }
}
