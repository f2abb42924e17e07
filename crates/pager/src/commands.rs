//! What the program does to its address space: ranges come under management, are discarded, unmapped and moved.

use crate::shard::{Fatal, List, Shard};
use crate::table::{blocks, pages};
use ream_page::{BLOCK_PAGES, Frame, Page, Run, State, Step};
use ream_sys::{Errno, Machine};

impl<M: Machine> Shard<M> {
    /// Takes a range over: registers it and learns what is mapped in it already. Pages managed before stay as they are.
    pub fn manage(&mut self, run: Run) -> Result<(), Errno> {
        self.manage_after(run, |_| {})
    }

    /// The same; once it is registered, and before it is learnt what is mapped there, something else is done.
    pub fn manage_after(&mut self, run: Run, first: impl FnOnce(&mut M)) -> Result<(), Errno> {
        if run.pages == 0 {
            return Ok(());
        }
        self.table.reserve(run)?;
        self.machine.register(run)?;
        first(&mut self.machine);
        self.adopt(run)
    }

    /// The same for a range that is registered already (it grew, or a child registered it anew).
    pub fn adopt(&mut self, run: Run) -> Result<(), Errno> {
        self.table.prepare(run)?;
        self.charge_blocks();
        self.learn(run);
        Ok(())
    }

    /// The program is about to unmap the range: everything about it is forgotten, its slots and frames are freed.
    pub fn release(&mut self, run: Run) {
        self.let_go(run, true);
    }

    /// The program is about to discard the content of the range: it reads as zeros from now on.
    pub fn discard(&mut self, run: Run) {
        self.let_go(run, false);
    }

    pub(crate) fn let_go(&mut self, run: Run, release: bool) {
        self.know_for_good(run);
        if release {
            self.usages.forget(run);
            self.places.forget(run);
        }
        for (block, part) in blocks(run) {
            if self.table.all_zero(block) {
                if !release {
                    continue;
                }
                if part.pages == BLOCK_PAGES as u64 {
                    self.table.forget_all_zero(block);
                    continue;
                }
            } else if self.table.meta(block).is_none() {
                continue;
            }
            for page in pages(part) {
                self.let_go_page(page);
                if release && self.table.word(page).state() != State::Unmanaged {
                    self.step(page, Step::Release);
                }
            }
            if let Some(meta) = self.table.meta_mut(block) {
                meta.set_huge(false);
            }
            if release {
                self.table.set_held(part, false);
                self.table.retire(block);
                self.charge_blocks();
            }
        }
    }

    /// Frees what a page has, and makes it Zero.
    fn let_go_page(&mut self, page: Page) {
        let word = self.table.word(page);
        match word.state() {
            State::Unmanaged | State::Zero => {}
            State::Resident => {
                if !word.slot_in_flight() {
                    self.free_slot(word.slot());
                }
                self.step(page, Step::Empty);
                self.used = self.used.saturating_sub(1);
            }
            State::Stored => {
                self.free_slot(word.slot());
                self.step(page, Step::Empty);
            }
            State::Cooling => {
                if let Some(frame) = word.frame() {
                    let info = self.frames.info(frame);
                    if !info.slot_in_flight() {
                        self.free_slot(info.slot());
                    }
                    self.step(page, Step::Empty);
                    self.free_frames(frame, 1);
                }
            }
            State::Ahead | State::Clean => {
                if let Some(frame) = word.frame() {
                    self.back_to_store(page, frame);
                    self.free_slot(self.table.word(page).slot());
                    self.step(page, Step::Empty);
                    self.free_frames(frame, 1);
                }
            }
            State::Reading => {
                if let Some(frame) = word.frame() {
                    self.back_to_store(page, frame);
                    self.free_slot(self.table.word(page).slot());
                    self.step(page, Step::Empty);
                    // The read goes on; its frame is freed when it ends.
                    self.frames.update(frame, |info| info.detach());
                    self.machine.wake(Run { start: page, pages: 1 });
                }
            }
            State::Writing => {
                if let Some(frame) = word.frame() {
                    // The write goes on; frame and slot are freed when it ends.
                    self.step(page, Step::Fail);
                    self.step(page, Step::Empty);
                    self.frames.update(frame, |info| info.detach());
                }
            }
        }
    }

