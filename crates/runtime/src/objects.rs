//! The objects that the dynamic linker has loaded, by what it tells of them.

use core::ffi::{CStr, c_char, c_int, c_void};
pub use ream_sys::elf::{EXECUTABLE, SEGMENT_LOADED as PT_LOAD, WRITABLE};

/// A program header of an ELF file on 64 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    pub physical: u64,
    pub file_bytes: u64,
    pub memory_bytes: u64,
    pub align: u64,
}

#[cfg(feature = "inside")]
pub const PT_DYNAMIC: u32 = 2;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;

/// struct dl_phdr_info.
#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    count: u16,
    loaded: u64,
    unloaded: u64,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        each: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
}

/// The file of the object that holds an address, and where the linker keeps what it knows of it (struct link_map). Both stay
/// while the object is loaded.
pub fn whose(address: *const c_void) -> Option<(&'static CStr, *const c_void)> {
    /// Dl_info.
    #[repr(C)]
    struct Found {
        file: *const c_char,
        _others: [usize; 3],
    }
    unsafe extern "C" {
        fn dladdr1(address: *const c_void, found: *mut Found, map: *mut *const c_void, flags: c_int) -> c_int;
    }
    const RTLD_DL_LINKMAP: c_int = 2;
    let mut found = Found { file: core::ptr::null(), _others: [0; 3] };
    let mut map = core::ptr::null();
    // SAFETY: places for both results; the name is a string, or null.
    unsafe {
        if dladdr1(address, &raw mut found, &raw mut map, RTLD_DL_LINKMAP) == 0 {
            return None;
        }
        found.file.as_ref().map(|file| (CStr::from_ptr(file), map))
    }
}

/// A loaded object: what its addresses are counted from, and its headers.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    pub base: usize,
    /// Its file; empty for the program itself.
    #[cfg_attr(feature = "inside", expect(dead_code))]
    pub name: &'a CStr,
    pub headers: &'a [Header],
    /// How many objects were unloaded so far, of all.
    #[cfg_attr(not(feature = "inside"), expect(dead_code))]
    pub unloaded: u64,
}

impl Object<'_> {
    /// Whether an address lies in what is mapped of it.
    pub fn holds(&self, address: usize) -> bool {
        self.part(address).is_some()
    }

    fn part(&self, address: usize) -> Option<&Header> {
        self.headers.iter().find(|header| {
            header.kind == PT_LOAD
                && (address.wrapping_sub(self.base) as u64).wrapping_sub(header.address) < header.memory_bytes
        })
    }

    /// The part that holds an address; empty where none does.
    #[cfg(feature = "inside")]
    pub fn range_of(&self, address: usize) -> core::ops::Range<usize> {
        self.part(address).map_or(0..0, |part| {
            let start = self.base.wrapping_add(part.address as usize);
            start..start.wrapping_add(part.memory_bytes as usize)
        })
    }
}

/// How many objects were loaded so far, of all.
#[cfg(not(feature = "inside"))]
pub fn loaded() -> u64 {
    unsafe extern "C" fn first(info: *const Info, _bytes: usize, count: *mut c_void) -> c_int {
        // SAFETY: the linker passes an object, and we a number.
        unsafe { *count.cast::<u64>() = (*info).loaded };
        1
    }
    let mut count = 0u64;
    // SAFETY: the callback keeps to what the linker passes, and gets a number.
    unsafe { dl_iterate_phdr(first, (&raw mut count).cast()) };
    count
}

/// Tells of every object. The linker's lock is held: none comes or goes meanwhile.
pub fn each(tell: &mut dyn FnMut(Object)) {
    let mut tell = tell;
    // SAFETY: the callback keeps to what the linker passes, and gets a function.
    unsafe { dl_iterate_phdr(object, (&raw mut tell).cast()) };
}

unsafe extern "C" fn object(info: *const Info, _bytes: usize, tell: *mut c_void) -> c_int {
    // SAFETY: the linker passes an object whose headers stay mapped, its name, and `each` passed the function.
    let (base, name, headers, unloaded, tell) = unsafe {
        let info = &*info;
        let headers = core::slice::from_raw_parts(info.headers, info.count.into());
        let name = info.name.as_ref().map_or(c"", |name| CStr::from_ptr(name));
        (info.base, name, headers, info.unloaded, &mut *tell.cast::<&mut dyn FnMut(Object)>())
    };
    tell(Object { base, name, headers, unloaded });
    0
}
