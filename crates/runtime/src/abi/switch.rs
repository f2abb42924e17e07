//! Which blocks made from now on go on large pages, and in a session are managed: those of a size between two bounds, or
//! none. Blocks that were given out stay what they are.

use crate::heap::alone;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use ream_sys::Errno;
use ream_sys::file;

/// The program has not said anything: on in a session, off without.
const UNSAID: u32 = 0;
const OFF: u32 = 1;
const ON: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNSAID);
static MIN: AtomicUsize = AtomicUsize::new(0);
/// 0: none.
static MAX: AtomicUsize = AtomicUsize::new(0);

/// Whether the program has switched large pages on that has no session.
pub fn on_alone() -> bool {
    alone() && STATE.load(SeqCst) == ON
}

/// Whether a new block of so many bytes goes on large pages, and is managed in a session.
pub fn wanted(bytes: usize) -> bool {
    let on = match STATE.load(SeqCst) {
        UNSAID => return !alone(),
        state => state == ON,
    };
    let max = MAX.load(SeqCst);
    on && bytes >= MIN.load(SeqCst) && (max == 0 || bytes <= max)
}

/// The process has begun a session: unless it has said otherwise, all large blocks are managed.
pub fn begin() {
    if STATE.load(SeqCst) == UNSAID {
        crate::blocks::set_large_from(super::usual_large());
    }
}

/// Whether it is on, and both bounds in bytes; 0 as the upper one for none.
pub fn state() -> (bool, u64, u64) {
    match STATE.load(SeqCst) {
        UNSAID if alone() => (false, super::usual_large() as u64, 0),
        UNSAID => (true, 0, 0),
        state => (state == ON, MIN.load(SeqCst) as u64, MAX.load(SeqCst) as u64),
    }
}

/// Sets it.
pub fn set(on: c_int, min: usize, max: usize) -> Result<(), Errno> {
    if !(0..=1).contains(&on) || max != 0 && max < min {
        return Err(Errno::INVAL);
    }
    MIN.store(min, SeqCst);
    MAX.store(max, SeqCst);
    STATE.store(if on == 1 { ON } else { OFF }, SeqCst);
    super::switched(min)
}

/// Whether the kernel makes large pages when it is asked to.
pub fn kernel_has_large_pages() -> bool {
    let mut text = [0; 64];
    let Ok(fd) = file::open(c"/sys/kernel/mm/transparent_hugepage/enabled", file::flags::READ, 0) else { return false };
    let read = file::read_at(fd, &mut text, 0).unwrap_or(0);
    file::close(fd);
    let text = text.get(..read).unwrap_or(&[]);
    read > 0 && !text.windows(7).any(|word| word == b"[never]")
}
