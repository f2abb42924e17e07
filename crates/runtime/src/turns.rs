//! What this process does as a rank of an MPI job: it computes when it has a place, and sleeps in MPI or for its turn
//! otherwise. The rules are in `ream_stats::Turns`; here are the sleeps, and the functions that the libraries in `mpi/`
//! call. They are for these alone (`mpi/turns.h`), and may be called by any thread.

use crate::engine::seat::{ASIDE, POLLS, wake};
use crate::maps::managed_parts;
use crate::{engine, holds, identity};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use ream_page::{PAGE_BYTES, Run};
use ream_stats::{Next, Seat, Session, Stand};
use ream_sys::Errno;
use ream_sys::futex::{self, Scope};
use ream_sys::process::{self, SignalSet, now_us, set_signal_mask};

/// First and longest sleep for a place before the one who waits looks whether it can have one, in microseconds. Whoever
/// gives it one wakes it.
const LOOK_US: (u64, u64) = (5_000, 50_000);
/// How often one that waits looks for ranks that were killed, which the agent does at once if there is one.
const SWEEP_US: u64 = 250_000;
/// First sleep in a call of MPI.
const NAP_US: u64 = 20;
/// Longest sleeps in such a call while the rank has its place, and without, when others compute.
const LONGEST_US: (u64, u64) = (200, 2_000);
/// Sleeps after which the longest one becomes five times as long: nothing has come for a good while.
const MANY: u32 = 100;
/// A rank that asks and asks, and is answered each time, makes room for others after so long.
const POLITE_US: u64 = 100_000;
/// Sleep of one that finds the right to decide taken.
const PAUSE_US: u64 = 200;

/// The session, this process's place in its table, and its seat.
fn rank() -> Option<(&'static Session, usize, &'static Seat)> {
    let (process, session) = engine::account()?;
    Some((session, engine::place()?, process.seat()))
}

/// Tells the pager that the rank's turn has ended, unless it knows.
fn step_aside() {
    if ASIDE.swap(1, SeqCst) == 0 {
        engine::switch(false);
    }
}

/// Tells it that the turn has begun, unless it knows of no other.
fn step_forward() {
    if ASIDE.swap(0, SeqCst) != 0 {
        engine::switch(true);
    }
}

/// Decides something; no handler of a signal comes in between.
fn decide(session: &'static Session, me: usize, work: impl FnOnce(&ream_stats::Decision<'_>, u64)) {
    let before = set_signal_mask(SignalSet::ALL);
    {
        let decision = session.decide(Some(me), identity::alive, || process::sleep_us(PAUSE_US));
        work(&decision, now_us());
    }
    set_signal_mask(before);
}

/// Sleeps until this rank has a place.
fn wait_for_place(session: &'static Session, me: usize, seat: &Seat) {
    if seat.stand().waits() {
        step_aside();
        sleep_until_placed(session, me, seat);
    }
    step_forward();
}

fn sleep_until_placed(session: &'static Session, me: usize, seat: &Seat) {
    let patience = u64::from(session.config().patience_ms) * 1000;
    let (mut sleep, longest) = LOOK_US;
    let mut swept = now_us();
    loop {
        let word = seat.word().load(SeqCst);
        if !seat.stand().waits() {
            return;
        }
        futex::wait(seat.word(), word, Some(sleep.min(patience)), Scope::Shared);
        if !seat.stand().waits() {
            return;
        }
        let now = now_us();
        if now - swept >= SWEEP_US {
            swept = now;
            session.sweep(identity::owner(), now / 1000, identity::runs);
        }
        decide(session, me, |decision, now| decision.look(now, patience, &mut wake));
        sleep = (sleep * 2).min(longest);
    }
}

/// Wakes those who sleep in their calls: something may have been sent to them.
fn poke(session: &Session) {
    if session.turns().may_poke(now_us()) {
        for seat in session.used().iter().map(ream_stats::Process::seat).filter(|seat| seat.poke()) {
            futex::wake(seat.bell(), u32::MAX, Scope::Shared);
        }
    }
}

/// This process is the rank with this number of its job; returns when it has a place. 0, or the error as a negative
/// number: without a session there are no turns.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_join(number: u32) -> c_int {
    let Some((session, me, seat)) = rank() else { return Errno::NOENT.negative() };
    decide(session, me, |decision, now| decision.join(me, number, now, &mut wake));
    wait_for_place(session, me, seat);
    0
}

/// A call of MPI begins.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_enter() {
    if let Some((_, _, seat)) = rank() {
        seat.enter();
    }
}

/// A call of MPI has ended; returns when the rank has a place.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_leave() {
    let Some((session, me, seat)) = rank() else { return };
    if seat.stand() == Stand::Idle {
        QUIET.left_us.store(now_us(), SeqCst);
    }
    // A place that was given for what is done inside the call may be taken away before it is kept.
    while !seat.leave() {
        if seat.stand() == Stand::Blocked || seat.waits_inside() {
            decide(session, me, |decision, now| decision.want(me, Stand::Waiting, now, &mut wake));
        }
        wait_for_place(session, me, seat);
    }
    STRETCH.begin();
}

