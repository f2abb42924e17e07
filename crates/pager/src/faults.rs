//! One fault, followed: what a touch of an absent page sets in motion, by the page's state.

use crate::shard::{Fatal, Fetch, Shard};
use crate::table::Table;
use crate::wishes::Usage;
use ream_page::{BLOCK_PAGES, Frame, Page, Run, Slot, State, Step, StoreId};
use ream_policy::{Plan, Streams, replacement};
use ream_sys::{Copied, Machine};

/// Most pages that one fault fills with zeros short of a whole block.
const FILL: u32 = 64;
/// A stream that fills so many pages at a time does not go on with few.
pub(crate) const SEVERAL: u32 = 16;
/// It waits for a block of frames where more than these are kept free.
const PLENTY: u64 = 2 * BLOCK_PAGES as u64;
/// Most pieces of the store in which a block may lie that is read onto a large page.
pub(crate) const WHOLE_PIECES: u32 = 16;
/// Whole blocks that are read over which it is looked at how many lack a large page; few are one in so many.
const LACKING: (u32, u32) = (64, 8);
/// Single pages brought back from a cooling block before the rest follows at once.
const RESCUED: u32 = 32;
/// Pages that are read once more for nothing, at most, to read what lies on both sides of them at once.
const BRIDGE: u32 = 16;
/// Operations kept back from read-ahead for what a thread waits for.
const SPARE_TAGS: usize = 16;
/// Most pages under read for streams while somebody waits for a single page, which comes after them: 4 MiB keep a device busy.
const BESIDE: u64 = 1024;
/// Until so many pages have been read for streams after a single one for somebody, he may come again.
pub(crate) const COMES_AGAIN: u32 = 8 * BLOCK_PAGES;

fn one(page: Page) -> Run {
    Run { start: page, pages: 1 }
}

/// Adds a fault to a history: that of those that read, or of those that fill or rescue. `again`: it is there, and was put off.
fn note(streams: &mut Streams, table: &Table, page: Page, again: bool) -> Plan {
    let here = |page| table.word(Page(page)).state() == State::Resident;
    if again { streams.fault_again(page.0, here) } else { streams.fault(page.0, here) }
}

impl<M: Machine> Shard<M> {
    /// Serves a touch of `page`. `again`: it waited for a frame before.
    pub(crate) fn serve(&mut self, page: Page, write: bool, thread: u32, again: bool) {
        match self.table.word(page).state() {
            State::Unmanaged => self.machine.wake(one(page)),
            State::Resident => self.check_resident(page, write, thread),
            State::Zero | State::Stored if self.withheld => self.postpone_as(page, write, thread, again),
            State::Zero => self.fill(page, write, thread, again),
            State::Stored => self.demand(page, write, thread, again),
            State::Reading => {
                let Some(frame) = self.table.word(page).frame() else { return };
                if !self.frames.info(frame).wanted() {
                    self.want(frame, write);
                    self.counters.ahead_hits.add_alone(1);
                    let plan = note(&mut self.streams, &self.table, page, false);
                    // All of it is installed when it arrives.
                    self.streams.forget_probe(&plan);
                    self.has_reached(page, &plan);
                    self.follow_plan(&plan);
                }
            }
            State::Ahead => {
                self.counters.ahead_hits.add_alone(1);
                if let Some(frame) = self.table.word(page).frame().filter(|_| write) {
                    self.frames.update(frame, |info| info.set_for_writing(true));
                }
                let plan = note(&mut self.streams, &self.table, page, false);
                if self.machine.follows() {
                    // It goes on in place of this thread, so all of it is there before.
                    self.install_following(&plan);
                    self.install_ahead(page, &plan);
                    self.read_following(&plan);
                } else {
                    let frame = self.table.word(page).frame();
                    if frame.is_some_and(|frame| self.comes_whole(page, frame)) {
                        self.streams.forget_probe(&plan);
                    } else {
                        self.install_ahead(page, &plan);
                    }
                    self.follow_plan(&plan);
                }
            }
            State::Cooling | State::Clean => self.rescue(page),
            State::Writing => self.copy_back(page),
        }
    }

