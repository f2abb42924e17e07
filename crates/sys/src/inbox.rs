//! Messages of the userfaultfd on their way to the pager.
//! Some calls fail with EAGAIN until a pending unmap or remap message has been read, so messages may have to be taken
//! in the middle of other work; they wait here, in order, for the next poll. Whoever unmapped or moved something goes on as
//! soon as its message was read, and anything may be mapped there since: until the pager has heard of it, its table is of
//! another time, and nothing is moved, copied or discarded in the program's memory.

use crate::queue::Queue;
use crate::uffd::{Message, News, Uffd};
use crate::{Copied, Errno, Event, Events, process};
use ream_page::{PAGE_BYTES, Page, Run};

/// Messages taken early and not yet reported. Each thread has at most one underway.
const CAPACITY: usize = 16_384;
/// Messages of one read.
const BATCH: usize = 32;

pub(crate) struct Inbox {
    pub(crate) uffd: Uffd,
    early: Queue<Message>,
    /// Whether one of these tells that something was unmapped or moved.
    changed: bool,
    /// Whether the userfaultfd may have messages. Its poll tells only of new ones.
    pub(crate) ready: bool,
    /// What becomes of those who write to protected pages.
    pub(crate) writers: Writers,
    /// Whether those that would be woken are reported instead: pages are guarded.
    pub(crate) guards: bool,
}

/// What becomes of threads that write to protected pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writers {
    /// Protection never outlives the call that set it: whoever ran into it looks again.
    Woken,
    /// They are reported like those who write to absent pages.
    Reported,
    /// They sleep until the protection ends.
    Held,
}

impl Inbox {
    pub(crate) fn new(uffd: Uffd) -> Result<Inbox, Errno> {
        Ok(Inbox {
            uffd,
            early: Queue::new(CAPACITY)?,
            changed: false,
            ready: true,
            writers: Writers::Woken,
            guards: false,
        })
    }

    /// Whether a poll has something to look at without sleeping.
    pub(crate) fn waiting(&self) -> bool {
        self.ready || !self.early.is_empty()
    }

    /// Whether mappings have changed without the pager knowing.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Takes all messages there are, for later.
    pub(crate) fn absorb(&mut self) {
        let mut batch = [Message::EMPTY; BATCH];
        loop {
            let got = self.uffd.read(&mut batch).unwrap_or(0);
            for message in batch.iter().take(got) {
                let news = message.news();
                if self.early.push(*message) {
                    self.changed |= matches!(news, News::Unmapped { .. } | News::Remapped { .. });
                    continue;
                }
                // Unheard faults are repeated when woken. More than CAPACITY threads sleep at once, or none of this
                // is reached.
                if let News::Missing { address, .. } | News::Protected { address } = news {
                    let page = Page::containing(address as usize);
                    self.uffd.wake(page.address(), Run { start: page, pages: 1 }.bytes());
                }
            }
            if got < BATCH {
                return;
            }
        }
    }

    /// Waits, after a call failed with EAGAIN, for whoever is changing mappings; call it with 0, 1, 2 and so on.
    /// False when the change is known now, so that the pager is to hear of it first; and when that has taken a second: the
    /// machine is in trouble, and not because of us.
    pub(crate) fn wait_for_change(&mut self, attempt: u32) -> bool {
        self.absorb();
        if self.changed {
            return false;
        }
        if attempt >= 4 {
            let _ = process::poll_readable(&[self.uffd.fd], &mut [], Some(1000));
        } else if attempt > 0 {
            process::yield_now();
        }
        attempt < 1000
    }

    /// For what must be done whatever has changed: as [`Inbox::wait_for_change`], for somebody who goes on trying.
    pub(crate) fn absorb_or_wait(&mut self, attempt: u32) {
        self.absorb();
        if attempt < 4 {
            process::yield_now();
        } else {
            process::sleep_us(100);
        }
    }

    /// Repeats a call that fails as long as a mapping change waits for its message to be read; not when the pager has yet to hear
    /// of one.
    pub(crate) fn patiently(&mut self, call: impl Fn(&Uffd) -> Result<(), Errno>) -> Copied {
        let mut attempt = 0;
        while !self.changed {
            match call(&self.uffd) {
                Err(Errno::AGAIN) if self.wait_for_change(attempt) => attempt += 1,
                Ok(()) => return Copied::Done,
                Err(Errno::EXIST) => return Copied::Exists,
                Err(Errno::NOENT | Errno::INVAL | Errno::FAULT) => return Copied::Gone,
                Err(_) => return Copied::Failed,
            }
        }
        Copied::Failed
    }

    /// Maps zeros at a page of the pager's own and wakes who sleeps on it, whatever has changed: as long as it takes somebody to
    /// unmap all his memory, since whoever were woken without would ask for the same again.
    pub(crate) fn answer(&mut self, page: Page) {
        for attempt in 0..200_000 {
            match self.uffd.zero(page.address(), PAGE_BYTES) {
                Err(Errno::AGAIN) => self.absorb_or_wait(attempt),
                _ => break,
            }
        }
        self.uffd.wake(page.address(), PAGE_BYTES);
    }

    /// Reports messages, the early ones first, as far as there is room for `spare` events besides; what was unmapped or moved
    /// before all else, since whoever did that goes on, and serving a fault takes pages from elsewhere.
    pub(crate) fn deliver(&mut self, events: &mut Events, spare: usize) {
        self.take(events, spare);
        events.put_first(|event| matches!(event, Event::Unmapped { .. } | Event::Remapped { .. }));
    }

    fn take(&mut self, events: &mut Events, spare: usize) {
        while events.room() > spare {
            let Some(message) = self.early.pop() else { break };
            self.report(&message, events);
        }
        self.changed &= !self.early.is_empty();
        while self.ready && events.room() > spare {
            let mut batch = [Message::EMPTY; BATCH];
            let wanted = (events.room() - spare).min(BATCH);
            let Some(room) = batch.get_mut(..wanted) else { return };
            let got = self.uffd.read(room).unwrap_or(0);
            for message in room.iter().take(got) {
                self.report(message, events);
            }
            // Fewer than asked for: that was all, and whatever comes later announces itself.
            self.ready = got == wanted;
        }
    }

    fn report(&self, message: &Message, events: &mut Events) {
        let event = match message.news() {
            News::Missing { address, write, thread } => {
                Event::Fault { page: Page::containing(address as usize), write, thread }
            }
            News::Unmapped { start, end } => {
                Event::Unmapped { run: Run::covering(start as usize, end.saturating_sub(start) as usize) }
            }
            News::Remapped { from, to, bytes } => Event::Remapped {
                from: Page::containing(from as usize),
                to: Page::containing(to as usize),
                pages: Run::covering(0, bytes as usize).pages,
            },
            News::Protected { address } => {
                let page = Page::containing(address as usize);
                match self.writers {
                    Writers::Woken if self.guards => Event::Guarded { page },
                    Writers::Woken => return self.uffd.wake(page.address(), PAGE_BYTES),
                    Writers::Reported => Event::Fault { page, write: true, thread: 0 },
                    Writers::Held => return,
                }
            }
            News::Removed { .. } | News::Other => return,
        };
        events.push(event);
    }
}
