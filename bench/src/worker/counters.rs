//! Ream's own counters of the session that the worker runs in, when it does.

use ream_bench::work::ReamCounts;
use ream_stats::{Address, Counters, Session};
use std::os::fd::AsRawFd as _;

/// The session that the environment names, mapped for good; `None` without Ream.
pub fn session() -> Option<&'static Session> {
    let text = std::env::var("REAM_SESSION").ok()?;
    let Address { path, nonce, .. } = Address::parse(text.as_bytes())?;
    let path = std::str::from_utf8(path).ok()?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).ok()?;
    let bytes = file.metadata().ok()?.len() as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of a file that is at least so long; it is checked before use and never unmapped,
    // and the session's other users keep to the same crate.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if memory == libc::MAP_FAILED {
            return None;
        }
        Session::open(memory.cast(), bytes, nonce).ok()
    }
}

/// What all processes of the session have counted so far.
pub fn of(session: Option<&Session>) -> ReamCounts {
    let Some(session) = session else { return ReamCounts::default() };
    let total = Counters::new();
    session.add_to(&total);
    ReamCounts {
        refaults: total.refaults.get(),
        rescues: total.rescues.get(),
        ahead_hits: total.ahead_hits.get(),
        reads: total.reads.get(),
        bytes_in: total.bytes_in.get(),
        bytes_out: total.bytes_out.get(),
    }
}

/// What was counted between two looks.
pub fn difference(before: ReamCounts, after: ReamCounts) -> ReamCounts {
    ReamCounts {
        refaults: after.refaults - before.refaults,
        rescues: after.rescues - before.rescues,
        ahead_hits: after.ahead_hits - before.ahead_hits,
        reads: after.reads - before.reads,
        bytes_in: after.bytes_in - before.bytes_in,
        bytes_out: after.bytes_out - before.bytes_out,
    }
}
