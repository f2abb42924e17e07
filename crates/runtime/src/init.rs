//! Start and end of the library in a process. It is initialised before every other library, but malloc works before
//! that. Without a session, or when the session cannot be joined, the program runs on plain memory.

use crate::regions::Kind;
use crate::user::User;
use crate::{
    abi, agent, blocks, engine, fork, heap, identity, lending, locks, maps, pages, pool, prefault, say, stacks, statics,
};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicPtr, Ordering};
use ream_stats::{Address, Config, Refused, Region, Report, Session, Summary};
use ream_sys::file::{self, Fd};
use ream_sys::futex::{self, Scope};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::syscall::{call3, number};
use ream_sys::{Errno, process, quiet};

type Strings = *mut *mut c_char;

static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());

/// The session that the process has joined.
pub fn session() -> Option<&'static Session> {
    // SAFETY: null, or a session that stays mapped.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// The name of the command where it starts a static program.
pub const STARTER: &CStr = c"ream-start";

/// Run by the dynamic linker before all other constructors.
pub extern "C" fn start(_count: c_int, arguments: Strings, environment: Strings) {
    fork::register();
    if cfg!(feature = "inside") {
        // The session of the environment is libream.so's.
        heap::stay_alone();
        return;
    }
    #[cfg(not(feature = "inside"))]
    // SAFETY: the linker passes a list ended by null, and nobody else runs yet.
    unsafe {
        crate::executed::begin(environment as crate::executed::Strings)
    };
    // SAFETY: the linker passes both lists, ended by null.
    let (name, address) = unsafe { (first(arguments), variable(environment, b"REAM_SESSION=")) };
    // The command joins nothing: it is about to become a program.
    let address = address.filter(|_| name != Some(STARTER));
    // SAFETY: as above.
    let level = unsafe { variable(environment, b"REAM_LOG=") }.map_or(&b""[..], CStr::to_bytes);
    let chatty = level.starts_with(b"info") || level.starts_with(b"debug");
    let Some((session, index)) = address.and_then(|address| join(address.to_bytes(), chatty)) else {
        heap::stay_alone();
        return;
    };
    if let Some(name) = name {
        call(session, index, name.to_bytes());
    }
    let config = enter(session);
    if pages::switched_off(config) {
        refuse(format_args!(
            "large pages are switched off for this process (PR_SET_THP_DISABLE) and it must have them"
        ));
    }
    if config.engine() == ream_stats::Engine::UserMode {
        lending::begin();
        let threshold = usize::try_from(config.threshold_bytes).unwrap_or(usize::MAX);
        // opendir's block, which libc itself has the kernel write to, is of 1 MiB and a header where a file system says so (NFS).
        let large = if threshold == 1 << 20 { threshold + 4096 } else { threshold };
        blocks::set_large_from(large.min(ream_heap::LARGE_BYTES));
        engine::forget(Kind::Small);
    }
    pages::want(config);
    heap::join_session();
    prefault::begin(config);
    engine::start(session, index);
    locks::begin(config);
    require(config, Region::Stack, stacks::main_stack());
    prefault::code();
    pool::reserve(config);
    require(config, Region::Heap, heap::begin_pooled());
    require(config, Region::Static, statics::manage());
    #[cfg(not(feature = "inside"))]
    crate::loaded::begin();
    if config.exec_inherit == 0 {
        // SAFETY: the linker's list, before any other code of the program runs.
        unsafe { leave_environment(environment) };
    }
}

/// Tells the session the program's name.
fn call(session: &Session, index: usize, name: &[u8]) {
    if let Some(process) = session.process(index) {
        process.set_name(name.rsplit(|byte| *byte == b'/').next().unwrap_or(name));
    }
}

