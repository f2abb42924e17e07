//! Who a process is: its number and, because numbers are used again, when it began.

use ream_stats::Identity;
use ream_sys::Errno;
use ream_sys::process::{self, Life};

/// The calling process.
pub fn me() -> Identity {
    let pid = process::process_id();
    Identity { pid, start: process::start_time(pid).unwrap_or(0) }
}

/// Whether a process lives; with start time 0, whether any process has the number.
pub fn alive(who: Identity) -> bool {
    runs(who, 0)
}

/// Where the stack of the calling process's program begins, by which [`runs`] knows it; 0 where that cannot be told.
pub fn program() -> u64 {
    process::life_and_program(process::process_id()).1
}

/// Whether a process lives and has executed no other program than this one. Where `program` is 0, or the kernel does not say
/// what it runs, whether it lives.
pub fn runs(who: Identity, program: u64) -> bool {
    let (life, runs) = process::life_and_program(who.pid);
    match life {
        Life::Since(start) => (who.start == 0 || who.start == start) && (program == 0 || runs == 0 || program == runs),
        Life::Ended => false,
        // Where /proc hides others' processes only the number can be asked about.
        Life::Unknown => process::kill(who.pid, 0) != Err(Errno::SRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_its_twin_does_not() {
        let me = me();
        assert!(me.start > 0);
        assert!(alive(me));
        assert!(alive(Identity { start: 0, ..me }));
        assert!(!alive(Identity { start: me.start + 1, ..me }));
        assert!(!alive(Identity { pid: u32::MAX >> 1, start: 0 }));
    }

    #[test]
    fn another_program_has_another_stack() {
        let (me, program) = (me(), program());
        assert!(program > 0 && runs(me, program) && runs(me, 0) && !runs(me, program + 16));
    }
}
