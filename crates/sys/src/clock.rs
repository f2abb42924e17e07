//! The clock without a system call: the function that the kernel maps into every process for it (vDSO).
//! Found once; until then, and wherever it is not found, the system call serves.

use crate::file;
use crate::futex::TimeSpec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};

type Function = extern "C" fn(usize, *mut TimeSpec) -> i32;

static FUNCTION: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

#[cfg(target_arch = "x86_64")]
const NAME: &[u8] = b"__vdso_clock_gettime\0";
#[cfg(target_arch = "aarch64")]
const NAME: &[u8] = b"__kernel_clock_gettime\0";

/// Reads a clock by the mapped function; false when there is none.
#[inline]
pub(crate) fn read(clock: usize, time: &mut TimeSpec) -> bool {
    let place = FUNCTION.load(Ordering::Relaxed);
    if place.is_null() {
        return false;
    }
    // SAFETY: only `find` stores here: the address of the kernel's clock_gettime, which has this signature, uses
    // little stack and no thread-local data, and stays mapped as long as the process.
    let function = unsafe { core::mem::transmute::<*mut (), Function>(place) };
    function(clock, time) == 0
}

/// Looks for the function. Reads one file in /proc; any thread may call it, more than once.
pub fn find() {
    if FUNCTION.load(Ordering::Relaxed).is_null() {
        // SAFETY: the kernel's own image, as it says itself; it stays mapped and never changes.
        if let Some(place) = image_address().and_then(|start| unsafe { Image::new(start) }?.function(NAME)) {
            FUNCTION.store(core::ptr::with_exposed_provenance_mut(place), Ordering::Relaxed);
        }
    }
}

/// AT_SYSINFO_EHDR of the auxiliary vector.
fn image_address() -> Option<usize> {
    const SYSINFO_EHDR: usize = 33;
    let fd = file::open(c"/proc/self/auxv", file::flags::READ, 0).ok()?;
    let mut vector = [0u8; 1024];
    let bytes = file::read(fd, &mut vector).unwrap_or(0);
    file::close(fd);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0usize, |all, byte| all << 8 | *byte as usize);
    let mut pairs = vector.get(..bytes)?.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    pairs.find(|(kind, _)| *kind == SYSINFO_EHDR).map(|(_, value)| value).filter(|address| *address != 0)
}

/// Elf64_Ehdr.
#[repr(C)]
struct Header {
    identity: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    segments: u64,
    sections: u64,
    flags: u32,
    header_bytes: u16,
    segment_bytes: u16,
    segment_count: u16,
    section_bytes: u16,
    section_count: u16,
    section_names: u16,
}

/// Elf64_Shdr.
#[repr(C)]
#[derive(Clone, Copy)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_bytes: u64,
}

/// Elf64_Sym.
#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    bytes: u64,
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<Section>() == 64 && size_of::<Symbol>() == 24);
const _: () = assert!(offset_of!(Header, section_count) == 60);

/// The image. Its addresses are offsets, which is how the kernel builds it.
struct Image {
    start: usize,
}

impl Image {
    /// # Safety
    /// `start` is the address of the kernel's image.
    unsafe fn new(start: usize) -> Option<Image> {
        let image = Image { start };
        // SAFETY: the image begins with its header.
        let header: Header = unsafe { image.at(0) };
        (header.identity.starts_with(b"\x7fELF") && header.section_bytes as usize == size_of::<Section>())
            .then_some(image)
    }

    /// # Safety
    /// A `T` of integers lies at the offset.
    unsafe fn at<T>(&self, offset: usize) -> T {
        // SAFETY: the caller's promise; the image is mapped and readable.
        unsafe { core::ptr::with_exposed_provenance::<T>(self.start + offset).read_unaligned() }
    }

    fn section(&self, index: usize) -> Option<Section> {
        // SAFETY: the header says where the sections are and how many.
        unsafe {
            let header: Header = self.at(0);
            let offset = header.sections as usize + index * size_of::<Section>();
            (index < header.section_count as usize).then(|| self.at(offset))
        }
    }

    /// The address of a function by its name, which ends with a zero byte.
    fn function(&self, name: &[u8]) -> Option<usize> {
        const DYNAMIC_SYMBOLS: u32 = 11;
        let symbols = (0..64).map_while(|index| self.section(index)).find(|found| found.kind == DYNAMIC_SYMBOLS)?;
        let names = self.section(symbols.link as usize)?;
        let count = symbols.bytes as usize / size_of::<Symbol>();
        (0..count).find_map(|index| {
            // SAFETY: inside the table of symbols.
            let symbol: Symbol = unsafe { self.at(symbols.offset as usize + index * size_of::<Symbol>()) };
            let fits = symbol.name as u64 + name.len() as u64 <= names.bytes;
            let same = |(place, letter): (usize, &u8)| {
                // SAFETY: inside the table of names, as just seen.
                *letter == unsafe { self.at::<u8>(names.offset as usize + symbol.name as usize + place) }
            };
            (fits && symbol.section != 0 && name.iter().enumerate().all(same))
                .then(|| self.start + symbol.value as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapped_clock_agrees_with_the_call() {
        let by_call = crate::process::now_ns();
        find();
        find();
        let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
        if read(1, &mut time) {
            let mapped = time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64;
            assert!(mapped >= by_call);
        }
        assert!(crate::process::now_ns() >= by_call);
        // SAFETY: the kernel's image.
        let image = image_address().and_then(|start| unsafe { Image::new(start) });
        assert!(image.is_none_or(|image| image.function(b"no_such_function\0").is_none()));
    }
}
