//! Files and descriptors: the store file, memory files, page maps, and a descriptor table of the pager's own.
//! A [`Fd`] is a plain number: who opens it closes it.

use crate::Errno;
use crate::process;
use crate::syscall::{call1, call2, call3, call4, call5, number};
use core::ffi::CStr;

/// An open descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fd(pub i32);

impl Fd {
    /// Standard error.
    pub const STDERR: Fd = Fd(2);
    /// No descriptor.
    pub const NONE: Fd = Fd(-1);

    pub(crate) fn arg(self) -> usize {
        self.0 as usize
    }
}

const AT_FDCWD: usize = -100isize as usize;

/// Flags of open, the kernel's numbers.
pub mod flags {
    use linux_raw_sys::general as raw;
    /// Read only.
    pub const READ: u32 = raw::O_RDONLY;
    /// Write only.
    pub const WRITE: u32 = raw::O_WRONLY;
    /// Read and write.
    pub const READ_WRITE: u32 = raw::O_RDWR;
    /// Make it if it is not there.
    pub const CREATE: u32 = raw::O_CREAT;
    /// Fail if it is there.
    pub const NEW: u32 = raw::O_EXCL;
    /// Append.
    pub const APPEND: u32 = raw::O_APPEND;
    /// Cut to nothing.
    pub const TRUNCATE: u32 = raw::O_TRUNC;
    /// A directory.
    pub const DIRECTORY: u32 = raw::O_DIRECTORY;
    /// Past the page cache.
    pub const DIRECT: u32 = raw::O_DIRECT;
    /// Unnamed, in the directory given.
    pub const UNNAMED: u32 = raw::O_TMPFILE;
    /// Never wait.
    pub const NONBLOCK: u32 = raw::O_NONBLOCK;
    /// Not through a symbolic link.
    pub const NO_FOLLOW: u32 = raw::O_NOFOLLOW;
}

/// Opens `path`, closed on exec.
pub fn open(path: &CStr, flags: u32, mode: u32) -> Result<Fd, Errno> {
    open_at(Fd(AT_FDCWD as i32), path, flags, mode)
}

/// Opens `path` seen from the directory `at`, closed on exec.
pub fn open_at(at: Fd, path: &CStr, flags: u32, mode: u32) -> Result<Fd, Errno> {
    let flags = flags | linux_raw_sys::general::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe {
        call4(number::__NR_openat, at.arg(), path.as_ptr().expose_provenance(), flags as usize, mode as usize)
    }?;
    Ok(Fd(fd as i32))
}

/// Closes a descriptor.
pub fn close(fd: Fd) {
    // SAFETY: no memory is touched.
    let _ = unsafe { call1(number::__NR_close, fd.arg()) };
}

/// How a store file came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreFile {
    /// The file: unnamed, 0600, read and write.
    pub fd: Fd,
    /// Whether it goes past the page cache; false where the file system cannot.
    pub direct: bool,
}

/// Makes an unnamed file in `directory`. Where the file system has no O_TMPFILE it is made with a name and unlinked
/// at once.
pub fn create_store(directory: &CStr) -> Result<StoreFile, Errno> {
    let mut last = Errno::INVAL;
    for direct in [true, false] {
        let extra = if direct { flags::DIRECT } else { 0 };
        match open(directory, flags::UNNAMED | flags::READ_WRITE | extra, 0o600) {
            Ok(fd) => return Ok(StoreFile { fd, direct }),
            // The errors of kernels and file systems without O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
        match create_and_unlink(directory, extra) {
            Ok(fd) => return Ok(StoreFile { fd, direct }),
            Err(error) => last = error,
        }
        if last != Errno::INVAL {
            break;
        }
    }
    Err(last)
}

fn create_and_unlink(directory: &CStr, extra: u32) -> Result<Fd, Errno> {
    let at = open(directory, flags::DIRECTORY | flags::READ, 0)?;
    let mut result = Err(Errno::EXIST);
    for _ in 0..8 {
        let mut name = *b".ream-0000000000000000\0";
        let mut random = [0u8; 16];
        process::random(&mut random)?;
        for (letter, byte) in name.iter_mut().skip(6).zip(random) {
            *letter = b'a' + byte % 16;
        }
        let Ok(path) = CStr::from_bytes_with_nul(&name) else { break };
        let wanted = flags::CREATE | flags::NEW | flags::NO_FOLLOW | flags::READ_WRITE | extra;
        result = open_at(at, path, wanted, 0o600);
        if result.is_ok() || result == Err(Errno::INVAL) {
            // A file system that refuses O_DIRECT may have made the file all the same.
            // SAFETY: the path ends with a zero byte.
            let _ = unsafe { call3(number::__NR_unlinkat, at.arg(), path.as_ptr().expose_provenance(), 0) };
        }
        if result != Err(Errno::EXIST) {
            break;
        }
    }
    close(at);
    result
}

/// Lets everybody who can reach it open a store, which has no name: through the /proc directories of processes that have
/// it open, for whoever may look into those. Not where the file system has kept a name for it.
pub fn open_to_all(store: Fd) {
    type Stat = linux_raw_sys::general::stat;
    let mut stat = core::mem::MaybeUninit::<Stat>::uninit();
    // SAFETY: the kernel fills in a structure of this type, and touches no other memory.
    unsafe {
        let known = call2(number::__NR_fstat, store.arg(), stat.as_mut_ptr().expose_provenance());
        if known.is_ok() && stat.assume_init().st_nlink == 0 {
            let _ = call2(number::__NR_fchmod, store.arg(), 0o666);
        }
    }
}

/// A file in memory without a name in any directory, closed on exec.
pub fn memory_file(name: &CStr) -> Result<Fd, Errno> {
    const MFD_CLOEXEC: usize = 1;
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { call2(number::__NR_memfd_create, name.as_ptr().expose_provenance(), MFD_CLOEXEC) }?;
    Ok(Fd(fd as i32))
}

/// A counter that can be polled (eventfd), nonblocking, closed on exec.
pub fn event_counter() -> Result<Fd, Errno> {
    let flags = linux_raw_sys::general::O_CLOEXEC | linux_raw_sys::general::O_NONBLOCK;
    // SAFETY: no memory is touched.
    let fd = unsafe { call2(number::__NR_eventfd2, 0, flags as usize) }?;
    Ok(Fd(fd as i32))
}

/// Sets the length of a file.
pub fn set_length(fd: Fd, bytes: u64) -> Result<(), Errno> {
    // SAFETY: no memory is touched.
    unsafe { call2(number::__NR_ftruncate, fd.arg(), bytes as usize) }.map(|_| ())
}

/// Reads from where the descriptor stands; the number of bytes.
pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into the buffer, at most its length.
    unsafe { call3(number::__NR_read, fd.arg(), buffer.as_mut_ptr().expose_provenance(), buffer.len()) }
}

