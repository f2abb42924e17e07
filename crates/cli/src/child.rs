//! A program run to its end by `ream compare`: started in a session of its own, waited for together with the signals that
//! ask this process to end, and ended with its process group.
#![allow(unsafe_code)]

use crate::os::{open_process, wait_readable};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a program that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The signals that ask this process to end, as a descriptor: from now on they interrupt nothing else.
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes them over. Those that whoever started this process had it ignore, as nohup does, stay ignored.
    pub fn take() -> io::Result<Signals> {
        let mut set = empty_set();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: plain numbers; without a new action the call only asks.
            let ignored = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
            };
            if !ignored {
                // SAFETY: a set that was made empty.
                unsafe { libc::sigaddset(&mut set, signal) };
            }
        }
        // SAFETY: the set is filled; the descriptor is new, and owned by nobody else.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                fd if fd < 0 => Err(io::Error::last_os_error()),
                fd => Ok(Signals(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// The next one that has arrived, if any.
    pub fn next(&self) -> Option<i32> {
        // SAFETY: plain numbers; room for one of them.
        unsafe {
            let mut found: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of_val(&found);
            let read = libc::read(self.0.as_raw_fd(), (&raw mut found).cast(), size);
            (read == size as isize).then_some(found.ssi_signo as i32)
        }
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a set is plain bits, and the call fills it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

/// Lets a command start in a session of its own, without this process's blocked signals, in the cgroup into whose file of
/// processes it may write, and not outlive this process.
pub fn detach(command: &mut Command, entrance: Option<std::fs::File>) {
    let parent = std::process::id();
    // SAFETY: between fork and exec: system calls on numbers, and on a descriptor that the closure owns.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &empty_set(), std::ptr::null_mut());
            match &entrance {
                Some(file) if libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) != 1 => {
                    Err(io::Error::last_os_error())
                }
                _ => Ok(()),
            }
        })
    };
}

/// How a program ended.
pub struct End {
    /// Its exit status or signal.
    pub status: ExitStatus,
    /// Processor time of it and of the processes that it waited for.
    pub processor: Duration,
    /// Most that one of them had in RAM, in bytes.
    pub peak: u64,
    /// The signal that asked this process to end meanwhile.
    pub interrupted: Option<i32>,
}

/// Waits for a program started by a [`detach`]ed command, and ends what it leaves in its process group. Where a signal asks
/// this process to end, the program is asked, and two seconds later, or at the next signal, made to.
pub fn wait(child: &Child, signals: &Signals) -> io::Result<End> {
    let pid = child.id() as libc::pid_t;
    // SAFETY: sends a signal to the group of a child that has not been waited for, so that its number is its own.
    let send = |signal| unsafe { libc::kill(-pid, signal) };
    let process = open_process(child.id())?;
    let mut interrupted = None;
    let mut until: Option<Instant> = None;
    while !crate::os::has_ended(&process) {
        match signals.next() {
            Some(signal) => {
                send(if interrupted.is_none() { libc::SIGTERM } else { libc::SIGKILL });
                // Stopped ones do not hear.
                send(libc::SIGCONT);
                interrupted.get_or_insert(signal);
                until.get_or_insert(Instant::now() + PATIENCE);
            }
            None => {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis() as u32);
                if left == Some(0) {
                    send(libc::SIGKILL);
                }
                wait_readable([process.as_raw_fd(), signals.0.as_raw_fd()].into_iter(), left.map(|ms| ms.max(20)));
            }
        }
    }
    send(libc::SIGKILL);
    let mut status = 0;
    // SAFETY: plain numbers, written by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(pid, &mut status, 0, &mut usage) < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(End {
        status: ExitStatus::from_raw(status),
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        peak: usage.ru_maxrss as u64 * 1024,
        interrupted,
    })
}

/// Ends a process by its number.
pub fn kill(pid: u32) {
    // SAFETY: only sends a signal.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

/// Whether standard error is a terminal.
pub fn at_terminal() -> bool {
    use std::io::IsTerminal;
    io::stderr().is_terminal()
}
