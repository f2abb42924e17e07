//! Keeping frames free: pages are moved out to cool, compared with the store, written in clusters where they differ,
//! and their frames given up once they are clean and still cold.

use crate::frames::Info;
use crate::shard::{Fatal, List, Shard};
use ream_page::{BLOCK_PAGES, Frame, Page, Run, State, Step, StoreId};
use ream_policy::Queue;
use ream_sys::{Machine, Stop};

/// Microseconds that a turn may spend on moving pages out, and on comparing them, so that faults never wait long for the
/// pager; less while threads wait.
const TURN: u32 = 200;
const SHORT_TURN: u32 = 50;
/// Time between two errands of the helper when they do not seem to help, in microseconds.
const PAUSE: u64 = 5000;
/// What a call that moves pages costs, in microseconds.
const MOVE: u32 = 4;
/// Pages by which the stage may fall short before it is filled again.
const SLACK: u64 = 64;
/// Pages that a write gathers: 256 KiB at least while there is no hurry, 512 KiB of scattered frames at most.
const CLUSTER: u64 = 64;
const LARGEST_CLUSTER: usize = 128;
/// Pages of a run from which on its being scattered over the store matters.
const GATHER: u32 = 64;
/// Dirty pages side by side in the store, from which on they are overwritten where they are.
const IN_PLACE: usize = 16;

impl<M: Machine> Shard<M> {
    /// One turn of eviction. Returns whether there is more to do at once.
    pub(crate) fn balance(&mut self) -> bool {
        self.drop_old_ahead();
        if self.at_ease() {
            return false;
        }
        let turn = if self.threads_waiting() > 0 { SHORT_TURN } else { TURN };
        let mut budget = turn;
        let before = (self.used, self.evictions, self.count(State::Clean));
        while self.free_pages() < self.marks.low + self.excess() && self.retire_one() {}
        let mut more = false;
        // Compare and write what has cooled longest, so that clean frames are at hand.
        while self.ready() < self.marks.high + self.excess() && self.may_write() {
            match self.settle_one() {
                0 => break,
                pages => budget = budget.saturating_sub(2 + pages / 3),
            }
            if self.dirty_pages >= CLUSTER {
                self.flush();
            }
            if budget == 0 {
                more = true;
                break;
            }
        }
        if self.dirty_pages > 0 && (self.ready() < self.marks.high + self.excess() || self.dirty_pages >= CLUSTER) {
            while self.dirty_pages > 0 && self.flush() {}
        }
        // Move more out while the stage is not full.
        budget = turn;
        while self.ready() + self.count(State::Cooling) < self.marks.high + self.marks.cooling + self.excess() {
            if budget == 0 {
                more = true;
                break;
            }
            let entries = self.new.len() + self.hot.len();
            match self.cool_one() {
                // An entry whose pages have gone elsewhere is gone itself.
                Some(0) if self.new.len() + self.hot.len() < entries => budget -= 1,
                // One that cannot be moved now waits at the queue's end.
                Some(0) => {
                    self.fruitless += 1;
                    if self.unsharing.is_some() {
                        // Pages that a forked child shares, probably: its end is an event.
                        self.barren = self.fruitless > self.new.len() + self.hot.len();
                        break;
                    }
                    if !self.spare_holes() {
                        // The stage is full: what is under way empties it.
                        break;
                    }
                    if self.fruitless > self.new.len() + self.hot.len() {
                        // All were tried in vain: once more in a while, or after an event.
                        self.fruitless = 0;
                        self.barren = true;
                        break;
                    }
                    budget = budget.saturating_sub(MOVE);
                }
                Some(pages) => {
                    self.fruitless = 0;
                    self.vain = 0;
                    self.barren = false;
                    budget = budget.saturating_sub(MOVE + pages / 8);
                }
                None => {
                    self.barren = true;
                    break;
                }
            }
        }
        while self.free_pages() < self.marks.low + self.excess() && self.retire_one() {}
        if self.used > self.limit {
            self.make_room(0, false);
            more |= before != (self.used, self.evictions, self.count(State::Clean));
        }
        more
    }

