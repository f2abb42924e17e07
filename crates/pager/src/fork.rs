//! Fork: room is made for the copy, everything staged goes back, and the slots of the moment are frozen. The child
//! goes on with its copy of the table, a machine of its own, and its parent's store to read.

use crate::shard::{Progress, Shard};
use ream_page::{Block, Page, Pages, Run, State, StoreId, Word};
use ream_sys::{Errno, Machine};

/// How long eviction goes on before a fork without anything gained, in microseconds. Other threads fault pages in meanwhile, and
/// where the others cannot leave, nothing else ends it.
const VAIN: u64 = 500_000;

impl<M: Machine> Shard<M> {
    /// Prepares a fork: evicts until at most `target` pages are held, or that gains nothing any more, then empties the staging
    /// area and waits for all input and output. The limit falls with what is held, so that others who lack a frame wait; the
    /// caller sets it anew. Call again after each batch of events until it is done; from then on until [`Shard::go_on`] nothing
    /// is evicted, and between calls only faults change anything.
    pub fn prepare_fork(&mut self, target: u64) -> Progress {
        self.preparing = true;
        if self.learn_more() {
            return Progress::Again;
        }
        if !self.quiet {
            let now = self.machine.now_us();
            if self.used < self.fork_least.0 {
                self.fork_least = (self.used, now);
            }
            let vain = now.saturating_sub(self.fork_least.1) > VAIN;
            if !vain && self.used > target && self.fatal.is_none() && self.store_full.is_none() && self.evictable() {
                let limit = self.limit;
                self.limit = target.min(limit);
                let more = self.balance_to(target);
                // What is gained is not taken by others meanwhile, who could take all of it: the copy would have it twice. What the
                // helper was given beside, for an errand that lacks a frame, stays: the fork waits for its end.
                let helpless = self.unsharing.is_some_and(|(_, pages)| self.is_waited_for(&pages));
                self.limit = if helpless { limit } else { limit.min(self.used.max(target)) };
                if more {
                    return Progress::Again;
                }
            }
            // The helper may wait for a frame, and only eviction can give it one: its errand ends first, and no other begins.
            self.settling = true;
            if self.unsharing.is_some() {
                return Progress::Again;
            }
            self.quiet = true;
        }
        if !self.end_guards() || self.tags_free < self.tags.len() {
            return Progress::Again;
        }
        self.unstage();
        if self.tags_free < self.tags.len() || self.staged() > 0 {
            return Progress::Again;
        }
        // Free frames are worth nothing to the child, and the parent gets new ones.
        let keep = core::mem::replace(&mut self.limit, 0);
        while self.frames.full_count() > 0 || self.frames.huge_full_count() > 0 {
            if !self.empty_some() {
                break;
            }
        }
        self.limit = keep;
        Progress::Done
    }

    /// Whether a fork is being prepared, or about to happen.
    pub fn is_preparing(&self) -> bool {
        self.preparing
    }

    fn evictable(&self) -> bool {
        self.new.len() + self.hot.len() > 0
    }

    /// Evicts until `target` pages are used or nothing moves any more. Returns whether to go on.
    fn balance_to(&mut self, target: u64) -> bool {
        let tried = |shard: &Self| (shard.fruitless, shard.new.len() + shard.hot.len());
        let before = (self.used, self.evictions, self.tags_free, self.count(State::Clean));
        let (fruitless, entries) = tried(self);
        self.balance();
        self.make_room(0, false);
        let after = (self.used, self.evictions, self.tags_free, self.count(State::Clean));
        // A turn may be spent on entries whose pages have gone elsewhere, or that cannot be moved: until all were tried.
        let trying = self.fruitless > fruitless || tried(self).1 < entries;
        self.used > target && (before != after || trying || self.tags_free < self.tags.len())
    }

    fn staged(&self) -> u64 {
        self.count(State::Cooling)
            + self.count(State::Clean)
            + self.count(State::Ahead)
            + self.count(State::Reading)
            + self.count(State::Writing)
    }

    /// Cooling pages go back to the program, clean ones and read-ahead to the store.
    fn unstage(&mut self) {
        while let Some((start, pages)) = self.clean.pop() {
            self.drop_staged(start, pages);
        }
        while let Some((start, pages)) = self.ahead.pop() {
            self.drop_staged(start, pages);
        }
        self.ahead_old = 0;
        // What cannot be brought back now is queued again; it is not tried twice in one go.
        for _ in 0..self.dirty.len() {
            if let Some((start, pages)) = self.dirty.pop() {
                self.bring_back(start, pages);
            }
        }
        self.dirty_pages = 0;
        for _ in 0..self.cooling.len() {
            if let Some((start, pages)) = self.cooling.pop() {
                self.bring_back(start, pages);
            }
        }
    }

