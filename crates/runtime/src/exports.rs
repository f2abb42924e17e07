//! Every symbol of libc that libream.so exports, and nothing else: names and types are libc's, the work is done elsewhere.
//! Ream's own functions are in `abi`.

use crate::blocks::{self, set_errno};
#[cfg(not(feature = "inside"))]
use crate::executed::Strings;
use crate::{advice, holds, init, lending, maps, references, rights, shared, stacks};
#[cfg(not(feature = "inside"))]
use crate::{namespaces, program_break};
use core::ffi::{c_char, c_int, c_ulong, c_void};
use ream_sys::Errno;
use ream_sys::loans::Chain;

/// -1 with errno set, or 0.
fn answer(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.0.into());
            -1
        }
    }
}

/// MAP_FAILED with errno set, or the address.
fn place(result: Result<usize, Errno>) -> *mut c_void {
    match result {
        Ok(address) => core::ptr::with_exposed_provenance_mut(address),
        Err(error) => {
            set_errno(error.0.into());
            core::ptr::without_provenance_mut(usize::MAX)
        }
    }
}

/// malloc(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    blocks::malloc(bytes)
}

/// calloc(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    blocks::calloc(count, size)
}

/// realloc(3).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { blocks::realloc(block, bytes) }
}

/// reallocarray(3).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { blocks::reallocarray(block, count, size) }
}

/// free(3); errno stays as it is.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { blocks::free(block) }
}

/// posix_memalign(3).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { blocks::posix_memalign(to, align, bytes) }
}

/// aligned_alloc(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    blocks::memalign(align, bytes)
}

/// memalign(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    blocks::memalign(align, bytes)
}

/// valloc(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    blocks::memalign(ream_page::PAGE_BYTES, bytes)
}

/// pvalloc(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    blocks::pvalloc(bytes)
}

/// malloc_usable_size(3).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { blocks::usable_size(block) }
}

/// malloc_trim(3); `keep` is ignored.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn malloc_trim(_keep: usize) -> c_int {
    c_int::from(blocks::trim())
}

/// mmap(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let (protection, flags) = (protection as u32 as usize, flags as u32 as usize);
    // SAFETY: the caller's promise.
    place(unsafe { maps::map(address.expose_provenance(), bytes, protection, flags, fd, offset as u64) })
}

/// mmap(2) under its other name.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let (protection, flags) = (protection as u32 as usize, flags as u32 as usize);
    // SAFETY: the caller's promise.
    place(unsafe { maps::map(address.expose_provenance(), bytes, protection, flags, fd, offset as u64) })
}

/// munmap(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { maps::unmap(address.expose_provenance(), bytes) })
}

/// mremap(2). The last argument is there only with MREMAP_FIXED or MREMAP_DONTUNMAP; read without, it is some number
/// that the kernel ignores.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    place(unsafe {
        maps::remap(old.expose_provenance(), old_bytes, bytes, flags as u32 as usize, new.expose_provenance())
    })
}

/// brk(2).
///
/// # Safety
/// As the manual says.
#[cfg(not(feature = "inside"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn brk(address: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { program_break::set(address.expose_provenance()) })
}

/// sbrk(3).
///
/// # Safety
/// As the manual says.
#[cfg(not(feature = "inside"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sbrk(by: isize) -> *mut c_void {
    // SAFETY: the caller's promise.
    place(unsafe { program_break::add(by) })
}

/// sbrk(3) under its other name, which programs call that have a sbrk of their own.
///
/// # Safety
/// As the manual says.
#[cfg(not(feature = "inside"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __sbrk(by: isize) -> *mut c_void {
    // SAFETY: the caller's promise.
    place(unsafe { program_break::add(by) })
}

/// unshare(2).
///
/// # Safety
/// As the manual says.
#[cfg(not(feature = "inside"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { namespaces::unshare(flags) }
}

/// setns(2).
///
/// # Safety
/// As the manual says.
#[cfg(not(feature = "inside"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { namespaces::setns(fd, kind) }
}

/// madvise(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: usize, what: c_int) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { advice::advise(address.expose_provenance(), bytes, what as u32 as usize) })
}

/// posix_madvise(3): returns the error. As in glibc, POSIX_MADV_DONTNEED does nothing.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_madvise(address: *mut c_void, bytes: usize, what: c_int) -> c_int {
    const POSIX_MADV_DONTNEED: c_int = 4;
    if what == POSIX_MADV_DONTNEED {
        return 0;
    }
    // SAFETY: the caller's promise.
    match unsafe { advice::advise(address.expose_provenance(), bytes, what as u32 as usize) } {
        Ok(()) => 0,
        Err(error) => error.0.into(),
    }
}

/// shmget(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn shmget(key: c_int, bytes: usize, flags: c_int) -> c_int {
    match shared::get(key as u32 as usize, bytes, flags as u32 as usize) {
        Ok(id) => id as c_int,
        Err(error) => answer(Err(error)),
    }
}

