//! System calls that the standard library does not have, each behind a safe function.
#![allow(unsafe_code)]

mod window;

mod detached;
mod files;
pub mod hook;
mod lines;
mod signals;
mod sizes;
pub mod trace;

pub use detached::{clear_environment, end, replace_arguments, start_detached, start_unseen};
pub use files::{copy_attributes, directory, exchange_files, name_file, nameless_file, program_in_memory, seal};
pub use lines::{say, write_line};
pub use signals::end_signals;
pub use sizes::{is_too_large, lift_size_limit};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicU32;
pub use window::{
    BLOCK, Window, begins_at_a_block, evict, give_name, is_in_ram, large_pages_are_off, lock, reopen, unlock,
};

/// Turns a call's −1 into the error behind it.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = checked(result)? as RawFd;
    // SAFETY: the call has just made this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Occupies descriptors 0 to 2 where the caller closed them, until exec: otherwise files opened here would get these
/// numbers, and messages would be written into them.
pub fn occupy_standard_descriptors() {
    for fd in 0..3 {
        // SAFETY: F_GETFD only asks.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            // SAFETY: the path is a constant with its zero; the lowest free number, which is `fd`, is taken.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        }
    }
}

/// Makes writes to closed pipes return EPIPE in this process.
pub fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Ignores what a terminal or a user sends to whole groups, so that the agent outlives the program it watches.
pub fn ignore_signals_of_groups() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE, libc::SIGTSTP] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Whether the effective user may execute a file.
pub fn may_execute(file: &Path) -> bool {
    may(file, libc::X_OK)
}

/// Whether the effective user may write to a file.
pub fn may_write(file: &Path) -> bool {
    may(file, libc::W_OK)
}

fn may(file: &Path, access: libc::c_int) -> bool {
    let Ok(path) = c_string(file.as_os_str()) else { return false };
    // SAFETY: a zero-terminated path.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), access, libc::AT_EACCESS) == 0 }
}

/// Whether a file was given capabilities.
pub fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = c_string(file.as_os_str()) else { return false };
    // SAFETY: zero-terminated strings; size 0 asks for the length only.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The effective user and group.
pub fn user_and_group() -> (u32, u32) {
    // SAFETY: these calls take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Whether the policy of this process (numactl) places pages whoever touches them.
pub fn placement_is_fixed() -> bool {
    const PREFERRED: libc::c_int = 1;
    const BIND: libc::c_int = 2;
    const INTERLEAVE: libc::c_int = 3;
    const WEIGHTED_INTERLEAVE: libc::c_int = 6;
    const NODES: usize = 1024;
    let (mut mode, mut nodes): (libc::c_int, [u64; NODES / 64]) = (0, [0; NODES / 64]);
    // SAFETY: room for the policy and its nodes.
    let told = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, &raw mut nodes, NODES, 0, 0) } == 0;
    // The upper bits are flags.
    match mode & 0xff {
        PREFERRED | INTERLEAVE | WEIGHTED_INTERLEAVE => told,
        BIND => told && nodes.iter().map(|word| word.count_ones()).sum::<u32>() == 1,
        _ => false,
    }
}

