//! A machine of each kind, and memory that plays the program's.
//! The test's own thread is the pager, so it must not touch absent pages of that memory.

use ream_page::{BLOCK_BYTES, BLOCK_PAGES, Frame, PAGE_BYTES, Page, Run};
use ream_sys::digest::Key;
use ream_sys::file::{self, Fd};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::syscall::{call4, call5, number};
use ream_sys::uffd::Access;
use ream_sys::{Errno, Event, Events, LinuxConfig, LinuxMachine, Machine, Moved, Setup, Stop, Wait, process};
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

pub const WHOLE: u32 = BLOCK_PAGES;

fn key() -> &'static Key {
    static KEY: OnceLock<&'static Key> = OnceLock::new();
    KEY.get_or_init(|| Key::draw().unwrap())
}

/// Which machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Engine {
    pub moves: bool,
    pub uring: bool,
    /// As an ordinary user gets it.
    pub user_only: bool,
}

impl Engine {
    pub const MOVE_RING: Engine = Engine { moves: true, uring: true, user_only: false };
    pub const MOVE_THREADS: Engine = Engine { moves: true, uring: false, user_only: false };
    pub const COPY_RING: Engine = Engine { moves: false, uring: true, user_only: false };
    pub const COPY_THREADS: Engine = Engine { moves: false, uring: false, user_only: false };
    pub const ORDINARY: Engine = Engine { moves: true, uring: true, user_only: true };
}

/// A fork shares the pages of all tests that run at that moment, so tests that fork run alone.
static FORKS: RwLock<()> = RwLock::new(());

