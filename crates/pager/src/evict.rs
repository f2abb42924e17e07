//! Keeping frames free: pages are moved out to cool, settled, and their frames given up once they are clean and still cold.

use crate::faults::WHOLE_PIECES;
use crate::frames::{Fill, Info};
use crate::settle::{GATHER, NEARLY_ALL};
use crate::shard::{Fatal, List, Shard};
use crate::table::pages as pages_of;
use ream_page::{BLOCK_PAGES, Block, Frame, Page, Pages, Run, State, Step};
use ream_policy::Queue;
use ream_sys::{Machine, Stop};

/// Microseconds that a turn may spend on moving pages out, and on comparing them, so that faults never wait long for the
/// pager; less while threads wait.
const TURN: u32 = 200;
const SHORT_TURN: u32 = 50;
/// The same of moving out while nobody runs, when nobody waits for the pager alone.
const CALM_TURN: u32 = 1000;
/// Time between two errands of the helper when they do not seem to help, or have just been done, in microseconds.
const PAUSE: u64 = 5000;
/// What a call that moves pages costs, one that finds them in use by a device, and a guarded run that leaves, in microseconds.
const MOVE: u32 = 4;
const BUSY: u32 = 20;
const LEAVE: u32 = 1;
/// Longest run of guarded pages that leaves without being moved out.
const MOST_GUARDED: u32 = 32;
/// Pages by which the stage may fall short before it is filled again.
const SLACK: u64 = 64;
/// Pages that a write gathers at least while there is no hurry: 256 KiB.
pub(crate) const CLUSTER: u64 = 64;

impl<M: Machine> Shard<M> {
    /// One turn of eviction. Returns whether there is more to do at once.
    pub(crate) fn balance(&mut self) -> bool {
        let turn = if self.threads_waiting() > 0 { SHORT_TURN } else { TURN };
        self.balance_within(turn, turn, false)
    }

    /// A turn of eviction while all threads wait: the stage is filled.
    pub(crate) fn balance_in_calm(&mut self) {
        self.tidying = true;
        self.balance_within(SHORT_TURN, CALM_TURN, true);
    }

    /// A turn of as many microseconds of comparing and of moving out, `calm` or not.
    fn balance_within(&mut self, comparing: u32, moving: u32, calm: bool) -> bool {
        self.drop_old_ahead();
        if self.at_ease() {
            return false;
        }
        let mut budget = comparing;
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
        budget = moving;
        let later = !calm && self.waits_for_calm();
        while !later && self.stage_lacks() > 0 {
            if budget == 0 {
                more = true;
                break;
            }
            let entries = self.new.len() + self.hot.len();
            let leaving = self.leaving.pages;
            match self.cool_one() {
                // An entry whose pages have gone elsewhere is gone itself.
                Some(0) if self.new.len() + self.hot.len() < entries => budget -= 1,
                // One that cannot be moved now waits at the queue's end.
                Some(0) => {
                    self.fruitless += 1;
                    if self.unsharing.is_some_and(|(_, pages)| !self.is_waited_for(&pages)) {
                        // Pages that a forked child shares, probably: the end of the errand is an event. An errand that lacks
                        // a frame itself only ends when others leave.
                        break;
                    }
                    if !self.spare_holes() {
                        // The stage is full: what is under way empties it.
                        break;
                    }
                    if self.fruitless > 2 * (self.new.len() + self.hot.len()) {
                        // All were tried in vain: once more in a while, or after an event.
                        self.fruitless = 0;
                        self.barren = true;
                        break;
                    }
                    budget = budget.saturating_sub(BUSY);
                }
                Some(pages) => {
                    self.fruitless = 0;
                    self.vain = 0;
                    self.barren = false;
                    let is_leaving = self.leaving.pages != leaving;
                    budget = budget.saturating_sub(if is_leaving { LEAVE } else { MOVE + pages / 8 });
                }
                None => {
                    self.barren = true;
                    break;
                }
            }
        }
        self.leave_now();
        while self.free_pages() < self.marks.low + self.excess() && self.retire_one() {}
        if self.used > self.limit {
            self.make_room(0, false);
            more |= before != (self.used, self.evictions, self.count(State::Clean));
        }
        more
    }

    /// Pages that the stage holds when it is full.
    pub fn stage_size(&self) -> u64 {
        self.marks.high + self.marks.cooling
    }

