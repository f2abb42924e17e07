//! Programs that this one executes. Those that the dynamic linker starts find the session in their environment. A static one
//! is told by its file: what it needs from outside for large pages is done by the command, under the name `ream-start`, which is
//! executed in its place and becomes it; where only its heap can have some, a variable of its C library does. Where pages are
//! promised, so is every program done of which it is not certain that the library enters it: the command looks, and ends it.
//! Where the session is in the environment and LD_PRELOAD was set to libraries of others, ours come before them again.
//!
//! Callers may be children of vfork, which share their parent's memory, and handlers of signals: nothing is allocated, no lock is
//! taken, and whatever is not as expected leads to the call as it was made.

mod enters;

use crate::next::Next;
use crate::{init, pages, say, statics};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write as _;
use ream_page::BLOCK_BYTES;
use ream_stats::{Pages, Region, tunables};
use ream_sys::elf::{HEADER, MACHINE, SEGMENT_INTERPRETER, SEGMENT_LOADED, TYPE_FIXED, TYPE_MOVABLE, WRITABLE};
use ream_sys::syscall::{call4, call5, number};
use ream_sys::{file, process};

/// Strings, ended by null.
pub type Strings = *const *const c_char;

/// Longest list of arguments or variables that is changed.
const MOST: usize = 1000;
/// Longest path.
const PATH: usize = 4096;

unsafe extern "C" {
    static environ: Strings;
}

type Exec = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type Spawn = unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;

static EXECVE: Next = Next::of(c"execve");
static EXECVPE: Next = Next::of(c"execvpe");
static SPAWN: Next = Next::of(c"posix_spawn");
static SPAWNP: Next = Next::of(c"posix_spawnp");

const PRELOAD: &str = "LD_PRELOAD";

/// Our own libraries as LD_PRELOAD named them: the strings of the environment may be written over.
struct Ours(UnsafeCell<([u8; PATH], usize)>);

// SAFETY: written at the start only, when there is one thread.
unsafe impl Sync for Ours {}

static OURS: Ours = Ours(UnsafeCell::new(([0; PATH], 0)));

/// Looks the functions up, since the first caller may be a child of vfork.
///
/// # Safety
/// A list of strings, or null; nobody else runs yet.
pub unsafe fn begin(environment: Strings) {
    // SAFETY: the caller's promise.
    let ours = unsafe { each(environment) }.find_map(|text| init::our_part(text.to_bytes())).unwrap_or_default();
    // SAFETY: the caller's promise.
    let (room, length) = unsafe { &mut *OURS.0.get() };
    if let Some(place) = room.get_mut(..ours.len()) {
        place.copy_from_slice(ours);
        *length = ours.len();
    }
    // SAFETY: these are their types.
    unsafe {
        let _ = (EXECVE.get::<Exec>(), EXECVPE.get::<Exec>(), SPAWN.get::<Spawn>(), SPAWNP.get::<Spawn>());
    }
}

fn missing() -> c_int {
    const NOSYS: i32 = 38;
    crate::blocks::set_errno(NOSYS);
    -1
}

/// execve(2).
///
/// # Safety
/// As the manual says.
pub unsafe fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: its type, and the caller's promise.
    unsafe {
        let Some(next) = EXECVE.get::<Exec>() else { return missing() };
        lead(path, arguments, environment, &|path, arguments, environment| next(path, arguments, environment))
    }
}

/// execv(3).
///
/// # Safety
/// As the manual says.
pub unsafe fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's promise; libc's environment.
    unsafe { execve(path, arguments, environ) }
}

/// execvpe(3).
///
/// # Safety
/// As the manual says.
pub unsafe fn execvpe(name: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: their types, and the caller's promise.
    unsafe {
        let (Some(exec), Some(search)) = (EXECVE.get::<Exec>(), EXECVPE.get::<Exec>()) else { return missing() };
        in_path(name, &|found| {
            lead(found, arguments, environment, &|path, arguments, environment| {
                // libc's own also starts a script that names no interpreter.
                if path == found { search(name, arguments, environment) } else { exec(path, arguments, environment) }
            })
        })
        .unwrap_or_else(|| search(name, arguments, environment))
    }
}

