//! What the ring, or the threads in its place, have to tell: transfers that ended, news of the userfaultfd, the helper and
//! the memory servers.

use super::{HELPER, KIND, LANE, LinuxMachine, MESSAGES, PUNCHED, PUNCHES, SPILL_READ, SPILL_WRITE, UNWATCHED};
use crate::Wait;
use crate::ring::Completion;
use ream_page::Slot;

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
            PUNCHED => {
                if let Some(punch) = self.punches.get_mut(tag as usize) {
                    *punch = (0, 0);
                }
                None
            }
            _ => Some((tag, completion.result)),
        }
    }

    /// Waits until no punch in flight touches the slots: a late punch would erase what is written to them.
    pub(super) fn settle_punches(&mut self, slot: Slot, pages: u32) {
        let touches = |punches: &[(u32, u32); PUNCHES]| {
            punches.iter().any(|(first, count)| {
                *count > 0 && *first < slot.0.saturating_add(pages) && slot.0 < first.saturating_add(*count)
            })
        };
        while touches(&self.punches) {
            if self.io.enter(Wait::Forever).is_err() {
                return;
            }
            while let Some(completion) = self.io.take() {
                if let Some((tag, result)) = self.complete(completion) {
                    self.end(tag, result);
                }
            }
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