    /// Whether eviction has nothing to do for now. It begins when the stage falls short by some pages, and goes on until
    /// it is full.
    pub fn at_ease(&mut self) -> bool {
        let (high, cooling) = (self.marks.high + self.excess(), self.marks.cooling);
        let (ready, staged) = (self.ready(), self.ready() + self.count(State::Cooling));
        let slack = SLACK.min(self.marks.high / 8);
        if ready + slack < high || staged + slack < high + cooling || self.used > self.limit {
            self.tidying = true;
        } else if ready >= high && staged >= high + cooling {
            self.tidying = false;
        }
        !self.tidying && self.dirty_pages < CLUSTER && self.free_pages() >= self.marks.low
    }

    /// Whether there is a place in the staging area for a page to be moved to; populated places that are free are
    /// emptied for that.
    fn spare_holes(&mut self) -> bool {
        if self.frames.hole_count() > 0 {
            return true;
        }
        let Some((frame, pages)) = self.frames.take_any_full(CLUSTER as u32) else { return false };
        self.machine.empty_frames(frame, pages);
        self.frames.put_hole(frame, pages);
        self.used -= pages as u64;
        true
    }

    /// Pages held beyond the limit: found in RAM at engagement, or the limit was lowered.
    fn excess(&self) -> u64 {
        self.used.saturating_sub(self.limit)
    }

    /// Pages that are free or will be without further reading of memory.
    fn ready(&self) -> u64 {
        self.free_pages() + self.count(State::Clean) + self.count(State::Writing)
    }

    /// Gives up the frames of the run that has been clean longest. Returns whether there was one.
    pub(crate) fn retire_one(&mut self) -> bool {
        while let Some((start, pages)) = self.clean.pop() {
            if self.drop_clean(start, pages, State::Clean) > 0 {
                return true;
            }
        }
        // Read-ahead that nobody touched is given up when nothing else is left, oldest first.
        if self.count(State::Ahead) > self.marks.ahead || self.free_pages() == 0 {
            while let Some(dropped) = self.drop_ahead() {
                if dropped > 0 {
                    return true;
                }
            }
        }
        false
    }

    /// Gives up the read-ahead of the oldest entry; how many pages. `None` when there is no entry.
    fn drop_ahead(&mut self) -> Option<u32> {
        let (start, pages) = self.ahead.pop()?;
        self.ahead_old = self.ahead_old.saturating_sub(1);
        let dropped = self.drop_clean(start, pages, State::Ahead);
        self.counters.ahead_misses.add_alone(dropped as u64);
        Some(dropped)
    }

    /// Gives up read-ahead that nobody has touched while half of the resident pages were replaced: its stream has ended.
    pub(crate) fn drop_old_ahead(&mut self) {
        if self.evictions - self.ahead_looked < self.count(State::Resident) / 2 {
            return;
        }
        self.ahead_looked = self.evictions;
        while self.ahead_old > 0 && self.drop_ahead().is_some() {}
        self.ahead_old = self.ahead.len();
    }

    /// Gives up the frames of Clean and Ahead pages of a run.
    pub(crate) fn drop_staged(&mut self, start: Page, pages: u32) {
        self.drop_clean(start, pages, State::Clean);
        self.drop_clean(start, pages, State::Ahead);
    }

    fn drop_clean(&mut self, start: Page, pages: u32, state: State) -> u32 {
        let mut dropped = 0;
        let mut run: Option<(Frame, u32)> = None;
        let age = self.age();
        for index in 0..pages {
            let page = start.plus(index);
            let word = self.table.word(page);
            let Some(frame) = word.frame().filter(|_| word.state() == state) else { continue };
            let Some((slot, store)) = self.frames.info(frame).slot() else { continue };
            self.step(page, Step::Drop(slot, store));
            let word = self.table.word(page);
            self.table.set(page, word.with_age(age));
            dropped += 1;
            run = match run {
                Some((first, count)) if first.plus(count) == frame => Some((first, count + 1)),
                other => {
                    if let Some((first, count)) = other {
                        self.free_frames(first, count);
                    }
                    Some((frame, 1))
                }
            };
        }
        if let Some((first, count)) = run {
            self.free_frames(first, count);
        }
        dropped
    }

    /// The eviction clock in the resolution that a page's word holds.
    pub(crate) fn age(&self) -> u16 {
        (self.evictions >> self.age_shift()) as u16
    }

    pub(crate) fn age_shift(&self) -> u32 {
        (64 - self.limit.leading_zeros()).saturating_sub(12)
    }