/// Writes at where the descriptor stands; the number of bytes.
pub fn write(fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads the bytes.
    unsafe { call3(number::__NR_write, fd.arg(), bytes.as_ptr().expose_provenance(), bytes.len()) }
}

/// Reads at `offset`; the number of bytes.
pub fn read_at(fd: Fd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let place = buffer.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes into the buffer, at most its length.
    unsafe { call4(number::__NR_pread64, fd.arg(), place, buffer.len(), offset as usize) }
}

/// Writes at `offset`; the number of bytes.
pub fn write_at(fd: Fd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let place = bytes.as_ptr().expose_provenance();
    // SAFETY: the kernel reads the bytes.
    unsafe { call4(number::__NR_pwrite64, fd.arg(), place, bytes.len(), offset as usize) }
}

/// Part of a vectored read or write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Address of the first byte.
    pub address: usize,
    /// Bytes.
    pub bytes: usize,
}

// SAFETY: two integers.
unsafe impl crate::memory::Zeroable for Part {}

/// preadv of raw memory.
///
/// # Safety
/// Every part must be memory that may be overwritten.
pub unsafe fn read_parts(fd: Fd, parts: &[Part], offset: u64) -> Result<usize, Errno> {
    let place = parts.as_ptr().expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call5(number::__NR_preadv, fd.arg(), place, parts.len(), offset as usize, 0) }
}

/// pwritev of raw memory.
///
/// # Safety
/// Every part must be readable memory.
pub unsafe fn write_parts(fd: Fd, parts: &[Part], offset: u64) -> Result<usize, Errno> {
    let place = parts.as_ptr().expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call5(number::__NR_pwritev, fd.arg(), place, parts.len(), offset as usize, 0) }
}

/// FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
pub(crate) const PUNCH: usize = 3;

/// Claims space for `bytes` from `offset` on, growing the file where needed.
pub fn allocate(fd: Fd, offset: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: no memory is touched.
    unsafe { call4(number::__NR_fallocate, fd.arg(), 0, offset as usize, bytes as usize) }.map(|_| ())
}

/// Gives the space of `bytes` from `offset` on back to the file system; they read as zeros afterwards.
pub fn punch(fd: Fd, offset: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: no memory is touched.
    unsafe { call4(number::__NR_fallocate, fd.arg(), PUNCH, offset as usize, bytes as usize) }.map(|_| ())
}

/// What is known of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// The kernel's magic number of its kind.
    pub kind: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes free to ordinary users.
    pub free: u64,
}

impl FileSystem {
    /// tmpfs: memory.
    pub const TMPFS: u64 = 0x0102_1994;
    /// ramfs: memory.
    pub const RAMFS: u64 = 0x8584_58f6;

    /// Whether files there live in memory.
    pub const fn in_memory(self) -> bool {
        self.kind == FileSystem::TMPFS || self.kind == FileSystem::RAMFS
    }
}

/// Asks about the file system that holds an open file.
pub fn file_system(fd: Fd) -> Result<FileSystem, Errno> {
    let mut all = [0u64; 15];
    // SAFETY: struct statfs has 120 bytes on 64-bit Linux.
    unsafe { call2(number::__NR_fstatfs, fd.arg(), all.as_mut_ptr().expose_provenance()) }?;
    let [kind, block, blocks, _, free, ..] = all;
    Ok(FileSystem { kind, bytes: blocks.saturating_mul(block), free: free.saturating_mul(block) })
}

