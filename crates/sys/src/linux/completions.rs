//! What the ring, or the threads in its place, have to tell: transfers that ended, news of the userfaultfd, the helper and
//! the memory servers.

use super::{
    HELPER, KIND, LANE, LinuxMachine, MESSAGES, PUNCHED, SPILL_READ, SPILL_WRITE, TIER_READ, TIER_WRITE, UNWATCHED,
};
use crate::ring::Completion;

impl LinuxMachine {
    /// Handles one completion; transfers go to `told`.
    pub(super) fn complete(&mut self, completion: Completion) -> Option<(u32, i32)> {
        let tag = completion.user_data as u32;
        match completion.user_data & KIND {
            MESSAGES => {
                self.inbox.ready = true;
                self.watching_messages = completion.more();
                None
            }
            HELPER => {
                self.watching_helper = completion.more();
                self.helper.take()
            }
            UNWATCHED => None,
            LANE => {
                if let Some(remote) = &mut self.remote {
                    remote.happened(tag, completion.result);
                }
                None
            }
            kind @ (SPILL_READ | SPILL_WRITE) => {
                if let Some(remote) = &mut self.remote {
                    remote.spilled(kind == SPILL_WRITE, tag, completion.result);
                }
                None
            }
            kind @ (TIER_READ | TIER_WRITE) => {
                if let Some(tiers) = &mut self.tiers {
                    tiers.happened(kind == TIER_WRITE, tag, completion.result);
                }
                None
            }
            PUNCHED => {
                self.punched(tag, completion.result);
                None
            }
            _ => Some((tag, completion.result)),
        }
    }

    pub(super) fn watch(&mut self) {
        if !self.watching_messages {
            self.watching_messages = self.io.watch(self.inbox.uffd.fd, MESSAGES).is_ok();
            self.inbox.ready = true;
        }
        if !self.watching_helper {
            self.watching_helper = self.io.watch(self.helper.bell, HELPER).is_ok();
        }
    }
}
