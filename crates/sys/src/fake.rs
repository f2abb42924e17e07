//! A scripted kernel for tests: program memory, staging area, stores, threads and time, all in memory, decided by one
//! seed. It does everything the seam allows, at the worst moments, and panics where the pager breaks the seam's rules.
//!
//! What it checks by itself, at every call:
//! - what is mapped for the program, or read by it, is what the program wrote last (an oracle kept apart);
//! - frames: nothing moves from an empty place or into a populated one, nothing touches a frame under I/O;
//! - tags: none is used twice, no more operations are in flight than allowed;
//! - memory: program pages and populated frames together stay below a ceiling, if one is set;
//! - progress: no sleep without end while a thread sleeps, no thread served never.

use crate::machine::Event;
use ream_page::{Block, Frame, Page, Run};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

mod disk;
mod fork;
mod io;
mod kernel;
mod memory;
mod program;
mod random;
mod script;
mod threads;

use disk::{Disk, Op};
pub use memory::Content;
use memory::{Memory, Staging, Use};
use program::pages as pages_of;
pub use random::Random;
pub use script::{Counts, Script};
use threads::Thread;
pub use threads::Touch;

/// Size of a fake machine.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Places of the small staging area, rounded up to 512.
    pub small_frames: u32,
    /// Groups of 512 places of the huge staging area.
    pub huge_groups: u32,
    /// Most reads and writes in flight.
    pub io_limit: u32,
    /// Slots that the store has space for.
    pub store_slots: u32,
    /// NUMA nodes; a thread runs on the one that its number leaves as a remainder.
    pub nodes: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { seed: 1, small_frames: 512, huge_groups: 0, io_limit: 32, store_slots: 1 << 20, nodes: 1 }
    }
}

/// The fake kernel under one process.
pub struct FakeMachine {
    /// What happens by chance; may be changed between calls.
    pub script: Script,
    memory: Memory,
    staging: Staging,
    stores: Vec<Rc<RefCell<Disk>>>,
    ops: Vec<Op>,
    io_limit: u32,
    /// Threads of the program are to stand still.
    pub(crate) standing: bool,
    /// The helper that makes pages ours alone works.
    helper_busy: bool,
    nodes: u8,
    /// The node on which what the pager populates lies.
    node: u8,
    threads: BTreeMap<u32, Thread>,
    /// Sleepers whose message has not been read, oldest first.
    unread: VecDeque<u32>,
    /// Unmapped and Remapped messages not read yet; until then the kernel refuses to change mappings.
    changes: VecDeque<(Event, bool)>,
    /// Ranges that the program maps anew as soon as it runs again.
    map_next: Vec<Run>,
    /// A message read before, to be delivered once more.
    stale: Option<Event>,
    random: Random,
    clock_us: u64,
    counts: Counts,
    peak: u64,
    ceiling: Option<u64>,
    next_content: u64,
    next_junk: u64,
    /// The latest calls, for the dump.
    trace: VecDeque<(u64, &'static str, u64, u64, u64)>,
}

impl FakeMachine {
    const TRACE: usize = 120;

    /// A machine with empty memory, staging area and store, on which nothing happens by chance except the order and
    /// duration of I/O.
    pub fn new(shape: Shape) -> FakeMachine {
        FakeMachine {
            script: Script::calm(),
            memory: Memory::new(),
            staging: Staging::new(shape.small_frames, shape.huge_groups),
            stores: std::vec![Rc::new(RefCell::new(Disk::new(shape.store_slots)))],
            ops: Vec::new(),
            io_limit: shape.io_limit,
            standing: false,
            helper_busy: false,
            nodes: shape.nodes,
            node: 0,
            threads: BTreeMap::new(),
            unread: VecDeque::new(),
            changes: VecDeque::new(),
            map_next: Vec::new(),
            stale: None,
            random: Random::new(shape.seed),
            clock_us: 0,
            counts: Counts::default(),
            peak: 0,
            ceiling: None,
            next_content: 1 << 32,
            next_junk: 1,
            trace: VecDeque::new(),
        }
    }

    /// Panics from the first moment on at which [`FakeMachine::memory_pages`] are more than so many.
    pub fn set_ceiling(&mut self, pages: Option<u64>) {
        self.ceiling = pages;
        self.account();
    }

    /// Pages of memory in use: mapped in registered ranges (zero-page mappings cost nothing) and populated frames.
    pub fn memory_pages(&self) -> u64 {
        self.memory.backed + self.staging.backed
    }

    /// Pages of memory that the program uses outside the registered ranges.
    pub fn unregistered_pages(&self) -> u64 {
        self.memory.outside
    }

