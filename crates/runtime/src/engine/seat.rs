//! What the pager of a rank does about its seat, while the rank's own thread is asleep in a fault: asks for a place, looks whether it
//! can have one, and finds out what turns are good for. It never waits for the right to decide, since a thread that has it
//! may be waiting for this pager.

use super::ENGINE;
use crate::identity;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use ream_stats::{Decision, Seat};
use ream_sys::futex::{self, Scope};
use ream_sys::process::now_us;

/// Whether the pager knows that the rank's turn has ended.
pub static ASIDE: AtomicU32 = AtomicU32::new(0);
/// Times that the rank has found nothing to do in a call of MPI; wraps around.
pub static POLLS: AtomicU32 = AtomicU32::new(0);

/// Wakes a rank that was given a place.
pub fn wake(seat: &Seat) {
    futex::wake(seat.word(), u32::MAX, Scope::Shared);
}

/// Times in a row that somebody else had the right to decide, and those after which it is looked whether he is alive.
static TRIES: AtomicU32 = AtomicU32::new(0);
const MANY: u32 = 256;

/// Decides something, if nobody else does so just now.
fn decide(work: impl FnOnce(&Decision<'_>, usize)) {
    let Some((session, me)) = ENGINE.session().zip(super::place()) else { return };
    let many = TRIES.fetch_add(1, SeqCst) % MANY == MANY - 1;
    if let Some(decision) = session.try_decide(me, many.then_some(identity::alive)) {
        TRIES.store(0, SeqCst);
        work(&decision, me);
    }
}

/// What the rank does in its call of MPI needs its memory: it wants a place.
pub(super) fn want_inside() {
    decide(|decision, me| decision.want_inside(me, now_us(), &mut wake));
}

/// It was no work: the rank waits for something.
pub(super) fn withdraw() {
    decide(|decision, me| decision.withdraw(me, now_us(), &mut wake));
}

/// While it waits for that: looks whether there is one, as its thread would.
pub(super) fn look() {
    let patience = ENGINE.session().map_or(0, |session| u64::from(session.config().patience_ms) * 1000);
    decide(|decision, _| decision.look(now_us(), patience, &mut wake));
}

/// Now and then: finds out whether ranks do better in turns.
pub(super) fn weigh() {
    decide(|decision, _| decision.weigh(now_us(), &mut wake));
}
