//! Which process an entry of the session's table means. A process enters itself with its number in its own namespace; in
//! another one its number here is found by the list that the kernel has of all its numbers.

use crate::os;
use ream_stats::Identity;
use std::fs::{read_dir, read_to_string};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// A process that lives.
pub struct Found {
    /// What becomes readable when it ends; `None` where the kernel gives none: it is looked at now and then.
    pub descriptor: Option<OwnedFd>,
    /// What /proc calls it.
    number: u32,
}

impl Found {
    /// Whether it runs this program still, by where its stack begins: unless both are known and differ.
    pub fn may_run(&self, program: u64) -> bool {
        let (_, runs) = ream_sys::process::life_and_program(self.number);
        program == 0 || runs == 0 || runs == program
    }
}

/// As whom this process is known to a session.
pub fn me() -> Identity {
    let start = ream_sys::process::own_start_time().unwrap_or(0);
    Identity { pid: std::process::id(), start, space: ream_sys::space::own() }
}

/// A process with a number of this namespace.
pub fn here(pid: u32) -> Option<Identity> {
    if pid == std::process::id() {
        return Some(me());
    }
    let process = os::open_process(pid).ok();
    let start = ream_sys::process::start_time(called(pid, process.as_ref())?)?;
    Some(Identity { pid, start, space: ream_sys::space::own() })
}

/// Whether a process lives: then what is known of it. With start time 0, whether any process has the number.
pub fn find(who: Identity) -> Option<Found> {
    let own = ream_sys::space::own();
    if who.space == 0 || own == 0 || who.space == own {
        return open(who.pid, None, who.start);
    }
    // It is in one that began below ours, and so has a number here, too.
    let depth = numbers("self").map_or(1, |all| all.len());
    let processes = read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|number: u32| {
        let all = numbers(number)?;
        let space = std::fs::metadata(format!("/proc/{number}/ns/pid")).map(|space| ream_sys::space::tag(space.ino()));
        let is_it = all.len() > depth && all.last() == Some(&who.pid) && space.map_or(true, |space| space == who.space);
        // Where its namespace is not to be seen there is the time at which it began.
        is_it.then(|| open(*all.get(depth - 1)?, Some(number), who.start)).flatten()
    })
}

/// A process by its number here and, if that is known, by what /proc calls it, if it began at that time and lives.
fn open(pid: u32, called_so: Option<u32>, start: u64) -> Option<Found> {
    let descriptor = match os::open_process(pid) {
        Ok(process) => Some(process),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return None,
        Err(_) => None,
    };
    let number = called_so.or_else(|| called(pid, descriptor.as_ref()))?;
    // Asked after the descriptor was opened, so that both mean the same process.
    let began = ream_sys::process::start_time(number)?;
    let ended = descriptor.as_ref().is_some_and(os::has_ended);
    ((start == 0 || start == began) && !ended).then_some(Found { descriptor, number })
}

/// What /proc calls the process with a number of this namespace: that number, unless it is the /proc of another one.
fn called(pid: u32, process: Option<&OwnedFd>) -> Option<u32> {
    if ream_sys::space::procfs_is_of_it() {
        return Some(pid);
    }
    let state = read_to_string(format!("/proc/self/fdinfo/{}", process?.as_raw_fd())).ok()?;
    state.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok().filter(|number| *number != 0)
}

/// The numbers of a process, from that in the namespace of /proc to that in its own.
fn numbers(process: impl std::fmt::Display) -> Option<Vec<u32>> {
    let status = read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_here_only() {
        let me = me();
        assert!(me.start > 0 && me.space > 0);
        assert_eq!(here(me.pid), Some(me));
        assert_eq!(here(u32::MAX >> 1), None);
        let found = find(me).expect("this process");
        assert!(found.number == me.pid && found.may_run(0) && !found.may_run(1));
        assert!(find(Identity { start: 0, ..me }).is_some() && find(Identity { space: 0, ..me }).is_some());
        assert!(find(Identity { start: me.start + 1, ..me }).is_none());
        assert!(find(Identity { space: me.space ^ 1, ..me }).is_none(), "it has the number 1 there, or none");
    }

    #[test]
    fn numbers_are_those_of_all_namespaces() {
        assert_eq!(numbers("self").expect("our own").last(), Some(&std::process::id()));
        assert!(numbers(u32::MAX).is_none());
    }
}
