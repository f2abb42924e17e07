//! A session that a process begins for itself: the `ream` command makes it, with its agent, and this process joins it while
//! its threads run. What it has so far stays plain memory; what it gets from now on is managed.

use super::caller;
use crate::{init, objects, say};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write as _;
use ream_sys::file::{self, Fd};
use ream_sys::futex::Mutex;
use ream_sys::syscall::{call2, call4, number};
use ream_sys::{Errno, process};

/// Least budget, as of `ream_budget`.
pub const LEAST: u64 = 16 << 20;
/// There is a session already (EALREADY).
const ALREADY: Errno = Errno(114);
const RANGE: Errno = Errno(34);

/// The command by this name begins a session for the process that its first argument names.
const COMMAND: &CStr = c"ream-session";
/// What it prints before the session's address, or before the error's number where the machine does not let us page.
const ANSWER: &[u8] = b"REAM_SESSION=";
const REFUSED: &[u8] = b"REAM_REFUSED=";
const NOT_PERMITTED: Errno = Errno(1);

type Strings = *const *mut c_char;

unsafe extern "C" {
    static environ: Strings;
    fn getenv(name: *const c_char) -> *const c_char;
    fn posix_spawn_file_actions_init(actions: *mut Actions) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut Actions, from: c_int, to: c_int) -> c_int;
    fn posix_spawn_file_actions_destroy(actions: *mut Actions) -> c_int;
    fn posix_spawn(
        pid: *mut c_int,
        file: *const c_char,
        actions: *const Actions,
        attributes: *const c_void,
        arguments: Strings,
        environment: Strings,
    ) -> c_int;
}

/// posix_spawn_file_actions_t: 80 bytes in glibc.
#[repr(C, align(16))]
struct Actions([u64; 16]);

static STARTING: Mutex<()> = Mutex::new(());

/// Begins a session with so many bytes of RAM, and a store in the directory at `store`, or where `ream run` would have it.
pub fn start(budget: u64, store: usize) -> Result<(), Errno> {
    if budget < LEAST {
        return Err(RANGE);
    }
    let mut directory = say::Line::<1100>::new();
    if store != 0 {
        let mut room = [0; 1024];
        let length = caller::text(store, &mut room)?;
        let text = room.get(..length).and_then(|text| core::str::from_utf8(text).ok());
        let text = text.filter(|text| !text.is_empty()).ok_or(Errno::INVAL)?;
        let _ = write!(directory, "--store={text}\0");
    }
    let _one = STARTING.lock();
    if init::session().is_some() || is_the_command() {
        return Err(ALREADY);
    }
    #[cfg(feature = "inside")]
    crate::inside::take_over()?;
    let mut answer = [0; 512];
    let length = ask(budget, directory.as_bytes(), &mut answer)?;
    let text = answer.get(..length).unwrap_or(&[]);
    if text.starts_with(REFUSED) {
        return Err(NOT_PERMITTED);
    }
    let address = text.strip_prefix(ANSWER).and_then(|text| text.split(|byte| *byte == b'\n').next());
    // It has said why there is none.
    init::join_now(address.ok_or(Errno::INVAL)?)
}

/// Whether libc's functions that hand memory to the kernel can be ours: they are led to us, or libream_calls.so was linked.
fn calls_can_be_led() -> bool {
    #[cfg(feature = "inside")]
    return true;
    #[cfg(not(feature = "inside"))]
    calls_are_linked()
}

/// Whether the process uses libream_calls.so as its libc.
#[cfg(not(feature = "inside"))]
fn calls_are_linked() -> bool {
    let read = crate::loaded::find(c"read");
    objects::whose(read).is_some_and(|(file, _)| file.to_bytes().ends_with(b"/libream_calls.so"))
}

/// From now on, if not before, accesses by the kernel are prepared.
///
/// # Errors
/// What failed was said.
pub fn lead_calls() -> Result<(), Errno> {
    #[cfg(feature = "inside")]
    return crate::inside::calls::take_over().inspect_err(|error| {
        let what = if *error == Errno::NOENT { "libream_calls.so beside libream_inside.so" } else { "glibc 2.34" };
        say::tell(format_args!("a session from inside needs a whole userfaultfd, or {what}; see ream setup"));
    });
    #[cfg(not(feature = "inside"))]
    if calls_are_linked() { Ok(()) } else { Err(NOT_PERMITTED) }
}

/// In a child: no thread is there any more that was beginning a session.
///
/// # Safety
/// By the child's only thread.
pub unsafe fn fork_child() {
    // SAFETY: the caller's promise; the lock guards nothing of its own.
    unsafe { STARTING.reset() };
}

