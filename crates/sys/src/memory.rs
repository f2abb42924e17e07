//! Memory of the pager's own and of the program: map, unmap, protect, advise, and slices on fresh mappings.
//! Nothing here calls an allocator; mappings are anonymous, private and without reserve unless said otherwise.

use crate::Errno;
use crate::file::Fd;
use crate::syscall::{call2, call3, call5, call6, number};
use core::marker::PhantomData;
use core::ptr::NonNull;
use ream_page::{BLOCK_BYTES, PAGE_BYTES};

/// What may be done with mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Protection {
    /// Nothing: a guard or a reservation.
    None = 0,
    /// Read only.
    Read = 1,
    /// Read and write.
    ReadWrite = 3,
}

/// Advice to the kernel (madvise).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Advice {
    /// Give the pages back; they read as zeros, or fault to the pager, afterwards.
    DontNeed = 4,
    /// Absent in children made by fork.
    DontFork = 10,
    /// Undoes `DontFork`.
    DoFork = 11,
    /// Large pages wanted.
    HugePage = 14,
    /// Large pages unwanted.
    NoHugePage = 15,
    /// Left out of core dumps.
    DontDump = 16,
    /// Children made by fork see zeros.
    WipeOnFork = 18,
    /// Not used lately; a large page of which only a part is mapped becomes small ones.
    Cold = 20,
    /// Fault pages in for writing; makes pages shared with a forked child ours alone.
    PopulateWrite = 23,
    /// Makes a block that is in RAM one large page now (Linux 6.1).
    Collapse = 25,
}

const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;

/// mmap as it is.
///
/// # Safety
/// With MAP_FIXED, or a file that changes, the caller answers for whoever uses the range.
pub unsafe fn mmap(
    address: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    fd: i32,
    offset: u64,
) -> Result<*mut u8, Errno> {
    // SAFETY: the caller's promise.
    let place = unsafe { call6(number::__NR_mmap, address, bytes, protection, flags, fd as usize, offset as usize) }?;
    Ok(core::ptr::with_exposed_provenance_mut(place))
}

/// Maps `bytes` of fresh anonymous memory aligned to `align` (4096 or a larger power of two). It reads as zeros.
pub fn map(bytes: usize, align: usize, protection: Protection) -> Result<NonNull<u8>, Errno> {
    let bytes = bytes.div_ceil(PAGE_BYTES).max(1) * PAGE_BYTES;
    let extra = if align > PAGE_BYTES { align } else { 0 };
    let whole = bytes.checked_add(extra).ok_or(Errno::NOMEM)?;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
    let start = unsafe { mmap(0, whole, protection as usize, flags, -1, 0) }?;
    let skip = if extra > 0 { start.addr().next_multiple_of(align) - start.addr() } else { 0 };
    // SAFETY: head and tail of the mapping made above, which nobody else knows of.
    unsafe {
        if skip > 0 {
            let _ = unmap(start, skip);
        }
        if extra > skip {
            let _ = unmap(start.add(skip + bytes), extra - skip);
        }
        NonNull::new(start.add(skip)).ok_or(Errno::NOMEM)
    }
}

/// Replaces whatever is mapped at `address` by fresh anonymous memory.
///
/// # Safety
/// Nobody may rely on what is mapped there.
pub unsafe fn map_over(address: *mut u8, bytes: usize, protection: Protection) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe { mmap(address.expose_provenance(), bytes, protection as usize, flags, -1, 0) }.map(|_| ())
}

/// Maps a file, shared with everyone who maps it.
pub fn map_shared(fd: Fd, bytes: usize, protection: Protection) -> Result<NonNull<u8>, Errno> {
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses; what is in it is the caller's to judge.
    let start = unsafe { mmap(0, bytes, protection as usize, MAP_SHARED, fd.0, 0) }?;
    NonNull::new(start).ok_or(Errno::NOMEM)
}

/// Unmaps a range.
///
/// # Safety
/// Nobody may use the range any more. A range registered with a userfaultfd must not be unmapped by the thread that
/// reads its events: it would wait for itself.
pub unsafe fn unmap(address: *mut u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call2(number::__NR_munmap, address.expose_provenance(), bytes) }.map(|_| ())
}

