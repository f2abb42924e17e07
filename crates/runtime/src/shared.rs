//! Memory that programs share: anonymous shared mappings, files in memory (memfd, /dev/shm), System V segments. Never
//! managed, never paged, outside the budget. On request it lies on large pages, transparent ones or, where nothing that
//! a program may do with it would change, pages of a pool.
//!
//! Files stay off the pool: there, write fails, and so does a length that is not a multiple of 2 MiB.

use crate::heap::in_session;
use crate::kernel::*;
use crate::pages::{self, wanted};
use crate::pool::{map_pages, say_once};
use crate::pooled_shared as pooled;
use crate::{engine, holds, maps};
use core::fmt;
use core::sync::atomic::AtomicBool;
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Run};
use ream_stats::{Pages, Region};
use ream_sys::Errno;
use ream_sys::file::{self, Fd, FileSystem};
use ream_sys::syscall::{call3, number};

/// Either of the two that share.
fn shares(flags: usize) -> bool {
    const MAP_SHARED_VALIDATE: usize = 3;
    matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE)
}

/// Makes the mapping that was asked for, at an address and with flags.
pub type Kernel<'a> = &'a dyn Fn(usize, usize) -> Result<usize, Errno>;

/// mmap of memory that is shared and large; `None` for everything else, and where small pages are wanted.
pub fn map(
    address: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    fd: i32,
    offset: u64,
    kernel: Kernel<'_>,
) -> Option<Result<usize, Errno>> {
    if bytes < BLOCK_BYTES || !shares(flags) || flags & (MAP_HUGETLB | MAP_GROWSDOWN) != 0 {
        return None;
    }
    let wanted = wanted(Region::Shared);
    let anonymous = flags & MAP_ANONYMOUS != 0;
    if !wanted.large() || !(anonymous || in_memory(fd)) {
        return None;
    }
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if wanted.pooled() {
        let suits = anonymous && !fixed && protection == PROT_READ_WRITE && flags & MAP_32BIT == 0;
        match if suits { take(bytes, flags & MAP_POPULATE != 0) } else { Err(Refused::Kind(anonymous)) } {
            Ok(place) => return Some(Ok(place)),
            Err(refused) => refused.say(bytes),
        }
        if pages::required(Region::Shared) {
            return Some(Err(ENOMEM));
        }
    }
    // Brought in after the advice, and not before.
    let quiet = flags & !MAP_POPULATE;
    let start = match kernel(address, quiet) {
        Ok(start) => start,
        Err(error) => return Some(Err(error)),
    };
    let offset = if anonymous { 0 } else { offset as usize };
    let anywhere = address == 0 && !fixed && flags & MAP_32BIT == 0;
    let aligned = if anywhere && !fits(start, offset) {
        place_again(start, bytes, offset, |place| kernel(place, quiet | MAP_FIXED))
    } else {
        start
    };
    // Where the pages are there already, the kernel makes no large ones of them at a touch.
    let filled = flags & MAP_LOCKED != 0 || holds::all_locked();
    advise(aligned, bytes, offset, (!anonymous || filled) && protection & PROT_WRITE != 0);
    if flags & MAP_POPULATE != 0 {
        // SAFETY: brings pages in; what is not readable stays out, as with the flag.
        let _ = unsafe { madvise(aligned, Run::covering(0, bytes).bytes(), MADV_POPULATE_READ) };
    }
    Some(Ok(aligned))
}

/// Whether a file lies in memory, and its pages can be large.
fn in_memory(fd: i32) -> bool {
    file::file_system(Fd(fd)).is_ok_and(|system| system.kind == FileSystem::TMPFS)
}

/// Whether blocks of the file, or segment, are blocks of the address space.
fn fits(start: usize, offset: usize) -> bool {
    start.wrapping_sub(offset) % BLOCK_BYTES == 0
}

/// Maps once more, with `map`, at a place where large pages fit; returns that, or where there is none, what there was.
fn place_again(start: usize, bytes: usize, offset: usize, map: impl Fn(usize) -> Result<usize, Errno>) -> usize {
    let length = Run::covering(0, bytes).bytes();
    let whole = length + BLOCK_BYTES;
    let kept = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
    let Ok(room) = (unsafe { mmap(0, whole, PROT_NONE, kept, -1, 0) }).map(|room| room.addr()) else { return start };
    let place = room + offset.wrapping_sub(room) % BLOCK_BYTES;
    // SAFETY: all three are our own: the room around the new place, and the old one, which nobody knows of.
    unsafe {
        if map(place).is_err() {
            let _ = munmap(room, whole);
            return start;
        }
        for (from, to) in [(room, place), (place + length, room + whole), (start, start + length)] {
            if from < to {
                let _ = munmap(from, to - from);
            }
        }
    }
    place
}

