//! The pager's threads have the rights that the program has: when it gives some up, they do before it goes on.

use super::mailbox::Command;
use super::message::tell;
use super::{ENGINE, Phase, masked, tell_watcher};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use ream_sys::futex::Mutex;
use ream_sys::user::Rights;
use ream_sys::{LinuxMachine, process};

/// The program's rights after they have changed.
static WANTED: Mutex<Rights> = Mutex::new(Rights::none());
/// How often they have.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// Up to which change the pager has followed.
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// The calling thread, and all others that libc knows, have other rights now.
pub fn follow_rights() {
    let Some(entry) = ENGINE.entry() else { return };
    // A child that shares our memory until it executes something has rights of its own.
    if entry.lifecycle().1 != process::process_id() {
        return;
    }
    masked(|| {
        if WANTED.lock().note().is_err() {
            return;
        }
        CHANGES.fetch_add(1, SeqCst);
        super::bloat::hands_off();
        match ENGINE.phase() {
            Phase::Engaged => ENGINE.mailbox.call(Command::Follow),
            // One that does not listen yet looks when it begins to.
            Phase::Watching => tell_watcher(Command::Follow),
            Phase::Off | Phase::Idle | Phase::Broken => {}
        }
    });
}

/// In the pager, or in what becomes it: follows. False when that is not possible yet. A pager that has more rights than
/// its program, and cannot give them up, ends the process.
pub(super) fn follow(machine: &mut LinuxMachine) -> bool {
    follow_by(|rights| machine.assume(rights))
}

/// The same in a thread that has no helpers.
pub(super) fn follow_alone() {
    follow_by(|rights| Some(rights.assume()));
}

fn follow_by(assume: impl FnOnce(&Rights) -> Option<bool>) -> bool {
    const STOPPED: i32 = 125;
    let changes = CHANGES.load(SeqCst);
    if FOLLOWED.load(SeqCst) == changes {
        return true;
    }
    match assume(&WANTED.lock()) {
        None => return false,
        Some(true) => FOLLOWED.store(changes, SeqCst),
        Some(false) => {
            tell(format_args!("the pager cannot give up the rights that the program gave up: the program is stopped"));
            process::end_process(STOPPED)
        }
    }
    true
}

/// In a forked child: its pager is made by a thread that has the program's rights.
pub(super) fn begin_anew() {
    // SAFETY: the child's only thread; whoever held the lock wrote down the rights of the parent, which are not read here.
    unsafe { WANTED.reset() };
    FOLLOWED.store(CHANGES.load(SeqCst), SeqCst);
}