    /// A fault on a page thought to be mapped: a second thread's, already served; or the program discarded the page
    /// unseen. Only the kernel knows which: it refuses zeros where something is mapped.
    fn check_resident(&mut self, page: Page, write: bool, thread: u32) {
        match self.machine.zero_in(page) {
            Copied::Done => {
                let word = self.table.word(page);
                if !word.slot_in_flight() {
                    self.free_slot(word.slot());
                }
                self.step(page, Step::Forget);
                self.machine.wake(one(page));
            }
            Copied::Exists | Copied::Gone => self.machine.wake(one(page)),
            Copied::Failed => self.postpone(page, write, thread),
        }
    }

    /// A page that was never written, or holds zeros.
    fn fill(&mut self, page: Page, write: bool, thread: u32, again: bool) {
        let plan = note(&mut self.touches, &self.table, page, again);
        let block = page.block();
        self.turn_to_block(block, thread);
        let enough = self.frames.huge_full_count() > 0 || self.free_pages() > BLOCK_PAGES as u64 + 64;
        // Where frames are about to become free, a stream waits for a block of them: with fewer it would be back at once, and what
        // is filled in pieces lies in pieces in the store.
        let waits =
            !enough && plan.in_stream && plan.demand.1 >= SEVERAL && self.writing > 0 && self.marks.low > PLENTY;
        if waits && self.may_be_choosy() {
            self.touches.put_off(&plan, page.0);
            return self.postpone(page, write, thread);
        }
        if plan.demand.1 == BLOCK_PAGES && self.machine.may_be_large(block) && enough {
            let run = self.run_of(page, plan.demand, |state| state == State::Zero);
            if run.1 == BLOCK_PAGES {
                if let Some((frame, _)) = self.obtain_huge() {
                    self.counters.zero_fills.add_alone(BLOCK_PAGES as u64);
                    if self.machine.zero_frames(frame, BLOCK_PAGES) {
                        self.machine.drop_table(block);
                        self.install_and_wake((frame, block.first(), BLOCK_PAGES));
                        self.settle_node(block);
                    } else {
                        self.give_huge_back(frame);
                        self.postpone(page, write, thread);
                    }
                    return;
                }
            }
        }
        let (start, pages) = self.run_of(page, plan.demand, |state| state == State::Zero);
        // Around the page, no more than a fault should take.
        let offset = (page.0 - start.0) as u32;
        let most = if self.quiet { 1 } else { FILL };
        let skip = offset - offset % most;
        let (first, pages) = (start.plus(skip), (pages - skip).min(most));
        let Some((frame, length)) = self.obtain_most(pages).or_else(|| Some((self.obtain(1)?, 1))) else {
            self.touches.put_off(&plan, page.0);
            self.postpone(page, write, thread);
            return;
        };
        // The end of these for who comes from above.
        let before = (page.0 - first.0) as u32;
        let comes_down = plan.demand.0 < page.0;
        let skip = if comes_down { (before + 1).saturating_sub(length) } else { before.min(pages - length) };
        let run = (first.plus(skip), length);
        if !self.machine.zero_frames(frame, run.1) {
            self.free_frames(frame, run.1);
            return self.postpone(page, write, thread);
        }
        self.touches.reached(&plan, run.0.0, run.0.0 + run.1 as u64);
        self.counters.zero_fills.add_alone(run.1 as u64);
        self.install_and_wake((frame, run.0, run.1));
        self.settle_node(block);
    }

    /// The longest run around `page`, inside `extent` and the page's block, whose states all pass.
    pub(crate) fn run_of(&self, page: Page, extent: (u64, u32), pass: impl Fn(State) -> bool) -> (Page, u32) {
        let limits = page.block().run().and(Run { start: Page(extent.0), pages: extent.1 as u64 });
        let (mut start, mut end) = (page, page.plus(1));
        while end.0 < limits.end().0 && pass(self.table.word(end).state()) {
            end = end.plus(1);
        }
        while start.0 > limits.start.0 && pass(self.table.word(Page(start.0 - 1)).state()) {
            start = Page(start.0 - 1);
        }
        (start, (end.0 - start.0) as u32)
    }

    /// Where the store has this page's content, or an older one.
    pub fn place_of(&self, page: Page) -> Option<(Slot, StoreId)> {
        let word = self.table.word(page);
        match word.state() {
            State::Stored | State::Resident => word.slot(),
            State::Cooling | State::Clean | State::Ahead => {
                word.frame().and_then(|frame| self.frames.info(frame).slot())
            }
            _ => None,
        }
    }

