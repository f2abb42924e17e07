//! Threads of the fake's program: touches that hit or sleep, waking, signals, and what the running ones do
//! between any two calls of the pager.

use super::memory::Content;
use super::{FakeMachine, Use};
use ream_page::{BLOCK_PAGES, Page, Run};

/// How a touch of the program's memory ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The page was mapped, or the kernel mapped it; this is what it holds, for a write after the write.
    Hit(Content),
    /// The thread sleeps until the pager has served the page.
    Sleeps,
    /// Nothing is mapped there, or it may not be written: SIGSEGV.
    Fatal,
}

/// What a thread wants of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    Write(Content),
    /// Makes the page writable and ours alone, as the helper's MADV_POPULATE_WRITE does.
    Populate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// Running; whatever it wanted last is done.
    Runs,
    /// In the fault of a page.
    Sleeps {
        page: Page,
        access: Access,
        /// Calls of the pager when it went to sleep first.
        since: u64,
        /// The page is there, and guarded.
        guarded: bool,
    },
    /// Woken, not on a processor yet.
    Woken { page: Page, access: Access, since: u64 },
}

/// A thread of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub doing: Doing,
    /// How its last touch ended.
    pub last: Touch,
}

impl Thread {
    pub fn asleep_on(&self) -> Option<Page> {
        match self.doing {
            Doing::Sleeps { page, .. } | Doing::Woken { page, .. } => Some(page),
            Doing::Runs => None,
        }
    }
}

/// The helper's thread id; the crowd's are above it.
pub(super) const HELPER: u32 = 900_000;
const CROWD: u32 = 1_000_000;

impl FakeMachine {
    /// A thread reads a page.
    pub fn touch_read(&mut self, thread: u32, page: Page) -> Touch {
        self.touch(thread, page, Access::Read)
    }

    /// A thread writes a page.
    pub fn touch_write(&mut self, thread: u32, page: Page, content: Content) -> Touch {
        self.touch(thread, page, Access::Write(content))
    }

    /// The page in whose fault a thread is, or `None` when it runs.
    pub fn sleeps_on(&self, thread: u32) -> Option<Page> {
        self.threads.get(&thread).and_then(Thread::asleep_on)
    }

    /// Whether any thread is in a fault.
    pub fn anyone_sleeps(&self) -> bool {
        self.threads.values().any(|t| t.asleep_on().is_some())
    }

    /// Whether any thread is in a fault of one of these pages.
    pub fn anyone_sleeps_in(&self, run: Run) -> bool {
        self.threads.values().filter_map(Thread::asleep_on).any(|page| run.contains(page))
    }

    /// How the thread's last touch ended; [`Touch::Sleeps`] while it goes on.
    pub fn outcome(&self, thread: u32) -> Touch {
        match self.threads.get(&thread) {
            Some(Thread { doing: Doing::Runs, last }) => *last,
            _ => Touch::Sleeps,
        }
    }

    /// A signal with a handler reaches a sleeping thread: it tries again by itself.
    pub fn signal(&mut self, thread: u32) {
        self.note("(signal)", thread as u64, 0, 0);
        if let Some(Doing::Sleeps { page, access, since, .. }) = self.threads.get(&thread).map(|t| t.doing) {
            self.unread.retain(|id| *id != thread);
            self.set(thread, Doing::Woken { page, access, since });
            self.run_woken(thread);
        }
    }

    /// A thread is gone, asleep or not.
    pub fn kill(&mut self, thread: u32) {
        self.unread.retain(|id| *id != thread);
        self.threads.remove(&thread);
    }

    pub(super) fn touch(&mut self, thread: u32, page: Page, access: Access) -> Touch {
        if self.sleeps_on(thread).is_some() {
            self.fail("a sleeping thread cannot touch anything: error in the test");
        }
        let since = self.counts.calls;
        self.threads.insert(thread, Thread { doing: Doing::Runs, last: Touch::Sleeps });
        self.attempt(thread, page, access, since)
    }

