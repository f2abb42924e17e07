//! No memory server can be reached when paging is to begin. The program goes on as long as what it has in RAM is within the budget, and
//! is stopped when it is not: as when its servers are lost later.

use super::pager::Failure;
use super::watch::{self, LONGEST, SHORTEST, TOUCH_RATE};
use super::{ENGINE, Phase, follow, remote, stop};
use crate::agent;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use ream_sys::file::{self, Fd};
use ream_sys::pagemap::Pagemap;
use ream_sys::{CONNECTING, Errno, process};

/// Whether a thread of this process looks how much is in RAM, since nobody pages it.
static LOOKS: AtomicBool = AtomicBool::new(false);

/// Whether that is why paging cannot begin.
pub(super) fn is_why(failure: &Failure) -> bool {
    failure.what == CONNECTING
}

/// In a forked child: nobody does. Whether somebody did in the parent.
pub(super) fn begin_anew() -> bool {
    LOOKS.swap(false, SeqCst)
}

/// The watcher's thread from then on: returns never. Nobody waits for it any more.
pub(super) fn until_missed(failure: &Failure) -> ! {
    LOOKS.store(true, SeqCst);
    ENGINE.set_phase(Phase::Broken);
    let statm = file::open(c"/proc/self/statm", 0o2_000_000, 0);
    let mut pagemap = Pagemap::open(agent::open).ok();
    while let Some(sleep) = look(statm, pagemap.as_mut()) {
        follow::follow_alone();
        process::sleep_us(sleep);
    }
    if let Some(entry) = ENGINE.entry() {
        entry.counters.engagements_failed.add(1);
    }
    remote::tell_unreached(failure.errno);
    stop::end()
}

/// How long to sleep until the next look, in microseconds; `None` when more is in RAM than can be charged.
fn look(statm: Result<Fd, Errno>, pagemap: Option<&mut Pagemap>) -> Option<u64> {
    let (entry, session) = ENGINE.entry().zip(ENGINE.session())?;
    let mut used = statm.map_or(u64::MAX, watch::anonymous);
    if used > entry.held_pages() {
        if let Some(pagemap) = pagemap {
            // Ream's own memory is not the program's.
            used = watch::exact(pagemap).pages;
        }
    }
    let missing = used.saturating_sub(entry.held_pages());
    if missing > 0 && entry.acquire(session.ledger(), missing) < missing {
        return None;
    }
    let left = entry.held_pages().saturating_add_signed(session.ledger().free_pages()).saturating_sub(used);
    Some((left / TOUCH_RATE).clamp(SHORTEST, LONGEST))
}
