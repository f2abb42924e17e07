//! What is executed in place of a marked program, since the kernel would hand that to Ream again and again.

use super::files::Place;
use super::{MARK_OFFSET, UNUSED};
use crate::failure::{Failure, reason};
use crate::os;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file to execute.
pub struct Stand {
    /// Its path.
    pub path: PathBuf,
    /// The name that ps is to show.
    pub name: Vec<u8>,
    /// Why it is a copy in memory, in words that follow the program's name.
    pub copied: Option<String>,
    /// The copy, which must live until the program is executed.
    _copy: Option<File>,
}

/// Finds or makes what stands for the marked program at this path.
///
/// # Errors
/// It can neither be found nor made.
pub fn stand_in(path: &Path) -> Result<Stand, Failure> {
    let fail = |error: io::Error| Failure::new(format!("{}: marked: {}", path.display(), reason(&error)));
    let real = std::fs::canonicalize(path).map_err(fail)?;
    let name = real.file_name().unwrap_or_default().as_bytes().to_vec();
    let metadata = std::fs::metadata(&real).map_err(fail)?;
    let file = File::open(&real);
    if let Some(place) = Place::of(&real).filter(|place| place.unmarked(&metadata, file.as_ref().ok())) {
        return Ok(Stand { path: place.beside, name, copied: None, _copy: None });
    }
    let copy = file.and_then(|mut file| {
        let copy = os::program_in_memory(real.file_name().unwrap_or_default())?;
        io::copy(&mut file, &mut &copy)?;
        copy.write_all_at(&UNUSED, MARK_OFFSET)?;
        os::seal(&copy)?;
        Ok(copy)
    });
    let copy = copy.map_err(fail)?;
    let why = "marked, and changed or moved since, so it is copied to memory; ream mark it again".to_owned();
    let path = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    Ok(Stand { path, name, copied: Some(why), _copy: Some(copy) })
}
