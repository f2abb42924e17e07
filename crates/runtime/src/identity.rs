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
    match process::life(who.pid) {
        Life::Since(start) => who.start == 0 || who.start == start,
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
}
