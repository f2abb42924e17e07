//! Pages that appear write-protected: while the protection lasts they hold what they were installed with, so they are dropped
//! where they are, many in one call that interrupts other processors once.

use super::LinuxMachine;
use crate::file::Fd;
use crate::inbox::{Inbox, Writers};
use crate::memory::{self, Advice};
use crate::uffd::{Access, feature};
use crate::{Copied, Machine};
use ream_page::{Page, Run};

/// Parts that are dropped in one call.
const PARTS: usize = 128;

/// Parts to be dropped: address and bytes of each.
struct Parts {
    list: [[usize; 2]; PARTS],
    len: usize,
}

impl LinuxMachine {
    /// Whether protection can be relied on: the kernel says of a page whether it has it, waits for us with writes of its own, too,
    /// and nothing else uses protection.
    pub(super) fn can_guard(&self) -> bool {
        let whole = self.access() != Access::UserOnly && self.loans.is_none();
        let protects = self.inbox.uffd.has(feature::WRITE_PROTECT) && self.inbox.writers == Writers::Woken;
        whole && protects && self.moves() && self.pagemap.knows_large()
    }

    pub(super) fn end_guard(&mut self, run: Run) -> Copied {
        let done = self.inbox.patiently(|uffd| uffd.write_protect(run.start.address(), run.bytes(), false));
        if done != Copied::Done {
            // Whoever sleeps looks again, and is reported again.
            self.wake(run);
        }
        done
    }

    /// See [`Machine::drop_guarded`]. A thread that moves or maps memory through libc is kept out by `moving`, or has told the
    /// pager before; whoever does so by system calls of his own is heard of between the looks, but for the time that one
    /// call takes.
    pub(super) fn drop_parts(&mut self, runs: &[Run], dropped: &mut dyn FnMut(Run)) {
        let _still = match self.moving.map(|moving| moving.try_lock()) {
            Some(None) => return,
            Some(guard) => guard,
            None => None,
        };
        let mut parts = Parts { list: [[0; 2]; PARTS], len: 0 };
        let mut index = 0;
        while index < runs.len() {
            parts.len = 0;
            while let Some(run) = runs.get(index).filter(|run| parts.len + run.pages as usize <= PARTS) {
                self.pagemap.guarded(*run, &mut |part| parts.push(part));
                index += 1;
            }
            // Longer than all parts together: not for us.
            index += (parts.len == 0 && runs.get(index).is_some_and(|run| run.pages as usize > PARTS)) as usize;
            if !parts.drop_all(&mut self.inbox, self.own, dropped) {
                return;
            }
        }
    }
}

impl Parts {
    fn push(&mut self, run: Run) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = [run.start.address(), run.bytes()];
            self.len += 1;
        }
    }

    /// False when mappings have changed.
    fn drop_all(&self, inbox: &mut Inbox, own: Fd, dropped: &mut dyn FnMut(Run)) -> bool {
        inbox.absorb();
        if inbox.has_changed() {
            return false;
        }
        let list = self.list.get(..self.len).unwrap_or(&[]);
        // SAFETY: what these pages hold is in the store: they were protected when they were last looked at, nobody can write to
        // a protected page before we end that, and what is mapped there has not changed.
        let mut done = unsafe { memory::discard_all(own, list) }.unwrap_or(0);
        for part in list.iter().map(|[address, bytes]| Run::covering(*address, *bytes)) {
            let gone = done >= part.bytes();
            done = done.saturating_sub(part.bytes());
            if gone {
                dropped(part);
                continue;
            }
            // Some of it may be gone already: of several mappings the kernel has stopped at one that is locked. A page is all
            // there, or not.
            for page in (part.start.0..part.end().0).map(|page| Run { start: Page(page), pages: 1 }) {
                // SAFETY: as above.
                if unsafe { memory::advise(page.start.address(), page.bytes(), Advice::DontNeed) }.is_ok() {
                    dropped(page);
                }
            }
        }
        true
    }
}
