//! Zeros that can be read and not be written to: a thread that only looks costs nothing, and the first write is heard of.

use super::LinuxMachine;
use crate::copier::unprotect;
use crate::inbox::Writers;
use crate::memory::{self, Advice};
use crate::uffd::Uffd;
use crate::{Copied, Machine};
use ream_page::{Page, Run};

fn fill(run: Run) -> impl Fn(&Uffd) -> Result<(), crate::Errno> {
    move |uffd| uffd.zero(run.start.address(), run.bytes())
}

fn protect(run: Run) -> impl Fn(&Uffd) -> Result<(), crate::Errno> {
    move |uffd| uffd.write_protect(run.start.address(), run.bytes(), true)
}

impl LinuxMachine {
    /// Shows zeros in all of a registered run, or only at `page` where others are there already, and wakes the readers. From
    /// now on who writes to protected pages is reported. False where the kernel has no protection.
    pub fn let_read(&mut self, run: Run, page: Page) -> bool {
        if self.inbox.patiently(fill(run)) != Copied::Done {
            self.inbox.patiently(fill(Run { start: page, pages: 1 }));
        }
        self.inbox.writers = Writers::Reported;
        // Before anybody is woken. Who writes meanwhile has a page of his own, and is heard of when he writes there again.
        let is_protected = self.inbox.patiently(protect(run)) == Copied::Done;
        if is_protected {
            self.wake(run);
        }
        is_protected
    }

    /// Whoever writes to zeros of these registered runs sleeps, until [`LinuxMachine::let_write`] for all of them. Then zeros that
    /// are still there stay zeros, and are given back: who reads or writes there is heard of, and nothing is to be evicted.
    pub fn hold_writers(&mut self, run: Run) {
        let LinuxMachine { inbox, pagemap, .. } = self;
        let mut all = true;
        pagemap.walk(run, &mut |part, mapped| {
            if mapped.zero {
                match inbox.patiently(protect(part)) {
                    Copied::Done => inbox.writers = Writers::Held,
                    _ => all = false,
                }
            }
        });
        if inbox.writers == Writers::Reported {
            inbox.writers = Writers::Held;
        }
        if !all {
            return;
        }
        pagemap.walk(run, &mut |part, mapped| {
            if mapped.zero {
                // SAFETY: the kernel's page of zeros is mapped there for reading, and nobody writes: those who would, sleep, and new
                // zeros appear only through the pager. So it reads as before. Locked memory is refused, and stays.
                let _ = unsafe { memory::advise(part.start.address(), part.bytes(), Advice::DontNeed) };
            }
        });
    }

    /// Whether somebody may sleep who wants to write to zeros.
    pub fn holds_writers(&self) -> bool {
        self.inbox.writers == Writers::Held
    }

    /// Nothing of a run is protected any more; its writers go on.
    pub fn let_write(&mut self, run: Run) {
        if self.inbox.writers != Writers::Woken {
            unprotect(&mut self.inbox, run);
        }
    }

    /// Nothing is protected but during a call.
    pub fn none_is_held(&mut self) {
        self.inbox.writers = Writers::Woken;
    }
}
