//! A directory of this run's own, which is gone when it ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The directory; removed when dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one, where temporary files go.
    pub fn new() -> Result<Scratch, String> {
        let directory = std::env::temp_dir();
        for number in 0u32.. {
            let path = directory.join(format!("dlmc-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 1000 => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        unreachable!("a thousand names are tried")
    }

    /// Writes what one of the sources has become, under the source's name: the compiler names its output after it.
    pub fn write(&self, number: usize, source: &Path, text: &str) -> Result<PathBuf, String> {
        let directory = self.path.join(number.to_string());
        let path = directory.join(source.file_stem().unwrap_or_default()).with_extension("i");
        let written = fs::create_dir(&directory).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
