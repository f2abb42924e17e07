//! The helper thread: it does the one thing the pager must not do itself, touching managed memory, because that may
//! sleep on a fault that the pager has to answer. Started on first use; one errand at a time.

use crate::Errno;
use crate::file::{self, Fd};
use crate::follow;
use crate::futex::{self, Scope};
use crate::memory::{self, Advice, Atomics, Shared};
use crate::thread::{self, Files, Thread};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use ream_page::{Block, PAGE_BYTES, Page, Pages};

const IDLE: u32 = 0;
const ERRAND: u32 = 1;
const DONE: u32 = 2;
const QUIT: u32 = 3;

/// What pager and helper share.
struct Desk {
    state: AtomicU32,
    result: AtomicI32,
    block: AtomicU64,
    pages: [AtomicU64; Pages::WORDS],
    bell: AtomicI32,
}

// SAFETY: atomics only, valid as zeros, and few.
unsafe impl Atomics for Desk {}

pub(crate) struct Helper {
    desk: Shared<Desk>,
    thread: Option<Thread>,
    tag: u32,
    /// Readable when an errand is done.
    pub(crate) bell: Fd,
}

const STACK_BYTES: usize = 64 << 10;

impl Helper {
    pub(crate) fn new() -> Result<Helper, Errno> {
        let desk = Shared::<Desk>::new()?;
        let bell = file::event_counter()?;
        desk.bell.store(bell.0, Ordering::Relaxed);
        Ok(Helper { desk, thread: None, tag: 0, bell })
    }

    /// Has pages made writable and ours alone. False when the helper is busy or cannot be started.
    pub(crate) fn unshare(&mut self, tag: u32, pages: &Pages) -> bool {
        let shared = &*self.desk;
        if shared.state.load(Ordering::Acquire) != IDLE {
            return false;
        }
        shared.block.store(pages.block.0, Ordering::Relaxed);
        for (place, word) in shared.pages.iter().zip(pages.bits) {
            place.store(word, Ordering::Relaxed);
        }
        self.tag = tag;
        if self.thread.is_none() {
            let argument = core::ptr::from_ref(shared).cast_mut().cast();
            // SAFETY: `work` uses no thread-local data and little stack; the desk is unmapped after the thread has
            // been joined. It shares our descriptors, for the bell.
            match unsafe { thread::spawn(work, argument, STACK_BYTES, Files::Shared) } {
                Ok(thread) => self.thread = Some(thread),
                Err(_) => return false,
            }
        }
        shared.state.store(ERRAND, Ordering::Release);
        futex::wake(&shared.state, 1, Scope::Private);
        true
    }

    /// Ends the thread, unless it is on an errand; another is started when it is needed. Whether there is none now.
    pub(crate) fn rest(&mut self) -> bool {
        let shared = &*self.desk;
        if self.thread.is_none() {
            return true;
        }
        if shared.state.compare_exchange(IDLE, QUIT, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        futex::wake(&shared.state, 1, Scope::Private);
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        shared.state.store(IDLE, Ordering::Release);
        true
    }

    /// Tag and result (0 or a negative errno) of an errand that has been done.
    pub(crate) fn take(&mut self) -> Option<(u32, i32)> {
        let mut count = [0u8; 8];
        let _ = file::read(self.bell, &mut count);
        let shared = &*self.desk;
        if shared.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        let result = shared.result.load(Ordering::Relaxed);
        shared.state.store(IDLE, Ordering::Release);
        Some((self.tag, result))
    }
}

fn work(argument: *mut ()) -> ! {
    // SAFETY: the desk outlives this thread (`Helper::drop` joins it first).
    let shared = unsafe { &*argument.cast::<Desk>() };
    follow::run_anywhere();
    loop {
        match shared.state.load(Ordering::Acquire) {
            ERRAND => {}
            QUIT => thread::exit(),
            other => {
                futex::wait(&shared.state, other, None, Scope::Private);
                continue;
            }
        }
        let mut pages = Pages::none(Block(shared.block.load(Ordering::Relaxed)));
        for (word, place) in pages.bits.iter_mut().zip(&shared.pages) {
            *word = place.load(Ordering::Relaxed);
        }
        shared.result.store(populate(&pages), Ordering::Relaxed);
        // QUIT may have been said meanwhile, and must not be overwritten.
        let _ = shared.state.compare_exchange(ERRAND, DONE, Ordering::AcqRel, Ordering::Acquire);
        let _ = file::write(Fd(shared.bell.load(Ordering::Relaxed)), &1u64.to_ne_bytes());
    }
}

/// Writes to pages without changing them. 0, or the error of one that cannot be written, as a negative number.
fn populate(pages: &Pages) -> i32 {
    let mut result = 0;
    for run in pages.runs() {
        // SAFETY: populating changes no content.
        let write = |page: Page, bytes| unsafe { memory::advise(page.address(), bytes, Advice::PopulateWrite) };
        if write(run.start, run.bytes()).is_err() {
            // Those behind one that fails are done, too.
            for index in 0..run.pages as u32 {
                if let Err(error) = write(run.start.plus(index), PAGE_BYTES) {
                    result = error.negative();
                }
            }
        }
        // Whether a page may be moved the kernel asks the first one of its large page (Linux 6.8 to 6.18 at least), which stays as
        // the fork left it when it is not mapped here any more.
        // SAFETY: a hint.
        let _ = unsafe { memory::advise(run.start.address(), run.bytes(), Advice::Cold) };
    }
    result
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let shared = &*self.desk;
            shared.state.store(QUIT, Ordering::Release);
            futex::wake(&shared.state, 1, Scope::Private);
            thread.join();
        }
        file::close(self.bell);
    }
}