    /// Pages that it lacks, and those held beyond the limit.
    pub(crate) fn stage_lacks(&self) -> u64 {
        let staged = self.ready() + self.leaving.pages as u64 + self.count(State::Cooling);
        (self.stage_size() + self.excess()).saturating_sub(staged)
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
        if self.retire_clean() {
            return true;
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

    /// The same; nothing else is given up when there was none.
    pub(crate) fn retire_clean(&mut self) -> bool {
        while let Some((start, pages)) = self.clean.pop() {
            if self.drop_clean(start, pages, State::Clean) > 0 {
                return true;
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

    pub(crate) fn drop_clean(&mut self, start: Page, pages: u32, state: State) -> u32 {
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
                Some((first, count)) if self.frames.adjoin(first.plus(count - 1), frame) => Some((first, count + 1)),
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

    /// Moves the next victim out to cool. `None` when there is none, else how many pages were moved.
    fn cool_one(&mut self) -> Option<u32> {
        let resident = self.count(State::Resident);
        self.trial.pass(self.evictions, resident + self.count(State::Stored));
        let queue = match self.trial.victim(resident - self.hot_resident, self.hot_resident) {
            // What is fetched is new, would be the first to leave again, and may have five eighths.
            Queue::New if self.fetches() && self.hot_resident * 8 > resident * 3 => Queue::Hot,
            queue => queue,
        };
        let (queue, (start, pages)) = match queue {
            Queue::New => match self.take(List::New) {
                Some(entry) => (Queue::New, entry),
                None => (Queue::Hot, self.take(List::Hot)?),
            },
            Queue::Hot => match self.take(List::Hot) {
                Some(entry) => (Queue::Hot, entry),
                None => (Queue::New, self.take(List::New)?),
            },
        };
        let hot = queue == Queue::Hot;
        let as_one = !hot && pages < GATHER && self.leaves_as_one(start.block());
        let (start, pages) = if as_one { (start.block().first(), BLOCK_PAGES) } else { (start, pages) };
        if let Some(meta) = self.table.meta_mut(start.block()).filter(|_| as_one) {
            meta.set_as_one(true);
        }
        let (mut moved, mut tried) = (0, false);
        let mut index = 0;
        while index < pages {
            let page = start.plus(index);
            if !self.is_victim(page, hot) {
                index += 1;
                continue;
            }
            tried = true;
            let guarded = self.table.word(page).guarded();
            let alike = |next| self.is_victim(next, hot) && (as_one || self.table.word(next).guarded() == guarded);
            let mut length = 1;
            while index + length < pages && alike(start.plus(index + length)) {
                length += 1;
            }
            index += length;
            if self.unsharing.is_some_and(|(_, pages)| pages.block == page.block()) {
                // The helper would wait for them in the middle of its errand.
                self.enqueue(page, length, hot);
                continue;
            }
            let guarded = guarded && !as_one && length <= MOST_GUARDED;
            if guarded && (!hot || self.trial.is_over()) && self.leaves_directly() {
                self.leave(Run { start: page, pages: length as u64 });
                moved += length;
            } else {
                moved += self.cool_run(page, length, hot);
            }
        }
        self.trial.evicted(queue, moved as u64);
        // Where pages are shared with a forked child, or there is no place for them, all have to wait.
        if tried && moved == 0 && self.unsharing.is_none() && self.frames.hole_count() > 0 {
            self.trial.stuck(queue, self.new.len());
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

    /// Whether a block leaves as one though it came in parts: nearly all of it is there, as after an ordered pass, and lies in
    /// many pieces of the store. So it is written anew, side by side, and the next pass reads it as one.
    fn leaves_as_one(&self, block: Block) -> bool {
        if self.table.meta(block).is_none_or(|meta| meta.resident() < NEARLY_ALL) {
            return false;
        }
        let (mut all, mut pieces, mut last) = (0, 0, None);
        for page in pages_of(block.run()).filter(|page| self.is_victim(*page, false)) {
            let slot = self.table.word(page).slot();
            all += 1;
            pieces += u32::from(slot.is_some() && slot != last);
            last = slot.map(|(slot, store)| (slot.plus(1), store));
        }
        all >= NEARLY_ALL && pieces > WHOLE_PIECES
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
            self.calm.left(1, moved);
            if huge {
                if let Some(fill) = self.frames.huge_fill(frame) {
                    *fill = Fill::of(moved);
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
                    if self.forked && self.unshare_from(stuck) {
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

    /// Has a page that is shared with a forked child made ours alone, and the other resident ones of its block. Returns whether
    /// that is under way, for this page or for others.
    fn unshare_from(&mut self, page: Page) -> bool {
        let now = self.machine.now_us();
        // After a while what could not be written may have changed.
        let wanted = self.errands_help() && !self.unshared.contains(page) || now - self.last_errand > PAUSE;
        if self.unsharing.is_none() && !self.settling && wanted {
            self.last_errand = now;
            let mut pages = Pages::from(Run { start: page, pages: 1 });
            for index in 0..BLOCK_PAGES {
                let page = pages.block.first().plus(index);
                let word = self.table.word(page);
                if word.state() == State::Resident && !word.guarded() && !self.table.held(page) {
                    pages.insert(page);
                }
            }
            self.start_unshare(&pages);
        }
        self.unsharing.is_some()
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
        self.cooled += pages as u64;
        self.counters.evictions.add_alone(pages as u64);
        self.queue(List::Cooling, page, pages);
    }
}
