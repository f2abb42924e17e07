//! What each process may hold of the session's budget: an equal part and what others leave of theirs, except that ranks whose
//! turn it is not leave it to those that compute.

use super::fork;
use super::missed::Missed;
use ream_pager::Shard;
use ream_stats::{Ledger, Process, Session, Stand};
use ream_sys::{LinuxMachine, process};

/// Most pages that are left for newcomers.
pub(super) const SPARE: u64 = 1024;
/// Least pages that a forked child gets, and that its parent keeps.
pub(super) const CHILD: u64 = 128;
/// Least pages that a rank keeps while others compute, as far as its part allows.
const ASIDE: u64 = 256;
/// Pages that are enough to work with, beside what must stay.
const LEAST: u64 = 16 * 1024;

/// What this process misses.
static MISSED: Missed = Missed::new();

/// What the process may hold.
pub(super) fn fair(session: &Session, entry: &Process) -> u64 {
    Part::of(session, entry, session.ledger().total_pages()).pages
}

/// What a rank keeps while others compute.
pub(super) fn left(session: &Session) -> u64 {
    let (total, engaged) = (session.ledger().total_pages(), u64::from(session.ledger().engaged()).max(1));
    (total / 8 / engaged).clamp(ASIDE.min(total / engaged), ASIDE * 16)
}

/// Least that the process can work with when much must stay: that, and a quarter of its part of the budget for the rest.
pub(super) fn least(shard: &Shard<LinuxMachine>, session: &Session) -> u64 {
    let part = session.ledger().total_pages() / (session.ledger().engaged() as u64).max(1);
    if shard.fixed() < part / 2 {
        return 0;
    }
    shard.fixed() + (part / 4).min(LEAST)
}

/// Pages that are left for newcomers.
fn spare(ledger: &Ledger) -> u64 {
    (ledger.total_pages() / 64).min(SPARE)
}

/// Pages of the ledger that a process holding so many may take: a little is left for processes that come to page
/// something later, so that they need not wait for others to give some up.
pub(super) fn available(ledger: &Ledger, held: u64) -> u64 {
    let spare = spare(ledger);
    let free = ledger.free_pages().max(0) as u64;
    free.saturating_sub(spare).max(free.min(spare.saturating_sub(held)))
}

/// Pages that the process holds and will hardly need: beyond what it uses, half as much again, and a little, with which nothing
/// would be evicted. A quarter of them at a time, since it may be between two uses.
fn unused(shard: &Shard<LinuxMachine>, ledger: &Ledger, held: u64) -> u64 {
    let needed = (shard.filled() * 3 / 2).max(shard.filled() + shard.stage_size()) + spare(ledger);
    held.saturating_sub(needed).div_ceil(4)
}

/// Whether the process has hardly any room left. Ranks in turns, between which room goes to and fro as a whole, count free frames
/// as well: those are about to be filled.
pub(super) fn is_pressed(shard: &Shard<LinuxMachine>, session: &Session) -> bool {
    shard.used() + shard.limit() / 8 >= shard.limit() && (in_turns(session) || is_filling(shard))
}

/// Whether ranks take turns.
fn in_turns(session: &Session) -> bool {
    session.turns().given.get() > 0
}

/// Whether it has so little room left that pages are about to be evicted. The stage through which they leave is a quarter of what
/// it may hold, and more where that is little.
fn is_filling(shard: &Shard<LinuxMachine>) -> bool {
    shard.filled() + (shard.limit() / 4).max(shard.stage_size()) >= shard.limit()
}

/// A process's part of what there is, and among how many that is divided.
struct Part {
    pages: u64,
    among: u64,
    /// Somebody computes, and asks for what it needs.
    asked_for: bool,
}

