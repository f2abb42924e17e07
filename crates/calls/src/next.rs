//! The functions that are wrapped, as the next library has them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A function of the libraries behind this one.
pub struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

/// Libraries that may have been opened since, for others than us: before glibc 2.34 they had functions that libc has now.
const OPENED: [&CStr; 5] = [c"librt.so.1", c"libpthread.so.0", c"libutil.so.1", c"libresolv.so.2", c"libaio.so.1"];

/// For system calls without a function.
pub static SYSCALL: Next = Next::new(c"syscall");

/// For functions that this libc does not have.
unsafe extern "C" fn missing() -> isize {
    const ENOSYS: c_int = 38;
    set_errno(ENOSYS);
    -1
}

/// Sets the calling thread's errno.
pub fn set_errno(number: c_int) {
    // SAFETY: libc's address of the thread's own variable.
    unsafe { *__errno_location() = number };
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: libc's address of the thread's own variable.
    unsafe { *__errno_location() }
}

/// Declares a function of the next library, of which `$name` is the name, and has it looked up at the start: a handler of
/// signals may be the first to call it.
macro_rules! found_at_start {
    ($function:ident, $name:ident) => {
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
        static $function: $crate::next::Next = $crate::next::Next::new(NAME);
        #[used]
        #[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
        static FIND: extern "C" fn() = {
            extern "C" fn find() {
                $function.find();
            }
            find
        };
    };
}
pub(crate) use found_at_start;

impl Next {
    /// Not looked up yet.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicUsize::new(0) }
    }

    /// Looks it up among what is behind us.
    pub fn find(&self) {
        const NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
        // SAFETY: a name that ends with a zero byte.
        let found = unsafe { dlsym(NEXT, self.name.as_ptr()) };
        // "Next" is counted from the caller: the call must come back here, and not straight to ours.
        self.found.store(core::hint::black_box(found).expose_provenance(), Relaxed);
    }

    /// Looks it up everywhere. What is not found is looked for again when it is called again.
    #[cold]
    fn find_now(&self) -> usize {
        self.find();
        for library in OPENED {
            if self.found.load(Relaxed) == 0 {
                self.found.store(self.find_in(library).expose_provenance(), Relaxed);
            }
        }
        match self.found.load(Relaxed) {
            0 => missing as *const () as usize,
            address => address,
        }
    }

    /// Looks it up in a library, if that is loaded, and what it needs.
    fn find_in(&self, library: &CStr) -> *mut c_void {
        // RTLD_LAZY, RTLD_NOLOAD, RTLD_NODELETE.
        const IF_LOADED: c_int = 1 | 4 | 0x1000;
        // SAFETY: strings that end with zero bytes; nothing is loaded.
        unsafe {
            let library = dlopen(library.as_ptr(), IF_LOADED);
            if library.is_null() { library } else { dlsym(library, self.name.as_ptr()) }
        }
    }

    /// Its address.
    pub fn address(&self) -> usize {
        match self.found.load(Relaxed) {
            0 => self.find_now(),
            address => address,
        }
    }

    /// Whether no library has it, as far as can be told.
    pub fn is_missing(&self) -> bool {
        self.address() == missing as *const () as usize
    }

    /// The function, as a type of function pointers.
    ///
    /// # Safety
    /// `F` is a type of function pointers, and the function can be called as one of that type.
    pub unsafe fn get<F: Copy>(&self) -> F {
        let function = core::ptr::with_exposed_provenance::<c_void>(self.address());
        // SAFETY: the caller's promise; both are pointers.
        unsafe { transmute_copy(&function) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_or_looked_for_again() {
        let (there, not_there) = (Next::new(c"getpid"), Next::new(c"ream_no_such_function"));
        assert!(!there.is_missing() && not_there.is_missing());
        assert_eq!(not_there.found.load(Relaxed), 0);
        // SAFETY: its type.
        let process = unsafe { there.get::<extern "C" fn() -> u32>() }();
        assert_eq!(process, std::process::id());
        assert!(not_there.find_in(c"libream-no-such-library.so").is_null());
        assert!(!there.find_in(c"libc.so.6").is_null());
        // SAFETY: its type.
        assert_eq!(unsafe { not_there.get::<unsafe extern "C" fn() -> isize>()() }, -1);
        assert_eq!(errno(), 38);
    }
}
