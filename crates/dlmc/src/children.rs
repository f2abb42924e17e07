//! Runs the compiler. A signal that ends programs is passed on to it, and dlmc ends after it, when its files are gone.

use std::io::Read as _;
use std::mem;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// The compiler that is running, or 0.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The signal that came.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::SeqCst);
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        // SAFETY: kill is async-signal-safe, and the process is a child that has not been waited for: CHILD is
        // cleared before that.
        unsafe { libc::kill(child, signal) };
    }
}

/// From now on signals wait for the compiler.
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all-zero bytes are a valid sigaction; the handler does only what is allowed in one; a signal that was
        // ignored, as under nohup, stays so.
        unsafe {
            let mut old: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut old);
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = mem::zeroed();
            new.sa_sigaction = pass_on as *const () as usize;
            new.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &new, ptr::null_mut());
        }
    }
}

fn start(command: &mut Command) -> Result<Child, String> {
    let child =
        command.spawn().map_err(|error| format!("dlmc: {}: {error}", command.get_program().to_string_lossy()))?;
    CHILD.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
    let caught = CAUGHT.load(Ordering::SeqCst);
    if caught != 0 {
        pass_on(caught);
    }
    Ok(child)
}

fn wait(mut child: Child) -> Result<ExitStatus, String> {
    // Its number stays taken until it is waited for, so a signal cannot meet another process.
    // SAFETY: all-zero bytes are a valid siginfo, which the call fills in; WNOWAIT leaves the child as it is.
    unsafe {
        let mut about: libc::siginfo_t = mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut about, libc::WEXITED | libc::WNOWAIT) != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
    }
    CHILD.store(0, Ordering::SeqCst);
    let status = child.wait().map_err(|error| format!("dlmc: waiting for the compiler: {error}"))?;
    Ok(match CAUGHT.load(Ordering::SeqCst) {
        0 => status,
        signal => ExitStatus::from_raw(signal),
    })
}

/// Runs it to its end.
pub fn finish(command: &mut Command) -> Result<ExitStatus, String> {
    wait(start(command)?)
}

/// Runs it to its end, and returns what it wrote to its standard output, a pipe.
pub fn output(command: &mut Command) -> Result<(ExitStatus, Vec<u8>), String> {
    let mut child = start(command)?;
    let mut text = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |mut stream| stream.read_to_end(&mut text));
    let status = wait(child)?;
    read.map_err(|error| format!("dlmc: reading the preprocessed file: {error}"))?;
    Ok((status, text))
}

/// Dies of a signal.
pub fn die(signal: i32) -> ! {
    // SAFETY: the default action of the signal is restored and the signal raised; nothing of ours is left to do.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}