    /// The run of Stored pages around `page` in `extent`, across a few others whose places in the store lie between: to
    /// read those for nothing is cheaper than to read, and to fault, in pieces.
    fn stored_run(&self, page: Page, extent: (u64, u32)) -> (Page, u32) {
        let (start, pages) = self.run_of(page, extent, |state| state == State::Stored);
        let limits = page.block().run().and(Run { start: Page(extent.0), pages: extent.1 as u64 });
        let Some((slot, store)) = self.table.word(start).slot() else { return (start, pages) };
        let follows = |other: Page| {
            let distance = other.0.wrapping_sub(start.0) as u32;
            limits.contains(other) && self.place_of(other) == Some((Slot(slot.0.wrapping_add(distance)), store))
        };
        let is_stored = |other: Page| self.table.word(other).state() == State::Stored;
        let (mut first, mut end) = (start, start.plus(pages));
        let (mut next, mut gap) = (end, 0);
        while gap <= BRIDGE && follows(next) {
            let stored = is_stored(next);
            next = next.plus(1);
            gap = if stored { 0 } else { gap + 1 };
            if stored {
                end = next;
            }
        }
        let (mut next, mut gap) = (first, 0);
        while gap <= BRIDGE && next.0 > limits.start.0 && follows(Page(next.0 - 1)) {
            next = Page(next.0 - 1);
            let stored = is_stored(next);
            gap = if stored { 0 } else { gap + 1 };
            if stored {
                first = next;
            }
        }
        (first, (end.0 - first.0) as u32)
    }

    /// The run of staged pages around `page` whose frames lie side by side, inside `extent` and the page's block: first
    /// frame, first page, pages.
    pub(crate) fn staged_run(&self, page: Page, extent: Run, pass: impl Fn(State) -> bool) -> (Frame, Page, u32) {
        let Some(frame) = self.table.word(page).frame() else { return (Frame(0), page, 0) };
        let limits = page.block().run().and(extent);
        let fits = |other: Page, place: Frame| {
            let word = self.table.word(other);
            limits.contains(other) && pass(word.state()) && word.frame() == Some(place)
        };
        let (mut before, mut after) = (0, 1);
        let adjoin = |first, next| self.frames.adjoin(first, next);
        while adjoin(frame.plus(after - 1), frame.plus(after)) && fits(page.plus(after), frame.plus(after)) {
            after += 1;
        }
        while before < frame.0 && (before as u64) < page.0 {
            let (first, next) = (Frame(frame.0 - before - 1), Frame(frame.0 - before));
            if !adjoin(first, next) || !fits(Page(page.0 - before as u64 - 1), first) {
                break;
            }
            before += 1;
        }
        (Frame(frame.0 - before), Page(page.0 - before as u64), before + after)
    }

    /// A page whose content is in a store.
    fn demand(&mut self, page: Page, write: bool, thread: u32, again: bool) {
        if self.quiet && self.tags_free < self.tags.len() / 2 {
            self.postpone(page, write, thread);
            return;
        }
        if !self.may_read() {
            self.postpone_as(page, write, thread, again);
            return;
        }
        self.asking();
        let usage = self.usage(page);
        if !again {
            self.counters.refaults.add_alone(1);
            let word = self.table.word(page);
            let distance = self.evicted_since(word);
            self.counters.came_back_after(distance);
            let hot = usage == Usage::Keep || replacement::refault_is_hot(distance, self.count(State::Resident));
            if hot && word.hot() {
                self.trial.returned(1);
            }
            self.shortage.read_again(hot);
            self.put(page, word, word.with_hot(hot));
        }
        let single = usage == Usage::Random || self.quiet;
        let plan =
            if single { ream_policy::Plan::single(page.0) } else { note(&mut self.streams, &self.table, page, again) };
        // All of the demand is installed when it arrives.
        self.streams.forget_probe(&plan);
        let around = plan.demand.1 == 1 && !single && !again && self.shortage.is_slight();
        let extent = if around { self.evicted_around(page) } else { usage.extent(page, plan.demand) };
        let (start, pages) = self.one_request(self.stored_run(page, extent), page);
        self.judge_use(start, pages);
        self.read_extent(start, pages, Some(page));
        if self.table.word(page).state() == State::Stored {
            self.read_extent(page, 1, Some(page));
        }
        self.asked();
        match self.table.word(page).frame() {
            Some(frame) => self.want(frame, write),
            None => {
                self.streams.take_back(&plan, 0);
                self.streams.put_off(&plan, page.0);
                return self.postpone(page, write, thread);
            }
        }
        match usage {
            Usage::Sequential => self.has_brought(page, extent, &plan),
            _ => self.has_reached(page, &plan),
        }
        if self.fetch != Fetch::Lazy && !self.quiet && (usage != Usage::Sequential || self.read_stored(extent)) {
            self.read_ahead(&plan);
        }
        self.fetch_all(page);
    }