/// What a thread of the rank has computed since it last waited in MPI. Where several call MPI, those stretches count that
/// one thread has begun and ended.
struct Stretch {
    thread: AtomicU32,
    began_ns: AtomicU64,
}

static STRETCH: Stretch = Stretch { thread: AtomicU32::new(0), began_ns: AtomicU64::new(0) };

impl Stretch {
    /// A call of MPI has ended; if the last stretch has, a new one begins.
    fn begin(&self) {
        if self.thread.load(SeqCst) == 0 {
            self.began_ns.store(process::thread_user_time_ns(), SeqCst);
            self.thread.store(process::thread_id(), SeqCst);
        }
    }
    /// The rank begins to wait.
    fn end(&self, session: &Session, seat: &Seat) {
        if self.thread.swap(0, SeqCst) == process::thread_id() {
            let ns = process::thread_user_time_ns().saturating_sub(self.began_ns.load(SeqCst));
            session.note_stretch(seat, ns);
        }
    }
}

/// Other threads of the process may need this one to go on soon.
const HASTY: c_int = 1;
/// Other threads of the process that use MPI are not in it just now.
const OTHERS: c_int = 2;
/// They have computed for some time.
const WORK: c_int = 4;

/// There is nothing to do in the call of MPI that is under way: gives the place up if somebody else waits for one, and
/// sleeps a little, the longer the more often, as `naps` counts. `how` is made of [`HASTY`], [`OTHERS`] and [`WORK`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_idle(naps: u32, how: c_int) {
    let Some((session, me, seat)) = rank() else {
        process::sleep_us(nap(naps, LONGEST_US.0));
        return;
    };
    POLLS.fetch_add(1, SeqCst);
    let before = seat.stand();
    if how & OTHERS == 0 || QUIET.look(session, me) {
        seat.enter();
        // A place too many, of when more could compute, is worth giving up even if nobody waits for one.
        if seat.idle() && (session.turns().anybody_waits() || session.is_crowded()) {
            decide(session, me, |decision, now| decision.give_up(me, now, &mut wake));
        }
    } else if how & WORK != 0 {
        go_on(session, me, seat);
    }
    let stand = seat.stand();
    if before != stand && matches!(stand, Stand::Idle | Stand::Blocked) {
        STRETCH.end(session, seat);
        poke(session);
    }
    if stand.aside() {
        step_aside();
    }
    let longest = if stand == Stand::Blocked && how & HASTY == 0 { LONGEST_US.1 } else { LONGEST_US.0 };
    seat.set_napping(true);
    let bell = seat.bell().load(SeqCst);
    futex::wait(seat.bell(), bell, Some(nap(naps, longest)), Scope::Shared);
    seat.set_napping(false);
}

/// A thread of the rank computes after all while others of it wait in MPI, and knows of no turns until it calls MPI: it gets the
/// room of a rank that computes if the rank has its place, or a place is asked for in its name.
fn go_on(session: &'static Session, me: usize, seat: &Seat) {
    static SOUGHT_US: AtomicU64 = AtomicU64::new(0);
    if seat.stand() == Stand::Idle && seat.leave() {
        return;
    }
    let (now, sought) = (now_us(), SOUGHT_US.load(SeqCst));
    let is_due = seat.stand().aside() && now.saturating_sub(sought) >= LOOK_US.0;
    if !is_due || SOUGHT_US.compare_exchange(sought, now, SeqCst, SeqCst).is_err() {
        return;
    }
    let patience = u64::from(session.config().patience_ms) * 1000;
    decide(session, me, |decision, now| match seat.stand() {
        Stand::Blocked => decision.want(me, Stand::Waiting, now, &mut wake),
        _ => decision.look(now, patience, &mut wake),
    });
}

/// Whether the process does nothing, though some of its threads are not in MPI: they wait for the one that is.
struct Quiet {
    since_us: AtomicU64,
    /// When that began by which it was judged.
    from_us: AtomicU64,
    /// When a wait ended in which the rank kept its place.
    left_us: AtomicU64,
    busy_ns: AtomicU64,
    faults: AtomicU64,
    yes: AtomicU32,
}

static QUIET: Quiet = Quiet {
    since_us: AtomicU64::new(0),
    from_us: AtomicU64::new(0),
    left_us: AtomicU64::new(0),
    busy_ns: AtomicU64::new(0),
    faults: AtomicU64::new(0),
    yes: AtomicU32::new(0),
};

/// Over how long that is judged, in microseconds.
const QUIET_US: u64 = 50_000;

