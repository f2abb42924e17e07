//! Hosts of a test's own: namespaces of the network without names, so that they vanish with the last process that has them
//! open, however that ends.

use crate::place::tool;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A host.
pub struct Space {
    file: File,
}

/// Has the calling thread live there from now on.
fn enter(fd: RawFd) -> io::Result<()> {
    // SAFETY: changes the calling thread only.
    match unsafe { libc::setns(fd, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Space {
    /// A new one, with a loopback.
    ///
    /// # Errors
    /// It cannot be made, or there is no `ip`.
    pub fn new() -> io::Result<Space> {
        let made = std::thread::spawn(|| {
            // SAFETY: changes the calling thread only, which ends.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().map_err(|_| io::Error::other("the thread has ended"))??;
        let space = Space { file };
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// A path by which other processes find it, while this one lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Has a command run there; it is killed when the thread that starts it ends.
    pub fn run(&self, command: &mut Command) {
        let fd = self.file.as_raw_fd();
        let there = move || {
            enter(fd)?;
            // SAFETY: changes the calling process only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: two system calls, without memory.
        unsafe { command.pre_exec(there) };
    }

    /// Calls `ip` there.
    ///
    /// # Errors
    /// What it says.
    pub fn ip(&self, arguments: &str) -> io::Result<()> {
        let ip = tool("ip").ok_or_else(|| io::Error::other("no ip (iproute2)"))?;
        let mut command = Command::new(ip);
        command.args(arguments.split(' '));
        self.run(&mut command);
        let output = command.output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    /// Lays a cable to another host: names of both ends, and their addresses.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn cable(&self, name: &str, address: &str, other: &Space, other_address: &str) -> io::Result<()> {
        let there = other.path();
        self.ip(&format!("link add {name} type veth peer name {name}p netns {there}"))?;
        self.ip(&format!("addr add {address}/24 dev {name}"))?;
        self.ip(&format!("link set {name} up"))?;
        other.ip(&format!("addr add {other_address}/24 dev {name}p"))?;
        other.ip(&format!("link set {name}p up"))
    }

    /// Starts a thread that lives there.
    pub fn thread(&self, work: impl FnOnce() + Send + 'static) {
        let file = self.file.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            enter(file.as_raw_fd()).expect("the host");
            work();
        });
    }
}
