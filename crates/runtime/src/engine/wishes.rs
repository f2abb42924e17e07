//! What the program asks of its managed memory by the C interface: pages out of RAM or into it, how ranges are used,
//! where they are, and another budget.

use super::mailbox::Command;
use super::{ENGINE, Phase, engaged, masked, tell_watcher, watch};
use crate::regions::Kind;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::SeqCst;
use ream_page::{Page, Run};
use ream_pager::{Usage, Usages, Whereabouts};
use ream_sys::futex::{Guard, Mutex};

/// Pages that are looked at with one command, so that faults are served between: 128 MiB.
const LOOK: u64 = 32 * 1024;

/// How ranges are used, for a pager that begins later. Taken after all locks of the engine.
static USAGES: Mutex<Usages> = Mutex::new(Usages::new());
/// Whether there are any.
static USED: AtomicBool = AtomicBool::new(false);

/// While it exists, in a fork, the list does not change.
pub struct Frozen {
    _usages: Guard<'static, Usages>,
}

/// Takes the lock for the duration of a fork. Signals are blocked then.
pub fn freeze() -> Frozen {
    Frozen { _usages: USAGES.lock() }
}

/// The range is used like this from now on.
pub fn set_usage(run: Run, usage: Usage) {
    masked(|| {
        USAGES.lock().set(run, usage);
        USED.store(true, SeqCst);
        if engaged() {
            ENGINE.mailbox.call(Command::Use(run, usage));
        }
    });
}

/// In the pager, as it begins: tells what is known.
pub(super) fn each_usage(tell: impl FnMut(Run, Usage)) {
    if USED.load(SeqCst) {
        USAGES.lock().each(tell);
    }
}

/// Moves the resident pages of a managed range out; when this returns, they are on their way to the store.
pub fn cool(run: Run) {
    if engaged() {
        masked(|| ENGINE.mailbox.call(Command::Cool(run)));
    }
}

/// Begins to bring a managed range back.
pub fn fetch(run: Run) {
    if engaged() {
        masked(|| ENGINE.mailbox.call(Command::Fetch(run)));
    }
}

/// Where the pages of a managed range are; `None` while nothing is paged.
pub fn whereabouts(run: Run) -> Option<Whereabouts> {
    if !engaged() {
        return None;
    }
    let mut all = Whereabouts::default();
    let mut left = run;
    while left.pages > 0 {
        let part = Run { start: left.start, pages: left.pages.min(LOOK) };
        left = Run { start: part.end(), pages: left.pages - part.pages };
        let found = masked(|| ENGINE.mailbox.look(part));
        all.resident += found.resident;
        all.staged += found.staged;
        all.stored += found.stored;
    }
    Some(all)
}

/// The first managed range at or after `page`, and what it is, cut so that it does not begin before it.
pub fn next_region(page: Page) -> Option<(Run, Kind)> {
    masked(|| {
        let (run, kind) = ENGINE.regions.read().next_from(page)?;
        let start = Page(run.start.0.max(page.0));
        Some((Run { start, pages: run.end().0 - start.0 }, kind))
    })
}

/// Pages of all managed ranges.
pub fn managed_pages() -> u64 {
    ENGINE.reserved.load(SeqCst)
}

/// The session's budget has changed: where it became too small for what this process has, paging begins; where it is
/// paging already, the pager hears of it.
pub fn budget_changed() {
    masked(|| {
        let Some(session) = ENGINE.session() else { return };
        match ENGINE.phase() {
            Phase::Idle if session.ledger().free_pages() < 0 => watch::start(true),
            Phase::Watching => tell_watcher(Command::Nothing),
            Phase::Engaged => ENGINE.mailbox.call(Command::Nothing),
            _ => {}
        }
    });
}
