//! What the pager of a rank does about its seat, while the rank's own thread is asleep in a fault: asks for a place, looks whether it
//! can have one, and finds out what turns are good for. It never waits for the right to decide, since a thread that has it
//! may be waiting for this pager.

use super::ENGINE;
use core::sync::atomic::AtomicU32;
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

/// Decides something, if nobody else does so just now.
fn decide(work: impl FnOnce(&Decision<'_>, usize)) {
    let Some((session, me)) = ENGINE.session().zip(super::place()) else { return };
    if let Some(decision) = session.try_decide(me) {
        work(&decision, me);
    }
}

/// What the rank does in its call of MPI needs its memory: it wants a place.
pub(super) fn want_inside() {
    decide(|decision, me| decision.want_inside(me, now_us(), &mut wake));
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