    /// Blocks in which the program has memory mapped in registered ranges.
    pub fn blocks_with_memory(&self) -> u64 {
        self.memory.blocks_backed
    }

    /// The most that [`FakeMachine::memory_pages`] has been.
    pub fn peak_pages(&self) -> u64 {
        self.peak
    }

    /// Forgets the peak so far.
    pub fn reset_peak(&mut self) {
        self.peak = self.memory_pages();
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        Counts { splits: self.memory.splits + self.staging.splits, ..self.counts }
    }

    /// The fake clock, without letting anything happen.
    pub fn clock_us(&self) -> u64 {
        self.clock_us
    }

    /// What the program has mapped at `page`; `None` when it is absent.
    pub fn mapped(&self, page: Page) -> Option<Content> {
        self.memory.cell(page).content
    }

    /// The node on which the memory mapped at `page` lies.
    pub fn node_of_page(&self, page: Page) -> u8 {
        self.memory.cell(page).node
    }

    /// What the program must find at `page`.
    pub fn expected(&self, page: Page) -> Content {
        self.memory.cell(page).expect.value
    }

    /// Whether the program maps the block by one large page.
    pub fn is_huge(&self, block: Block) -> bool {
        self.memory.is_huge(block)
    }

    /// What a frame holds; `None` when it is empty.
    pub fn frame(&self, frame: Frame) -> Option<Content> {
        self.staging.places.get(frame.0 as usize).and_then(|p| p.content)
    }

    /// Whether a read or write on the frame is in flight.
    pub fn frame_in_use(&self, frame: Frame) -> bool {
        self.staging.places.get(frame.0 as usize).is_some_and(|p| p.used_by != Use::Nothing)
    }

    /// Number of populated frames, zero-page mappings included.
    pub fn populated_frames(&self) -> u32 {
        self.staging.places.iter().filter(|p| p.content.is_some()).count() as u32
    }

    /// Number of mapped pages of a run.
    pub fn mapped_pages(&self, run: Run) -> u64 {
        (0..run.pages).filter(|n| self.mapped(Page(run.start.0 + n)).is_some()).count() as u64
    }

    /// Operations in flight, the helper's included.
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// A content that occurs nowhere else yet.
    pub fn fresh_content(&mut self) -> Content {
        self.next_content += 1;
        Content(self.next_content)
    }

    fn junk(&mut self) -> Content {
        self.next_junk += 1;
        Content::junk(self.next_junk)
    }

    /// Empty places of the staging area are populated from the preferred node.
    fn populate(&mut self, first: u32, pages: u32) {
        let node = self.node;
        for place in &mut self.staging.places[first as usize..(first + pages) as usize] {
            if place.content.is_none() {
                place.node = node;
            }
        }
    }

    fn note(&mut self, call: &'static str, a: u64, b: u64, c: u64) {
        if self.trace.len() == FakeMachine::TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back((self.clock_us, call, a, b, c));
    }

    fn account(&mut self) {
        let pages = self.memory_pages();
        self.peak = self.peak.max(pages);
        if let Some(ceiling) = self.ceiling.filter(|c| pages > *c) {
            self.fail(&std::format!("{pages} pages in use, over the ceiling of {ceiling}"));
        }
    }

    /// Content mapped for the program, or read by it, must be what it wrote last.
    fn check(&self, page: Page, content: Content, how: &str) {
        let expect = self.memory.cell(page).expect;
        if !expect.allows(content) {
            let zero = if expect.or_zero { " or zeros" } else { "" };
            self.fail(&std::format!(
                "wrong data by {how}: page {:#x} holds {:#x}, the program wrote {:#x}{zero}",
                page.0,
                content.0,
                expect.value.0
            ));
        }
    }

    /// Ends the test with the state of everything that is in motion.
    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}", self.dump());
    }

    /// Threads, operations in flight, memory and the latest calls, as text.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "at {} us: program {} pages, staging {} pages, {} operations in flight, {:?}",
            self.clock_us,
            self.memory.backed,
            self.staging.backed,
            self.ops.len(),
            self.counts()
        );
        for (id, thread) in &self.threads {
            let _ = writeln!(text, "  thread {id}: {thread:?}");
            if let Some(page) = thread.asleep_on() {
                let _ = writeln!(text, "    page {:?}", self.memory.cell(page));
            }
        }
        for op in &self.ops {
            let _ = writeln!(text, "  {op:?}");
        }
        let _ = writeln!(text, "  unread faults of threads {:?}, changes {:?}", self.unread, self.changes);
        let _ = writeln!(text, "  latest calls (time, call, page or tag, frame or slot, pages):");
        for (time, call, a, b, c) in &self.trace {
            let _ = writeln!(text, "    {time} {call} {a:#x} {b:#x} {c}");
        }
        text
    }
}
