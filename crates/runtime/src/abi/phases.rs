//! Phases of a program's work (`ream_phase`): which one the process is in, and what its counters were when it entered.

use super::caller;
use crate::engine;
use ream_stats::{Mark, PHASE_NAME, Phases, Session};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::process::{self, SignalSet, set_signal_mask};

/// The phase that a process is in. A forked child is in none until it says so.
struct Current {
    process: u32,
    phase: Option<usize>,
    mark: Mark,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { process: 0, phase: None, mark: Mark::NONE });

/// While it exists, in a fork, nothing changes.
pub struct Frozen {
    _current: Guard<'static, Current>,
}

/// Takes the lock for the duration of a fork. Signals are blocked then.
pub fn freeze() -> Frozen {
    Frozen { _current: CURRENT.lock() }
}

/// Leaves the present phase and enters the one of this name; none where the address is null. Without a session only the name
/// is looked at.
pub fn enter(name: usize) -> Result<(), Errno> {
    let mut text = [0; PHASE_NAME + 1];
    let mut length = 0;
    if name != 0 {
        length = caller::text(name, &mut text)?;
        if !Phases::is_name(text.get(..length).unwrap_or(&[])) {
            return Err(Errno::INVAL);
        }
    }
    let Some((entry, session)) = engine::account() else { return Ok(()) };
    let next = match name {
        0 => None,
        _ => Some(session.phases().find(text.get(..length).unwrap_or(&[])).ok_or(Errno::NOSPC)?.0),
    };
    change(session, Mark::of(&entry.counters, process::now_us()), next);
    Ok(())
}

/// The process ends.
pub fn leave(session: &Session, index: usize) {
    if let Some(entry) = session.process(index) {
        change(session, Mark::of(&entry.counters, process::now_us()), None);
    }
}

fn change(session: &Session, mark: Mark, next: Option<usize>) {
    let signals = set_signal_mask(SignalSet::ALL);
    {
        let mut current = CURRENT.lock();
        let me = process::process_id();
        let last = current.phase.filter(|_| current.process == me).and_then(|phase| session.phases().get(phase));
        if let Some(phase) = last {
            phase.leave(current.mark, mark);
        }
        *current = Current { process: me, phase: next, mark };
    }
    set_signal_mask(signals);
}