/// Asks for large pages from now on and, where `there`, for what is there already.
fn advise(start: usize, bytes: usize, offset: usize, there: bool) {
    let length = Run::covering(0, bytes).bytes();
    // The kernel collapses also where its administrator wants no large pages; and it has been said that there are none.
    let there = there && pages::next_for_shared() == Pages::Huge;
    // SAFETY: advice that changes no content.
    if unsafe { madvise(start, length, MADV_HUGEPAGE) }.is_err() || !there || !fits(start, offset) {
        return;
    }
    // One call for blocks side by side: each makes all processors put away their lists.
    let mut dense = 0;
    let mut block = start.next_multiple_of(BLOCK_BYTES);
    while block + BLOCK_BYTES <= start + length {
        if is_dense(block) {
            dense += BLOCK_BYTES;
        } else {
            collapse(block - dense, dense);
            dense = 0;
        }
        block += BLOCK_BYTES;
    }
    collapse(block - dense, dense);
}

fn collapse(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: changes no content; what cannot be made large stays as it is.
        let _ = unsafe { madvise(start, bytes, MADV_COLLAPSE) };
    }
}

/// Whether most pages of a block are there: fewer would cost more memory than they are worth.
fn is_dense(block: usize) -> bool {
    const PAGES: usize = BLOCK_BYTES / PAGE_BYTES;
    let mut there = [0u8; PAGES];
    // SAFETY: room for a byte a page.
    let asked = unsafe { call3(number::__NR_mincore, block, BLOCK_BYTES, there.as_mut_ptr().expose_provenance()) };
    asked.is_ok() && there.iter().filter(|page| **page & 1 != 0).count() >= PAGES * 7 / 8
}

/// Anonymous shared memory on pages of the pool.
fn take(bytes: usize, populate: bool) -> Result<usize, Refused> {
    let rounded = bytes.checked_next_multiple_of(BLOCK_BYTES).ok_or(Refused::Short(ENOMEM))?;
    let populate = populate || may_be_refused();
    let address = map_pages(rounded, BLOCK_BYTES, MAP_SHARED, populate).map_err(Refused::Short)?;
    pooled::enter(Run::inside(address, rounded), Run::covering(address, bytes)).map_err(|error| {
        // SAFETY: mapped just now. One that is not entered could not be unmapped in its length.
        let _ = unsafe { munmap(address, rounded) };
        Refused::Short(error)
    })?;
    Ok(address)
}

/// Whether a touch may fail though the pool has promised a page.
fn may_be_refused() -> bool {
    engine::account().is_some_and(|(_, session)| session.config().populate != 0)
}

/// Why shared memory does not come to lie on pages of a pool.
enum Refused {
    /// There are none.
    Short(Errno),
    /// Anonymous, or a file: it would not be the same with them.
    Kind(bool),
    /// A limit could strike at a touch, in whatever process that comes.
    Limit,
}

impl Refused {
    /// Says it, and what comes instead; each reason once.
    fn say(self, bytes: usize) {
        static SAID: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
        let [short, anonymous, file, limit] = &SAID;
        let (said, mib) = (
            match self {
                Refused::Short(_) => short,
                Refused::Kind(true) => anonymous,
                Refused::Kind(false) => file,
                Refused::Limit => limit,
            },
            bytes.next_multiple_of(BLOCK_BYTES) >> 20,
        );
        let next = match (pages::required(Region::Shared), pages::next_for_shared()) {
            (true, _) => "it is refused",
            (false, Pages::Huge) => "it gets transparent large pages",
            (false, _) => "it gets small pages",
        };
        say_once(
            said,
            format_args!("{mib} MiB of shared memory do not come to lie on pages of a pool: {self}; {next}"),
        );
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Short(ENOMEM) => f.write_str("the pool has too few left"),
            Refused::Short(EPERM) => {
                f.write_str("this user may not have segments there (vm.hugetlb_shm_group; as root: ream setup --group)")
            }
            Refused::Short(error) => write!(f, "errno {}", error.0),
            Refused::Kind(true) => f.write_str("it is mapped at a fixed place, or not readable and writable"),
            Refused::Kind(false) => f.write_str("a file there cannot be written or have any length (memfd, /dev/shm)"),
            Refused::Limit => f.write_str("a limit of the cgroup or on nodes could end a process that touches it"),
        }
    }
}

