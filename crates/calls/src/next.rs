//! The functions that are wrapped, as the next library has them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A function of the libraries behind this one.
pub struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

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

impl Next {
    /// Not looked up yet.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicUsize::new(0) }
    }

    /// Looks it up.
    #[cold]
    pub fn find(&self) -> usize {
        const NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
        // SAFETY: a name that ends with a zero byte.
        let found = unsafe { dlsym(NEXT, self.name.as_ptr()) };
        // "Next" is counted from the caller: the call must come back here, and not straight to ours.
        let found = core::hint::black_box(found);
        let address = if found.is_null() { missing as *const () as usize } else { found.expose_provenance() };
        self.found.store(address, Relaxed);
        address
    }

    /// The function, as a type of function pointers.
    ///
    /// # Safety
    /// `F` is a type of function pointers, and the function can be called as one of that type.
    pub unsafe fn get<F: Copy>(&self) -> F {
        let mut address = self.found.load(Relaxed);
        if address == 0 {
            address = self.find();
        }
        let function = core::ptr::with_exposed_provenance::<c_void>(address);
        // SAFETY: the caller's promise; both are pointers.
        unsafe { transmute_copy(&function) }
    }
}