/// Changes what may be done with a range.
///
/// # Safety
/// Users of the range must be content with the new protection.
pub unsafe fn protect(address: *mut u8, bytes: usize, protection: Protection) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call3(number::__NR_mprotect, address.expose_provenance(), bytes, protection as usize) }.map(|_| ())
}

/// Advises the kernel about a range given by address, which need not be this program's own allocation.
///
/// # Safety
/// `DontNeed` and `WipeOnFork` lose content: nobody may rely on it.
pub unsafe fn advise(address: usize, bytes: usize, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call3(number::__NR_madvise, address, bytes, advice as usize) }.map(|_| ())
}

/// Discards parts of this process's memory, each an address and a length, in one call, of which other processors hear once
/// (Linux 6.16); `own` watches this process. How many bytes, from the first on. Before Linux 6.13 an error.
///
/// # Safety
/// Their content is lost: nobody may rely on it.
pub unsafe fn discard_all(own: Fd, parts: &[[usize; 2]]) -> Result<usize, Errno> {
    if parts.is_empty() {
        return Ok(0);
    }
    let list = parts.as_ptr().expose_provenance();
    // SAFETY: the kernel reads the list; for the rest the caller's promise.
    unsafe { call5(number::__NR_process_madvise, own.arg(), list, parts.len(), Advice::DontNeed as usize, 0) }
}

/// The same, one by one where they do not go in one call.
///
/// # Safety
/// As of [`discard_all`].
pub unsafe fn discard_each(own: Fd, parts: &[[usize; 2]]) {
    let whole = parts.iter().map(|[_, bytes]| bytes).sum();
    // SAFETY: the caller's promise.
    if parts.len() > 1 && unsafe { discard_all(own, parts) } == Ok(whole) {
        return;
    }
    for [address, bytes] in parts {
        // SAFETY: as above.
        let _ = unsafe { advise(*address, *bytes, Advice::DontNeed) };
    }
}

/// mremap as it is; `flags` are the kernel's.
///
/// # Safety
/// The old range is gone afterwards; with MREMAP_FIXED also what was at `place`.
pub unsafe fn remap(
    old: *mut u8,
    old_bytes: usize,
    bytes: usize,
    flags: usize,
    place: usize,
) -> Result<*mut u8, Errno> {
    // SAFETY: the caller's promise.
    let new = unsafe { call5(number::__NR_mremap, old.expose_provenance(), old_bytes, bytes, flags, place) }?;
    Ok(core::ptr::with_exposed_provenance_mut(new))
}

/// Gives an anonymous mapping a name in /proc/PID/maps, where the kernel can (best effort). A name makes the mapping
/// one of its own: never name a part of a range that pages move into or out of.
pub fn name(address: *mut u8, bytes: usize, name: &'static core::ffi::CStr) {
    const PR_SET_VMA: usize = 0x5356_4d41;
    // SAFETY: names do not change what memory holds; the string is static.
    let _ =
        unsafe { call5(number::__NR_prctl, PR_SET_VMA, 0, address.expose_provenance(), bytes, name.as_ptr() as usize) };
}

/// Whether any mapping holds the page at `address` (a multiple of 4096), present or not.
pub fn is_mapped(address: usize) -> bool {
    let mut vector = 0u8;
    // SAFETY: mincore writes one byte for the one page.
    let answer = unsafe { call3(number::__NR_mincore, address, PAGE_BYTES, (&raw mut vector).expose_provenance()) };
    answer != Err(Errno::NOMEM)
}

/// Types for which bytes of zero are a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and dropping it must do nothing.
pub unsafe trait Zeroable: Copy {}

macro_rules! zeroable {
    ($($kind:ty),*) => {
        $(
            // SAFETY: integers, and words made of them, are valid as zeros.
            unsafe impl Zeroable for $kind {}
        )*
    };
}
zeroable!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, ream_page::Word);
// SAFETY: element by element.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}
// SAFETY: element by element.
unsafe impl<A: Zeroable, B: Zeroable> Zeroable for (A, B) {}