const IPC_PRIVATE: usize = 0;
const IPC_CREAT: usize = 0o1000;
const SHM_HUGETLB: usize = 0o4000;
const SHM_NORESERVE: usize = 0o10000;
const SHM_RDONLY: usize = 0o10000;
const SHM_REMAP: usize = 0o40000;

/// shmget: a new segment comes to lie on pages of the pool. The kernel keeps the size that was asked for.
pub fn get(key: usize, bytes: usize, flags: usize) -> Result<usize, Errno> {
    // SAFETY: makes or finds a segment; no memory is passed.
    let kernel = |flags| unsafe { call3(number::__NR_shmget, key, bytes, flags) };
    let makes = key == IPC_PRIVATE || flags & IPC_CREAT != 0;
    if !makes || bytes < BLOCK_BYTES || flags & SHM_HUGETLB != 0 || !wanted(Region::Shared).pooled() {
        return kernel(flags);
    }
    const SIZE_2M: usize = 21 << 26;
    // What is not reserved now could be missing at a touch, which would end the process.
    let large = if may_be_refused() {
        Err(Refused::Limit)
    } else {
        kernel(flags & !SHM_NORESERVE | SHM_HUGETLB | SIZE_2M).map_err(Refused::Short)
    };
    match large {
        Ok(id) => Ok(id),
        // Somebody else's.
        Err(Refused::Short(error @ (EEXIST | EACCES))) => Err(error),
        Err(refused) if pages::required(Region::Shared) => {
            // One that is there already is found, or refused for a reason of its own.
            match if key == IPC_PRIVATE { Err(ENOENT) } else { kernel(flags & !IPC_CREAT) } {
                Err(ENOENT) => {
                    refused.say(bytes);
                    Err(ENOMEM)
                }
                found => found,
            }
        }
        Err(refused) => {
            let id = kernel(flags)?;
            refused.say(bytes);
            Ok(id)
        }
    }
}

/// Size of a segment in bytes, as it was asked for; `None` where it may not be known.
fn segment_bytes(id: usize) -> Option<usize> {
    const IPC_STAT: usize = 2;
    // struct shmid64_ds: 48 bytes of permissions, then the size.
    let mut about = [0usize; 16];
    // SAFETY: room for the structure, which has 112 bytes.
    unsafe { call3(number::__NR_shmctl, id, IPC_STAT, (&raw mut about).expose_provenance()) }.ok()?;
    about.get(6).copied()
}

/// shmat: the segment is attached where large pages fit.
///
/// # Safety
/// As for shmat.
pub unsafe fn attach(id: usize, address: usize, flags: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let kernel = |address, flags| unsafe { call3(number::__NR_shmat, id, address, flags) };
    if !in_session() {
        return kernel(address, flags);
    }
    let wanted = wanted(Region::Shared);
    let replaces = address != 0 && flags & SHM_REMAP != 0;
    let size = if wanted.large() || replaces { segment_bytes(id) } else { None };
    if let Some(bytes) = size.filter(|bytes| replaces && maps::valid(address, *bytes)) {
        maps::replaced(Run::covering(address, bytes));
    }
    let start = kernel(address, flags).inspect_err(|error| {
        static SAID: AtomicBool = AtomicBool::new(false);
        if wanted.pooled() && *error == EINVAL && address % BLOCK_BYTES != 0 && size.is_some() {
            say_once(
                &SAID,
                format_args!(
                    "a shared segment cannot be attached at {address:#x}: on pages of a pool it begins at a multiple of \
                     2 MiB; --pages=shm=huge has no such limit"
                ),
            );
        }
    })?;
    let Some(bytes) = size.filter(|bytes| wanted.large() && *bytes >= BLOCK_BYTES) else { return Ok(start) };
    let aligned = if address == 0 && !fits(start, 0) {
        // The second attachment replaces room that is ours, and the first one goes.
        place_again(start, bytes, 0, |place| kernel(place, flags | SHM_REMAP))
    } else {
        start
    };
    advise(aligned, bytes, 0, flags & SHM_RDONLY == 0);
    Ok(aligned)
}