    /// Compares the run that has cooled longest with the store. Returns how many pages were looked at, 0 when there is
    /// nothing to compare.
    fn settle_one(&mut self) -> u32 {
        let Some((start, pages)) = self.cooling.pop() else { return 0 };
        let mut clean: Option<(Page, u32)> = None;
        let mut dirty = [Frame(0); BLOCK_PAGES as usize];
        let mut dirty_len = 0;
        let mut looked = 0;
        let scattered = pages >= GATHER && self.is_scattered(start, pages);
        for index in 0..pages {
            let page = start.plus(index);
            let word = self.table.word(page);
            let Some(frame) = word.frame().filter(|_| word.state() == State::Cooling) else { continue };
            let info = self.frames.info(frame);
            if info.hashed() {
                continue;
            }
            if info.slot_in_flight() {
                // Its last content is still being written: looked at again later.
                self.queue(List::Cooling, page, 1);
                continue;
            }
            looked += 1;
            let digest = self.machine.digest(frame);
            if digest.zero {
                self.free_slot(info.slot());
                self.step(page, Step::Empty);
                self.free_frames(frame, 1);
                self.shared_zeros = self.shared_zeros.saturating_sub(1);
                self.counters.evictions_clean.add_alone(1);
                continue;
            }
            if !scattered && info.slot().is_some() && digest.hash == self.table.hash(page) {
                self.counters.evictions_clean.add_alone(1);
                self.step(page, Step::Match);
                clean = match clean {
                    Some((first, count)) if first.plus(count) == page => Some((first, count + 1)),
                    other => {
                        self.push_clean(other);
                        Some((page, 1))
                    }
                };
                continue;
            }
            self.table.set_hash(page, digest.hash);
            self.frames.update(frame, |info| info.set_hashed(true));
            if let Some(place) = dirty.get_mut(dirty_len) {
                *place = frame;
                dirty_len += 1;
            }
        }
        self.push_clean(clean);
        self.counters.hashes.add_alone(looked as u64);
        self.sort_dirty(dirty.get(..dirty_len).unwrap_or(&[]));
        // Entries whose pages have all gone elsewhere still count as a step.
        looked.max(1)
    }

    /// Whether a run that was read as one, and so will be again, lies in many pieces in the store: then it is worth
    /// being written anew, side by side.
    fn is_scattered(&self, start: Page, pages: u32) -> bool {
        let mut pieces = 0;
        let mut last = None;
        for index in 0..pages {
            let Some(frame) = self.table.word(start.plus(index)).frame() else { return false };
            let slot = self.frames.info(frame).slot();
            if last.is_none() || slot != last {
                pieces += 1;
            }
            last = slot.map(|(slot, store)| (slot.plus(1), store));
        }
        pieces > pages / 8
    }