/// shmat(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's promise.
    place(unsafe { shared::attach(id as u32 as usize, address.expose_provenance(), flags as u32 as usize) })
}

/// mprotect(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { holds::protect(address.expose_provenance(), bytes, protection as u32 as usize, None) })
}

/// pkey_mprotect(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn pkey_mprotect(address: *mut c_void, bytes: usize, protection: c_int, key: c_int) -> c_int {
    let key = Some(key as isize as usize);
    // SAFETY: the caller's promise.
    answer(unsafe { holds::protect(address.expose_provenance(), bytes, protection as u32 as usize, key) })
}

/// mlock(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn mlock(address: *const c_void, bytes: usize) -> c_int {
    answer(holds::lock(address.expose_provenance(), bytes, 0))
}

/// mlock2(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn mlock2(address: *const c_void, bytes: usize, flags: u32) -> c_int {
    answer(holds::lock(address.expose_provenance(), bytes, flags as usize))
}

/// munlock(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn munlock(address: *const c_void, bytes: usize) -> c_int {
    answer(holds::unlock(address.expose_provenance(), bytes))
}

/// mlockall(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    answer(holds::lock_all(flags as u32 as usize))
}

/// munlockall(2).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn munlockall() -> c_int {
    answer(holds::unlock_all())
}

/// vmsplice(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn vmsplice(fd: c_int, parts: *const c_void, count: usize, flags: u32) -> isize {
    // SAFETY: the caller's promise.
    match unsafe { references::vmsplice(fd as usize, parts.expose_provenance(), count, flags as usize) } {
        Ok(bytes) => bytes as isize,
        Err(error) => answer(Err(error)) as isize,
    }
}

/// setsockopt(2).
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: u32) -> c_int {
    let (fd, level, name) = (fd as usize, level as usize, name as usize);
    // SAFETY: the caller's promise.
    answer(unsafe { references::setsockopt(fd, level, name, value.expose_provenance(), bytes as usize) })
}

/// For `libream_calls.so`: what is managed of so many bytes stays resident until [`ream_take_back`]. `chain` is 0, or what
/// an earlier call returned, to which this one adds.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_lend(address: usize, bytes: usize, chain: u32) -> u32 {
    lending::lend(address, bytes, Chain(chain)).0
}

/// For `libream_calls.so`: ends what [`ream_lend`] began.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_take_back(chain: u32) {
    lending::take_back(Chain(chain));
}

/// For `libream_calls.so`: what is managed of so many bytes stays resident for as long as it is mapped.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_keep(address: usize, bytes: usize) {
    lending::keep(address, bytes);
}

/// pthread_create(3): the thread's stack comes to lie on large pages.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_ulong,
    attributes: *const c_void,
    start: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { stacks::create(thread, attributes, start, argument) }
}

/// _exit(2), by which shells end: the session hears of it, as it does at exit(3).
#[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
pub extern "C" fn _exit(status: c_int) -> ! {
    init::end();
    ream_sys::process::end_process(status)
}

/// _Exit(3): the same.
#[cfg_attr(not(any(test, feature = "inside")), unsafe(export_name = "_Exit"))]
pub extern "C" fn exit_at_once(status: c_int) -> ! {
    _exit(status)
}

/// Exports a function of `rights` under its name.
macro_rules! rights {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The system call of this name; our threads follow.
            ///
            /// # Safety
            /// As the manual says.
            #[cfg_attr(not(any(test, feature = "inside")), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { rights::$name($($argument),*) }
            }
        )*
    };
}

rights! {
    setuid(user: u32);
    seteuid(user: u32);
    setreuid(real: u32, effective: u32);
    setresuid(real: u32, effective: u32, saved: u32);
    setgid(group: u32);
    setegid(group: u32);
    setregid(real: u32, effective: u32);
    setresgid(real: u32, effective: u32, saved: u32);
    setgroups(count: usize, groups: *const u32);
    initgroups(user: *const c_char, group: u32);
    capset(header: *mut c_void, data: *const c_void);
}

/// Exports a function of `executed` under its name.
#[cfg(not(feature = "inside"))]
macro_rules! executed {
    ($($name:ident $inner:ident [$($before:literal)?] ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// libc's function of this name; static programs get their large pages.
            ///
            /// # Safety
            /// As the manual says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { crate::executed::$inner($($before,)? $($argument),*) }
            }
        )*
    };
}

#[cfg(not(feature = "inside"))]
executed! {
    execve execve [] (path: *const c_char, arguments: Strings, environment: Strings);
    execv execv [] (path: *const c_char, arguments: Strings);
    execvpe execvpe [] (name: *const c_char, arguments: Strings, environment: Strings);
    execvp execvp [] (name: *const c_char, arguments: Strings);
    posix_spawn spawn [false] (
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings);
    posix_spawnp spawn [true] (
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings);
}
