//! Who a process is: its number and, because numbers are used again, when it began; and, because they mean something in one
//! namespace only, of which it is.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use ream_stats::Identity;
use ream_sys::process::{self, Life};
use ream_sys::{Errno, space};

/// The namespace of this process's number, as it was found at the start and in each child of a fork, which may be the first in a
/// new one.
static SPACE: AtomicU32 = AtomicU32::new(0);

/// The calling process.
pub fn me() -> Identity {
    Identity { pid: process::process_id(), start: process::own_start_time().unwrap_or(0), space: space::own() }
}

/// The calling process, which takes a place in a session.
pub fn begin() -> Identity {
    let me = me();
    SPACE.store(me.space, SeqCst);
    me
}

/// As whom this process changes the session's table: without the start time, and without a system call more than one.
pub fn owner() -> Identity {
    Identity { pid: process::process_id(), start: 0, space: SPACE.load(SeqCst) }
}

/// Whether numbers of a namespace mean to this process what they mean there; also where one is not known.
pub fn is_ours(space: u32) -> bool {
    let ours = SPACE.load(SeqCst);
    space == ours || space == 0 || ours == 0
}

/// Whether a process lives; with start time 0, whether any process has the number.
pub fn alive(who: Identity) -> bool {
    runs(who, 0)
}

/// Where the stack of the calling process's program begins, by which [`runs`] knows it; 0 where that cannot be told.
pub fn program() -> u64 {
    process::own_life_and_program().1
}

/// Whether a process lives and has executed no other program than this one. Where `program` is 0, or the kernel does not say
/// what it runs, whether it lives. One of another namespace is taken to live: it may not be seen from here. The agent knows.
pub fn runs(who: Identity, program: u64) -> bool {
    if !is_ours(who.space) {
        return true;
    }
    let (life, runs) = process::life_and_program(who.pid);
    let lives = match life {
        Life::Since(start) => (who.start == 0 || who.start == start) && (program == 0 || runs == 0 || program == runs),
        Life::Ended | Life::Unknown => false,
    };
    // Where /proc hides others' processes, or is that of another namespace, only the number can be asked about.
    let number = || process::kill(who.pid, 0) != Err(Errno::SRCH);
    lives || (life == Life::Unknown || !space::procfs_is_of_it()) && number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_its_twin_does_not() {
        let me = begin();
        assert!(me.start > 0 && me.space > 0);
        assert!(alive(me));
        assert!(alive(Identity { start: 0, ..me }));
        assert!(!alive(Identity { start: me.start + 1, ..me }));
        assert!(!alive(Identity { pid: u32::MAX >> 1, start: 0, ..me }));
        assert_eq!(owner(), Identity { start: 0, ..me });
    }

    #[test]
    fn of_another_namespace_nothing_is_said() {
        let me = begin();
        let there = Identity { pid: u32::MAX >> 1, start: 1, space: me.space ^ 1 };
        assert!(alive(there) && !is_ours(there.space));
        assert!(is_ours(0) && !alive(Identity { space: 0, ..there }));
    }

    #[test]
    fn another_program_has_another_stack() {
        let (me, program) = (begin(), program());
        assert!(program > 0 && runs(me, program) && runs(me, 0) && !runs(me, program + 16));
    }
}
