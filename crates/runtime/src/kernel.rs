//! The memory calls as the kernel offers them, by the numbers and bits that programs pass.

use ream_page::{Page, Run};
use ream_sys::Errno;
use ream_sys::memory;
use ream_sys::syscall::{call0, call2, call3, call4, number};

pub use memory::mmap;
pub use ream_sys::process::limit;

pub const PROT_NONE: usize = 0;
pub const PROT_READ: usize = 1;
pub const PROT_WRITE: usize = 2;
pub const PROT_READ_WRITE: usize = 3;

pub const MAP_TYPE: usize = 0x0f;
pub const MAP_SHARED: usize = 0x01;
pub const MAP_PRIVATE: usize = 0x02;
pub const MAP_FIXED: usize = 0x10;
pub const MAP_ANONYMOUS: usize = 0x20;
pub const MAP_32BIT: usize = 0x40;
pub const MAP_GROWSDOWN: usize = 0x0100;
pub const MAP_LOCKED: usize = 0x2000;
pub const MAP_NORESERVE: usize = 0x4000;
pub const MAP_POPULATE: usize = 0x8000;
pub const MAP_STACK: usize = 0x2_0000;
pub const MAP_HUGETLB: usize = 0x4_0000;
pub const MAP_FIXED_NOREPLACE: usize = 0x10_0000;

pub const MREMAP_MAYMOVE: usize = 1;
pub const MREMAP_FIXED: usize = 2;
pub const MREMAP_DONTUNMAP: usize = 4;

pub const MADV_NORMAL: usize = 0;
pub const MADV_RANDOM: usize = 1;
pub const MADV_SEQUENTIAL: usize = 2;
pub const MADV_DONTNEED: usize = 4;
pub const MADV_FREE: usize = 8;
pub const MADV_DONTFORK: usize = 10;
pub const MADV_DOFORK: usize = 11;
pub const MADV_HUGEPAGE: usize = 14;
pub const MADV_NOHUGEPAGE: usize = 15;
pub const MADV_WIPEONFORK: usize = 18;
pub const MADV_KEEPONFORK: usize = 19;
pub const MADV_COLD: usize = 20;
pub const MADV_PAGEOUT: usize = 21;
pub const MADV_POPULATE_READ: usize = 22;
pub const MADV_POPULATE_WRITE: usize = 23;
pub const MADV_DONTNEED_LOCKED: usize = 24;
pub const MADV_COLLAPSE: usize = 25;
pub const MADV_GUARD_INSTALL: usize = 102;

pub const EPERM: Errno = Errno(1);
pub const ENOENT: Errno = Errno(2);
pub const ENOMEM: Errno = Errno(12);
pub const EACCES: Errno = Errno(13);
pub const EFAULT: Errno = Errno(14);
pub const EEXIST: Errno = Errno(17);
pub const EINVAL: Errno = Errno(22);

/// # Safety
/// The caller answers for whoever uses the range.
pub unsafe fn munmap(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call2(number::__NR_munmap, address, bytes) }.map(drop)
}

/// # Safety
/// As for [`munmap`].
pub unsafe fn mremap(old: usize, old_bytes: usize, bytes: usize, flags: usize, new: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { memory::remap(core::ptr::with_exposed_provenance_mut(old), old_bytes, bytes, flags, new) }
        .map(|place| place.expose_provenance())
}

/// # Safety
/// As for [`munmap`].
pub unsafe fn madvise(address: usize, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call3(number::__NR_madvise, address, bytes, advice) }.map(drop)
}

/// `key` is a protection key, or none.
///
/// # Safety
/// As for [`munmap`].
pub unsafe fn mprotect(address: usize, bytes: usize, protection: usize, key: Option<usize>) -> Result<(), Errno> {
    match key {
        // SAFETY: the caller's promise.
        None => unsafe { call3(number::__NR_mprotect, address, bytes, protection) },
        // SAFETY: the caller's promise.
        Some(key) => unsafe { call4(number::__NR_pkey_mprotect, address, bytes, protection, key) },
    }
    .map(drop)
}

/// Whether all of a run is mapped: msync, which has nothing to write here.
pub fn is_mapped(run: Run) -> bool {
    const MS_ASYNC: usize = 1;
    // SAFETY: changes nothing.
    unsafe { call3(number::__NR_msync, run.start.address(), run.bytes(), MS_ASYNC) }.is_ok()
}

/// Tells the parts of a run that are mapped, and those that are not (false), in order of address.
pub fn each_mapped(run: Run, tell: &mut dyn FnMut(Run, bool)) {
    let mapped = is_mapped(run);
    if mapped || run.pages <= 1 {
        return tell(run, mapped);
    }
    let half = run.pages / 2;
    each_mapped(Run { start: run.start, pages: half }, tell);
    each_mapped(Run { start: Page(run.start.0 + half), pages: run.pages - half }, tell);
}

/// mlock2; flags 0 is mlock.
pub fn mlock(address: usize, bytes: usize, flags: usize) -> Result<(), Errno> {
    match flags {
        // SAFETY: locking changes no content.
        0 => unsafe { call2(number::__NR_mlock, address, bytes) },
        // SAFETY: locking changes no content.
        _ => unsafe { call3(number::__NR_mlock2, address, bytes, flags) },
    }
    .map(drop)
}

pub fn munlock(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: unlocking changes no content.
    unsafe { call2(number::__NR_munlock, address, bytes) }.map(drop)
}

pub fn mlockall(flags: usize) -> Result<(), Errno> {
    // SAFETY: locking changes no content.
    unsafe { call2(number::__NR_mlockall, flags, 0) }.map(drop)
}

pub fn munlockall() -> Result<(), Errno> {
    // SAFETY: unlocking changes no content.
    unsafe { call0(number::__NR_munlockall) }.map(drop)
}