impl Part {
    /// Of `total` pages: each process that is paged has as much, except that ranks whose turn it is not leave the others
    /// all but a little, which they need for messages that arrive. While nobody computes, all have as much: they exchange
    /// messages.
    fn of(session: &Session, entry: &Process, total: u64) -> Part {
        let engaged = u64::from(session.ledger().engaged()).max(1);
        let equal = Part { pages: total / engaged, among: engaged, asked_for: false };
        if !in_turns(session) {
            return equal.and_what_is_left(session, entry, total);
        }
        let (mut aside, mut computing) = (0, false);
        for seat in session.used().iter().filter(|other| other.engaged()).map(Process::seat) {
            aside += u64::from(seat.aside());
            computing |= matches!(seat.stand(), Stand::Running | Stand::Away) || seat.busy_inside();
        }
        match engaged.saturating_sub(aside) {
            0 => equal,
            _ if !computing => equal,
            _ if entry.seat().aside() => Part { pages: left(session), among: engaged, asked_for: true },
            running => {
                Part { pages: total.saturating_sub(left(session) * aside) / running, among: running, asked_for: true }
            }
        }
    }

    /// An equal part, and of what those leave who do not want theirs. What those have that are not paged cannot be had, nor what is
    /// kept for newcomers: a part that counted on it would be more than all could have, and who has that gave nothing up.
    fn and_what_is_left(self, session: &Session, entry: &Process, total: u64) -> Part {
        let ledger = session.ledger();
        let unpaged = session.used().iter().filter(|other| !other.engaged()).map(Process::held_pages).sum::<u64>();
        let (mut among, mut rest) =
            (self.among, total.min(ledger.total_pages().saturating_sub(unpaged + spare(ledger))));
        let content = |other: &&Process| {
            !core::ptr::eq(*other, entry) && other.engaged() && !other.starving() && other.held_pages() < self.pages
        };
        for other in session.used().iter().filter(content) {
            among = among.saturating_sub(1).max(1);
            rest = rest.saturating_sub(other.held_pages());
        }
        Part { pages: self.pages.max(rest / among), among, ..self }
    }
}

/// A rank whose turn it is not gives up what it was asked for, as it becomes free.
fn give_up(shard: &mut Shard<LinuxMachine>, session: &Session, entry: &Process, asked: u64) {
    let (held, seat) = (entry.held_pages(), entry.seat());
    let floor = left(session).max(least(shard, session)).min(held);
    let limit = held.saturating_sub(asked).max(floor);
    shard.set_limit(limit);
    let given = entry.give_back(session.ledger(), held.saturating_sub(shard.used().max(limit)));
    seat.answered(if limit == floor && held - given <= floor { u64::MAX } else { given });
    entry.set_starving(session.ledger(), false);
}

/// Takes free pages of the ledger when in need, and gives some up when others are and this process has more than its part, or
/// when it does not use them and there are others; not while it forks, since half of what it had when that began will be its
/// child's, and once nothing is evicted for that not at all.
pub(super) fn share(shard: &mut Shard<LinuxMachine>, session: &Session, entry: &Process) {
    if shard.is_preparing() {
        return;
    }
    let ledger = session.ledger();
    let held = entry.held_pages();
    let (aside, forks) = (entry.seat().aside(), fork::forking());
    match entry.seat().asked() {
        0 => {}
        _ if forks => {}
        asked if aside => return give_up(shard, session, entry, asked),
        // Its turn has come again.
        _ => entry.seat().answered(u64::MAX),
    }
    let overdrawn = ledger.free_pages().min(0).unsigned_abs();
    let mut total = ledger.total_pages();
    if overdrawn > 0 {
        // What those have that are not paged yet cannot be had, whatever their part is.
        let others = session.used().iter().filter(|other| !other.engaged());
        total = total.saturating_sub(others.map(Process::held_pages).sum());
    }
    let Part { pages: fair, among, asked_for } = Part::of(session, entry, total.max(ledger.total_pages() / 64));
    let (turns, now) = (in_turns(session), process::now_us());
    let misses = misses(shard, entry, now) || turns;
    let pressed = misses && is_pressed(shard, session);
    entry.set_hungry(pressed && !turns);
    let wants = pressed || misses && !turns && is_filling(shard);
    if held > fair && (overdrawn > 0 || ledger.starving() > 0 && !(aside && asked_for)) {
        if forks {
            return;
        }
        // Down towards the fair part: at once by what is overdrawn, else in steps; given back as it becomes free.
        let step = overdrawn.max(held / 8).max(256).min(held - fair);
        let limit = shard.limit().min(held - step).max(least(shard, session).min(held));
        shard.set_limit(limit);
        entry.give_back(ledger, held.saturating_sub(shard.used().max(limit)));
        entry.set_starving(ledger, false);
    } else if wants && available(ledger, held) > 0 && !(aside && held >= fair && ledger.starving() > 0) {
        let free = available(ledger, held);
        // A rank whose turn it is takes its part at once.
        let part = if entry.seat().stand().holds() { fair.saturating_sub(held).min(free) } else { 0 };
        entry.acquire(ledger, free.div_ceil(among).max(64).min(free).max(part));
        shard.set_limit(entry.held_pages());
        entry.set_starving(ledger, false);
    } else {
        entry.set_starving(ledger, pressed && held < fair);
        let keeps = ledger.engaged() < 2 || turns || forks;
        let given = if keeps { 0 } else { unused(shard, ledger, held) };
        let floor = least(shard, session).min(held);
        let limit = (held - given).max(floor);
        entry.give_back(ledger, held - limit);
        let held = limit;
        let limit = match keeps || misses || !others_are_hungry(session, entry) {
            true => held,
            false => MISSED.come_down(held, now).max(floor).max((left(session) + shard.fixed()).min(held)),
        };
        if shard.limit() != limit {
            shard.set_limit(limit);
        }
        entry.give_back(ledger, held - shard.used().clamp(limit, held));
    }
}