#[allow(dead_code, reason = "held for their release")]
pub enum Company {
    Others(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A machine, and a range of memory.
pub struct Bed {
    pub machine: LinuxMachine,
    start: *mut u8,
    pages: u32,
    pub store: Fd,
    /// Reported, but not yet waited for.
    pub news: Vec<Event>,
    /// Pages that the test has unmapped.
    gone: Vec<u32>,
    _company: Option<Company>,
}

pub fn store() -> Fd {
    let directory = std::ffi::CString::new(std::env::temp_dir().as_os_str().as_encoded_bytes()).unwrap();
    file::create_store(&directory).unwrap().fd
}

pub fn make(engine: Engine, pages: u32, kind: Advice) -> Option<Bed> {
    let others = Company::Others(FORKS.read().unwrap_or_else(|poisoned| poisoned.into_inner()));
    make_in(Some(others), engine, pages, kind)
}

/// While it is held, no test that has a bed runs.
pub fn alone() -> Company {
    Company::Alone(FORKS.write().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// A bed for a test that forks.
pub fn make_alone(engine: Engine, pages: u32, kind: Advice) -> Option<Bed> {
    make_in(Some(alone()), engine, pages, kind)
}

/// A second bed for a test that has one.
pub fn make_another(engine: Engine, pages: u32, kind: Advice) -> Option<Bed> {
    make_in(None, engine, pages, kind)
}

/// A machine with 4 blocks of small frames and 4 of huge ones.
pub fn config(engine: Engine, store: Fd) -> LinuxConfig {
    LinuxConfig {
        small_frames: 4 * WHOLE,
        huge_blocks: 4,
        store,
        key: key(),
        io_limit: 16,
        user_only: engine.user_only,
        loans: None,
        moving: None,
        ask: ream_sys::user::nobody,
        large: |_| true,
        move_pages: engine.moves,
        uring: engine.uring,
    }
}

/// So many pages of memory, every one filled with its own pattern, registered.
fn make_in(company: Option<Company>, engine: Engine, pages: u32, kind: Advice) -> Option<Bed> {
    let store = store();
    let config = config(engine, store);
    let machine = match LinuxMachine::new(&config) {
        Ok(machine) if engine.user_only || machine.access() != Access::UserOnly => machine,
        Ok(_) => {
            eprintln!("SKIPPED: no full userfaultfd here; run as root");
            return None;
        }
        // Not allowed, or an old kernel. Anything else is a failure.
        Err(Setup { what, errno: errno @ (Errno::PERM | Errno::NOSYS | Errno::INVAL) }) => {
            eprintln!("SKIPPED: cannot {what}: errno {}", errno.0);
            return None;
        }
        Err(setup) => panic!("{setup:?}"),
    };
    let bytes = pages as usize * PAGE_BYTES;
    // A page without access behind it keeps the range from merging with a neighbour's.
    let start = memory::map(bytes + PAGE_BYTES, BLOCK_BYTES, Protection::ReadWrite).unwrap().as_ptr();
    // SAFETY: inside the mapping just made.
    unsafe {
        memory::protect(start.add(bytes), PAGE_BYTES, Protection::None).unwrap();
        memory::advise(start.addr(), bytes, kind).unwrap();
    }
    let mut bed = Bed { machine, start, pages, store, news: Vec::new(), gone: Vec::new(), _company: company };
    for index in 0..pages {
        bed.fill(index, index as u64);
    }
    let run = bed.run(0, pages);
    bed.machine.register(run).unwrap();
    Some(bed)
}

macro_rules! bed {
    ($engine:expr, $pages:expr, $kind:expr) => {
        bed!(make, $engine, $pages, $kind)
    };
    ($make:ident, $engine:expr, $pages:expr, $kind:expr) => {
        match crate::bed::$make($engine, $pages, $kind) {
            Some(bed) => bed,
            None => return,
        }
    };
}
pub(crate) use bed;

pub fn pattern(seed: u64, word: usize) -> u64 {
    (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32 % 64) ^ word as u64
}

impl Bed {
    pub fn at(&self, index: u32) -> *mut u64 {
        self.start.wrapping_add(index as usize * PAGE_BYTES).cast()
    }
    pub fn page(&self, index: u32) -> Page {
        Page::containing(self.at(index).expose_provenance())
    }
    pub fn run(&self, index: u32, pages: u32) -> Run {
        Run { start: self.page(index), pages: pages as u64 }
    }
    pub fn fill(&mut self, index: u32, seed: u64) {
        for word in 0..512 {
            poke(self.address(index), word, pattern(seed, word));
        }
    }
    #[track_caller]
    pub fn check(&self, index: u32, seed: u64) {
        for word in 0..512 {
            let found = peek(self.address(index), word);
            assert_eq!(found, pattern(seed, word), "page {index} word {word}");
        }
    }
    pub fn mapped(&mut self, index: u32, pages: u32) -> (u64, u64) {
        let (mut all, mut huge) = (0, 0);
        let run = self.run(index, pages);
        self.machine.present(run, &mut |part, large| {
            all += part.pages;
            huge += if large.huge { part.pages } else { 0 };
            true
        });
        (all, huge)
    }
    #[track_caller]
    pub fn out(&mut self, index: u32, frame: u32, pages: u32) {
        let moved = self.machine.move_out(self.page(index), Frame(frame), pages);
        assert_eq!(moved, Moved { pages, stop: None });
    }
    /// The kernel may tell of the end of a read before it lets go of the pages, which then cannot be moved yet: it leaves that to
    /// a worker, which on a busy machine waits for a processor.
    #[track_caller]
    pub fn back(&mut self, frame: u32, index: u32, pages: u32) {
        let (began, mut done) = (std::time::Instant::now(), 0);
        loop {
            let moved = self.machine.move_in(Frame(frame + done), self.page(index + done), pages - done);
            done += moved.pages;
            if moved.stop != Some(Stop::Busy) || began.elapsed().as_secs() > 60 {
                assert_eq!((done, moved.stop), (pages, None));
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    /// Polls until `wanted` finds its event.
    pub fn await_event<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let mut events = Events::new();
        loop {
            let found = self.news.iter().enumerate().find_map(|(at, event)| Some((at, wanted(event)?)));
            if let Some((at, found)) = found {
                self.news.remove(at);
                return found;
            }
            events.clear();
            self.machine.poll(Wait::Forever, &mut events);
            self.news.extend_from_slice(events.as_slice());
        }
    }
    pub fn await_io(&mut self, tag: u32) -> i32 {
        self.await_event(|event| match event {
            Event::Io { tag: found, result } if *found == tag => Some(*result),
            _ => None,
        })
    }
    pub fn await_fault(&mut self) -> (Page, bool, u32) {
        self.await_event(|event| match event {
            Event::Fault { page, write, thread } => Some((*page, *write, *thread)),
            _ => None,
        })
    }
    /// A thread that unmaps a page by mapping something else there, so that no other test's mapping can come into the hole. Its
    /// message is queued on return, and it waits until somebody reads that.
    pub fn replaces(&self, index: u32) -> JoinHandle<()> {
        let address = self.address(index);
        let unmapper = thread::spawn(move || {
            let place = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: a page of the bed, whose content nobody needs any more.
            unsafe { memory::map_over(place, PAGE_BYTES, Protection::ReadWrite) }.unwrap();
        });
        // What lies there then is empty, and no longer registered.
        while peek(address, 0) != 0 {
            process::sleep_us(100);
        }
        process::sleep_us(2000);
        unmapper
    }
    pub fn address(&self, index: u32) -> usize {
        self.at(index).expose_provenance()
    }
    /// These pages are unmapped by the test, or about to be: they are not the bed's any more.
    pub fn gives_up(&mut self, index: u32, pages: u32) {
        self.gone.extend(index..index + pages);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Where the test has unmapped something, something of another test's may lie by now.
        for index in (0..self.pages + 1).filter(|index| !self.gone.contains(index)) {
            let _ = self.machine.unregister(self.run(index, 1));
            // SAFETY: made by `make`, and the tests' threads have ended.
            let _ = unsafe { memory::unmap(self.at(index).cast(), PAGE_BYTES) };
        }
        file::close(self.store);
    }
}

fn word_at(address: usize, word: usize) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut(address + word * 8)
}

/// Reads a word of a page, as a program would.
pub fn peek(address: usize, word: usize) -> u64 {
    // SAFETY: callers give addresses inside a bed's memory, which outlives them.
    unsafe { word_at(address, word).read_volatile() }
}

/// Writes a word of a page, as a program would.
pub fn poke(address: usize, word: usize, value: u64) {
    // SAFETY: as above; the memory is nobody's but the tests'.
    unsafe { word_at(address, word).write_volatile(value) }
}

/// Unmaps pages of a bed.
pub fn unmap(address: usize, pages: usize) {
    // SAFETY: the memory is nobody's but the tests', which do not touch these pages any more.
    unsafe { memory::unmap(word_at(address, 0).cast(), pages * PAGE_BYTES) }.unwrap();
}

/// Starts a child as fork does, by clone(SIGCHLD), that runs `work`, which may use nothing but system calls.
pub fn fork(work: impl FnOnce()) -> u32 {
    // SAFETY: the child uses system calls only, and never returns.
    let child = unsafe { call5(number::__NR_clone, 17, 0, 0, 0, 0) }.unwrap();
    if child == 0 {
        work();
        process::end_process(0);
    }
    child as u32
}

/// Waits for the end of a child; its status as wait gives it.
pub fn reap(child: u32) -> u32 {
    let mut status = 0u32;
    // SAFETY: the kernel writes the status.
    unsafe { call4(number::__NR_wait4, child as usize, (&raw mut status).expose_provenance(), 0, 0) }.unwrap();
    status
}