    fn set(&mut self, thread: u32, doing: Doing) {
        if let Some(t) = self.threads.get_mut(&thread) {
            t.doing = doing;
        }
    }

    fn attempt(&mut self, thread: u32, page: Page, access: Access, since: u64) -> Touch {
        let cell = self.memory.cell(page);
        let mapping = self.memory.mapping(cell.mapping);
        let result = if cell.mapping == 0 || access != Access::Read && !mapping.writable {
            Touch::Fatal
        } else if cell.content.is_some() && cell.guarded && access != Access::Read {
            self.set(thread, Doing::Sleeps { page, access, since, guarded: true });
            self.unread.push_back(thread);
            self.note("(sleeps, guarded)", page.0, thread as u64, 0);
            return Touch::Sleeps;
        } else if cell.content.is_some() {
            Touch::Hit(self.access(page, access))
        } else if cell.registered {
            self.set(thread, Doing::Sleeps { page, access, since, guarded: false });
            self.unread.push_back(thread);
            self.note("(sleeps)", page.0, thread as u64, 0);
            return Touch::Sleeps;
        } else {
            self.kernel_fills(thread, page, access != Access::Read);
            Touch::Hit(self.access(page, access))
        };
        self.threads.insert(thread, Thread { doing: Doing::Runs, last: result });
        result
    }

    /// A page outside every registered range appears as zeros.
    fn kernel_fills(&mut self, thread: u32, page: Page, write: bool) {
        self.check(page, Content::ZERO, "the kernel, on a page that is not registered");
        let block = page.block();
        let cell = self.memory.cell(page);
        let alike = |m: &mut super::Memory| {
            let cells = m.block(block);
            !cells.table && cells.cells.iter().all(|c| c.mapping == cell.mapping && !c.registered)
        };
        let huge = write && self.memory.mapping(cell.mapping).huge;
        if huge && self.memory.block_absent(block) && alike(&mut self.memory) {
            self.memory.install_huge(block, &[Content::ZERO; BLOCK_PAGES as usize]);
        } else {
            self.memory.install(page, Content::ZERO, !write);
        }
        let nodes = self.nodes as u32;
        self.memory.cell_mut(page).node = (thread % nodes) as u8;
        self.account();
    }

    /// An access to a mapped page.
    fn access(&mut self, page: Page, access: Access) -> Content {
        let cell = self.memory.cell_mut(page);
        if access != Access::Read {
            cell.shared = false;
            let was_zero_page = std::mem::take(&mut cell.zero_page);
            let registered = cell.registered;
            self.memory.charge(page.block(), registered, was_zero_page as i64);
        }
        let cell = self.memory.cell_mut(page);
        let content = cell.content.unwrap_or_default();
        match access {
            Access::Write(content) => {
                cell.content = Some(content);
                cell.expect.note_write(content);
                self.account();
                return content;
            }
            Access::Populate => self.account(),
            Access::Read => {}
        }
        self.check(page, content, "a read");
        self.memory.cell_mut(page).expect.note_read(content);
        content
    }

    /// Wakes the sleepers of a run; they run some time later.
    pub(super) fn wake_sleepers(&mut self, run: Run) {
        let mut woken = std::vec::Vec::new();
        for (id, thread) in &mut self.threads {
            if let Doing::Sleeps { page, access, since, .. } = thread.doing {
                if run.contains(page) {
                    thread.doing = Doing::Woken { page, access, since };
                    woken.push(*id);
                }
            }
        }
        self.unread.retain(|id| !woken.contains(id));
    }

    fn run_woken(&mut self, thread: u32) {
        if let Some(Doing::Woken { page, access, since }) = self.threads.get(&thread).map(|t| t.doing) {
            self.set(thread, Doing::Runs);
            self.attempt(thread, page, access, since);
        }
    }

