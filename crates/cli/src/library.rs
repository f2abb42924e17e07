//! Where libream.so is: named by the user, installed beside the command, or just built.

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The variable that names the library.
pub const VARIABLE: &str = "REAM_LIBRARY";
const NAME: &str = "libream.so";
/// The library that is loaded behind it for ordinary users.
const CALLS: &str = "libream_calls.so";
/// How the libraries for programs of MPI begin.
const MPI: &str = "libream-mpi-";

/// Finds the library for the command at `command`.
///
/// # Errors
/// There is none, or its path cannot be given to the dynamic linker.
pub fn find(named: Option<OsString>, command: &Path) -> Result<PathBuf, Failure> {
    let path = match named.filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            let shown = path.display().to_string();
            let refuse = |why: &str| Failure::new(format!("{VARIABLE}: {shown}: {why}; name the file {NAME}"));
            if !path.is_file() {
                return Err(refuse("no such file"));
            }
            std::path::absolute(&path).map_err(|error| refuse(&crate::failure::reason(&error)))?
        }
        None => {
            let beside = command.parent().unwrap_or(Path::new("/"));
            let places = [beside.join(NAME), beside.join("../lib/ream").join(NAME), beside.join("../lib").join(NAME)];
            let found = places.iter().find(|path| path.is_file()).ok_or_else(|| {
                Failure::new(format!(
                    "{NAME}: not found beside {} or in ../lib/ream; install Ream whole, or name the file in {VARIABLE}",
                    command.display()
                ))
            })?;
            std::fs::canonicalize(found).unwrap_or_else(|_| found.clone())
        }
    };
    // ld.so(8): the list is separated by spaces or colons, and nothing escapes them.
    if path.as_os_str().as_bytes().iter().any(|b| matches!(b, b':' | b' ' | b'\t' | b'\n' | b'$')) {
        return Err(Failure::new(format!(
            "{}: LD_PRELOAD takes no path with blanks, colons or dollar signs; install Ream elsewhere",
            path.display()
        )));
    }
    Ok(path)
}

/// The library with libc's calls for ordinary users, beside the other.
///
/// # Errors
/// There is none.
pub fn calls(library: &Path) -> Result<PathBuf, Failure> {
    let path = library.with_file_name(CALLS);
    match path.is_file() {
        true => Ok(path),
        false => Err(Failure::new(format!("{}: no such file; install Ream whole", path.display()))),
    }
}

/// The list of preloaded libraries with ours first, and once.
pub fn preload(ours: &[&Path], before: Option<&OsStr>) -> OsString {
    let ours: Vec<&[u8]> = ours.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let others = before.unwrap_or_default().as_bytes().split(|b| *b == b':' || *b == b' ');
    let is_ours = |other: &[u8]| {
        let name = other.rsplit(|byte| *byte == b'/').next();
        let known = |name: &[u8]| name == CALLS.as_bytes() || name.starts_with(MPI.as_bytes());
        ours.contains(&other) || other.contains(&b'/') && name.is_some_and(known)
    };
    let others = others.filter(|other| !other.is_empty() && !is_ours(other));
    OsString::from_vec(ours.iter().copied().chain(others).collect::<Vec<_>>().join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_once() {
        let list = |before: &str| preload(&[Path::new("/l/libream.so")], Some(before.as_ref()));
        let both = [Path::new("/l/libream.so"), Path::new("/l/libream_calls.so")];
        assert_eq!(preload(&both, Some("/a.so:/l/libream.so".as_ref())), "/l/libream.so:/l/libream_calls.so:/a.so");
        assert_eq!(list("/l/libream.so:/l/libream_calls.so:/a.so"), "/l/libream.so:/a.so");
        assert_eq!(preload(&[Path::new("/l/libream.so")], None), "/l/libream.so");
        assert_eq!(list("/l/libream.so:/l/libream-mpi-mpich.so:/a.so"), "/l/libream.so:/a.so");
        assert_eq!(list("/a.so /b.so"), "/l/libream.so:/a.so:/b.so");
        assert_eq!(list("/a.so:/l/libream.so:"), "/l/libream.so:/a.so");
    }

    #[test]
    fn found_beside_the_command() {
        let root = std::env::temp_dir().join(format!("ream-library-{}", std::process::id()));
        let command = root.join("bin/ream");
        let text = |named: Option<&str>| find(named.map(OsString::from), &command).map_err(|failure| failure.text);
        std::fs::create_dir_all(root.join("bin")).unwrap();
        assert!(text(None).unwrap_err().starts_with("libream.so: not found beside"));
        for place in ["lib", "lib/ream", "bin"] {
            let directory = root.join(place);
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.canonicalize().unwrap().join(NAME);
            std::fs::write(&file, "").unwrap();
            assert_eq!(text(None).unwrap(), file);
        }
        std::fs::create_dir_all(root.join("a b")).unwrap();
        let odd = root.join("a b/libream.so");
        std::fs::write(&odd, "").unwrap();
        assert!(text(odd.to_str()).unwrap_err().contains("no path with blanks"));
        assert!(text(Some("/no/libream.so")).unwrap_err().starts_with("REAM_LIBRARY: /no/libream.so: no such file"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