/// Whether we were loaded into the command itself, by somebody who begins sessions in every program that he is loaded into:
/// each would start the next.
fn is_the_command() -> bool {
    let mut name = [0; COMMAND.count_bytes() + 1];
    let Ok(fd) = file::open(c"/proc/self/cmdline", file::flags::READ, 0) else { return false };
    let read = file::read(fd, &mut name);
    file::close(fd);
    read.is_ok() && name == *COMMAND.to_bytes_with_nul()
}

/// Runs the command; returns how much it has printed.
fn ask(budget: u64, directory: &[u8], answer: &mut [u8]) -> Result<usize, Errno> {
    let mut pid = say::Line::<32>::new();
    let _ = write!(pid, "{}\0", process::process_id());
    let mut memory = say::Line::<64>::new();
    let _ = write!(memory, "--memory={budget}\0");
    let pointer = |text: &[u8]| text.as_ptr().cast_mut().cast::<c_char>();
    let arguments = [
        COMMAND.as_ptr().cast_mut(),
        pointer(pid.as_bytes()),
        pointer(if calls_can_be_led() { b"led\0" } else { b"whole\0" }),
        pointer(memory.as_bytes()),
        if directory.is_empty() { core::ptr::null_mut() } else { pointer(directory) },
        core::ptr::null_mut(),
    ];
    let mut ends = [0i32; 2];
    const O_CLOEXEC: usize = 0o2_000_000;
    // SAFETY: room for two descriptors.
    unsafe { call2(number::__NR_pipe2, ends.as_mut_ptr().expose_provenance(), O_CLOEXEC) }?;
    let [from, to] = ends.map(Fd);
    let mut child = Err(Errno::NOENT);
    each_place(&mut |place| {
        // SAFETY: strings that end with zero bytes, lists that end with null, and the descriptor of our pipe.
        child = unsafe { spawn(place, arguments.as_ptr(), to) };
        child == Err(Errno::NOENT) || child == Err(Errno::ACCES)
    });
    file::close(to);
    let read = child.and_then(|child| {
        let mut length = 0;
        let outcome = loop {
            match file::read(from, answer.get_mut(length..).unwrap_or(&mut [])) {
                Ok(0) => break Ok(length),
                Ok(read) => length += read,
                Err(Errno::INTR) => {}
                Err(error) => break Err(error),
            }
        };
        // The program's own handler may have been quicker.
        // SAFETY: waits for our own child; its status is not asked for.
        while unsafe { call4(number::__NR_wait4, child as usize, 0, 0, 0) } == Err(Errno::INTR) {}
        outcome
    });
    file::close(from);
    read
}

/// # Safety
/// `arguments` is a list of strings that ends with null; `out` is open.
unsafe fn spawn(file: &CStr, arguments: Strings, out: Fd) -> Result<c_int, Errno> {
    let mut actions = Actions([0; 16]);
    let mut child = 0;
    // SAFETY: libc's own structure, which has room for it; the caller's promise.
    let error = unsafe {
        if posix_spawn_file_actions_init(&raw mut actions) != 0 {
            return Err(Errno::NOMEM);
        }
        let mut error = posix_spawn_file_actions_adddup2(&raw mut actions, out.0, 1);
        if error == 0 {
            let null = core::ptr::null();
            error = posix_spawn(&raw mut child, file.as_ptr(), &raw const actions, null, arguments, environ);
        }
        posix_spawn_file_actions_destroy(&raw mut actions);
        error
    };
    if error == 0 { Ok(child) } else { Err(Errno(error as u16)) }
}

/// The places where the command may be, as long as `more` says so: beside the library, where an installation has it, and
/// in PATH.
fn each_place(more: &mut dyn FnMut(&CStr) -> bool) {
    let mut try_in = |directory: &[u8], name: &str| {
        let mut path = say::Line::<4200>::new();
        let Ok(directory) = core::str::from_utf8(directory) else { return true };
        let _ = write!(path, "{directory}{name}\0");
        CStr::from_bytes_until_nul(path.as_bytes()).map_or(true, &mut *more)
    };
    let own = objects::whose((&raw const STARTING).cast()).map(|(file, _)| file.to_bytes());
    if let Some(own) = own {
        let directory = own.iter().rposition(|byte| *byte == b'/').and_then(|at| own.get(..at)).unwrap_or(b".");
        if !try_in(directory, "/ream") || !try_in(directory, "/../../bin/ream") {
            return;
        }
    }
    // SAFETY: a string of the environment, or null.
    let paths = unsafe { getenv(c"PATH".as_ptr()).as_ref().map(|text| CStr::from_ptr(text).to_bytes()) };
    for directory in paths.unwrap_or(&[]).split(|byte| *byte == b':').filter(|directory| !directory.is_empty()) {
        if !try_in(directory, "/ream") {
            return;
        }
    }
}
