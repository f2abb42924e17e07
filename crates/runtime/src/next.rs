//! A function of libc that we wrap, as libc or a library behind us has it.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(feature = "inside"))]
fn look_up(name: &CStr) -> usize {
    type Symbol = unsafe extern "C" fn(*mut c_void, *const core::ffi::c_char) -> *mut c_void;
    const NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
    let dlsym = core::ptr::with_exposed_provenance::<c_void>(crate::loaded::next());
    // SAFETY: the function's type, and a name that ends with a zero byte.
    let found = unsafe { core::mem::transmute::<*const c_void, Symbol>(dlsym)(NEXT, name.as_ptr()) };
    // "Next" is counted from the caller: the call must come back here.
    core::hint::black_box(found).expose_provenance()
}

/// A library that was loaded later is behind all others: whatever the process uses is next.
#[cfg(feature = "inside")]
fn look_up(name: &CStr) -> usize {
    crate::inside::symbols::definitions(name)[0]
}

/// A function by its name.
pub struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Next {
    /// Not looked up yet.
    pub const fn of(name: &'static CStr) -> Next {
        Next { name, found: AtomicUsize::new(0) }
    }

    /// The function; `None` where no library behind us has it.
    ///
    /// # Safety
    /// `F` is the function's type, a function pointer.
    pub unsafe fn get<F: Copy>(&self) -> Option<F> {
        let mut address = self.found.load(Ordering::Relaxed);
        if address == 0 {
            address = look_up(self.name);
            self.found.store(address, Ordering::Relaxed);
        }
        let function = core::ptr::with_exposed_provenance::<c_void>(address);
        // SAFETY: the caller's promise; both are pointers, and this one is not null.
        (address != 0).then(|| unsafe { core::mem::transmute_copy(&function) })
    }
}