/// Whether another process would have more than it has.
pub(super) fn others_are_hungry(session: &Session, entry: &Process) -> bool {
    session.used().iter().any(|other| !core::ptr::eq(other, entry) && (other.starving() || other.hungry()))
}

/// Whether the process has missed anything of late.
fn misses(shard: &Shard<LinuxMachine>, entry: &Process, now: u64) -> bool {
    let counters = &entry.counters;
    let came = counters.faults.get() + counters.rescues.get() + counters.bytes_in.get() / 4096;
    MISSED.look(came, shard.threads_waiting() > 0 || shard.bringing(), now)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use ream_stats::{Config, Identity};
    use std::alloc::{Layout, alloc_zeroed};

    /// Of a session of 16384 pages, which is kept until the tests end, processes that hold so many; whether they are paged.
    fn session<const N: usize>(processes: [(u64, bool); N]) -> (&'static Session, [&'static Process; N]) {
        // SAFETY: fresh zeroed memory of the session's own layout, never given back.
        let session = unsafe {
            let memory = alloc_zeroed(Layout::new::<Session>());
            Session::create(memory, 42, &Config { budget_bytes: 16384 * 4096, ..Config::new() }, 7)
        };
        let mut pid = 0;
        let entries = processes.map(|(held, engaged)| {
            pid += 1;
            let index = session.claim(Identity { pid, start: 1, space: 1 }, 0).unwrap();
            let entry = session.process(index).unwrap();
            assert_eq!(entry.acquire(session.ledger(), held), held);
            entry.set_engaged(session.ledger(), engaged);
            entry
        });
        (session, entries)
    }

    #[test]
    fn what_those_leave_who_want_less_is_divided() {
        let (session, [large, small, _]) = session([(9000, true), (1000, true), (384, false)]);
        assert_eq!(fair(session, large), 16384 - 1000 - 384 - 256);
        small.set_starving(session.ledger(), true);
        assert_eq!(fair(session, large), 8192);
        assert_eq!(fair(session, small), 8192);
    }

    /// Else nobody is above his part, and nobody gives anything up to who has hardly anything.
    #[test]
    fn what_those_hold_who_are_not_paged_is_not_divided() {
        let all = [(4096, false), (3812, true), (3812, true), (2000, true), (2000, true), (300, true)];
        let (session, [_, first, .., starving]) = session(all);
        starving.set_starving(session.ledger(), true);
        assert_eq!(fair(session, first), 16384 / 5);
    }
}
