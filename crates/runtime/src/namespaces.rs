//! unshare(2) and setns(2), for which some processes may have one thread only (`engine::alone`).

use crate::engine;
use crate::next::Next;
use core::ffi::c_int;

/// User namespaces.
const NEW_USER: c_int = 0x1000_0000;
/// Mount namespaces: entering one is refused to who shares its directories, as threads do.
const NEW_MOUNT: c_int = 0x2_0000;
const NOSYS: c_int = 38;

fn refused() -> c_int {
    crate::blocks::set_errno(NOSYS);
    -1
}

/// unshare(2).
///
/// # Safety
/// As the manual says.
pub unsafe fn unshare(flags: c_int) -> c_int {
    static NEXT: Next = Next::of(c"unshare");
    // SAFETY: this is its type.
    let Some(next) = (unsafe { NEXT.get::<unsafe extern "C" fn(c_int) -> c_int>() }) else { return refused() };
    // SAFETY: the caller's promise.
    let call = || unsafe { next(flags) };
    if flags & NEW_USER != 0 { engine::alone(call) } else { call() }
}

/// setns(2). What a descriptor is of where `kind` is 0, only the kernel knows.
///
/// # Safety
/// As the manual says.
pub unsafe fn setns(fd: c_int, kind: c_int) -> c_int {
    static NEXT: Next = Next::of(c"setns");
    // SAFETY: this is its type.
    let Some(next) = (unsafe { NEXT.get::<unsafe extern "C" fn(c_int, c_int) -> c_int>() }) else { return refused() };
    // SAFETY: the caller's promise.
    let call = || unsafe { next(fd, kind) };
    if kind == 0 || kind & (NEW_USER | NEW_MOUNT) != 0 { engine::alone(call) } else { call() }
}