    /// Every woken thread gets a processor.
    pub(super) fn run_all_woken(&mut self) {
        let ids: std::vec::Vec<u32> = self.threads.keys().copied().collect();
        for id in ids {
            self.run_woken(id);
        }
    }

    /// Whether a thread has been woken that has not come to what it was woken for.
    pub(super) fn anyone_is_awake(&self) -> bool {
        self.threads.values().any(|thread| matches!(thread.doing, Doing::Woken { .. }))
    }

    /// What goes on between two calls of the pager: any of the program's threads may run.
    pub(super) fn between(&mut self) {
        if !self.map_next.is_empty() {
            self.map_what_was_unmapped();
        }
        let ids: std::vec::Vec<u32> = self.threads.keys().copied().collect();
        for id in ids {
            if self.random.one_in(2) {
                self.run_woken(id);
            }
        }
        if self.random.one_in(self.script.write) {
            if let Some(page) = self.any_page().filter(|p| self.can_write(*p)) {
                let content = self.any_content(page);
                self.access(page, Access::Write(content));
            }
        }
        if self.random.one_in(self.script.read) {
            if let Some(page) = self.any_page().filter(|p| self.mapped(*p).is_some()) {
                self.access(page, Access::Read);
            }
        }
        if self.random.one_in(self.script.crowd) {
            self.crowd_touches();
        }
        if self.random.one_in(self.script.signal) {
            let sleepers = self.threads.iter().filter(|t| matches!(t.1.doing, Doing::Sleeps { .. }));
            let sleepers: std::vec::Vec<u32> = sleepers.map(|t| *t.0).collect();
            if let Some(id) = sleepers.get(self.random.below(sleepers.len() as u64) as usize) {
                self.signal(*id);
            }
        }
        if self.random.one_in(self.script.discard) {
            if let Some(page) = self.any_page().filter(|p| self.mapped(*p).is_some()) {
                self.discard(Run { start: page, pages: 1 });
            }
        }
        self.device_works();
        self.helper_works();
        self.nobody_is_forgotten();
    }

    fn any_page(&mut self) -> Option<Page> {
        let index = self.random.below(self.memory.areas.len() as u64) as usize;
        let area = *self.memory.areas.get(index)?;
        Some(Page(area.start.0 + self.random.below(area.pages)))
    }

    fn can_write(&self, page: Page) -> bool {
        let cell = self.memory.cell(page);
        cell.content.is_some() && !cell.guarded && self.memory.mapping(cell.mapping).writable
    }

    /// Mostly something new; now and then zeros, or what is there already.
    pub(super) fn any_content(&mut self, page: Page) -> Content {
        match self.random.below(8) {
            0 => Content::ZERO,
            1 => self.memory.cell(page).expect.value,
            _ => self.fresh_content(),
        }
    }

    fn crowd_touches(&mut self) {
        let id = CROWD + self.random.below(self.script.crowd_threads as u64) as u32;
        if self.script.crowd_threads == 0 || self.sleeps_on(id).is_some() {
            return;
        }
        let Some(page) = self.any_page() else { return };
        let writable = self.memory.mapping(self.memory.cell(page).mapping).writable;
        let access = match writable && self.random.one_in(2) {
            true => Access::Write(self.any_content(page)),
            false => Access::Read,
        };
        self.touch(id, page, access);
    }

    fn nobody_is_forgotten(&self) {
        for (id, thread) in &self.threads {
            if let Doing::Sleeps { page, since, .. } | Doing::Woken { page, since, .. } = thread.doing {
                if self.counts.calls > since + self.script.patience_calls {
                    self.fail(&std::format!("thread {id} sleeps on page {:#x} and is never served", page.0));
                }
            }
        }
    }

    /// Whether a frame is under I/O, and of which kind.
    pub(super) fn frame_use(&self, at: u32) -> Use {
        self.staging.places[at as usize].used_by
    }
}
