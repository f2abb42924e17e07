//! Zeros that the program has read before paging began. They cost nothing, but are mapped, and when they are written to the
//! pager hears nothing of it: a program that looked through four times its budget before it filled it had all of that in RAM
//! before the pager could evict as much. So while more is mapped than the budget has, those who write to zeros wait.

use super::ENGINE;
use ream_page::{Page, Run};
use ream_pager::Shard;
use ream_sys::LinuxMachine;

/// Longest that they wait, in microseconds: what is mapped may be locked, and never leave.
const LONGEST: u64 = 1_000_000;

/// Since when they wait.
#[derive(Default)]
pub(super) struct Zeros {
    since: Option<u64>,
}

impl Zeros {
    /// In each turn of the pager.
    pub(super) fn look(&mut self, shard: &mut Shard<LinuxMachine>, now: u64) {
        if !shard.machine().holds_writers() {
            return;
        }
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        if shard.is_within_limit() || waited > LONGEST {
            self.since = None;
            release(shard);
        }
    }
}

/// Lets all go on.
pub(super) fn release(shard: &mut Shard<LinuxMachine>) {
    let mut from = Page(0);
    loop {
        let mut piece = [Run { start: Page(0), pages: 0 }; 64];
        // Whoever has the list waits for nobody who writes to zeros.
        let len = ENGINE.regions.read().copy_from(from, &mut piece);
        for run in piece.iter().take(len) {
            shard.machine_mut().let_write(*run);
            from = run.end();
        }
        if len < piece.len() {
            return shard.machine_mut().none_is_held();
        }
    }
}
