//! A marked program and the unmarked one beside it: the original file itself under another name, put in place and back in
//! single steps, so that at any moment the program's name is a whole program.

use super::{MARK_OFFSET, TRAILER};
use crate::os;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// What makes a copy of a program another one.
type Change<'a> = &'a dyn Fn(&File) -> io::Result<()>;

/// The two names of a program that can be marked.
pub struct Place {
    /// The program.
    pub path: PathBuf,
    /// The unmarked original of a marked one: in the same directory, so that what a program looks for beside itself is
    /// found.
    pub beside: PathBuf,
    /// The directory that both names are looked up in, where they must not come to mean something else.
    _directory: Option<OwnedFd>,
}

impl Place {
    /// Of a file whose path has no symbolic links.
    pub fn of(path: &Path) -> Option<Place> {
        let name = path.file_name()?.as_bytes();
        let beside = [b".", name, b".unmarked"].concat();
        let most = 255;
        (beside.len() <= most).then(|| Place {
            path: path.to_owned(),
            beside: path.with_file_name(OsStr::from_bytes(&beside)),
            _directory: None,
        })
    }

    /// The same for somebody who is going to change it: names in the directory that is there now, also where its owner, who
    /// may be another user, puts another in its place meanwhile.
    pub fn held(path: &Path) -> io::Result<Option<Place>> {
        let directory = os::directory(path.parent().unwrap_or(Path::new("/")))?;
        let within = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let place = Place::of(&within.join(path.file_name().unwrap_or_default()));
        Ok(place.map(|place| Place { _directory: Some(directory), ..place }))
    }

    /// Whether the file beside a marked program is the original of just this one: marking keeps owner, mode and time, and
    /// makes the file longer by one block. Whoever changes the marked file changes one of these.
    pub fn unmarked(&self, marked: &Metadata, file: Option<&File>) -> bool {
        let Ok(beside) = std::fs::symlink_metadata(&self.beside) else { return false };
        let same = |of: fn(&Metadata) -> i64| of(&beside) == of(marked);
        beside.is_file()
            && beside.ino() != marked.ino()
            && same(|m| m.uid().into())
            && same(|m| m.gid().into())
            && same(|m| m.mode().into())
            && same(Metadata::mtime)
            && same(Metadata::mtime_nsec)
            && beside.len() + TRAILER as u64 == marked.len()
            && file.is_none_or(|file| self.same_header(file))
    }

    /// Whether the files differ in the mark only, as far as their headers go.
    fn same_header(&self, marked: &File) -> bool {
        let header = |file: &File| {
            let mut bytes = [0; 4096];
            file.read_at(&mut bytes, 0).map(|_| {
                bytes[MARK_OFFSET as usize..][..4].fill(0);
                bytes
            })
        };
        match (header(marked), File::open(&self.beside).and_then(|file| header(&file))) {
            (Ok(one), Ok(other)) => one[..64] == other[..64],
            // It may be executed and not read.
            _ => true,
        }
    }

    /// Puts a changed copy in the program's place, and the program beside it.
    pub fn exchange_for_copy(&self, file: &File, metadata: &Metadata, change: Change) -> io::Result<()> {
        self.copy(file, metadata, change)?;
        let done = os::exchange_files(&self.path, &self.beside).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => self.exchange_in_steps(),
            _ => Err(error),
        });
        if done.is_err() {
            let _ = std::fs::remove_file(&self.beside);
        }
        done?;
        self.keep()
    }

    /// The same where the file system has no single step for it.
    fn exchange_in_steps(&self) -> io::Result<()> {
        let name = [self.beside.as_os_str().as_bytes(), b"~"].concat();
        let copy = PathBuf::from(OsString::from_vec(name));
        std::fs::rename(&self.beside, &copy)?;
        let done = std::fs::hard_link(&self.path, &self.beside).and_then(|()| std::fs::rename(&copy, &self.path));
        if done.is_err() {
            let _ = std::fs::remove_file(&copy);
        }
        done
    }

    /// Puts a changed copy in the program's place.
    pub fn replace_by_copy(&self, file: &File, metadata: &Metadata, change: Change) -> io::Result<()> {
        self.copy(file, metadata, change)?;
        self.put_back().inspect_err(|_| drop(std::fs::remove_file(&self.beside)))
    }

    /// Puts the file beside it in the program's place.
    pub fn put_back(&self) -> io::Result<()> {
        std::fs::rename(&self.beside, &self.path)?;
        self.keep()
    }

    /// Has the directory written out.
    fn keep(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Makes the file beside it a changed copy of the program, complete and written out before it has a name.
    fn copy(&self, mut file: &File, metadata: &Metadata, change: Change) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let (copy, named) = os::nameless_file(directory, &self.beside)?;
        let filled = (|| {
            io::Seek::rewind(&mut file)?;
            io::copy(&mut file, &mut &copy)?;
            change(&copy)?;
            fchown(&copy, Some(metadata.uid()), Some(metadata.gid()))?;
            copy.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))?;
            os::copy_attributes(file, &copy)?;
            copy.set_times(FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?))?;
            copy.sync_all()?;
            if named {
                return Ok(());
            }
            match std::fs::remove_file(&self.beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => os::name_file(&copy, &self.beside),
            }
        })();
        if named && filled.is_err() {
            let _ = std::fs::remove_file(&self.beside);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of a directory puts another in its place while the program in it is looked at.
    #[test]
    fn another_directory_of_the_same_name_stays_as_it_is() {
        let place = std::env::temp_dir().join(format!("ream-mark-held-{}", std::process::id()));
        let (named, moved) = (place.join("here"), place.join("there"));
        std::fs::create_dir_all(&named).unwrap();
        let place_of = std::fs::canonicalize(&named).unwrap();
        std::fs::write(named.join("program"), "one").unwrap();
        let held = Place::held(&place_of.join("program")).unwrap().unwrap();
        std::fs::rename(&named, &moved).unwrap();
        std::fs::create_dir(&named).unwrap();
        std::fs::write(named.join("program"), "other").unwrap();
        let file = File::open(&held.path).unwrap();
        held.exchange_for_copy(&file, &file.metadata().unwrap(), &|copy| copy.write_all_at(b"ONE", 0)).unwrap();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(moved.join("program")), "ONE");
        assert_eq!(read(moved.join(".program.unmarked")), "one");
        assert_eq!(read(named.join("program")), "other");
        assert_eq!(std::fs::read_dir(&named).unwrap().count(), 1);
        std::fs::remove_dir_all(place).unwrap();
        assert!(Place::held(&place_of.join("program")).is_err());
    }
}