/// Copies a descriptor to the lowest free number at or above `least`, closed on exec.
pub fn duplicate(fd: Fd, least: i32) -> Result<Fd, Errno> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // SAFETY: no memory is touched.
    let copy = unsafe { call3(number::__NR_fcntl, fd.arg(), F_DUPFD_CLOEXEC, least as usize) }?;
    Ok(Fd(copy as i32))
}

/// Closes every descriptor of the calling thread's table but those in `keep`, which is sorted in passing.
pub fn close_all_but(keep: &mut [Fd]) -> Result<(), Errno> {
    keep.sort_unstable();
    let mut first = 0usize;
    for fd in keep.iter().filter(|fd| fd.0 >= 0) {
        if fd.arg() > first {
            close_range(first, fd.arg() - 1)?;
        }
        first = fd.arg() + 1;
    }
    close_range(first, u32::MAX as usize)
}

fn close_range(first: usize, last: usize) -> Result<(), Errno> {
    // SAFETY: no memory is touched.
    match unsafe { call3(number::__NR_close_range, first, last, 0) } {
        Err(Errno::NOSYS) => {
            // Before Linux 5.9: one by one, as far as descriptors usually go.
            for fd in first..=last.min(65_535) {
                close(Fd(fd as i32));
            }
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

/// Reads a symbolic link into `buffer`; the number of bytes.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
    read_link_at(Fd(AT_FDCWD as i32), path, buffer)
}

/// The same, seen from the directory `at`.
pub fn read_link_at(at: Fd, path: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
    let (name, place) = (path.as_ptr().expose_provenance(), buffer.as_mut_ptr().expose_provenance());
    // SAFETY: the path ends with a zero byte; the kernel writes at most the buffer's length.
    unsafe { call4(number::__NR_readlinkat, at.arg(), name, place, buffer.len()) }
}

/// While it exists, and has been raised, this process may open as many files as its hard limit allows.
pub struct MoreFiles(Option<[u64; 2]>);

impl MoreFiles {
    /// The limit as it is.
    pub const fn not_yet() -> MoreFiles {
        MoreFiles(None)
    }
    /// Raises it; false when it is raised already, or cannot be.
    pub fn raise(&mut self) -> bool {
        let mut limits = [0u64; 2];
        let place = (&raw mut limits).expose_provenance();
        // SAFETY: the buffer is valid for the call, and as large as struct rlimit64.
        let known = unsafe { call4(number::__NR_prlimit64, 0, FILES, 0, place) };
        let [soft, hard] = limits;
        if self.0.is_some() || known.is_err() || soft >= hard || !limit_files([hard, hard]) {
            return false;
        }
        self.0 = Some(limits);
        true
    }
}

impl Drop for MoreFiles {
    fn drop(&mut self) {
        if let Some(limits) = self.0 {
            limit_files(limits);
        }
    }
}

/// Bytes that a file may have which this process writes (RLIMIT_FSIZE).
pub fn size_limit() -> u64 {
    const SIZE: usize = 1;
    let mut limits = [u64::MAX; 2];
    let place = (&raw mut limits).expose_provenance();
    // SAFETY: the buffer is valid for the call, and as large as struct rlimit64.
    let _ = unsafe { call4(number::__NR_prlimit64, 0, SIZE, 0, place) };
    let [soft, _] = limits;
    soft
}

/// RLIMIT_NOFILE.
const FILES: usize = 7;

fn limit_files(limits: [u64; 2]) -> bool {
    // SAFETY: as large as struct rlimit64, and only read.
    unsafe { call4(number::__NR_prlimit64, 0, FILES, (&raw const limits).expose_provenance(), 0) }.is_ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn store_files_have_no_name_and_can_be_punched() {
        let directory = std::ffi::CString::new(std::env::temp_dir().as_os_str().as_encoded_bytes()).unwrap();
        let named = create_and_unlink(&directory, 0).unwrap();
        let store = create_store(&directory).unwrap();
        for fd in [named, store.fd] {
            allocate(fd, 0, 1 << 20).unwrap();
            punch(fd, 0, 4096).unwrap();
            let path = std::ffi::CString::new(std::format!("/proc/self/fd/{}", fd.0)).unwrap();
            let mut link = [0u8; 4096];
            let n = read_link(&path, &mut link).unwrap();
            assert!(link[..n].ends_with(b"(deleted)"), "still has a name");
            assert!(file_system(fd).unwrap().free > 0);
            close(fd);
        }
        assert!(create_store(c"/nonexistent-directory").is_err());
    }

    #[test]
    fn memory_files_hold_what_is_written() {
        let fd = memory_file(c"test").unwrap();
        assert!(file_system(fd).unwrap().in_memory());
        set_length(fd, 8192).unwrap();
        assert_eq!(write_at(fd, b"abc", 5000), Ok(3));
        let high = duplicate(fd, 700).unwrap();
        assert!(high.0 >= 700);
        close(fd);
        let mut back = [0u8; 3];
        assert_eq!(read_at(high, &mut back, 5000), Ok(3));
        assert_eq!(&back, b"abc");
        close(high);
    }
}