/// Milliseconds on the monotonic clock.
pub fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux; `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// 64 bits that nobody can guess.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is writable for its length; requests up to 256 bytes are not cut short.
    checked(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } as libc::c_long)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Anonymous shared memory of `bytes` zeros, with a name for /proc.
pub fn shared_memory(name: &std::ffi::CStr, bytes: usize) -> io::Result<OwnedFd> {
    // Not to be executed from where the kernel knows that (6.3); older ones refuse the flag.
    const NOEXEC_SEAL: libc::c_uint = 8;
    // SAFETY: a zero-terminated name.
    let make = |flags| owned(libc::c_long::from(unsafe { libc::memfd_create(name.as_ptr(), flags) }));
    let fd = make(libc::MFD_CLOEXEC | NOEXEC_SEAL).or_else(|_| make(libc::MFD_CLOEXEC))?;
    // SAFETY: plain calls on a descriptor that lives.
    checked(libc::c_long::from(unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) }))?;
    // SAFETY: as before.
    let lengthen = || checked(libc::c_long::from(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) }));
    sizes::beyond_the_limit(lengthen)?;
    Ok(fd)
}

/// Maps shared memory for the rest of the process's life.
pub fn map_shared(fd: &OwnedFd, bytes: usize) -> io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel likes it touches nothing of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// A descriptor that stands for a process and becomes readable when it has ended.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::c_long, 0 as libc::c_long) })
}

/// Whether a process behind such a descriptor has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one writable pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

/// Waits until one of the descriptors is readable or has hung up, or for so many milliseconds (`None`: for ever).
pub fn wait_readable(fds: impl Iterator<Item = RawFd>, milliseconds: Option<u32>) {
    let mut polls: Vec<_> = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = milliseconds.map_or(-1, |ms| ms.min(i32::MAX as u32) as i32);
    // SAFETY: the vector's elements are writable for its length.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
}

/// A counter whose descriptor is readable while it is not zero.
pub fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    owned(libc::c_long::from(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }))
}

/// Sleeps while a word in shared memory stands at `value`. May return early.
pub fn wait_while(word: &AtomicU32, value: u32) {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives as long as the reference; the call only reads it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, no_timeout) };
}

/// Raises the limit of open descriptors as far as an ordinary user may.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable, then readable.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// A limit of this process; `None` for none.
pub fn limit(which: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let done = unsafe { libc::getrlimit(which, &mut limit) } == 0;
    (done && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Replaces this process's program. Returns only when that failed.
pub fn execute(file: &Path, arguments: &[OsString], environment: &[(OsString, OsString)]) -> io::Error {
    let strings = || -> io::Result<(CString, Vec<CString>, Vec<CString>)> {
        let arguments = arguments.iter().map(|text| c_string(text)).collect::<io::Result<_>>()?;
        let environment = environment
            .iter()
            .map(|(name, value)| c_string(OsStr::from_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat())))
            .collect::<io::Result<_>>()?;
        Ok((c_string(file.as_os_str())?, arguments, environment))
    };
    let (file, arguments, environment) = match strings() {
        Ok(strings) => strings,
        Err(error) => return error,
    };
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    // SAFETY: a zero-terminated path and null-terminated lists of zero-terminated strings that live until the call
    // ends.
    unsafe { libc::execve(file.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

fn child_signal_pending() -> bool {
    // SAFETY: a signal set is plain bits, written by the call before it is read.
    unsafe {
        let mut pending = std::mem::zeroed();
        libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, libc::SIGCHLD) == 1
    }
}

/// Takes back the signal of our own child where the caller has it blocked, so that the program does not find it.
fn forget_child_signal() {
    if child_signal_pending() {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set is filled before use; no information is asked for.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigtimedwait(&set, std::ptr::null_mut(), &now);
        }
    }
}

/// Both ends of a pipe: to read from and to write to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    checked(libc::c_long::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Takes over a descriptor that this process inherited under a known number.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD changes a flag of a descriptor, or fails where there is none.
    checked(libc::c_long::from(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: it exists, and the protocol between launcher and agent gives it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives up the right that makes page maps show physical addresses, and much else that this process does not need.
pub fn give_up_administration() {
    const ADMINISTRATION: u32 = 1 << 21;
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: version 3 of the header, and room for its two structures of three words.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) == 0 {
            for set in &mut sets[0] {
                *set &= !ADMINISTRATION;
            }
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr());
        }
    }
}

/// Process number and effective user of whoever is at the other end, as they were when it connected.
pub fn peer(socket: &UnixStream) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    option(socket, libc::SO_PEERCRED, &mut peer)?;
    Ok((peer.pid as u32, peer.uid))
}

/// A descriptor of that process (Linux 6.5).
pub fn peer_process(socket: &UnixStream) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut process: RawFd = -1;
    option(socket, SO_PEERPIDFD, &mut process)?;
    owned(process.into())
}

/// Process number of whoever made the other end of the socket that this process inherited under a number.
pub fn peer_of_inherited(fd: RawFd) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the structure is writable for its length; where the number is no socket's the call fails.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length) };
    (result == 0 && peer.pid > 0).then_some(peer.pid as u32)
}

/// Wakes whoever sleeps on a word in shared memory.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the call uses only the address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Asks for an option of a socket, plain numbers of the type that it has.
fn option<T: Copy>(socket: &UnixStream, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let place = std::ptr::from_mut(value).cast();
    // SAFETY: the value is writable for its length.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, &mut length) };
    checked(result.into()).map(drop)
}

/// Sends a number and a descriptor.
pub fn answer(socket: &UnixStream, number: i32, file: Option<&OwnedFd>) -> io::Result<()> {
    let mut number = number.to_ne_bytes();
    let mut part = libc::iovec { iov_base: number.as_mut_ptr().cast(), iov_len: number.len() };
    // Aligned as a control message must be; more than it needs.
    let mut control = [0u64; 4];
    // SAFETY: plain numbers and null pointers are a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(file) = file {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the message's control buffer has room for one descriptor, in whose place the number is written.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&message);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(file.as_raw_fd());
        }
    }
    // SAFETY: the message and what it points to live until the call ends.
    checked(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) } as libc::c_long).map(drop)
}

/// Sets the name that ps shows for this thread.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: a zero-terminated name, of which the kernel takes 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// What a file system says of itself.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// Its magic number.
    pub kind: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes that this user may still take.
    pub available: u64,
}

/// Asks the file system that holds a file.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = c_string(path.as_os_str())?;
    // SAFETY: plain numbers, written by the call before they are read.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a zero-terminated path and a writable answer.
    checked(libc::c_long::from(unsafe { libc::statfs(path.as_ptr(), &mut answer) }))?;
    let unit = answer.f_bsize as u64;
    Ok(FileSystem {
        kind: answer.f_type as u64,
        total: answer.f_blocks.saturating_mul(unit),
        available: answer.f_bavail.saturating_mul(unit),
    })
}

/// Makes reads and writes of a file go to the device directly.
pub fn set_direct(file: &std::fs::File) -> io::Result<()> {
    // SAFETY: flags of a descriptor that lives.
    let flags = checked(libc::c_long::from(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }))? as i32;
    // SAFETY: as before.
    checked(libc::c_long::from(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT) }))?;
    Ok(())
}

/// Lets standard error go to another file.
pub fn replace_standard_error(file: &std::fs::File) {
    // SAFETY: both descriptors live; number 2 belongs to nobody in particular.
    unsafe { libc::dup2(file.as_raw_fd(), 2) };
}

/// What the processor says of itself: the registers eax, ebx, ecx and edx for a leaf. `None` on other processors.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn cpuid(leaf: u32, part: u32) -> Option<[u32; 4]> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction. (Newer compilers know that.)
        #[allow(unused_unsafe)]
        let answer = unsafe { std::arch::x86_64::__cpuid_count(leaf, part) };
        Some([answer.eax, answer.ebx, answer.ecx, answer.edx])
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Begins to count events of a thread on any processor: perf_event_open(2) with this type and configuration, in user
/// space only.
pub fn count_events(thread: u32, kind: u32, config: u64) -> io::Result<OwnedFd> {
    // struct perf_event_attr in its first version: type, size, config, five numbers that stay zero, flags in the sixth
    // word, three more.
    const SIZE: usize = 64;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const CLOSE_ON_EXEC: libc::c_long = 1 << 3;
    let mut attributes = [0u64; SIZE / 8];
    attributes[0] = u64::from(kind) | (SIZE as u64) << 32;
    attributes[1] = config;
    attributes[5] = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    // SAFETY: the attributes live through the call and say how long they are.
    owned(unsafe {
        let (anywhere, no_group) = (-1 as libc::c_long, -1 as libc::c_long);
        let thread = libc::c_long::from(thread as libc::pid_t);
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), thread, anywhere, no_group, CLOSE_ON_EXEC)
    })
}

/// What a counter has counted.
pub fn read_count(counter: &OwnedFd) -> io::Result<u64> {
    let mut count = 0u64;
    // SAFETY: room for the number.
    let read = unsafe { libc::read(counter.as_raw_fd(), (&raw mut count).cast(), 8) };
    checked(read as libc::c_long).map(|_| count)
}

/// The number of a group, as the machine's name services know it.
pub fn group_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; 1 << 16];
    // SAFETY: plain numbers and pointers, written by the call before they are read.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: a zero-terminated name; entry, buffer with its length, and result are writable.
    let failed = unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    (failed == 0 && !found.is_null()).then_some(entry.gr_gid)
}

/// Mounts the file system of binfmt_misc.
pub fn mount_binfmt(place: &Path) -> io::Result<()> {
    let place = c_string(place.as_os_str())?;
    let kind = c"binfmt_misc".as_ptr();
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: zero-terminated strings; no options.
    checked(libc::c_long::from(unsafe { libc::mount(kind, place.as_ptr(), kind, flags, std::ptr::null()) }))?;
    Ok(())
}

/// Unmounts what is mounted last at a place, unless it is in use.
pub fn unmount(place: &Path) -> io::Result<()> {
    let place = c_string(place.as_os_str())?;
    // SAFETY: a zero-terminated path.
    checked(libc::c_long::from(unsafe { libc::umount2(place.as_ptr(), libc::UMOUNT_NOFOLLOW) }))?;
    Ok(())
}

/// Waits for a file's lock, which ends with the descriptor.
pub fn wait_for_lock(file: &std::fs::File) -> io::Result<()> {
    loop {
        // SAFETY: a descriptor that lives.
        match checked(libc::c_long::from(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(|_| ()),
        }
    }
}