/// A slice of fixed length on a mapping of its own, zero at first; pages cost memory only once written.
pub struct MapSlice<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: it owns its memory like a box of T.
unsafe impl<T: Zeroable + Send> Send for MapSlice<T> {}
// SAFETY: it owns its memory like a box of T.
unsafe impl<T: Zeroable + Sync> Sync for MapSlice<T> {}

/// Tables from this size on get large pages where those are on for everyone. The smaller ones, most of which are nearly empty, do not:
/// together they took 10 MiB of a process then, which no budget had heard of.
const LARGE_TABLE: usize = 8 * BLOCK_BYTES;

impl<T: Zeroable> MapSlice<T> {
    /// Maps room for `len` values, all zero.
    pub fn new(len: usize) -> Result<MapSlice<T>, Errno> {
        MapSlice::with_room(len, len)
    }
    /// The same, where most probably only the first `usual` of them are used: those decide on which pages it lies.
    pub fn with_room(len: usize, usual: usize) -> Result<MapSlice<T>, Errno> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
        if bytes == 0 {
            return Ok(MapSlice::empty());
        }
        let is_large = usual.min(len) * size_of::<T>() >= LARGE_TABLE;
        let start = map(bytes, if is_large { BLOCK_BYTES } else { PAGE_BYTES }, Protection::ReadWrite)?;
        if !is_large {
            // SAFETY: our own memory, which keeps its content.
            let _ = unsafe { advise(start.as_ptr().expose_provenance(), bytes, Advice::NoHugePage) };
        }
        Ok(MapSlice { start: start.cast(), len, owns: PhantomData })
    }
    /// A slice of no values.
    pub const fn empty() -> MapSlice<T> {
        MapSlice { start: NonNull::dangling(), len: 0, owns: PhantomData }
    }
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The value at `index`.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.as_slice().get(index)
    }
    /// The value at `index`, to change.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.as_mut_slice().get_mut(index)
    }
    /// All values.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the mapping holds `len` values, zero or written through `&mut self`, and lives as long as self.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
    /// All values, to change.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
    /// Asks for large pages under it.
    pub fn prefer_large(&self) {
        // SAFETY: large pages change no content.
        let _ = unsafe { advise(self.start.as_ptr().expose_provenance(), self.len * size_of::<T>(), Advice::HugePage) };
    }
    /// Address of the first value.
    pub fn as_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }
    /// The values for the rest of the process's life.
    pub fn leak(self) -> &'static mut [T] {
        let all = core::mem::ManuallyDrop::new(self);
        // SAFETY: nothing unmaps the memory any more, and the owner is gone.
        unsafe { core::slice::from_raw_parts_mut(all.start.as_ptr(), all.len) }
    }
}

impl<T: Zeroable> Drop for MapSlice<T> {
    fn drop(&mut self) {
        let bytes = (self.len * size_of::<T>()).next_multiple_of(PAGE_BYTES);
        if bytes > 0 {
            // SAFETY: our own mapping, to which no reference is left.
            let _ = unsafe { unmap(self.start.as_ptr().cast(), bytes) };
        }
    }
}

/// Needed to put a value between two threads.
///
/// # Safety
/// All fields are atomics, and all-zero bytes a valid value; it wants no more than a page's alignment.
pub(crate) unsafe trait Atomics {}

/// Atomics, zero at first, on a mapping of their own: what two threads share.
pub(crate) struct Shared<T: Atomics> {
    memory: MapSlice<u8>,
    holds: PhantomData<T>,
}

impl<T: Atomics> Shared<T> {
    pub(crate) fn new() -> Result<Shared<T>, Errno> {
        Ok(Shared { memory: MapSlice::new(size_of::<T>().next_multiple_of(PAGE_BYTES))?, holds: PhantomData })
    }
}