/// The session is ours from now on.
fn enter(session: &'static Session) -> &'static Config {
    ring(session);
    SESSION.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    let config = session.config();
    maps::set_threshold(usize::try_from(config.threshold_bytes).unwrap_or(usize::MAX));
    config
}

/// Joins a session that was made for this process, while its threads run: what it has is left as it is, stacks and static
/// data among it.
///
/// # Errors
/// What failed was said.
pub fn join_now(address: &[u8]) -> Result<(), Errno> {
    let refuse = |reason: Refusal| {
        say::tell(format_args!("this program runs without Ream: {reason}"));
        Errno::INVAL
    };
    let session = open(address).map_err(refuse)?;
    if session.config().engine() == ream_stats::Engine::UserMode {
        abi::begin::lead_calls()?;
        lending::begin();
        engine::forget(Kind::Small);
    }
    let index = claim(session).map_err(refuse)?;
    let mut name = [0; 256];
    if let Ok(length) = file::open(c"/proc/self/comm", file::flags::READ, 0).and_then(|fd| {
        let read = file::read(fd, &mut name);
        file::close(fd);
        read
    }) {
        call(session, index, name.get(..length).unwrap_or(&[]).trim_ascii());
    }
    let config = enter(session);
    pages::want(config);
    abi::switch::begin();
    heap::join_session();
    engine::start(session, index);
    locks::begin(config);
    pool::reserve(config);
    Ok(())
}

/// Ends the process where a region did not come to lie on the pages that it must have.
fn require(config: &Config, region: Region, placed: bool) {
    if !placed && config.pages_required(region) {
        let what = match region {
            Region::Heap => "heap",
            Region::Stack => "main stack",
            _ => "static data",
        };
        let which = if config.pages(region).pooled() { "pages of a pool" } else { "large pages" };
        refuse(format_args!("the {what} must lie on {which} and cannot"));
    }
}

/// Ends the process before the program has begun: it would not have the pages that were promised for it.
fn refuse(why: core::fmt::Arguments<'_>) -> ! {
    say::tell(format_args!("--pages: {why}; the program is not started"));
    process::end_process(125)
}

/// Opens the session and takes a place in it; says so when that fails, and ends the process where it must not. What is as its
/// user wants it is said to who asked for it (`chatty`).
fn join(address: &[u8], chatty: bool) -> Option<(&'static Session, usize)> {
    let joined = open(address).and_then(|session| Ok((session, claim(session)?)));
    joined
        .inspect_err(|reason| {
            if Address::parse(address).is_some_and(|address| address.promised) {
                refuse(format_args!("a program of this session must have its pages, and {reason}"));
            }
            if chatty || !reason.is_of_a_filter() {
                say::tell(format_args!("this program runs without Ream: {reason}"));
            }
        })
        .ok()
}

/// Takes a place in the session.
fn claim(session: &Session) -> Result<usize, Refusal> {
    let index = session.claim(identity::begin(), now_ms()).ok_or(Refusal::Full)?;
    if let Some(process) = session.process(index) {
        process.set_program(identity::program());
    }
    Ok(index)
}

/// Run by the dynamic linker at exit, and where the program ends without (_exit), also in a signal handler. Nothing is torn
/// down: others may run after us.
pub extern "C" fn end() {
    let Some(session) = session() else { return };
    let me = identity::me();
    // A child made by vfork has none, and is not to end its parent's.
    let Some(index) = session.used().iter().position(|process| process.identity() == Some(me)) else { return };
    engine::at_exit();
    abi::phases::leave(session, index);
    if !engine::forking() {
        session.forget_unborn(me, process::childless);
    }
    if session.leave(index, identity::alive) {
        summarise(session);
    }
    ring(session);
}

/// Tells the agent that somebody came or went.
fn ring(session: &Session) {
    session.ring();
    futex::wake(session.bell(), u32::MAX, Scope::Shared);
}

fn now_ms() -> u64 {
    process::now_us() / 1000
}

/// Why a session was not joined.
enum Refusal {
    Address,
    File(Errno),
    Memory(Errno),
    Content(Refused),
    Full,
}

impl Refusal {
    /// Whether the program has been shut in on purpose: nothing that its user should hear of each time.
    fn is_of_a_filter(&self) -> bool {
        matches!(self, Refusal::File(Errno::NOSYS | Errno::PERM))
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Address => f.write_str("REAM_SESSION is not the address of a session"),
            Refusal::File(error) if self.is_of_a_filter() => {
                write!(
                    f,
                    "its session cannot be opened: a filter of system calls (seccomp) refuses it, errno {}",
                    error.0
                )
            }
            Refusal::File(error) => {
                write!(
                    f,
                    "its session cannot be opened, errno {}: its agent ended, or belongs to another user",
                    error.0
                )
            }
            Refusal::Memory(error) => write!(f, "its session cannot be mapped, errno {}", error.0),
            Refusal::Content(Refused::OtherVersion) => {
                f.write_str("its session was started by another version of Ream")
            }
            Refusal::Full => f.write_str("its session has as many processes as it can"),
            Refusal::Content(_) => f.write_str("its session is gone, and another file is in its place"),
        }
    }
}