    /// Notes that a thread waits for the page under read in this frame, maybe to write to it.
    fn want(&mut self, frame: Frame, write: bool) {
        if write {
            self.frames.update(frame, |info| info.set_for_writing(true));
        }
        if !self.frames.info(frame).wanted() {
            self.frames.update(frame, |info| info.set_wanted(true));
            self.wanted += 1;
        }
    }

    /// Installs what has been read ahead and lies in the plan's demand, the touched page's run first.
    fn install_ahead(&mut self, page: Page, plan: &Plan) {
        let (start, pages) = if plan.probe > 0 { (page.0, plan.probe) } else { plan.demand };
        let extent = Run { start: Page(start), pages: pages as u64 };
        let is_ahead = |state| state == State::Ahead;
        self.installing();
        let follows = self.machine.follows();
        if !follows {
            let run = self.staged_run(page, extent, is_ahead);
            self.install_and_wake(run);
        }
        let first = self.staged_run(page, extent, is_ahead);
        let is_first = |next: Page| follows && next.0 >= first.1.0 && next.0 < first.1.0 + first.2 as u64;
        for next in crate::table::pages(extent.and(page.block().run())) {
            if self.table.word(next).state() == State::Ahead && !is_first(next) {
                let run = self.staged_run(next, extent, is_ahead);
                self.install_and_wake(run);
            }
        }
        if follows {
            self.install_and_wake(first);
        }
        self.has_installed();
        self.has_reached(page, plan);
    }

    /// Tells the stream that the touch of `page` belongs to how much of its demand that brought: where parts lie in several places
    /// of the store, or are still under way, it goes on before the demand's end.
    fn has_reached(&mut self, page: Page, plan: &Plan) {
        if plan.in_stream {
            self.has_brought(page, plan.demand, plan);
        }
    }

    /// The same of an extent that may be longer than the demand.
    fn has_brought(&mut self, page: Page, extent: (u64, u32), plan: &Plan) {
        let (first, pages) = match self.table.word(page).state() {
            State::Reading => {
                let extent = Run { start: Page(extent.0), pages: extent.1 as u64 };
                let (_, first, pages) = self.staged_run(page, extent, |state| state == State::Reading);
                (first, pages)
            }
            _ => self.run_of(page, extent, |state| state == State::Resident),
        };
        self.streams.reached(plan, first.0, first.0 + pages as u64);
    }

    /// Installs what else has arrived of a stream that has proved itself, and reads what it wants next.
    fn follow_plan(&mut self, plan: &Plan) {
        self.install_following(plan);
        self.read_following(plan);
    }

    /// The first of these.
    fn install_following(&mut self, plan: &Plan) {
        let (runs, distance) = plan.follow;
        if runs > 0 {
            self.installing();
        }
        for index in 1..=runs as i64 {
            let Some(next) = plan.demand.0.checked_add_signed(distance * index).map(Page) else { break };
            let word = self.table.word(next);
            let arrives = |frame| self.frames.fill_of(frame).is_some_and(|fill| fill.arriving > 0);
            if word.state() != State::Ahead || word.frame().is_some_and(arrives) {
                break;
            }
            self.counters.ahead_hits.add_alone(1);
            let run = self.staged_run(next, next.block().run(), |state| state == State::Ahead);
            self.install_and_wake(run);
        }
        self.has_installed();
    }

    /// The second.
    fn read_following(&mut self, plan: &Plan) {
        if self.fetch != Fetch::Lazy && !self.quiet {
            self.read_ahead(plan);
        }
    }

