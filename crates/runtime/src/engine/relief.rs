//! A thread waits for a frame, and the limit leaves none: where more comes from, and what is said when that is beyond the budget.

use super::ENGINE;
use super::message::warn;
use super::pager::Pager;
use super::shares::{self, share};
use ream_stats::Process;

/// Pages by which the budget is overdrawn at a time when nothing can be evicted and a thread waits.
const OVERDRAFT: u64 = 256;
/// The same while nothing leaves at all.
const KEPT: u64 = 4096;
/// How long a process below its part waits for others to give pages up, before it overdraws, in microseconds.
const PATIENCE: u64 = 500_000;

impl Pager {
    /// A thread waits, and nothing can be evicted: takes what others give up, which they do for a process below its
    /// part; when they do not, or it has its part, more than the budget. Returns whether the limit was raised.
    pub(super) fn relieve(&mut self) -> bool {
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return false };
        if self.shard.is_preparing() {
            return self.relieve_quiet(entry);
        }
        let (limit, ledger) = (self.shard.limit(), session.ledger());
        share(self.shard, session, entry);
        // What is kept for newcomers, too.
        if self.shard.limit() <= limit && entry.acquire(ledger, OVERDRAFT) > 0 {
            self.shard.set_limit(entry.held_pages());
        }
        if self.shard.limit() > limit {
            self.starving_since = 0;
            return true;
        }
        if self.devices.keep() {
            self.overdrawn = true;
            return self.overdraw(KEPT);
        }
        if self.starving_since == 0 {
            self.starving_since = self.last_look;
        }
        let fair = shares::fair(session, entry);
        // Those that are not paged yet look now and then whether others starve, and give up some.
        let elsewhere = ledger.total_pages() as i64 - entry.held_pages() as i64 - ledger.free_pages();
        let others =
            entry.held_pages() < fair && (ledger.engaged() > 1 || elsewhere > ledger.total_pages() as i64 / 16);
        if others && self.last_look - self.starving_since < PATIENCE {
            return false;
        }
        self.overdraw(OVERDRAFT)
    }

    /// A thread waits while a fork is about to happen, maybe the one that forks.
    fn relieve_quiet(&mut self, entry: &Process) -> bool {
        let Some(pages) = self.quiet.next(self.last_look) else { return false };
        if self.shard.limit() >= entry.held_pages() {
            // A few pages at a time, until the copy is made: nothing to tell anybody.
            return self.exceed(pages);
        }
        self.shard.set_limit((self.shard.limit() + pages).min(entry.held_pages()));
        true
    }

    /// Everything left in RAM is locked, pinned, protected or metadata, and a thread waits: going over the budget by
    /// what must be is better than never going on. Returns whether the limit was raised.
    pub(super) fn overdraw(&mut self, pages: u64) -> bool {
        let Some(session) = ENGINE.session() else { return false };
        if !core::mem::replace(&mut self.overdrawn, true) {
            let (fixed, total) = (self.shard.fixed() / 256, session.ledger().total_pages() / 256);
            if fixed > 0 {
                warn(format_args!(
                    "{fixed} MiB must stay in RAM (locked or protected by the program, or page tables); with that the budget of {total} MiB does not suffice, and is exceeded"
                ));
            } else {
                warn(format_args!(
                    "nothing can leave RAM just now (in use by devices, or shared with other processes); the budget of {total} MiB is exceeded"
                ));
            }
        }
        self.exceed(pages)
    }

    /// The same without a word.
    fn exceed(&mut self, pages: u64) -> bool {
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return false };
        entry.overdraw(session.ledger(), pages);
        self.shard.set_limit(entry.held_pages());
        true
    }
}
