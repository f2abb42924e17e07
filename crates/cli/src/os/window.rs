//! A window onto a file: some of its blocks of 2 MiB, each mapped apart from the others, so that /proc/self/smaps tells
//! of each by itself; and what is done to the page cache behind them.

use super::{c_string, checked};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// What the kernel maps as one: bytes of a large page.
pub const BLOCK: usize = 2 << 20;
const PAGE: usize = 4096;

/// Address space with a place for each of some blocks, and gaps between them.
pub struct Window {
    reserved: usize,
    bytes: usize,
    places: usize,
}

impl Window {
    /// Reserves address space for so many blocks.
    pub fn new(places: usize) -> io::Result<Window> {
        let bytes = (2 * places + 1) * BLOCK;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes it touches nothing of ours.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Window { reserved: at.expose_provenance(), bytes, places })
    }

    /// The address of a place; a multiple of [`BLOCK`].
    pub fn address(&self, place: usize) -> usize {
        assert!(place < self.places, "a window has {} places", self.places);
        self.reserved.next_multiple_of(BLOCK) + 2 * place * BLOCK
    }

    /// Maps a block of a file for reading, to be read and held in large pages where the file system can.
    pub fn map(&self, place: usize, file: &File, offset: u64) -> io::Result<()> {
        let at = std::ptr::with_exposed_provenance_mut(self.address(place));
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: inside the reservation, which is ours and to which there are no references.
        let got = unsafe { libc::mmap(at, BLOCK, libc::PROT_READ, flags, file.as_raw_fd(), offset) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made; advice loses nothing.
        checked(libc::c_long::from(unsafe { libc::madvise(at, BLOCK, libc::MADV_HUGEPAGE) })).map(|_| ())
    }

    /// Touches a page of a place, or all of it. What cannot be read is an error, not a signal.
    pub fn touch(&self, place: usize, all: bool) -> io::Result<()> {
        const POPULATE_READ: libc::c_int = 22;
        let at = std::ptr::with_exposed_provenance_mut(self.address(place));
        // SAFETY: reads into our own mapping, to which there are no references.
        checked(unsafe { libc::madvise(at, if all { BLOCK } else { PAGE }, POPULATE_READ) }.into()).map(|_| ())
    }

    /// Unmaps what is mapped at a place.
    pub fn clear(&self, place: usize) {
        let at = std::ptr::with_exposed_provenance_mut(self.address(place));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: inside the reservation, to which there are no references. Where it fails, the file stays mapped.
        unsafe { libc::mmap(at, BLOCK, libc::PROT_NONE, flags, -1, 0) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours, and there are no references to it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.reserved), self.bytes) };
    }
}

/// Asks the kernel to drop a part of a file from the page cache. What is mapped, dirty or locked stays.
pub fn evict(file: &File, offset: u64, bytes: u64) {
    // SAFETY: numbers only; the descriptor lives.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), offset as libc::off_t, bytes as libc::off_t, libc::POSIX_FADV_DONTNEED)
    };
}

/// Whether a mapping of so many bytes of a file begins at a block where the kernel chooses its place.
pub fn begins_at_a_block(file: &File, bytes: u64) -> bool {
    let Ok(bytes) = usize::try_from(bytes) else { return false };
    // SAFETY: a new mapping where the kernel likes it touches nothing of ours.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping just made, which nothing refers to.
    unsafe { libc::munmap(at, bytes) };
    at.addr() % BLOCK == 0
}

/// Whether large pages are switched off for this process, and so for the program; where they are but for what is advised,
/// as Linux 6.18 can do it, they are not.
pub fn large_pages_are_off() -> bool {
    const ZERO: libc::c_long = 0;
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, ZERO, ZERO, ZERO, ZERO) == 1 }
}

/// Locks a file for this process, alone or together with others; returns whether that was possible at once. Released when
/// the file is closed, or locked otherwise.
pub fn lock(file: &File, alone: bool) -> io::Result<bool> {
    let how = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: numbers only; the descriptor lives.
    match checked(libc::c_long::from(unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) })) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases such a lock.
pub fn unlock(file: &File) {
    // SAFETY: numbers only; the descriptor lives.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// Whether a file lies in a file system without a disk.
pub fn is_in_ram(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    super::file_system(Path::new(&path)).is_ok_and(|system| [TMPFS, RAMFS].contains(&(system.kind & 0xffff_ffff)))
}

/// Opens a file that may have no name once more, for reading.
pub fn reopen(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a file without a name one.
pub fn give_name(file: &File, path: &Path) -> io::Result<()> {
    let from = c_string(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let to = c_string(path.as_os_str())?;
    let here = libc::AT_FDCWD;
    // SAFETY: zero-terminated paths.
    let done = unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    checked(done.into()).map(|_| ())
}
