//! Writable static data: the parts of 1 MiB or more of the program's and its libraries' .data and .bss come under
//! management at start-up. What is mapped from the file is made anonymous memory first, because only that can be paged.

use crate::kernel::{MADV_DONTNEED, MADV_HUGEPAGE, madvise};
use crate::objects::{self, EXECUTABLE, Header, PT_GNU_RELRO, PT_LOAD, WRITABLE};
use crate::regions::Kind;
use crate::{locks, pages, pool};
#[cfg(not(feature = "inside"))]
use core::ffi::{CStr, c_char};
#[cfg(not(feature = "inside"))]
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Run};
use ream_stats::Region;
use ream_sys::memory::{self, Protection};

/// Smallest part that is managed, in bytes.
const LEAST: usize = 1 << 20;

/// The parts of one writable segment: pages mapped from the file, and fresh pages behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    from_file: Run,
    fresh: Run,
}

/// Brings all large static data under management, or onto pages of a pool. No other thread of the program may run yet.
/// Returns whether all whole blocks lie on the pages that are wanted, as far as the kernel has these.
pub fn manage() -> bool {
    let mut complete = true;
    objects::each(&mut |object| {
        // Our own data is what paging is made of.
        if object.holds((&raw const MARK).addr()) {
            remember_own(&object);
        } else {
            for header in object.headers {
                if let Some(parts) = parts(object.base, object.headers, header) {
                    complete &= take(parts);
                }
            }
        }
    });
    complete
}

/// Tells of the large parts of an object's static data, and of each whether it comes from the file.
#[cfg(not(feature = "inside"))]
pub fn each_part(object: &objects::Object, tell: &mut dyn FnMut(Run, bool)) {
    for header in object.headers {
        let parts = parts(object.base, object.headers, header);
        let both = parts.map(|parts| [(parts.fresh, false), (parts.from_file, true)]);
        for (part, from_file) in both.into_iter().flatten().filter(|(part, _)| part.bytes() >= LEAST) {
            tell(part, from_file);
        }
    }
}

/// Tells the code of every object: whole pages.
pub fn each_code(tell: &mut dyn FnMut(Run)) {
    objects::each(&mut |object| {
        let code = |header: &&Header| header.kind == PT_LOAD && header.flags & EXECUTABLE != 0;
        for header in object.headers.iter().filter(code) {
            tell(Run::covering(object.base.wrapping_add(header.address as usize), header.memory_bytes as usize));
        }
    });
}

/// Lies in our own data.
static MARK: u8 = 1;

/// Our own file's name, as the linker has it.
#[cfg(not(feature = "inside"))]
static OWN_NAME: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// The path of libream.so; `None` outside of a session.
#[cfg(not(feature = "inside"))]
pub fn own_file() -> Option<&'static CStr> {
    // SAFETY: null, or the linker's string, which stays as long as we do.
    unsafe { OWN_NAME.load(SeqCst).as_ref().map(|name| CStr::from_ptr(name)) }
}

/// Address and bytes of our own code and constants; zeros where that is not known.
static OWN_CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn remember_own(own: &objects::Object) {
    #[cfg(not(feature = "inside"))]
    OWN_NAME.store(own.name.as_ptr().cast_mut(), SeqCst);
    let fixed = |header: &&Header| header.kind == PT_LOAD && header.flags & WRITABLE == 0;
    let (mut start, mut end) = (usize::MAX, 0);
    for header in own.headers.iter().filter(fixed) {
        let address = own.base.wrapping_add(header.address as usize);
        start = start.min(address);
        end = end.max(address + header.memory_bytes as usize);
    }
    let between = |header: &Header| {
        let address = own.base.wrapping_add(header.address as usize);
        header.kind == PT_LOAD && header.flags & WRITABLE != 0 && (start..end).contains(&address)
    };
    // Whole pages: what can be written may begin in the last one.
    let run = Run::inside(start, end.saturating_sub(start));
    if run.pages > 0 && !own.headers.iter().any(between) {
        OWN_CODE[1].store(run.bytes(), SeqCst);
        OWN_CODE[0].store(run.start.address(), SeqCst);
    }
}

/// What the start has brought in of our own code counts as this process's memory, some 800 KiB, and most of it is not needed
/// again: it is let go, and what is needed comes back from the file's cache at the next touch.
pub fn let_go_of_own_code() {
    let [start, bytes] = [&OWN_CODE[0], &OWN_CODE[1]].map(|number| number.load(SeqCst));
    if start != 0 {
        // SAFETY: whole pages of a file that is mapped without the right to write.
        let _ = unsafe { madvise(start, bytes, MADV_DONTNEED) };
    }
}

fn parts(base: usize, headers: &[Header], header: &Header) -> Option<Parts> {
    if header.kind != PT_LOAD || header.flags & WRITABLE == 0 || header.flags & EXECUTABLE != 0 {
        return None;
    }
    let start = base.wrapping_add(header.address as usize);
    let file_end = start + header.file_bytes as usize;
    let end = start + header.memory_bytes as usize;
    // The beginning that is read-only once relocated.
    let relro = headers.iter().find(|other| other.kind == PT_GNU_RELRO);
    let relro_end = relro.map(|relro| base.wrapping_add((relro.address + relro.memory_bytes) as usize));
    let writable = relro_end.filter(|end| (start..=file_end).contains(end)).unwrap_or(start);
    let file_end = file_end.next_multiple_of(PAGE_BYTES);
    let from_file = Run::inside(writable, file_end.saturating_sub(writable));
    let fresh = Run::inside(file_end, end.saturating_sub(file_end));
    Some(Parts { from_file, fresh })
}