impl<T: Atomics> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: whole pages, aligned to one, large enough, zero at first, which live as long as self; `Atomics` promises that
        // zeros are a value, and that shared references suffice to change it.
        unsafe { &*self.memory.as_ptr().cast::<T>() }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::process;
    use crate::thread::{self, Files};
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn aligned_maps_are_aligned_and_zero() {
        let place = map(3 * PAGE_BYTES, BLOCK_BYTES, Protection::ReadWrite).unwrap();
        assert_eq!(place.addr().get() % BLOCK_BYTES, 0);
        // SAFETY: mapped above, and unmapped at the end.
        unsafe {
            assert_eq!(*place.as_ptr().add(3 * PAGE_BYTES - 1), 0);
            assert!(is_mapped(place.addr().get()));
            unmap(place.as_ptr(), 3 * PAGE_BYTES).unwrap();
            assert!(!is_mapped(place.addr().get()));
        }
    }

    #[test]
    fn parts_are_discarded_in_one_call_and_without_it() {
        let own = process::watch_process(process::process_id()).unwrap_or(Fd::NONE);
        for own in [own, Fd::NONE] {
            let place = map(8 * PAGE_BYTES, PAGE_BYTES, Protection::ReadWrite).unwrap().as_ptr();
            let page = |index: usize| place.wrapping_add(index * PAGE_BYTES);
            let part = |first: usize, pages: usize| [page(first).expose_provenance(), pages * PAGE_BYTES];
            // SAFETY: mapped above, used by nobody else, and unmapped at the end.
            let left: [u8; 8] = unsafe {
                (0..8).for_each(|index| *page(index) = 1);
                discard_each(own, &[part(0, 1), part(2, 3), part(7, 1)]);
                discard_each(own, &[part(6, 1)]);
                discard_each(own, &[]);
                core::array::from_fn(|index| *page(index))
            };
            assert_eq!(left, [0, 1, 0, 0, 0, 1, 0, 0]);
            // SAFETY: as above.
            unsafe { unmap(place, 8 * PAGE_BYTES).unwrap() };
        }
    }

    /// Whether the mapping at an address has this flag.
    fn has_flag(address: usize, flag: &str) -> bool {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut here = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |digits: &str| usize::from_str_radix(digits, 16).ok();
            if let Some((start, end)) = range.and_then(|(start, end)| Some((number(start)?, number(end)?))) {
                here = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| here) {
                return flags.split(' ').any(|one| one == flag);
            }
        }
        panic!("not mapped");
    }

    static ON_STACK: AtomicUsize = AtomicUsize::new(0);

    fn stay(_: *mut ()) -> ! {
        let here = 0u8;
        ON_STACK.store((&raw const here).expose_provenance(), Ordering::SeqCst);
        while ON_STACK.load(Ordering::SeqCst) != 0 {
            process::sleep_us(100);
        }
        thread::exit()
    }

    #[test]
    fn stacks_of_own_threads_are_in_no_core_dump() {
        // SAFETY: `stay` uses no thread-local data, and no argument.
        let own = unsafe { thread::spawn(stay, core::ptr::null_mut(), 64 << 10, Files::Shared) }.unwrap();
        while ON_STACK.load(Ordering::SeqCst) == 0 {
            process::sleep_us(100);
        }
        let left_out = has_flag(ON_STACK.load(Ordering::SeqCst), "dd");
        ON_STACK.store(0, Ordering::SeqCst);
        own.join();
        assert!(left_out);
    }

    #[test]
    fn what_is_used_of_a_table_decides_on_its_pages() {
        let pages = |slice: MapSlice<u8>| has_flag(slice.as_ptr().expose_provenance(), "nh");
        assert!(pages(MapSlice::new(1 << 20).unwrap()));
        assert!(!pages(MapSlice::new(LARGE_TABLE).unwrap()));
        assert!(pages(MapSlice::with_room(8 * LARGE_TABLE, LARGE_TABLE - 1).unwrap()));
        assert!(!pages(MapSlice::with_room(8 * LARGE_TABLE, LARGE_TABLE).unwrap()));
    }

    #[test]
    fn slices_start_zero_and_refuse_wrong_indices() {
        let mut slice = MapSlice::<u64>::new(1000).unwrap();
        assert!(slice.as_slice().iter().all(|value| *value == 0));
        *slice.get_mut(999).unwrap() = 7;
        assert_eq!(slice.get(999), Some(&7));
        assert_eq!(slice.get(1000), None);
        assert!(MapSlice::<u64>::new(usize::MAX).is_err());
        assert!(MapSlice::<u32>::new(0).unwrap().is_empty());
    }
}
