//! Where pages are copied out instead of moved, what devices write to them by themselves is lost. While the program has anything
//! open by which it may have given pages to a device, nothing leaves RAM.

use super::message::warn;
use super::{ENGINE, fork};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use ream_pager::Shard;
use ream_stats::Engine;
use ream_sys::{LinuxMachine, devices, process};

/// How often its descriptors are looked at, in microseconds; less often where that takes long.
const INTERVAL: u64 = 50_000;
/// A look takes no more than one part of so many.
const SHARE: u64 = 20;

/// It has been said, here or by the process that this one was forked from.
static SAID: AtomicBool = AtomicBool::new(false);

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Devices {
    next: u64,
    /// Nothing leaves RAM now.
    keeps: bool,
}

impl Devices {
    /// Looks, if it is time to.
    pub(super) fn look(&mut self, shard: &mut Shard<LinuxMachine>) {
        let always = ENGINE.session().is_some_and(|session| session.config().engine() == Engine::CopyAlways);
        if shard.machine().moves() || always {
            return;
        }
        let began = process::now_us();
        // Around a fork our own stores are open in the program's table.
        if began < self.next || fork::lends_stores() {
            return;
        }
        // Where it may not be seen, as of a program that has given up its user's rights, there is nothing to go by.
        let found = devices::written().unwrap_or(None);
        self.keeps = found.is_some();
        shard.machine_mut().keep(self.keeps);
        if let Some(what) = found.filter(|_| !SAID.swap(true, SeqCst)) {
            warn(format_args!(
                "the program uses {what}, and who copies pages cannot tell which pages a device writes: nothing leaves RAM meanwhile, and the budget may be exceeded; Linux 6.8 or later moves them"
            ));
        }
        let now = process::now_us();
        self.next = now + INTERVAL.max((now - began) * SHARE);
    }

    /// Whether nothing leaves RAM now.
    pub(super) fn keep(&self) -> bool {
        self.keeps
    }
}