/// Opens a session by its address.
fn open(address: &[u8]) -> Result<&'static Session, Refusal> {
    let Address { path, nonce, door, .. } = Address::parse(address).ok_or(Refusal::Address)?;
    let mut buffer = [0; 256];
    // One byte less: a zero must follow.
    let place = buffer.get_mut(..path.len()).filter(|place| place.len() < 256).ok_or(Refusal::Address)?;
    place.copy_from_slice(path);
    let path = CStr::from_bytes_until_nul(&buffer).map_err(|_| Refusal::Address)?;
    let own = file::open(path, file::flags::READ_WRITE, 0);
    // Another user's, since the program gave up rights before it executed this one: the agent lets us in.
    let ask = || agent::session(nonce, door);
    match own {
        Err(error) => accept(ask().map_err(|_| Refusal::File(error))?, nonce),
        // In a namespace of our own another process may have the agent's number, and another file there.
        Ok(fd) => accept(fd, nonce).or_else(|refusal| match ask() {
            Ok(fd) => accept(fd, nonce),
            Err(_) => Err(refusal),
        }),
    }
}

/// Maps a file, and takes what is in it for the session with this nonce if it is that.
fn accept(fd: Fd, nonce: u64) -> Result<&'static Session, Refusal> {
    let mapped = map(fd);
    file::close(fd);
    let (memory, bytes) = mapped.map_err(Refusal::Memory)?;
    // SAFETY: mapped shared and writable for good; only sessions, which keep to ream-stats, have the magic and nonce.
    let session = unsafe { Session::open(memory, bytes, nonce) };
    session.map_err(|refused| {
        // SAFETY: mapped above, and not used any more.
        let _ = unsafe { memory::unmap(memory, bytes) };
        Refusal::Content(refused)
    })
}

fn map(fd: Fd) -> Result<(*mut u8, usize), Errno> {
    const SEEK_END: usize = 2;
    // SAFETY: touches no memory; the position of a descriptor of our own.
    let bytes = unsafe { call3(number::__NR_lseek, fd.0 as usize, 0, SEEK_END) }?;
    let start = memory::map_shared(fd, bytes, Protection::ReadWrite)?.as_ptr();
    // What shows a memory server that it is this session is in there.
    // SAFETY: what is left out of a core dump is no other.
    let _ = unsafe { memory::advise(start.expose_provenance(), bytes.next_multiple_of(4096), Advice::DontDump) };
    Ok((start, bytes))
}

/// Room for the closing summary, for whoever writes it: one thread of the session, once. Not on the stack, which may be a
/// signal's small one.
fn claim_summary(session: &Session) -> Option<&'static mut say::Line<16384>> {
    struct Text(UnsafeCell<say::Line<16384>>);
    // SAFETY: used by whoever has claimed the summary only.
    unsafe impl Sync for Text {}
    static TEXT: Text = Text(UnsafeCell::new(say::Line::new()));
    // SAFETY: see `Sync`.
    session.claim_summary().then(|| unsafe { &mut *TEXT.0.get() })
}

