//! fork on the fake machine: a second machine for the child, with the same program memory and its parent's stores.

use super::memory::Staging;
use super::threads::Thread;
use super::{Disk, FakeMachine, Random, Shape};
use ream_page::StoreId;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

impl FakeMachine {
    /// The child that `thread` makes: its program memory is what the parent's is, but nothing is registered there, so
    /// that absent pages read as zeros until it is; mapped pages are shared and answer Busy on both sides. Its staging
    /// area and own store are empty; the parent's own store has the number `parent` for it, older ancestors keep theirs.
    /// Slots that hold what the child needs must not change from now on, see [`FakeMachine::children_gone`].
    pub fn fork(&mut self, thread: u32, shape: Shape, parent: StoreId) -> FakeMachine {
        if !self.ops.is_empty() {
            self.fail("fork with operations in flight");
        }
        if self.memory.any_guarded() {
            self.fail("fork with guarded pages: what is written to them until the copy is made would wait for ever");
        }
        self.memory.share_all();
        let mut memory = self.memory.clone();
        memory.become_child();
        let mut own = Disk::new(shape.store_slots);
        own.unit = self.stores[0].borrow().unit;
        let mut stores = std::vec![Rc::new(RefCell::new(own))];
        stores.extend(self.stores.iter().skip(1).cloned());
        let missing = std::iter::repeat_with(Rc::default);
        stores.extend(missing.take((parent.0 as usize + 1).saturating_sub(stores.len())));
        stores[parent.0 as usize] = self.stores[0].clone();
        self.freeze_slots();
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
            standing: false,
            helper_busy: false,
            nodes: shape.nodes,
            node: 0,
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

    /// Every child has ended: frozen slots may change again.
    pub fn children_gone(&mut self) {
        self.stores[0].borrow_mut().frozen.clear();
    }

    /// Contents of absent pages that lie in one slot only: that slot must stay as it is.
    fn freeze_slots(&mut self) {
        let wanted = self.memory.absent_contents();
        let mut disk = self.stores[0].borrow_mut();
        let mut places: BTreeMap<_, std::vec::Vec<u32>> = BTreeMap::new();
        for (slot, content) in &disk.slots {
            if wanted.contains(content) {
                places.entry(*content).or_default().push(*slot);
            }
        }
        let only: std::vec::Vec<u32> = places.into_values().filter(|p| p.len() == 1).flatten().collect();
        disk.frozen.extend(only);
    }
}