/// execvp(3).
///
/// # Safety
/// As the manual says.
pub unsafe fn execvp(name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's promise; libc's environment.
    unsafe { execvpe(name, arguments, environ) }
}

/// posix_spawn(3), and posix_spawnp(3) with `search`.
///
/// # Safety
/// As the manual says.
pub unsafe fn spawn(
    search: bool,
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    const NOSYS: c_int = 38;
    // SAFETY: their types, and the caller's promise.
    unsafe {
        let (Some(one), Some(other)) = (SPAWN.get::<Spawn>(), SPAWNP.get::<Spawn>()) else { return NOSYS };
        let plain = if search { other } else { one };
        let unchanged = || plain(pid, path, actions, attributes, arguments, environment);
        // The child may be in another directory by then.
        let absolute = |path: *const c_char| path.read() == b'/' as c_char || actions.is_null();
        let led = |found: *const c_char| {
            if !absolute(found) && !pages::promised() {
                return unchanged();
            }
            lead(found, arguments, environment, &|changed, arguments, environment| {
                if changed == found {
                    plain(pid, path, actions, attributes, arguments, environment)
                } else {
                    one(pid, changed, actions, attributes, arguments, environment)
                }
            })
        };
        let outcome = match search {
            _ if path.is_null() => unchanged(),
            false => led(path),
            true => in_path(path, &led).unwrap_or_else(unchanged),
        };
        // What was refused here: an error, not a number below zero.
        if outcome == REFUSED { ACCES } else { outcome }
    }
}

/// Hands over the file that a name means: itself with a slash, else the first in PATH that may be executed. `None` where there
/// is none.
///
/// # Safety
/// A string, or null.
unsafe fn in_path(name: *const c_char, then: &dyn Fn(*const c_char) -> c_int) -> Option<c_int> {
    // SAFETY: the caller's promise; the process's environment.
    let (text, path) = unsafe { (name.as_ref().map(|name| CStr::from_ptr(name))?, value(environ, "PATH")) };
    init::session()?;
    let bytes = text.to_bytes();
    if bytes.contains(&b'/') {
        return Some(then(name));
    }
    for directory in path.unwrap_or(b"/bin:/usr/bin").split(|byte| *byte == b':') {
        let mut room = [0u8; PATH];
        let parts = [if directory.is_empty() { b"." } else { directory }, b"/", bytes];
        let mut length = 0;
        for part in parts {
            // One byte stays zero.
            room.get_mut(length..length + part.len()).filter(|room| room.len() < PATH - length)?.copy_from_slice(part);
            length += part.len();
        }
        let file = CStr::from_bytes_until_nul(&room).ok()?;
        if mode(file).is_some() {
            return Some(then(file.as_ptr()));
        }
    }
    None
}

/// The value of a variable.
///
/// # Safety
/// A list of strings, or null.
unsafe fn value(environment: Strings, name: &str) -> Option<&'static [u8]> {
    // SAFETY: the caller's promise.
    unsafe { each(environment) }.find_map(|text| given(text, name))
}

/// The value that a text of the environment gives to this variable.
fn given<'a>(text: &'a CStr, variable: &str) -> Option<&'a [u8]> {
    text.to_bytes().strip_prefix(variable.as_bytes())?.strip_prefix(b"=")
}

/// # Safety
/// A list of strings, or null, which stays.
unsafe fn each(list: Strings) -> impl Iterator<Item = &'static CStr> {
    let mut place = list;
    core::iter::from_fn(move || {
        // SAFETY: the caller's promise; the end was not reached yet.
        let text = unsafe { place.as_ref()?.as_ref().map(|text| CStr::from_ptr(text)) }?;
        place = place.wrapping_add(1);
        Some(text)
    })
}

/// The mode of a regular file that the effective user may execute.
fn mode(file: &CStr) -> Option<u32> {
    /// AT_FDCWD, -100.
    const HERE: usize = usize::MAX - 99;
    const MODE: usize = 2;
    const EXECUTE: usize = 1;
    const EFFECTIVE: usize = 0x200;
    const KIND: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let path = file.as_ptr().expose_provenance();
    let mut answer = [0u32; 64];
    // SAFETY: strings that end with zero bytes, and the 256 bytes of a struct statx.
    unsafe {
        call5(number::__NR_statx, HERE, path, 0, MODE, answer.as_mut_ptr().expose_provenance()).ok()?;
        call4(number::__NR_faccessat2, HERE, path, EXECUTE, EFFECTIVE).ok()?;
    }
    // stx_mode is the lower half of the eighth word.
    let mode = answer.get(7).copied()? & 0xffff;
    (mode & KIND == REGULAR).then_some(mode)
}