/// Writes the closing summary, unless somebody has, or the agent must because we have nowhere to write it.
fn summarise(session: &Session) {
    let config = session.config();
    if session.closed() {
        return;
    }
    match config.summary() {
        Summary::Off => {}
        Summary::Text => {
            // In a namespace of our own another process may have the agent's number.
            let user = identity::is_ours(session.space()).then(|| User::find(session.agent())).flatten();
            let Some(user) = user else {
                agent::summarise(session);
                return;
            };
            if let Some(text) = claim_summary(session) {
                // What does not fit is cut off.
                let _ = Report::of(session, now_ms()).write_text(text);
                let _ = quiet::write_all(user.fd(), text.as_bytes());
            }
        }
        Summary::Json => {
            let Some(path) = config.summary_path.as_c_str() else { return };
            // It ignores the signal that would end this process where the file becomes too large.
            if file::size_limit() != u64::MAX && agent::summarise(session) {
                return;
            }
            // Whoever cannot write it leaves it to the agent, who can. A FIFO that nobody reads is not waited for.
            let flags = file::flags::WRITE | file::flags::CREATE | file::flags::NONBLOCK;
            let failed = match file::open(path, flags, 0o666) {
                Ok(fd) => {
                    let written = claim_summary(session).map_or(Ok(()), |text| {
                        let _ = Report::of(session, now_ms()).write_json(text);
                        let _ = file::set_length(fd, 0);
                        quiet::write_all(fd, text.as_bytes())
                    });
                    file::close(fd);
                    written.err()
                }
                // The agent would find no reader either.
                Err(Errno::NXIO) => session.claim_summary().then_some(Errno::NXIO),
                Err(_) if agent::summarise(session) || session.closed() => None,
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                miss(session, path, error);
            }
        }
    }
}

/// Says that there is no summary in its file, on the user's standard error: the program may have closed its own by now.
fn miss(session: &Session, path: &CStr, error: Errno) {
    let path = core::str::from_utf8(path.to_bytes()).unwrap_or("its file");
    let why: &dyn core::fmt::Display = match error {
        Errno::NXIO | Errno::PIPE => &"nobody reads it",
        Errno::AGAIN => &"its reader does not read on",
        _ => &format_args!("errno {}", error.0),
    };
    let mut line = say::Line::<1200>::new();
    // What does not fit is cut off.
    let _ = writeln!(line, "ream: --summary: {path}: {why}; the summary is left out");
    let user = User::find(session.agent());
    let _ = quiet::write_all(user.as_ref().map_or(Fd::STDERR, User::fd), line.as_bytes());
}

/// The first string of a list.
///
/// # Safety
/// A list of strings ended by null, or null.
unsafe fn first(list: Strings) -> Option<&'static CStr> {
    // SAFETY: the caller's promise; the strings live as long as the process.
    unsafe { list.as_ref().and_then(|string| string.as_ref()).map(|string| CStr::from_ptr(string)) }
}

/// The value of a variable, given by its name and an equals sign.
///
/// # Safety
/// As for [`first`].
unsafe fn variable(list: Strings, name: &[u8]) -> Option<&'static CStr> {
    let mut place = list;
    loop {
        // SAFETY: the caller's promise; the end was not reached yet.
        let string = unsafe { first(place) }?;
        if let Some(value) = string.to_bytes_with_nul().strip_prefix(name) {
            return CStr::from_bytes_with_nul(value).ok();
        }
        place = place.wrapping_add(1);
    }
}

/// Takes Ream out of the environment, so that programs executed from here run without.
///
/// # Safety
/// As for [`first`]; nobody else uses the list or its strings yet.
unsafe fn leave_environment(list: Strings) {
    let mut from = list;
    let mut to = list;
    loop {
        // SAFETY: the caller's promise; the end was not reached yet.
        let string = unsafe { from.read() };
        let mut keep = true;
        if !string.is_null() {
            // SAFETY: the caller's promise.
            let bytes = unsafe { CStr::from_ptr(string) }.to_bytes();
            if bytes.starts_with(b"REAM_SESSION=") {
                keep = false;
            } else if let Some(rest) = without_us(bytes) {
                // SAFETY: a part of the same string, moved to its front with the zero byte after it.
                unsafe {
                    let name_end = string.add(b"LD_PRELOAD=".len());
                    core::ptr::copy(string.add(rest), name_end, bytes.len() - rest + 1);
                }
                keep = rest < bytes.len();
            }
        }
        if keep {
            // SAFETY: never beyond the place just read.
            unsafe { to.write(string) };
            to = to.wrapping_add(1);
        }
        if string.is_null() {
            return;
        }
        from = from.wrapping_add(1);
    }
}