impl Quiet {
    fn look(&self, session: &Session, me: usize) -> bool {
        let now = now_us();
        let since = self.since_us.load(SeqCst);
        let is_due = now.saturating_sub(since) >= QUIET_US;
        // One thread judges.
        if is_due && self.since_us.compare_exchange(since, now, SeqCst, SeqCst).is_ok() {
            let (busy, faults) =
                (process::process_time_ns(), session.process(me).map_or(0, |it| it.counters.faults.get()));
            let spent_us = busy.saturating_sub(self.busy_ns.swap(busy, SeqCst)) / 1000;
            let faulted = self.faults.swap(faults, SeqCst) != faults;
            let quiet = !faulted && spent_us < (now - since) / 10;
            self.yes.store(quiet.into(), SeqCst);
            self.from_us.store(since, SeqCst);
        }
        // A thread that waited by then, for a place or for a message, is about to compute.
        let placed = session.process(me).map_or(0, |it| it.seat().since_us());
        self.yes.load(SeqCst) != 0 && self.from_us.load(SeqCst) >= placed.max(self.left_us.load(SeqCst))
    }
}

fn nap(naps: u32, longest: u64) -> u64 {
    let longest = if naps < MANY { longest } else { longest * 5 };
    // Half as long again each time.
    (0..naps.min(32)).fold(NAP_US, |us, _| us + us / 2).min(longest)
}

/// Another thread of this process needs the one that sleeps in a call of MPI.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_rouse() {
    if let Some((_, _, seat)) = rank() {
        if seat.poke() {
            futex::wake(seat.bell(), u32::MAX, Scope::Shared);
        }
    }
}

/// The rank has asked for something that has not come (`naps` times in a row), or, with 0, has been answered, and asks again
/// and again: lets others compute first. Not in a call of MPI.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_defer(naps: u32) {
    let Some((session, me, seat)) = rank() else { return };
    if naps > 0 {
        poke(session);
        process::sleep_us(nap(naps, LONGEST_US.0));
    } else if now_us().saturating_sub(seat.since_us()) < POLITE_US {
        return;
    }
    let_others(session, me, seat);
}

/// Lets others compute first.
fn let_others(session: &'static Session, me: usize, seat: &Seat) {
    if session.turns().anybody_waits() && seat.stand() == Stand::Running {
        decide(session, me, |decision, now| decision.want(me, Stand::Polite, now, &mut wake));
        wait_for_place(session, me, seat);
    }
}

/// The rank asks, with pauses, for something that has not come: as [`ream_rank_defer`], without another pause where nobody waits.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_pauses() {
    if let Some((session, me, seat)) = rank() {
        let_others(session, me, seat);
    }
}

/// Touches of the rank's memory that had to be served; wraps around.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_faults() -> u64 {
    engine::account().map_or(0, |(entry, _)| entry.counters.faults.get())
}

/// Whether the rank is to say whom it sends messages to.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_counts() -> c_int {
    rank().is_some_and(|(session, _, _)| Next::from_u32(session.config().next) == Next::Pending).into()
}

/// A message was sent to the rank with this number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_sent(number: u32) {
    if let Some((session, me, _)) = rank() {
        decide(session, me, |decision, _| decision.sent(number));
    }
}

/// Whether it is worth saying what is going to be overwritten: memory is paged, and that is wanted.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_drops() -> c_int {
    (engine::engaged() && rank().is_some_and(|(session, _, _)| session.config().drop_received != 0)).into()
}

/// Whether memory of any process of the session is paged.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_paged() -> c_int {
    engine::account().is_some_and(|(_, session)| session.ledger().engaged() > 0).into()
}

/// These bytes are going to be overwritten by a call of MPI before anybody reads them: the pages that lie in them wholly are
/// given up; those in RAM only where this rank's turn is about to end, since they have to be made anew.
///
/// # Safety
/// The program is about to have them overwritten.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_rank_overwritten(data: *const c_void, bytes: usize) {
    let Some((session, _, _)) = rank() else { return };
    let start = data.addr().next_multiple_of(PAGE_BYTES);
    let end = data.addr().saturating_add(bytes) / PAGE_BYTES * PAGE_BYTES;
    if start >= end {
        return;
    }
    let run = Run::covering(start, end - start);
    let all = session.turns().anybody_waits() && !holds::any(run);
    managed_parts(run, |part| engine::drop_stored(part, all));
}

/// This process is no rank any more: it ends.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_rank_end() {
    if let Some((session, me, _)) = rank().filter(|(_, _, seat)| seat.stand() != Stand::Away) {
        decide(session, me, |decision, now| decision.go(me, now, &mut wake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_to_a_bound() {
        assert_eq!((nap(0, 200), nap(1, 200), nap(2, 200)), (20, 30, 45));
        assert_eq!((nap(50, 200), nap(100, 200), nap(u32::MAX, 2000)), (200, 1000, 10_000));
    }

    #[test]
    fn without_a_session_nothing_waits() {
        assert!(ream_rank_join(0) < 0);
        ream_rank_enter();
        ream_rank_leave();
        ream_rank_idle(0, 0);
        ream_rank_defer(3);
        ream_rank_pauses();
        assert_eq!(ream_rank_faults(), 0);
        ream_rank_end();
        assert_eq!(ream_rank_counts(), 0);
    }
}