fn take(parts: Parts) -> bool {
    let pooled = pages::wanted(Region::Static).pooled();
    let mut complete = true;
    // Whole pages only: the last one of .bss may be shared with nothing, but is not ours to judge.
    if parts.fresh.bytes() >= LEAST {
        if pooled {
            complete &= pool::replace_static(parts.fresh, true, &mut |run| _ = add(run));
        } else {
            complete &= add(parts.fresh);
        }
    }
    if parts.from_file.bytes() >= LEAST {
        // SAFETY: no other thread of the program runs yet.
        let ordinary = |run| unsafe { make_anonymous(run) }.unwrap_or(false);
        if pooled {
            complete &= pool::replace_static(parts.from_file, false, &mut |run| _ = ordinary(run));
        } else {
            complete &= ordinary(parts.from_file);
        }
    }
    complete
}

/// Anonymous static data comes under management; false where it is refused large pages that are wanted.
pub fn add(run: Run) -> bool {
    let mut advised = true;
    // A block that begins in .data and ends in .bss stays on small pages: its first half is touched already.
    if pages::wanted(Region::Static).large()
        && run.start.address().next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES <= run.end().address()
    {
        // SAFETY: advice loses nothing.
        advised = unsafe { madvise(run.start.address(), run.bytes(), MADV_HUGEPAGE) }.is_ok();
    }
    locks::manage(run, Kind::Static);
    advised
}

/// Copies data out, maps anonymous memory in its place, and copies it back; a block at a time, so that data larger than
/// the budget can be paged out meanwhile. Where that fails it stays as it is. Returns whether all of it has the pages wanted.
///
/// # Safety
/// Static data that nobody else uses meanwhile.
pub unsafe fn make_anonymous(run: Run) -> Result<bool, ream_sys::Errno> {
    let mut complete = true;
    let copy = memory::map(BLOCK_BYTES, PAGE_BYTES, Protection::ReadWrite)?.as_ptr();
    let mut address = run.start.address();
    let end = run.end().address();
    while address < end {
        let next = (address + 1).next_multiple_of(BLOCK_BYTES).min(end);
        let place: *mut u8 = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the caller's promise; `copy` has room for a block. When the new mapping cannot
        // be made, the old one stays.
        unsafe {
            core::ptr::copy_nonoverlapping(place, copy, next - address);
            if memory::map_over(place, next - address, Protection::ReadWrite).is_err() {
                complete = false;
                break;
            }
            complete &= add(Run::inside(address, next - address));
            core::ptr::copy_nonoverlapping(copy, place, next - address);
        }
        address = next;
    }
    // SAFETY: our own mapping.
    unsafe { memory::unmap(copy, BLOCK_BYTES) }.map(|()| complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: u32, address: u64, file_bytes: u64, memory_bytes: u64) -> Header {
        Header { kind: PT_LOAD, flags, offset: 0, address, physical: 0, file_bytes, memory_bytes, align: 4096 }
    }

    #[test]
    fn data_begins_after_what_becomes_read_only() {
        let data = load(6, 0x3000_0db0, 0x20_0000, 0x90_0000);
        let relro = Header { kind: PT_GNU_RELRO, memory_bytes: 0x250, ..load(4, 0x3000_0db0, 0x250, 0x250) };
        let found = parts(0x10_0000, &[data, relro], &data).unwrap();
        assert_eq!(found.from_file, Run::inside(0x3010_1000, 0x20_0000));
        assert_eq!(found.fresh.start.address(), 0x3030_1000);
        assert_eq!(found.fresh.end().address(), 0x30a0_0000);
        let without = parts(0x10_0000, &[data], &data).unwrap();
        assert_eq!(without.from_file.start.address(), 0x3010_1000);
        assert_eq!(parts(0, &[], &load(5, 0, 1, 1)), None);
        assert_eq!(parts(0, &[], &load(7, 0, 1, 1)), None);
    }

    #[test]
    fn data_made_anonymous_keeps_its_content() {
        let fd = ream_sys::file::memory_file(c"data").unwrap();
        let bytes = 3 * BLOCK_BYTES + 5 * PAGE_BYTES;
        ream_sys::file::set_length(fd, bytes as u64).unwrap();
        // SAFETY: a private mapping of the test's own file.
        let place = unsafe { memory::mmap(0, bytes, 3, 2, fd.0, 0) }.unwrap();
        for page in 0..bytes / PAGE_BYTES {
            // SAFETY: within the mapping.
            unsafe { place.add(page * PAGE_BYTES).cast::<usize>().write(page) };
        }
        // SAFETY: the test's own mapping.
        unsafe { make_anonymous(Run::inside(place.expose_provenance(), bytes)) }.unwrap();
        ream_sys::file::set_length(fd, 0).unwrap();
        for page in 0..bytes / PAGE_BYTES {
            // SAFETY: within the mapping; a page of the file would be gone now.
            assert_eq!(unsafe { place.add(page * PAGE_BYTES).cast::<usize>().read() }, page);
        }
        // SAFETY: the test's own.
        unsafe { memory::unmap(place, bytes) }.unwrap();
        ream_sys::file::close(fd);
    }
}