/// Our own libraries in an `LD_PRELOAD` that begins with them.
#[cfg(not(feature = "inside"))]
pub fn our_part(variable: &[u8]) -> Option<&[u8]> {
    let ours = variable.get(..without_us(variable)?)?.strip_prefix(b"LD_PRELOAD=")?;
    Some(ours.strip_suffix(b":").or(ours.strip_suffix(b" ")).unwrap_or(ours))
}

/// Where the rest of an `LD_PRELOAD` begins whose first libraries are ours; `None` for everything else.
fn without_us(variable: &[u8]) -> Option<usize> {
    let list = variable.strip_prefix(b"LD_PRELOAD=")?;
    let behind = |list: &[u8], name: &[u8]| {
        let end = list.iter().position(|byte| matches!(byte, b':' | b' ')).unwrap_or(list.len());
        list.get(..end)?.ends_with(name).then(|| (end + 1).min(list.len()))
    };
    let first = behind(list, b"/libream.so")?;
    let mut ours = first;
    for name in [&b"/libream_calls.so"[..], b"/libream-mpi-openmpi.so", b"/libream-mpi-mpich.so"] {
        ours += list.get(ours..).and_then(|rest| behind(rest, name)).unwrap_or(0);
    }
    Some(variable.len() - list.len() + ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_leave_the_environment_and_others_stay() {
        let mut strings = [
            *b"A=1\0...........................",
            *b"LD_PRELOAD=/x/libream.so:/b.so\0",
            *b"REAM_SESSION=/proc/1/fd/3:f-f\0.",
            *b"B=2\0...........................",
        ];
        let mut list = [core::ptr::null_mut(); 5];
        for (place, string) in list.iter_mut().zip(&mut strings) {
            *place = string.as_mut_ptr().cast::<c_char>();
        }
        // SAFETY: strings and list are the test's own.
        unsafe {
            let value = variable(list.as_mut_ptr(), b"REAM_SESSION=").unwrap();
            assert_eq!(value.to_bytes(), b"/proc/1/fd/3:f-f");
            assert!(variable(list.as_mut_ptr(), b"C=").is_none());
            leave_environment(list.as_mut_ptr());
            assert_eq!(first(list.as_mut_ptr().add(1)).unwrap().to_bytes(), b"LD_PRELOAD=/b.so");
            assert_eq!(first(list.as_mut_ptr().add(2)).unwrap().to_bytes(), b"B=2");
            assert!(first(list.as_mut_ptr().add(3)).is_none());
        }
        assert_eq!(without_us(b"LD_PRELOAD=/l/libream.so"), Some(b"LD_PRELOAD=/l/libream.so".len()));
        let both = b"LD_PRELOAD=/l/libream.so:/l/libream_calls.so:/b.so";
        assert_eq!(without_us(both), Some(both.len() - b"/b.so".len()));
        let mpi = b"LD_PRELOAD=/l/libream.so:/l/libream-mpi-openmpi.so:/b.so";
        assert_eq!(without_us(mpi), Some(mpi.len() - b"/b.so".len()));
        assert_eq!(without_us(b"LD_PRELOAD=/b.so:/l/libream.so"), None);
        assert_eq!(without_us(b"PATH=/l/libream.so"), None);
        #[cfg(not(feature = "inside"))]
        assert_eq!(our_part(both), Some(&b"/l/libream.so:/l/libream_calls.so"[..]));
        #[cfg(not(feature = "inside"))]
        assert_eq!(our_part(b"LD_PRELOAD=/l/libream.so"), Some(&b"/l/libream.so"[..]));
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for address in [&b""[..], b"/proc/1/fd/3", b"/x:", b"/x:zz", &[b'a'; 300]] {
            assert!(matches!(open(address), Err(Refusal::Address)), "{address:?}");
        }
        assert!(matches!(open(b"/no/such/file:1f-2"), Err(Refusal::File(_))));
    }
}
