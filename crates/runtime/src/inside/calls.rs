//! libc's functions that hand memory to the kernel, where the userfaultfd serves no accesses by the kernel: they are those of
//! libream_calls.so, which is loaded for it, and every slot of theirs is led there. So is what dlsym finds, since interpreters
//! ask it for functions of libc.
//!
//! libream_calls.so calls back for its loans: we are made visible to it. What it calls itself is libc's.

use super::slots;
use super::symbols::{self, Tables};
use crate::objects::{self, Object};
use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ream_sys::Errno;

/// An address in libream_calls.so; 0 while it is not used.
static WRAPPER: AtomicUsize = AtomicUsize::new(0);
static LED: AtomicBool = AtomicBool::new(false);
const NOT_THERE: Errno = Errno(38);

const RTLD_NOW: c_int = 2;
const RTLD_NOLOAD: c_int = 4;
const RTLD_GLOBAL: c_int = 0x100;
const RTLD_NODELETE: c_int = 0x1000;
const RTLD_NEXT: usize = usize::MAX;
const RTLD_DEFAULT: usize = 0;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    /// dlsym(3), with what is led here.
    #[link_name = "ream_inside_dlsym"]
    fn asked();
}

/// Loads the library and leads all slots there. Once is enough.
///
/// # Errors
/// ENOENT: it is not beside ours; ENOSYS: before glibc 2.34 some of the functions are in libraries of their own.
pub fn take_over() -> Result<(), Errno> {
    if LED.load(Ordering::SeqCst) {
        return Ok(());
    }
    let places = [c"fread", c"pthread_mutex_lock", c"mq_open"].map(|name| symbols::definitions(name)[0]);
    let mut together = false;
    objects::each(&mut |object| together |= places.iter().all(|place| object.holds(*place)));
    if !together {
        return Err(NOT_THERE);
    }
    let (own, _) = objects::whose((&raw const LED).cast()).ok_or(Errno::NOENT)?;
    let directory = own.to_bytes().iter().rposition(|byte| *byte == b'/').and_then(|at| own.to_bytes().get(..=at));
    let mut room = [0u8; 4096];
    let parts = [directory.unwrap_or(b"./"), b"libream_calls.so\0"];
    let mut rest = room.as_mut_slice();
    for part in parts {
        let (place, after) = rest.split_at_mut_checked(part.len()).ok_or(Errno::NOENT)?;
        place.copy_from_slice(part);
        rest = after;
    }
    let path = CStr::from_bytes_until_nul(&room).map_err(|_| Errno::NOENT)?;
    // SAFETY: strings; we are loaded already, and libream_calls.so does nothing but look its functions up.
    let wrapper = unsafe {
        dlopen(own.as_ptr(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL | RTLD_NODELETE);
        let library = dlopen(path.as_ptr(), RTLD_NOW | RTLD_NODELETE);
        if library.is_null() { library } else { dlsym(library, c"read".as_ptr()) }
    };
    if wrapper.is_null() {
        return Err(Errno::NOENT);
    }
    WRAPPER.store(wrapper.expose_provenance(), Ordering::SeqCst);
    slots::lead_all_here();
    LED.store(true, Ordering::SeqCst);
    Ok(())
}

/// libream_calls.so and libc, for a look at slots.
pub struct Calls {
    base: usize,
    tables: Tables,
    /// libc's code.
    libc: Range<usize>,
}

impl Calls {
    /// `None` while they are not used.
    pub fn find() -> Option<Calls> {
        let wrapper = WRAPPER.load(Ordering::Relaxed);
        let mut found = None;
        if wrapper != 0 {
            let function = symbols::definitions_but(c"fread", wrapper)[0];
            let mut libc = 0..0;
            objects::each(&mut |object| {
                if object.holds(function) {
                    libc = object.range_of(function);
                }
                if object.holds(wrapper) {
                    // SAFETY: of a loaded object, which is never unloaded.
                    found = unsafe { symbols::tables(&object) }.map(|tables| (object.base, tables));
                }
            });
            return found.map(|(base, tables)| Calls { base, tables, libc });
        }
        None
    }

    /// Our function of a name.
    fn wrapper(&self, name: &CStr) -> Option<usize> {
        // SAFETY: libream_calls.so is never unloaded.
        unsafe { self.tables.function(self.base, name) }
    }

    /// Where a slot of `object` with this name is to lead.
    pub fn ours(&self, name: &[u8], object: &Object) -> Option<usize> {
        if name == b"dlsym" {
            return (object.base != self.base).then_some(asked as *const () as usize);
        }
        // SAFETY: the name of a symbol in an object's table, which ends with a zero byte there.
        self.wrapper(unsafe { CStr::from_ptr(name.as_ptr().cast()) })
    }

    /// Whether an address is in libc's code.
    pub fn is_libc(&self, address: usize) -> bool {
        self.libc.contains(&address)
    }
}

// Answers itself, or goes on in libc's function as if nothing had been called: that looks at its caller.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".p2align 4",
    ".type ream_inside_dlsym, @function",
    ".hidden ream_inside_dlsym",
    ".globl ream_inside_dlsym",
    "ream_inside_dlsym:",
    "push rdi",
    "push rsi",
    "sub rsp, 8",
    "call {look}",
    "add rsp, 8",
    "pop rsi",
    "pop rdi",
    "test rdx, rdx",
    "jne 2f",
    "jmp rax",
    "2:",
    "ret",
    ".size ream_inside_dlsym, . - ream_inside_dlsym",
    look = sym look,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".p2align 4",
    ".type ream_inside_dlsym, %function",
    ".hidden ream_inside_dlsym",
    ".globl ream_inside_dlsym",
    "ream_inside_dlsym:",
    "stp x29, x30, [sp, #-32]!",
    "stp x0, x1, [sp, #16]",
    "bl {look}",
    "mov x16, x0",
    "mov x17, x1",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    "cbnz x17, 2f",
    "br x16",
    "2:",
    "mov x0, x16",
    "ret",
    ".size ream_inside_dlsym, . - ream_inside_dlsym",
    look = sym look,
);

/// What dlsym does: it answers with an address, or goes on there.
#[repr(C)]
struct Way {
    address: usize,
    is_answer: usize,
}

/// # Safety
/// As for dlsym.
unsafe extern "C" fn look(library: *mut c_void, name: *const c_char) -> Way {
    // SAFETY: the caller's promise: a string.
    let wrapper = Calls::find().zip(unsafe { name.as_ref() }).and_then(|(calls, name)| {
        // SAFETY: as above.
        let ours = calls.wrapper(unsafe { CStr::from_ptr(name) })?;
        // "Next" is counted from the caller, which would be us; behind whoever wraps these functions is libc.
        let handle =
            if library.addr() == RTLD_NEXT { core::ptr::without_provenance_mut(RTLD_DEFAULT) } else { library };
        // SAFETY: the caller's promise.
        let found = unsafe { dlsym(handle, name) }.expose_provenance();
        calls.is_libc(found).then_some(ours)
    });
    match wrapper {
        Some(address) => Way { address, is_answer: 1 },
        None => Way { address: dlsym as *const () as usize, is_answer: 0 },
    }
}
