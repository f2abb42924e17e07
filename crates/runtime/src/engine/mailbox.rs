//! How a thread of the program tells the pager something and waits for it, without a descriptor: it leaves a command
//! and touches an absent page of the doorbell. The pager sees the fault, carries the command out, and resolves it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst, fence};
use ream_page::{PAGE_BYTES, Page, Run};
use ream_pager::{Usage, Whereabouts};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{self, Advice, Protection};

/// What the pager is asked to do.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "inside", allow(dead_code, reason = "no ranks there"))]
pub enum Command {
    /// Nothing.
    Nothing,
    /// Take a range over.
    Manage(Run),
    /// Forget a range that is about to be unmapped.
    Release(Run),
    /// Forget the content of a range.
    Discard(Run),
    /// Keep a range where it is, or let it go.
    Hold(Run, bool),
    /// Move the resident pages of a range out, and write what the store does not have.
    Cool(Run),
    /// Begin to bring back what a range has in a store.
    Fetch(Run),
    /// Note how the program is going to use a range.
    Use(Run, Usage),
    /// The pages of a range go to this volume of the store.
    Send(Run, u8),
    /// Answer where the pages of a range are.
    Look(Run),
    /// Make room for a fork: at most so many pages stay, nothing stays staged; no eviction from then on.
    Quiet(u64),
    /// Empty the staging area once more, freeze the slots, answer, and sleep until released.
    Park,
    /// Bring the counters up to date.
    Report,
    /// The rank's turn has ended.
    Aside,
    /// The rank's turn has begun.
    Turn,
    /// Forget what a range has in a store, and perhaps in RAM.
    DropStored(Run, bool),
    /// End, if you are the watcher.
    Leave,
    /// Have the program's rights, which have changed, and no others.
    Follow,
}

/// Pages of the doorbell; one is used per command, and made absent again half a round later.
const PAGES: u32 = 64;

/// The mailbox: one command at a time.
pub struct Mailbox {
    lock: Mutex<()>,
    command: UnsafeCell<Command>,
    /// To [`Command::Look`]: resident, staged, stored.
    answer: [AtomicU64; 3],
    doorbell: AtomicUsize,
    rings: AtomicU32,
}

// SAFETY: `command` is written only by the holder of `lock`, and read by the pager only while that holder sleeps in the
// fault on the doorbell, which the pager resolves after it has finished with the command.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    pub const fn new() -> Mailbox {
        Mailbox {
            lock: Mutex::new(()),
            command: UnsafeCell::new(Command::Nothing),
            answer: [const { AtomicU64::new(0) }; 3],
            doorbell: AtomicUsize::new(0),
            rings: AtomicU32::new(0),
        }
    }

    /// Maps the doorbell; returns its pages, to be registered. A forked child calls it anew.
    pub fn hang_up(&self) -> Result<Run, Errno> {
        let bytes = PAGES as usize * PAGE_BYTES;
        let place = memory::map(bytes, PAGE_BYTES, Protection::ReadWrite)?.as_ptr();
        // SAFETY: fresh memory of our own. Small pages: each must be absent by itself. A child makes its own.
        unsafe {
            let _ = memory::advise(place.expose_provenance(), bytes, Advice::NoHugePage);
            let _ = memory::advise(place.expose_provenance(), bytes, Advice::DontFork);
        }
        self.rings.store(0, SeqCst);
        self.doorbell.store(place.addr(), SeqCst);
        Ok(Run::covering(place.addr(), bytes))
    }

    /// Nobody answers any more, and nobody asks: there is none.
    #[cfg(not(feature = "inside"))]
    pub fn take_down(&self) {
        let place = self.doorbell.swap(0, SeqCst);
        if place != 0 {
            // SAFETY: the mapping that `hang_up` made, which nobody uses.
            let _ =
                unsafe { memory::unmap(core::ptr::with_exposed_provenance_mut(place), PAGES as usize * PAGE_BYTES) };
        }
    }

    /// Keeps other threads' commands out, across a fork.
    pub fn lock(&self) -> Guard<'_, ()> {
        self.lock.lock()
    }

    /// Gives a command and sleeps until it is done. Signals must be blocked.
    pub fn call(&self, command: Command) {
        let guard = self.lock.lock();
        self.call_locked(command, &guard);
    }

    /// Asks where the pages of a range are, and sleeps until that is known. Signals must be blocked.
    pub fn look(&self, run: Run) -> Whereabouts {
        let guard = self.lock.lock();
        self.call_locked(Command::Look(run), &guard);
        let [resident, staged, stored] = &self.answer;
        Whereabouts { resident: resident.load(SeqCst), staged: staged.load(SeqCst), stored: stored.load(SeqCst) }
    }

    /// In the pager: the answer to [`Command::Look`].
    pub fn answer(&self, found: Whereabouts) {
        for (place, pages) in self.answer.iter().zip([found.resident, found.staged, found.stored]) {
            place.store(pages, SeqCst);
        }
    }

    /// The same with the lock held.
    pub fn call_locked(&self, command: Command, _lock: &Guard<'_, ()>) {
        // SAFETY: the lock is held, so no other thread writes, and the pager is not reading: nobody rings.
        unsafe { self.command.get().write(command) };
        let ring = self.rings.fetch_add(1, SeqCst) % PAGES;
        let page = self.doorbell.load(SeqCst) + ring as usize * PAGE_BYTES;
        fence(SeqCst);
        // SAFETY: a page of the doorbell, mapped readable; the read sleeps until the pager has answered.
        unsafe { core::ptr::with_exposed_provenance::<u8>(page).read_volatile() };
        fence(SeqCst);
    }

    /// In the pager: the command, when `page` is the doorbell's.
    pub fn rung(&self, page: Page) -> Option<Command> {
        let first = Page::containing(self.doorbell.load(SeqCst));
        if page.0 < first.0 || page.0 >= first.0 + PAGES as u64 {
            return None;
        }
        // SAFETY: its writer sleeps in the fault that is being looked at.
        Some(unsafe { *self.command.get() })
    }

    /// In the pager, after resolving ring `page`: the page used half a round ago, whose user has long gone on, is made
    /// absent again.
    pub fn rearm(&self, page: Page) {
        let first = Page::containing(self.doorbell.load(SeqCst));
        let index = (page.0 - first.0) as u32;
        let old = Page(first.0 + ((index + PAGES / 2) % PAGES) as u64);
        // SAFETY: a page of the doorbell, which holds nothing.
        let _ = unsafe { memory::advise(old.address(), PAGE_BYTES, Advice::DontNeed) };
    }
}
