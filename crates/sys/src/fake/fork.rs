//! fork on the fake machine: a second machine for the child, with the same program memory and its parent's stores.

use super::memory::Staging;
use super::threads::Thread;
use super::{Disk, FakeMachine, Random, Shape};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

impl FakeMachine {
    /// The child that `thread` makes: its program memory is what the parent's is, but nothing is registered there, so
    /// that absent pages read as zeros until it is; mapped pages are shared and answer Busy on both sides. The staging
    /// area is empty, its own store too; the parent's store `n` is its store `n + 1`.
    pub fn fork(&mut self, thread: u32, shape: Shape) -> FakeMachine {
        if !self.ops.is_empty() {
            self.fail("fork with operations in flight");
        }
        let mut memory = self.memory.clone();
        memory.clear_registered();
        for machine in [&mut memory, &mut self.memory] {
            machine.share_all();
        }
        let mut stores = std::vec![Rc::new(RefCell::new(Disk::new(shape.store_slots)))];
        stores.extend(self.stores.iter().cloned());
        let mut threads = BTreeMap::new();
        if let Some(t) = self.threads.get(&thread) {
            if t.asleep_on().is_some() {
                self.fail("a sleeping thread cannot fork: error in the test");
            }
            threads.insert(thread, Thread { ..*t });
        }
        FakeMachine {
            script: self.script,
            memory,
            staging: Staging::new(shape.small_frames, shape.huge_groups),
            stores,
            ops: std::vec::Vec::new(),
            io_limit: shape.io_limit,
            helper_busy: false,
            threads,
            unread: VecDeque::new(),
            changes: VecDeque::new(),
            map_next: std::vec::Vec::new(),
            stale: None,
            random: Random::new(shape.seed),
            clock_us: self.clock_us,
            counts: Default::default(),
            peak: 0,
            ceiling: None,
            next_content: self.next_content + (1 << 40),
            next_junk: self.next_junk + (1 << 30),
            trace: VecDeque::new(),
        }
    }
}