    fn bring_back(&mut self, start: Page, pages: u32) {
        let mut index = 0;
        while index < pages {
            let page = start.plus(index);
            let word = self.table.word(page);
            let Some(frame) = word.frame().filter(|_| word.state() == State::Cooling) else {
                index += 1;
                continue;
            };
            let mut length = 1;
            while index + length < pages && {
                let word = self.table.word(page.plus(length));
                word.state() == State::Cooling
                    && word.frame() == Some(frame.plus(length))
                    && self.frames.adjoin(frame.plus(length - 1), frame.plus(length))
            } {
                length += 1;
            }
            self.install(frame, page, length);
            self.machine.wake(Run { start: page, pages: length as u64 });
            index += length;
        }
    }

    /// The fork is about to happen: the child may read our slots, which stay as they are until [`Shard::thaw`].
    pub fn freeze(&mut self) {
        self.slots.freeze();
        self.set_forked();
    }

    /// A fork has happened, before anything was managed for one: pages may be shared with another process, which keeps
    /// them from being moved.
    pub fn set_forked(&mut self) {
        self.forked = true;
        self.vain = 0;
    }

    /// No process reads our frozen slots any more.
    pub fn thaw(&mut self) {
        let machine = &mut self.machine;
        self.slots.thaw(&mut |slot| machine.freed(slot));
        self.store_full = None;
    }

    /// Whether slots are frozen.
    pub fn is_frozen(&self) -> bool {
        self.slots.is_frozen()
    }

    /// Eviction may go on after a fork, in the parent.
    pub fn go_on(&mut self) {
        self.quiet = false;
        self.settling = false;
        self.preparing = false;
        self.fork_least = (u64::MAX, 0);
        self.unshared = Pages::none(Block(0));
    }

    /// In the child: replaces the parent's machine without touching it, starts an empty store of at most `slots`
    /// slots, and marks everything stored as the parent's, whose store has the number `parent` from now on. Volumes but the
    /// first must be added anew.
    /// The old machine is forgotten, not dropped: its descriptors and memory are the parent's.
    pub fn become_child(
        &mut self,
        machine: M,
        parent: StoreId,
        slots: u32,
        counters: &'static ream_stats::Counters,
    ) -> Result<(), Errno> {
        core::mem::forget(core::mem::replace(&mut self.machine, machine));
        self.slots = ream_store::Volumes::new(slots)?;
        self.frames.reset(self.machine.frames());
        // The program may have chosen where its memory comes from since: then it has one node.
        self.nodes = self.machine.nodes().clamp(1, self.nodes);
        self.node = u8::MAX;
        self.reset_tags();
        self.clear_pending();
        self.back.forget();
        self.reserved = Default::default();
        self.store_full = None;
        self.failures = 0;
        self.quiet = false;
        self.settling = false;
        self.preparing = false;
        self.fork_least = (u64::MAX, 0);
        self.unsharing = None;
        self.errands = Default::default();
        self.unshared = Pages::none(Block(0));
        self.wanted = 0;
        self.counters = counters;
        let table = &mut self.table;
        let mut resident = 0;
        table.each_words_mut(|words| {
            for word in words.iter_mut() {
                let old = Word(*word);
                *word = old.with_ancestor(parent).0;
                resident += (old.state() == State::Resident) as u64;
            }
        });
        self.used = resident;
        self.charged = 0;
        self.charge_blocks();
        Ok(())
    }

    /// In the child: registers what is managed of a range with its own machine. Nothing is learnt anew. The program may have
    /// unmapped parts of it without a word to us, where others have been mapped since, our own memory for example.
    pub fn register_again(&mut self, run: Run) -> Result<(), Errno> {
        let (machine, mut outcome) = (&mut self.machine, Ok(()));
        self.table.each_managed(run, &mut |part| {
            if outcome.is_ok() {
                outcome = machine.register(part);
            }
        });
        outcome
    }

    /// Tells the parts of a range that are managed, in order of address.
    pub fn each_managed(&self, run: Run, tell: &mut dyn FnMut(Run)) {
        self.table.each_managed(run, tell);
    }
}