    /// Whether there are frames and operations for so many pages that nobody waits for.
    pub(crate) fn may_read_ahead(&self, pages: u64) -> bool {
        self.tags_free > SPARE_TAGS
            && self.may_ask_ahead()
            && self.may_stage(pages)
            && (self.lone + self.beside == 0 || self.count(State::Reading) + pages <= self.most_beside())
            && self.free_pages() + self.count(State::Clean) >= self.marks.low / 2 + pages
    }

    /// Pages that may be under read while somebody waits for a single one.
    fn most_beside(&self) -> u64 {
        (self.marks.ahead / 4).clamp(BLOCK_PAGES as u64, BESIDE)
    }

    /// Whether so many pages more that nobody has touched may be in the staging area.
    pub(crate) fn may_stage(&self, pages: u64) -> bool {
        self.count(State::Ahead) + self.count(State::Reading) + pages <= self.marks.ahead
    }

    fn read_ahead(&mut self, plan: &Plan) {
        // What of the demand lies elsewhere in the store, or found no room before, comes first.
        if plan.in_stream && !self.read_stored(plan.demand) {
            self.streams.take_back(plan, 0);
            return;
        }
        for (index, (start, pages)) in plan.ahead().iter().enumerate() {
            if *pages == BLOCK_PAGES && self.may_read_ahead(BLOCK_PAGES as u64) {
                self.make_whole(Page(*start).block());
            }
            if !self.read_stored((*start, *pages)) {
                self.streams.take_back(plan, index);
                return;
            }
        }
    }

    /// Reads what is in a store of an extent that nobody waits for. Returns whether there was room for all of it.
    fn read_stored(&mut self, extent: (u64, u32)) -> bool {
        let (mut at, end) = (extent.0, extent.0 + extent.1 as u64);
        while at < end {
            let page = Page(at);
            if self.table.word(page).state() != State::Stored {
                at += 1;
                continue;
            }
            let (first, count) = self.stored_run(page, (at, (end - at) as u32));
            if !self.may_read_ahead(count as u64) {
                return false;
            }
            self.judge_use(first, count);
            self.read_extent(first, count, None);
            self.beside = self.beside.saturating_sub(count);
            at = first.0 + count as u64;
        }
        true
    }

    /// Whether a whole block is to be read into a huge frame: always when one is populated already, or when no small frames
    /// are. A fresh one in place of small frames costs the kernel 2 MiB to find, clear and map (90 µs at best, several ms in a
    /// virtual machine whose host has to find them, too), and small frames are given back to it. After a phase that left single
    /// pages everywhere there would be one for each block, so then only every other gets one; where few blocks lack one, each.
    fn huge_is_cheap(&mut self) -> bool {
        let lacks = self.frames.huge_full_count() == 0 && self.frames.full_count() >= BLOCK_PAGES as u64;
        self.lacking += (u32::from(lacks) << 16) / LACKING.0;
        self.lacking -= self.lacking / LACKING.0;
        self.whole_reads = self.whole_reads.wrapping_add(u32::from(lacks));
        !lacks || self.lacking < (1 << 16) / LACKING.1 || self.whole_reads % 2 == 0
    }

    /// Starts reading a run of pages of one block, Stored but for those between that are read for nothing, in as many
    /// pieces as it has in its stores and as there are runs of frames for it: side by side if possible, so that it can be
    /// installed as one.
    pub(crate) fn read_extent(&mut self, start: Page, pages: u32, wanted: Option<Page>) {
        let run = Run { start, pages: pages as u64 };
        self.turn_to_block(start.block(), 0);
        // Where the program waits for what is read to be installed, it does not wait for several.
        let most = if self.machine.follows() { 1 } else { WHOLE_PIECES };
        let pieces = if pages == BLOCK_PAGES { self.pieces(start, pages, most) } else { None };
        let whole =
            pieces.is_some() && crate::table::pages(run).all(|page| self.table.word(page).state() == State::Stored);
        if whole && self.machine.may_be_large(start.block()) && self.huge_is_cheap() {
            if let Some((frame, populated)) = self.obtain_huge() {
                // The first of several pieces would populate it as well, or, where memory is in pieces, only its own part.
                if populated || pieces == Some(1) || self.machine.zero_frames(frame, BLOCK_PAGES) {
                    self.read_into(frame, start, pages, wanted);
                    return;
                }
                self.give_huge_back(frame);
            }
        }
        let mut done = 0;
        while done < pages {
            let Some((frame, length)) = self.obtain_most(pages - done) else { return };
            self.read_into(frame, start.plus(done), length, wanted);
            done += length;
        }
    }

