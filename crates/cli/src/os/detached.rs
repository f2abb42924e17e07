//! The way to a detached process, which the program that this process becomes must not take for a child of its own.

use super::{checked, trace};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

/// Starts a detached process: a grandchild in a session of its own, with standard input and output on /dev/null, this
/// process's standard error, `inherited` as descriptor 3, `report` as 4 and `also` as 5, nothing else, the root as its
/// directory, and an empty environment. Returns when it is on its way.
pub fn start_detached(
    file: &CStr,
    arguments: &[&CStr],
    inherited: &OwnedFd,
    report: &OwnedFd,
    also: Option<RawFd>,
) -> io::Result<()> {
    let pointers: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    if trace::split_off()? {
        // SAFETY: just forked from a process of one thread; system calls only. A zero-terminated path, and null-terminated
        // lists of zero-terminated strings.
        unsafe {
            arrange(inherited.as_raw_fd(), report.as_raw_fd(), also);
            libc::execve(file.as_ptr(), pointers.as_ptr(), [std::ptr::null::<libc::c_char>()].as_ptr());
            let error = *libc::__errno_location();
            libc::write(4, (&raw const error).cast(), size_of::<i32>());
            libc::_exit(1)
        }
    }
    Ok(())
}

/// The same for process 1 of a namespace, which becomes the parent of all that is detached: a child that sends no signal when
/// it ends, and that only who waits with `__WALL` or `__WCLONE` finds. `Ok(true)` in it. It must go on with the program that
/// it has: the kernel makes an ordinary child of one that executes another.
pub fn start_unseen(inherited: &OwnedFd, report: &OwnedFd, also: Option<RawFd>) -> io::Result<bool> {
    const GET_TID_ADDRESS: libc::c_int = 40;
    let mut own: usize = 0;
    // SAFETY: the kernel writes an address, where it can: that at which libc keeps the number of this thread.
    let known = unsafe { libc::prctl(GET_TID_ADDRESS, &raw mut own) } == 0;
    let flags = if known { libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID } else { 0 };
    // The last two change places with the architecture, and nothing is asked that the other one is for.
    let (fourth, fifth) = if cfg!(target_arch = "x86_64") { (own, 0) } else { (0, own) };
    // SAFETY: a fork without a signal, of a process with one thread; the number that libc keeps is the child's own there.
    if checked(unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_long, 0usize, 0usize, fourth, fifth) })? != 0 {
        return Ok(false);
    }
    // SAFETY: plain system calls. Nothing that this process still has open is used any more, except what is passed.
    unsafe {
        libc::setsid();
        arrange(inherited.as_raw_fd(), report.as_raw_fd(), also);
    }
    Ok(true)
}

/// Descriptors, directory and signals of a detached process.
///
/// # Safety
/// Whoever has other descriptors than these uses them no more.
unsafe fn arrange(inherited: RawFd, report: RawFd, also: Option<RawFd>) {
    // SAFETY: the caller's promise; all are plain system calls on numbers and on literal strings.
    unsafe {
        // First out of the way of the numbers they are to get.
        let inherited = libc::fcntl(inherited, libc::F_DUPFD_CLOEXEC, 10);
        let report = libc::fcntl(report, libc::F_DUPFD_CLOEXEC, 10);
        let also = also.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10));
        libc::dup2(inherited, 3);
        libc::dup2(report, 4);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        libc::dup2(null, 0);
        libc::dup2(null, 1);
        let free = match also {
            Some(fd) => libc::dup2(fd, 5) + 1,
            None => 5,
        };
        // Kernels before 5.9 do not know the call; what is inherited then stays open until the agent ends.
        libc::syscall(libc::SYS_close_range, free as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint);
        libc::chdir(c"/".as_ptr());
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Takes all variables away.
pub fn clear_environment() {
    // SAFETY: the caller has one thread, and keeps none of them by address.
    unsafe { libc::clearenv() };
}

/// Ends this process with a status, and without what a program does at its end.
pub fn end(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Has `ps` and `pgrep -f` show this name in place of the words that this process was called with.
pub fn replace_arguments(name: &CStr) {
    const START: usize = 48;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, field 2, is in parentheses and may hold anything.
    let Some((_, fields)) = text.rsplit_once(") ") else { return };
    let mut ends = fields.split_ascii_whitespace().skip(START - 3).map_while(|field| field.parse::<usize>().ok());
    let (Some(start), Some(end)) = (ends.next(), ends.next()) else { return };
    let (name, room) = (name.to_bytes(), end.saturating_sub(start));
    if start == 0 || room <= name.len() {
        return;
    }
    // SAFETY: the kernel put the words there, side by side and writable, for this program alone; the caller reads them no more.
    unsafe {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
        place.write_bytes(0, room);
        place.copy_from_nonoverlapping(name.as_ptr(), name.len());
    }
}
