//! What a machine hands on: to a forked child, and to a thread with other rights.

use super::LinuxMachine;
use crate::remote::{Bequest, Remote};
use crate::tiers::{Inheritance, Tiers};
use crate::user::Rights;

impl LinuxMachine {
    /// In a forked child, of its parent's machine: what it needs to read what that has stored at memory servers, and
    /// otherwise.
    pub fn bequeath(&mut self) -> (Option<Bequest>, Option<Inheritance>) {
        (self.remote.as_mut().map(Remote::bequeath), self.tiers.as_mut().map(Tiers::bequeath))
    }

    /// Gives the calling thread these rights, and with it all that work for it, which end; others are made when they are
    /// needed. `None` when one of them is busy with an errand: try again later. False when there is more left than that.
    pub fn assume(&mut self, rights: &Rights) -> Option<bool> {
        if !self.remote.as_ref().is_none_or(Remote::rests) || !self.helper.rest() {
            return None;
        }
        self.follower.rest();
        self.io.rest();
        // Our own, and those of ancestors: for the program's children.
        self.open_stores_to_all();
        Some(rights.assume())
    }
}
