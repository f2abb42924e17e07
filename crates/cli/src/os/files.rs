//! Files made whole before they have a name, exchanged in one step, or kept in memory to be executed.

use super::{c_string, checked, owned};
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A directory, to be used by this descriptor whatever its name comes to mean; its path must have no symbolic links.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let path = c_string(path.as_os_str())?;
    // SAFETY: plain numbers, of which zero means nothing wanted.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: a zero-terminated path and a structure of the size given.
    owned(unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    })
}

/// Exchanges two names of one directory.
pub fn exchange_files(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (c_string(one.as_os_str())?, c_string(other.as_os_str())?);
    const HERE: libc::c_long = libc::AT_FDCWD as libc::c_long;
    // SAFETY: zero-terminated paths.
    checked(unsafe {
        libc::syscall(libc::SYS_renameat2, HERE, one.as_ptr(), HERE, other.as_ptr(), libc::RENAME_EXCHANGE)
    })
    .map(|_| ())
}

/// A new file in a directory, without a name, so that nothing is left of it when we are killed. Where the file system
/// has none such it is made under `named`, in place of what was there, and the answer says so.
pub fn nameless_file(directory: &Path, named: &Path) -> io::Result<(File, bool)> {
    let open = |flags| OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).clone();
    match open(libc::O_TMPFILE).open(directory) {
        Ok(file) => Ok((file, false)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            let _ = std::fs::remove_file(named);
            open(0).create_new(true).open(named).map(|file| (file, true))
        }
        Err(error) => Err(error),
    }
}

/// Gives a file its first name.
pub fn name_file(file: &File, path: &Path) -> io::Result<()> {
    let own = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = c_string(path.as_os_str())?;
    // SAFETY: zero-terminated paths.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, own.as_ptr(), libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    checked(done.into()).map(|_| ())
}

/// Gives a copy the extended attributes of its original: access lists, labels, a user's own.
pub fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    let mut names = vec![0u8; 64 << 10];
    // SAFETY: room for as many names as the kernel has at most.
    let length = unsafe { libc::flistxattr(from.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    let length = match checked(length as libc::c_long) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
        length => length? as usize,
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = CString::new(name)?;
        let Some(value) = attribute(from, &name) else { continue };
        if attribute(to, &name).as_ref() == Some(&value) {
            continue;
        }
        // SAFETY: a zero-terminated name and a value that is readable for its length.
        let done = unsafe { libc::fsetxattr(to.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
        checked(done.into())?;
    }
    Ok(())
}

fn attribute(file: &File, name: &CString) -> Option<Vec<u8>> {
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: a zero-terminated name, and room for the longest value.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

/// An empty file in memory that is to be executed.
pub fn program_in_memory(name: &OsStr) -> io::Result<File> {
    const EXECUTABLE: libc::c_uint = 0x10;
    let name = c_string(name)?;
    // SAFETY: a zero-terminated name.
    let make = |flags| owned(unsafe { libc::memfd_create(name.as_ptr(), flags) }.into());
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, nor need it.
    make(flags | EXECUTABLE).or_else(|_| make(flags)).map(File::from)
}

/// Has a file in memory stay as it is.
pub fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: passes numbers.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into()).map(|_| ())
}