    /// Starts reading a part of such a run into frames side by side. What cannot be asked for now remains as it is.
    fn read_into(&mut self, frame: Frame, start: Page, pages: u32, wanted: Option<Page>) {
        let mut done = 0;
        while done < pages {
            let page = start.plus(done);
            let length = self.piece_length(page, pages - done);
            let holds = wanted.is_some_and(|wanted| wanted.0 >= page.0 && wanted.0 < page.0 + length as u64);
            let slot = self.place_of(page);
            // What nobody waits for is not worth the last tags.
            let tag = if holds || self.tags_free > SPARE_TAGS { self.take_tag() } else { None };
            match (slot, tag) {
                (Some((slot, store)), Some(tag)) => {
                    self.machine.waited_for(wanted.is_some());
                    self.start_read(tag, store, slot, page, frame.plus(done), length);
                    if holds && pages == 1 {
                        self.is_lone(tag);
                    }
                }
                (_, tag) => {
                    if let Some(tag) = tag {
                        self.put_tag(tag);
                    }
                    self.free_frames(frame.plus(done), length);
                }
            }
            done += length;
        }
    }

    /// Pages from `start`, at most `most`, whose slots follow one another in one store.
    pub(crate) fn piece_length(&self, start: Page, most: u32) -> u32 {
        let Some((slot, store)) = self.place_of(start) else { return 1 };
        let mut length = 1;
        while length < most && self.place_of(start.plus(length)) == Some((slot.plus(length), store)) {
            length += 1;
        }
        length
    }

    /// In how many pieces of the store a run lies, if at most so many.
    fn pieces(&self, start: Page, pages: u32, most: u32) -> Option<u32> {
        let (mut done, mut pieces) = (0, 0);
        while done < pages && pieces < most {
            done += self.piece_length(start.plus(done), pages - done);
            pieces += 1;
        }
        (done >= pages).then_some(pieces)
    }

    /// A page that was moved out and is touched before its frame is given up: it comes back for the price of a move.
    fn rescue(&mut self, page: Page) {
        self.counters.rescues.add_alone(1);
        let plan = note(&mut self.touches, &self.table, page, false);
        let mut whole = plan.in_stream;
        if let Some(meta) = self.table.meta_mut(page.block()) {
            *meta.rescued() += 1;
            whole |= *meta.rescued() > RESCUED;
        }
        let staged = |state| matches!(state, State::Cooling | State::Clean);
        let extent = if whole { page.block().run() } else { one(page) };
        let run = self.staged_run(page, extent, staged);
        let (_, start, pages) = run;
        for index in 0..pages {
            let page = start.plus(index);
            let word = self.table.word(page);
            if word.hot() {
                self.trial.returned(1);
            }
            let hot = pages < BLOCK_PAGES || self.becomes_hot(word.hot());
            self.put(page, word, word.with_hot(hot));
        }
        self.install_and_wake(run);
    }

    /// A page whose frame is being written: pinned by the device, so it cannot be moved back, but it can be copied.
    fn copy_back(&mut self, page: Page) {
        let word = self.table.word(page);
        let Some(frame) = word.frame() else { return };
        let Some((slot, _)) = self.frames.info(frame).slot() else { return };
        self.turn_to_frame(frame);
        match self.machine.copy_in(frame, page) {
            Copied::Done => {
                self.counters.rescues.add_alone(1);
                self.frames.update(frame, |info| info.detach());
                self.put(page, word, word.with_hot(true));
                self.step(page, Step::CopyBack(slot));
                self.used += 1;
                self.enqueue(page, 1, true);
                self.machine.wake(one(page));
            }
            Copied::Exists => self.fail(Fatal::Internal("a page under write-back was found mapped")),
            Copied::Gone => self.machine.wake(one(page)),
            Copied::Failed => self.postpone(page, true, 0),
        }
    }
}
