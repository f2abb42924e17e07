//! Calls that the kernel refuses to a process of several threads: to begin or to enter a user namespace, or to enter a mount
//! namespace. Before paging begins, ours can end for the time of such a call: the watcher, and the one that gives large pages back.

use super::mailbox::Command;
use super::{ENGINE, Phase, bloat, is_own_process, masked, watch};
use ream_sys::process;

/// Longest that the kernel is waited for until it has forgotten a thread that has ended, microseconds; and how often it is asked.
const PATIENCE: u64 = 1_000_000;
const GLANCE: u64 = 50;

/// Does `call` without our threads, if nothing is paged yet, and the program has no others itself: it fails in any case then.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    masked(|| {
        if !is_own_process() || ENGINE.phase() == Phase::Engaged || !process::alone() {
            return call();
        }
        let (watched, looked) = (leave(), bloat::pause());
        let began = process::now_us();
        while (watched || looked) && process::thread_count() > 1 && process::now_us() - began < PATIENCE {
            process::sleep_us(GLANCE);
        }
        let result = call();
        if watched {
            watch::start(true);
        }
        if looked {
            bloat::resume();
        }
        result
    })
}

/// Ends the watcher. Returns whether there was one.
fn leave() -> bool {
    if ENGINE.phase() != Phase::Watching {
        return false;
    }
    watch::until_listening();
    if ENGINE.phase() == Phase::Watching {
        ENGINE.mailbox.call(Command::Leave);
    }
    // Paging has begun meanwhile, or cannot.
    if ENGINE.phase() != Phase::Idle {
        return false;
    }
    watch::join();
    ENGINE.mailbox.take_down();
    true
}
