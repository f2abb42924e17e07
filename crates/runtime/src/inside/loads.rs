//! Objects that are loaded later: dlopen by way of us, so that their slots are led here before they free anything of
//! ours. The linker looks at who calls dlopen: a name without a slash is looked for where the caller's RUNPATH says. We
//! are the caller then, so that is done here.

use super::slots;
use crate::next::Next;
use crate::objects;
use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use ream_sys::file;

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type OpenIn = unsafe extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;

/// struct link_map, as far as it is public.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const [u64; 2],
}

const RTLD_NOLOAD: c_int = 4;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

// The return address is the caller, whom no function of Rust can ask for.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".p2align 4",
    ".type ream_dlopen, @function",
    ".hidden ream_dlopen",
    ".globl ream_dlopen",
    "ream_dlopen:",
    "mov rdx, [rsp]",
    "jmp {open}",
    ".size ream_dlopen, . - ream_dlopen",
    open = sym open,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".p2align 4",
    ".type ream_dlopen, %function",
    ".hidden ream_dlopen",
    ".globl ream_dlopen",
    "ream_dlopen:",
    "mov x2, x30",
    "b {open}",
    ".size ream_dlopen, . - ream_dlopen",
    open = sym open,
);

unsafe extern "C" {
    /// dlopen(3).
    #[link_name = "ream_dlopen"]
    pub fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
}

/// dlopen, called from `caller`.
unsafe extern "C" fn open(name: *const c_char, flags: c_int, caller: *const c_void) -> *mut c_void {
    static NEXT: Next = Next::of(c"dlopen");
    // SAFETY: the function's type.
    let Some(next) = (unsafe { NEXT.get::<Open>() }) else { return core::ptr::null_mut() };
    // SAFETY: the caller's promise to dlopen.
    let handle = unsafe { beside(next, name, flags, caller).unwrap_or_else(|| next(name, flags)) };
    if !handle.is_null() {
        slots::lead_here();
    }
    handle
}

/// dlmopen(3). What has a namespace of its own has an allocator of its own, too; ours is the first.
pub unsafe extern "C" fn dlmopen(namespace: c_long, name: *const c_char, flags: c_int) -> *mut c_void {
    static NEXT: Next = Next::of(c"dlmopen");
    // SAFETY: the function's type.
    let Some(next) = (unsafe { NEXT.get::<OpenIn>() }) else { return core::ptr::null_mut() };
    // SAFETY: the caller's promise.
    let handle = unsafe { next(namespace, name, flags) };
    if !handle.is_null() {
        slots::lead_here();
    }
    handle
}

/// A library that is not loaded yet, where the caller's RUNPATH or RPATH has it. `None` where there is none, or the
/// linker finds it without.
///
/// # Safety
/// As for dlopen; `caller` is an address within its caller.
unsafe fn beside(next: Open, name: *const c_char, flags: c_int, caller: *const c_void) -> Option<*mut c_void> {
    // SAFETY: null, or a string.
    let text = unsafe { name.as_ref().map(|name| CStr::from_ptr(name).to_bytes()) }?;
    if text.is_empty() || text.contains(&b'/') {
        return None;
    }
    // SAFETY: as for dlopen.
    let there = unsafe { next(name, flags | RTLD_NOLOAD) };
    if !there.is_null() {
        return Some(there);
    }
    let (file, map) = objects::whose(caller)?;
    // SAFETY: the linker's own, which stays while the caller's object is loaded.
    let map = unsafe { map.cast::<Map>().as_ref() }?;
    let file = file.to_bytes();
    let origin = file.iter().rposition(|byte| *byte == b'/').and_then(|at| file.get(..at)).unwrap_or(b".");
    // SAFETY: of a loaded object.
    let paths = unsafe { search(map) }?;
    let mut room = [0u8; 4096];
    for directory in paths.split(|byte| *byte == b':') {
        let Some(path) = join(&mut room, directory, origin, text) else { continue };
        // SAFETY: a string; as for dlopen.
        let handle = unsafe { is_there(path).then(|| next(path.as_ptr(), flags)) };
        if let Some(handle) = handle.filter(|handle| !handle.is_null()) {
            return Some(handle);
        }
    }
    None
}

/// Where an object's libraries are looked for.
///
/// # Safety
/// Of a loaded object.
unsafe fn search(map: &Map) -> Option<&'static [u8]> {
    let (mut names, mut place) = (0, None);
    for index in 0.. {
        // SAFETY: the section ends with a tag of zero.
        let [tag, value] = unsafe { map.dynamic.add(index).read() };
        match tag {
            0 => break,
            DT_STRTAB => names = if (value as usize) < map.base { map.base + value as usize } else { value as usize },
            DT_RUNPATH => place = Some(value as usize),
            DT_RPATH => place = place.or(Some(value as usize)),
            _ => {}
        }
    }
    let place = place.filter(|_| names != 0)?;
    // SAFETY: a string of the object's table.
    Some(unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(names + place)).to_bytes() })
}

/// The file of this name in a directory, which may be given from the caller's own.
fn join<'a>(room: &'a mut [u8], directory: &[u8], origin: &[u8], name: &[u8]) -> Option<&'a CStr> {
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        let place = room.get_mut(end..end + bytes.len())?;
        place.copy_from_slice(bytes);
        end += bytes.len();
        Some(())
    };
    let mut rest = directory;
    while let Some((first, after)) = rest.split_first() {
        let word = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find(|word| rest.starts_with(word));
        match word {
            Some(word) => {
                put(origin)?;
                rest = rest.get(word.len()..)?;
            }
            None => {
                put(&[*first])?;
                rest = after;
            }
        }
    }
    put(b"/")?;
    put(name)?;
    put(&[0])?;
    CStr::from_bytes_until_nul(room).ok().filter(|_| !directory.is_empty())
}

fn is_there(path: &CStr) -> bool {
    file::open(path, file::flags::READ, 0).inspect(|fd| file::close(*fd)).is_ok()
}