    /// Long dirty runs go to the store at once, in place where they own a run of slots; the rest is gathered.
    fn sort_dirty(&mut self, frames: &[Frame]) {
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let info = self.frames.info(*first);
            let mut length = 1;
            if let Some((slot, StoreId::OWN)) = info.slot() {
                length = rest
                    .iter()
                    .enumerate()
                    .take_while(|(index, frame)| {
                        let expected = slot.plus(*index as u32);
                        self.frames.info(**frame).slot() == Some((expected, StoreId::OWN))
                            && self.slots.may_overwrite(expected)
                    })
                    .count()
                    .max(1);
                if length >= IN_PLACE && self.may_write() && parts(rest.get(..length).unwrap_or(&[])) <= M::PARTS {
                    if let Some(tag) = self.take_tag() {
                        self.start_write(tag, slot, rest.get(..length).unwrap_or(&[]));
                        rest = rest.get(length..).unwrap_or(&[]);
                        continue;
                    }
                }
            }
            for frame in rest.get(..length).unwrap_or(&[]) {
                // From here on the page has no slot: if it is touched before it is written, nothing claims that the
                // store holds its content.
                let info = self.frames.info(*frame);
                self.free_slot(info.slot());
                self.frames.update(*frame, |info| info.set_slot(None));
                if !self.dirty.push(info.page(), 1) {
                    self.fail(Fatal::Internal("the queue of dirty pages is full"));
                }
                self.dirty_pages += 1;
            }
            rest = rest.get(length..).unwrap_or(&[]);
        }
    }

    /// Writes one cluster of gathered dirty pages. Returns whether it could.
    fn flush(&mut self) -> bool {
        if !self.may_write() || self.store_full.is_some() {
            return false;
        }
        let mut frames = [Frame(0); BLOCK_PAGES as usize];
        let (mut len, mut runs) = (0, 0);
        while len < frames.len() {
            let Some((page, _)) = self.dirty.pop() else { break };
            self.dirty_pages -= 1;
            let word = self.table.word(page);
            let Some(frame) = word.frame().filter(|_| word.state() == State::Cooling) else { continue };
            let info = self.frames.info(frame);
            if !info.hashed() || info.io() || info.slot().is_some() {
                continue;
            }
            let joins = len > 0 && frames.get(len - 1).is_some_and(|last| last.plus(1) == frame);
            if !joins && runs == LARGEST_CLUSTER {
                let _ = self.dirty.push_front(page, 1);
                self.dirty_pages += 1;
                break;
            }
            runs += !joins as usize;
            // The queue may name a page twice; it is gathered once.
            self.frames.update(frame, |info| info.set_hashed(false));
            if let Some(place) = frames.get_mut(len) {
                *place = frame;
                len += 1;
            }
        }
        if len == 0 {
            return false;
        }
        let taken = self.take_slots(len as u32);
        let count = taken.map_or(0, |(_, count)| count as usize);
        if let Some((slot, count)) = taken {
            if let Some(tag) = self.take_tag() {
                self.start_write(tag, slot, frames.get(..count as usize).unwrap_or(&[]));
            }
        }
        for frame in frames.get(count..len).unwrap_or(&[]).iter().rev() {
            let page = self.frames.info(*frame).page();
            self.frames.update(*frame, |info| info.set_hashed(true));
            let _ = self.dirty.push_front(page, 1);
            self.dirty_pages += 1;
        }
        count > 0
    }

    /// Moves the next victim out to cool. `None` when there is none, else how many pages were moved.
    fn cool_one(&mut self) -> Option<u32> {
        let resident = self.count(State::Resident);
        self.victims += 1;
        let queue = self.trial.victim(resident - self.hot_resident, self.hot_resident, self.victims);
        let (queue, (start, pages)) = match queue {
            Queue::New => match self.new.pop() {
                Some(entry) => (Queue::New, entry),
                None => (Queue::Hot, self.hot.pop()?),
            },
            Queue::Hot => match self.hot.pop() {
                Some(entry) => (Queue::Hot, entry),
                None => (Queue::New, self.new.pop()?),
            },
        };
        let hot = queue == Queue::Hot;
        let mut moved: u32 = 0;
        let mut index = 0;
        while index < pages {
            let page = start.plus(index);
            if !self.is_victim(page, hot) {
                index += 1;
                continue;
            }
            let mut length = 1;
            while index + length < pages && self.is_victim(start.plus(index + length), hot) {
                length += 1;
            }
            moved += self.cool_run(page, length, hot);
            index += length;
        }
        if hot {
            self.trial.evicted(moved as u64);
        }
        Some(moved)
    }

    /// Moves the resident pages of a part of a block out, those that are used much, too. Returns how many.
    pub(crate) fn cool_part(&mut self, part: Run) -> u32 {
        let mut moved = 0;
        for hot in [false, true] {
            let mut page = part.start;
            while page.0 < part.end().0 {
                let victims = (page.0..part.end().0).take_while(|next| self.is_victim(Page(*next), hot));
                let pages = victims.count() as u32;
                if pages > 0 && self.spare_holes() {
                    moved += self.cool_run(page, pages, hot);
                }
                page = page.plus(pages.max(1));
            }
        }
        moved
    }

    /// Compares about so many of the pages that cool with the store, and writes what differs, whether frames are needed
    /// or not.
    pub(crate) fn settle(&mut self, most: u32) {
        let mut looked = 0;
        for _ in 0..self.cooling.len() {
            if looked >= most || !self.may_write() {
                break;
            }
            looked += self.settle_one();
            if self.dirty_pages >= CLUSTER {
                self.flush();
            }
        }
        while self.dirty_pages > 0 && self.flush() {}
    }

    fn is_victim(&self, page: Page, hot: bool) -> bool {
        let word = self.table.word(page);
        word.state() == State::Resident && word.hot() == hot && !self.table.held(page)
    }

    /// Moves a run of resident pages of one block out.
    fn cool_run(&mut self, start: Page, pages: u32, hot: bool) -> u32 {
        let mut done = 0;
        let mut moved_all = 0;
        while done < pages {
            let page = start.plus(done);
            let mut want = pages - done;
            let whole = want == BLOCK_PAGES && self.table.meta(page.block()).is_some_and(|meta| meta.huge());
            let mut frame = if whole { self.frames.take_huge_hole() } else { None };
            let huge = frame.is_some();
            while frame.is_none() && want > 0 {
                frame = self.frames.take_hole(want);
                if frame.is_none() {
                    // No run of frames is as long: in pieces.
                    want /= 2;
                }
            }
            let Some(frame) = frame else {
                self.enqueue(page, pages - done, hot);
                return moved_all;
            };
            self.note_nodes(page, frame, want);
            let outcome = self.machine.move_out(page, frame, want);
            let moved = outcome.pages;
            if huge {
                if let Some(fill) = self.frames.huge_fill(frame) {
                    fill.live = moved;
                    fill.filled = moved;
                }
                if moved == 0 {
                    self.frames.put_huge_hole(frame);
                }
            } else if moved < want {
                self.frames.put_hole(frame.plus(moved), want - moved);
            }
            self.moved_out(page, frame, moved);
            moved_all += moved;
            done += moved;
            if done >= pages {
                break;
            }
            if moved == want {
                continue;
            }
            let stuck = start.plus(done);
            match outcome.stop {
                None => {}
                Some(Stop::Absent) => {
                    // Discarded by the program without our hearing of it: it reads as zeros.
                    let word = self.table.word(stuck);
                    if !word.slot_in_flight() {
                        self.free_slot(word.slot());
                    }
                    self.step(stuck, Step::Empty);
                    self.used = self.used.saturating_sub(1);
                    done += 1;
                }
                Some(Stop::Busy) => {
                    if self.forked && !self.unshared.contains(stuck) && self.unshare_from(stuck) {
                        // Most likely so are the rest and what comes next: all have their turn when that is done.
                        self.enqueue(stuck, pages - done, hot);
                        return moved_all;
                    }
                    // Pinned: it has its turn again later.
                    self.enqueue(stuck, 1, hot);
                    done += 1;
                }
                Some(Stop::Mapping) => {
                    // At most the part before a boundary moved; go on page by page behind it.
                    if want > 1 && moved == 0 {
                        moved_all += self.cool_run(stuck, 1, hot);
                    } else if moved == 0 {
                        self.enqueue(stuck, 1, true);
                        self.heat(stuck);
                    }
                    if want > 1 && moved > 0 {
                        continue;
                    }
                    done += 1;
                }
                Some(Stop::Exists) => {
                    self.fail(Fatal::Internal("an empty frame was found occupied"));
                    return moved_all;
                }
            }
        }
        moved_all
    }

    /// Has the resident pages from one on that is shared with a forked child made ours alone, as many as lie in its
    /// block. Returns whether that is under way, for this page or for others.
    fn unshare_from(&mut self, page: Page) -> bool {
        let now = self.machine.now_us();
        let wanted = self.errands_help() || now - self.last_errand > PAUSE;
        if self.unsharing.is_none() && !self.settling && wanted {
            self.last_errand = now;
            let (start, pages) = self.run_of(page, (page.0, BLOCK_PAGES), |state| state == State::Resident);
            let _ = self.start_unshare(Run { start, pages: pages as u64 })
                || self.start_unshare(Run { start: page, pages: 1 });
        }
        self.unsharing.is_some()
    }

    fn heat(&mut self, page: Page) {
        let word = self.table.word(page);
        self.put(page, word, word.with_hot(true));
    }

    fn moved_out(&mut self, page: Page, frame: Frame, pages: u32) {
        if pages == 0 {
            return;
        }
        for index in 0..pages {
            let (page, frame) = (page.plus(index), frame.plus(index));
            let word = self.table.word(page);
            let mut info = Info::new(page, word.slot());
            info.set_slot_in_flight(word.slot_in_flight());
            self.frames.set(frame, info);
            self.step(page, Step::Cool(frame));
        }
        if let Some(meta) = self.table.meta_mut(page.block()) {
            meta.set_huge(false);
            *meta.rescued() = 0;
        }
        self.evictions += pages as u64;
        self.counters.evictions.add_alone(pages as u64);
        self.queue(List::Cooling, page, pages);
    }
}

/// Number of runs of consecutive frames.
fn parts(frames: &[Frame]) -> usize {
    1 + frames.windows(2).filter(|pair| matches!(pair, [a, b] if a.plus(1) != *b)).count()
}