/// A static program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Static {
    /// Whether its static data fill a block for certain.
    blocks: bool,
}

/// What a file is, if a static program that gives nobody other rights.
fn judge(file: &CStr) -> Option<Static> {
    const SET_ID: u32 = 0o6000;
    mode(file).filter(|mode| mode & SET_ID == 0)?;
    let fd = file::open(file, file::flags::READ | file::flags::NONBLOCK, 0).ok()?;
    let mut start = [0; 1024];
    let read = file::read_at(fd, &mut start, 0);
    file::close(fd);
    parse(start.get(..read.ok()?)?)
}

/// The same of the beginning of a file.
fn parse(start: &[u8]) -> Option<Static> {
    let half = |at: usize| Some(u16::from_le_bytes(start.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(start.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(start.get(at..at + 8)?.try_into().ok()?));
    let begins = start.starts_with(b"\x7fELF\x02\x01") && half(18)? == MACHINE && usize::from(half(54)?) == HEADER;
    let kind = half(16).filter(|kind| begins && matches!(*kind, TYPE_FIXED | TYPE_MOVABLE))?;
    // The kernel hands a marked one to the command by itself.
    const MARK: &[u8] = b"REAM";
    if start.get(48..52)? == MARK {
        return None;
    }
    let (headers, count) = (usize::try_from(long(32)?).ok()?, usize::from(half(56)?));
    let mut blocks = false;
    for header in 0..count {
        let at = headers.checked_add(header * HEADER)?;
        match word(at)? {
            SEGMENT_INTERPRETER => return None,
            SEGMENT_LOADED if word(at + 4)? & WRITABLE != 0 => {
                let (address, bytes) = (long(at + 16)?, long(at + 40)?);
                let block = BLOCK_BYTES as u64;
                // A movable one begins anywhere.
                let lost = if kind == TYPE_FIXED { address.checked_next_multiple_of(block)? - address } else { block };
                blocks |= bytes >= lost.checked_add(block)?;
            }
            _ => {}
        }
    }
    Some(Static { blocks })
}

/// Executes what is to be, by `call`: the program itself, with a variable more, or the command in its place. Where that fails
/// it is called as it was.
///
/// # Safety
/// A path and two lists of strings, or null.
unsafe fn lead(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    call: &dyn Fn(*const c_char, Strings, Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let then = |environment| lead_by_file(path, arguments, environment, call);
        with_us(environment, &then).unwrap_or_else(|| then(environment))
    }
}

/// Goes on with an environment in which ours come first again. `None` where nothing has come in their place.
///
/// # Safety
/// As for [`lead`].
#[inline(never)]
unsafe fn with_us(environment: Strings, then: &dyn Fn(Strings) -> c_int) -> Option<c_int> {
    init::session()?;
    // SAFETY: the caller's promise; what is ours is not written any more.
    let (session, theirs, (room, length)) =
        unsafe { (value(environment, "REAM_SESSION"), value(environment, PRELOAD)?, &*OURS.0.get()) };
    let is_ours = |name: &[u8]| name.ends_with(b"/libream.so");
    let ours = room.get(..*length).filter(|ours| session.is_some() && !ours.is_empty())?;
    // Who takes the variable away wants none.
    if theirs.is_empty() || theirs.split(|byte| matches!(byte, b':' | b' ')).any(is_ours) {
        return None;
    }
    let (ours, theirs) = (core::str::from_utf8(ours).ok()?, core::str::from_utf8(theirs).ok()?);
    let mut text = say::Line::<PATH>::new();
    write!(text, "{PRELOAD}={ours}:{theirs}\0").ok()?;
    let mut list = List::new();
    // SAFETY: the caller's promise.
    let others = unsafe { each(environment) }.filter(|text| given(text, PRELOAD).is_none());
    let first = core::iter::once(text.as_bytes().as_ptr().cast::<c_char>());
    first.chain(others.map(CStr::as_ptr)).all(|text| list.add(text)).then(|| then(list.strings.as_ptr()))
}

/// As [`lead`], as the file wants it.
///
/// # Safety
/// As for [`lead`].
unsafe fn lead_by_file(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    call: &dyn Fn(*const c_char, Strings, Strings) -> c_int,
) -> c_int {
    let wanted = [Region::Heap, Region::Static, Region::Stack].map(pages::wanted);
    let large = wanted.map(|pages| pages.large());
    let promised = pages::promised();
    // SAFETY: the caller's promise.
    let led = unsafe {
        let ours = !path.is_null() && init::session().is_some() && (large != [false; 3] || promised);
        let ours = ours && value(environment, "REAM_SESSION").is_some();
        let by_command = || by_command(path, arguments, environment, call);
        match if ours { judge(CStr::from_ptr(path)) } else { None } {
            _ if ours && promised => match enters::sure(CStr::from_ptr(path)) {
                true => None,
                false => by_command().or_else(|| refuse(CStr::from_ptr(path))),
            },
            Some(Static { blocks }) => {
                let with_tunable = || with_tunable(path, arguments, environment, call);
                let first = if blocks && large[1] { by_command() } else { None };
                first.or_else(|| if large[0] { with_tunable() } else { None })
            }
            None => None,
        }
    };
    led.unwrap_or_else(|| call(path, arguments, environment))
}

const ACCES: c_int = 13;
const REFUSED: c_int = -1;

/// What is said where a program of the session may not run, and the command cannot look at it: as an error of the call.
fn refuse(path: &CStr) -> Option<c_int> {
    let name = core::str::from_utf8(path.to_bytes()).unwrap_or("a program");
    say::tell(format_args!("{name}: it must have its pages (--pages) and cannot be looked at; it is not started"));
    crate::blocks::set_errno(ACCES);
    Some(REFUSED)
}

/// Strings, ended by null, on the stack.
struct List {
    strings: [*const c_char; MOST + 8],
    count: usize,
}

impl List {
    const fn new() -> List {
        List { strings: [core::ptr::null(); MOST + 8], count: 0 }
    }

    /// False when there is no room: the last one stays null.
    fn add(&mut self, text: *const c_char) -> bool {
        let place = self.strings.get_mut(self.count).filter(|_| self.count < MOST + 7);
        let added = place.map(|place| *place = text).is_some();
        self.count += usize::from(added);
        added
    }
}

/// The path of the command, ended by a zero byte: beside the library, or where an installation has it.
fn command() -> Option<say::Line<PATH>> {
    let own = core::str::from_utf8(statics::own_file()?.to_bytes()).ok()?;
    let directory = own.rsplit_once('/').map_or(".", |(directory, _)| directory);
    ["/ream", "/../../bin/ream"].into_iter().find_map(|name| {
        let mut path = say::Line::new();
        write!(path, "{directory}{name}\0").ok()?;
        CStr::from_bytes_with_nul(path.as_bytes()).ok().and_then(mode).map(|_| path)
    })
}

/// `None` where it cannot be done, or was not.
///
/// # Safety
/// As for [`lead`].
#[inline(never)]
unsafe fn by_command(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    call: &dyn Fn(*const c_char, Strings, Strings) -> c_int,
) -> Option<c_int> {
    let command = command()?;
    let mut sizes = say::Line::<64>::new();
    for region in [Region::Heap, Region::Static, Region::Stack, Region::Shared] {
        write!(sizes, "{},", pages::wanted(region) as u32).ok()?;
    }
    write!(sizes, "{}\0", pages::promises()).ok()?;
    let mut list = List::new();
    // Its page sizes, the file, and the arguments follow.
    let first = [init::STARTER.as_ptr(), sizes.as_bytes().as_ptr().cast(), path];
    // SAFETY: the caller's promise.
    let rest = unsafe { each(arguments) };
    let fits = first.into_iter().chain(rest.map(CStr::as_ptr)).all(|text| list.add(text));
    let made = |result: &c_int| *result == 0;
    fits.then(|| call(command.as_bytes().as_ptr().cast(), list.strings.as_ptr(), environment)).filter(made)
}

/// As [`by_command`], for a program of which nothing but the heap is large.
///
/// # Safety
/// As for [`lead`].
#[inline(never)]
unsafe fn with_tunable(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    call: &dyn Fn(*const c_char, Strings, Strings) -> c_int,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let set = |variable: &str| unsafe { value(environment, variable) };
    let before = core::str::from_utf8(set(tunables::VARIABLE).unwrap_or(b"")).ok()?;
    let whole = pages::wanted(Region::Heap) == Pages::Huge && !process::untouched_memory_counts();
    let added = tunables::added(tunables::decided(before.as_bytes(), |name| set(name).is_some()), whole);
    if added.is_empty() {
        return None;
    }
    let mut text = say::Line::<1024>::new();
    write!(text, "{}={before}", tunables::VARIABLE).ok()?;
    for (place, one) in added.iter().enumerate() {
        write!(text, "{}{one}", if place == 0 && before.is_empty() { "" } else { ":" }).ok()?;
    }
    text.write_str("\0").ok()?;
    let mut list = List::new();
    // SAFETY: the caller's promise.
    let others = unsafe { each(environment) }.filter(|text| given(text, tunables::VARIABLE).is_none());
    let ours = core::iter::once(text.as_bytes().as_ptr().cast::<c_char>());
    let fits = others.map(CStr::as_ptr).chain(ours).all(|text| list.add(text));
    let made = |result: &c_int| *result == 0;
    fits.then(|| call(path, arguments, list.strings.as_ptr())).filter(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_programs_are_told_by_their_headers() {
        assert_eq!(parse(b"#!/bin/sh\n"), None);
        assert_eq!(parse(b"\x7fELF\x02\x01"), None);
        assert_eq!(judge(c"/proc/self/exe"), None, "it has a linker");
        assert_eq!(judge(c"/no/such/file"), None);
        assert_eq!(judge(c"/etc/passwd"), None);
        let own = file::open(c"/proc/self/exe", file::flags::READ, 0).unwrap();
        let mut start = [0; 1024];
        assert_eq!(file::read_at(own, &mut start, 0), Ok(1024));
        file::close(own);
        assert_eq!(parse(&start), None);
        // Without its linker, and with large static data.
        let count = usize::from(start[56]);
        let at = |header: usize| 64 + header * 56;
        let linker = (0..count).find(|header| start[at(*header)] == 3).expect("it has one");
        start[at(linker)] = 4;
        assert_eq!(parse(&start), Some(Static { blocks: false }));
        let writable = |header: &usize| start[at(*header)] == 1 && start[at(*header) + 4] & 2 != 0;
        let data = (0..count).find(writable).unwrap();
        start[at(data) + 40..at(data) + 48].copy_from_slice(&(4u64 << 20).to_le_bytes());
        assert_eq!(parse(&start), Some(Static { blocks: true }));
        start[at(data) + 16..at(data) + 24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(parse(&start).is_some());
        start[48..52].copy_from_slice(b"REAM");
        assert_eq!(parse(&start), None);
        start[48..52].copy_from_slice(&[0; 4]);
        // A header beyond what was read.
        start[32] = 255;
        start[33] = 3;
        assert_eq!(parse(&start), None);
        for length in 0..start.len() {
            let _ = parse(&start[..length]);
        }
    }

    #[test]
    fn lists_end_with_null() {
        let mut list = List::new();
        let text = c"x".as_ptr();
        let added = (0..2 * MOST).take_while(|_| list.add(text)).count();
        assert_eq!(added, MOST + 7);
        // SAFETY: the list is the test's.
        assert_eq!(unsafe { each(list.strings.as_ptr()) }.count(), MOST + 7);
        let variables = [c"A=1".as_ptr(), c"PATH=/x:/y".as_ptr(), core::ptr::null()];
        // SAFETY: as above.
        unsafe {
            assert_eq!(value(variables.as_ptr(), "PATH"), Some(&b"/x:/y"[..]));
            assert_eq!(value(variables.as_ptr(), "B"), None);
            assert_eq!(value(core::ptr::null(), "B"), None);
        }
    }
}
