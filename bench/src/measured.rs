//! One run of a program, with what it took: wall time, processor time and peak memory; killed with all of its group when
//! it takes too long, when the benchmark is interrupted, or when the benchmark itself is killed.

use crate::interrupt;
use std::io::Read;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub errors: String,
    /// Wall time in seconds, from start to end.
    pub seconds: f64,
    /// Processor time in seconds, of it and of the children that it waited for.
    pub cpu: f64,
    /// KiB that it, or its largest child, had in RAM at most.
    pub peak: u64,
}

/// How long whatever takes too long has to end by itself.
const PARTING: Duration = Duration::from_secs(5);
/// Between two looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a command to its end.
///
/// # Errors
/// It could not be started, took longer than `limit`, or the benchmark was interrupted.
pub fn run(command: &mut Command, limit: Duration) -> Result<Ran, String> {
    interrupt::check()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: prctl is a system call on constants.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let out = child.stdout.take().map(collect);
    let errors = child.stderr.take().map(collect);
    let waited = wait(&child, begun, limit, true);
    if waited.is_err() {
        // A launcher of MPI takes what its ranks have in /dev/shm away when it may.
        // SAFETY: only sends a signal; the number is the child's until it is waited for.
        unsafe { libc::kill(i32::try_from(child.id()).unwrap_or(i32::MAX), libc::SIGTERM) };
        let _ = wait(&child, Instant::now(), PARTING, false);
        let group = -i32::try_from(child.id()).unwrap_or(i32::MAX);
        // SAFETY: only sends a signal; the group is the child's own, and its number is its until it is waited for.
        unsafe { libc::kill(group, libc::SIGKILL) };
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (status, usage) = reap(&mut child)?;
    let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (out, errors) = (text(out), text(errors));
    waited?;
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let peak = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok(Ran { status, out, errors, seconds, cpu: time(usage.ru_utime) + time(usage.ru_stime), peak })
}

fn collect(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits for the end of a child without reaping it; `heeds`: no longer than until the benchmark is interrupted.
fn wait(child: &Child, begun: Instant, limit: Duration, heeds: bool) -> Result<(), String> {
    // SAFETY: a system call on numbers; the descriptor it returns is ours.
    let pidfd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, child.id(), 0);
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        OwnedFd::from_raw_fd(fd.ok_or_else(|| format!("pidfd_open: {}", std::io::Error::last_os_error()))?)
    };
    loop {
        let mut wish = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one record, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut wish, 1, LOOK.as_millis() as libc::c_int) };
        if ready > 0 {
            return Ok(());
        }
        if heeds {
            interrupt::check()?;
        }
        if begun.elapsed() > limit {
            return Err(format!("took longer than {} s and was ended", limit.as_secs()));
        }
    }
}

fn reap(child: &mut Child) -> Result<(ExitStatus, libc::rusage), String> {
    let (mut status, pid) = (0, i32::try_from(child.id()).unwrap_or(-1));
    loop {
        // SAFETY: all-zero bytes are a valid rusage; both results outlive the call, and the child is ours.
        let (done, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid, &raw mut status, 0, &raw mut usage), usage)
        };
        if done == pid {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(format!("wait4: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_run_says_and_takes_is_known() {
        let ran = run(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!((ran.out.as_str(), ran.errors.as_str(), ran.status.code()), ("out\n", "err\n", Some(3)));
        assert!(ran.peak > 0 && ran.seconds > 0.0);
    }

    #[test]
    fn what_takes_too_long_may_tidy_up() {
        let place = std::env::temp_dir().join(format!("ream-measured-{}", std::process::id()));
        std::fs::write(&place, "").unwrap();
        let ready = place.with_extension("ready");
        let script = format!("trap 'rm {}; exit' TERM; : > {}; sleep 1000 & wait", place.display(), ready.display());
        // A shell that does not come to its first line in that time, on a busy machine, has more of it.
        for limit in [500, 5000, 60_000] {
            run(&mut shell(&script), Duration::from_millis(limit)).unwrap_err();
            if ready.exists() {
                break;
            }
        }
        std::fs::remove_file(&ready).expect("it never began");
        assert!(!place.exists());
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let begun = Instant::now();
        // The pipe closes only when the child in the background is gone as well.
        let error = run(&mut shell("sleep 1000 & sleep 1000"), Duration::from_millis(300)).unwrap_err();
        assert!(error.contains("longer") && begun.elapsed() < Duration::from_secs(60), "{error}");
    }
}
