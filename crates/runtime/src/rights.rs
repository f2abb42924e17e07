//! setuid(2) and its relatives: libc has all its threads follow the one that calls; the pager's it does not know. They
//! follow here, before the call returns: a thread that kept root's rights would lend them to whoever takes the program
//! over.

use crate::engine;
use crate::next::Next;
use core::ffi::{c_char, c_int, c_void};

/// Wraps a function of which this is the type: our threads follow when it has succeeded.
macro_rules! follow {
    ($($wrapper:ident($($argument:ident: $type:ty),*) $name:literal;)*) => {
        $(
            /// # Safety
            /// As the manual says of the function of this name.
            pub unsafe fn $wrapper($($argument: $type),*) -> c_int {
                static NEXT: Next = Next::of($name);
                type Function = unsafe extern "C" fn($($type),*) -> c_int;
                // SAFETY: this is its type.
                let Some(function) = (unsafe { NEXT.get::<Function>() }) else {
                    const NOSYS: c_int = 38;
                    crate::blocks::set_errno(NOSYS);
                    return -1;
                };
                // SAFETY: the caller's promise.
                let result = unsafe { function($($argument),*) };
                if result == 0 {
                    engine::follow_rights();
                }
                result
            }
        )*
    };
}

follow! {
    setuid(user: u32) c"setuid";
    seteuid(user: u32) c"seteuid";
    setreuid(real: u32, effective: u32) c"setreuid";
    setresuid(real: u32, effective: u32, saved: u32) c"setresuid";
    setgid(group: u32) c"setgid";
    setegid(group: u32) c"setegid";
    setregid(real: u32, effective: u32) c"setregid";
    setresgid(real: u32, effective: u32, saved: u32) c"setresgid";
    setgroups(count: usize, groups: *const u32) c"setgroups";
    initgroups(user: *const c_char, group: u32) c"initgroups";
    capset(header: *mut c_void, data: *const c_void) c"capset";
}