    pub(crate) fn back_to_store(&mut self, page: Page, frame: Frame) {
        match self.frames.info(frame).slot() {
            Some((slot, store)) => self.step(page, Step::Drop(slot, store)),
            None => self.fail(Fatal::Internal("a clean page has no slot")),
        }
    }

    /// The program moved a mapping: the pages' states move with it.
    pub fn remap(&mut self, from: Page, to: Page, count: u64) {
        let source = Run { start: from, pages: count };
        let target = Run { start: to, pages: count };
        self.let_go(target, true);
        self.places.forget(source);
        if self.table.prepare(target).is_err() {
            self.fail(Fatal::Internal("no memory for the state of moved pages"));
            return;
        }
        for (block, part) in blocks(source) {
            if self.table.all_zero(block) && part.pages == BLOCK_PAGES as u64 {
                self.table.forget_all_zero(block);
                continue;
            }
            for page in pages(part) {
                let word = self.table.word(page);
                let new = Page(page.0 - from.0 + to.0);
                if word.state() == State::Unmanaged {
                    // A hole in the source is one in the target.
                    if !self.table.set(new, word) {
                        return self.fail(Fatal::Internal("no memory for the state of moved pages"));
                    }
                    continue;
                }
                if word.state() == State::Zero {
                    self.table.set(page, ream_page::Word::default());
                    continue;
                }
                let held = self.table.held(page);
                if !self.table.set(new, word) {
                    return self.fail(Fatal::Internal("no memory for the state of moved pages"));
                }
                if let Some(meta) = self.table.meta_mut(new.block()).filter(|_| word.guarded()) {
                    // The kernel takes the protection along.
                    meta.set_guarded();
                }
                self.table.set_held(Run { start: new, pages: 1 }, held);
                self.table.set_held(Run { start: page, pages: 1 }, false);
                self.table.set_hash(new, self.table.hash(page));
                self.table.set(page, ream_page::Word::default());
                let (mut in_flight, mut slot) = (word.slot_in_flight(), word.slot());
                if let Some(frame) = word.frame() {
                    self.frames.update(frame, |info| info.set_page(new));
                    in_flight |= self.frames.info(frame).slot_in_flight();
                    slot = self.frames.info(frame).slot();
                }
                if in_flight {
                    self.redirect_write(page, new, slot);
                }
                self.requeue(new);
            }
            if let Some(meta) = self.table.meta_mut(block) {
                meta.set_huge(false);
            }
            self.table.retire(block);
        }
        if self.is_learning() {
            // Pages that were not known have moved as well.
            self.learn(target);
        }
        self.charge_blocks();
        // Where it begins elsewhere in its first block there is one block more.
        let _ = self.table.reserve(target);
        // Sleepers of the old place fault again, and find nothing mapped there or the new state.
        self.machine.wake(source);
    }

    /// Queues a page whose queue entry does not name it any more.
    pub(crate) fn requeue(&mut self, page: Page) {
        let word = self.table.word(page);
        match word.state() {
            State::Resident => self.enqueue(page, 1, word.hot()),
            State::Clean => self.queue(List::Clean, page, 1),
            State::Ahead => self.queue(List::Ahead, page, 1),
            State::Cooling => {
                // Compared once more: its place in the queue of dirty pages was by its old address.
                if let Some(frame) = word.frame() {
                    self.frames.update(frame, |info| info.set_hashed(false));
                }
                self.queue(List::Cooling, page, 1);
            }
            _ => {}
        }
    }

    /// Keeps the pages of a run where they are once they are resident (`on`), or lets them go again. Absent pages are
    /// not brought in by this; touch them first or after.
    pub fn hold(&mut self, run: Run, on: bool) {
        if !self.table.set_held(run, on) {
            self.fail(Fatal::Internal("no memory for the state of held pages"));
        }
        self.charge_blocks();
        if on {
            return;
        }
        // Eviction forgot those that it met meanwhile.
        for (block, part) in blocks(run) {
            if self.table.meta(block).is_some_and(|meta| meta.resident() > 0) {
                for page in pages(part) {
                    if self.table.word(page).state() == State::Resident {
                        self.requeue(page);
                    }
                }
            }
        }
    }
}
