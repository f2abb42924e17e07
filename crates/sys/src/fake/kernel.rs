//! The seam on the fake machine: what each call does, and which use of it is an error of the pager.

use super::disk::{EIO, ENOSPC};
use super::memory::{Content, Use};
use super::random::mix;
use super::threads::{Doing, HELPER};
use super::{FakeMachine, pages_of};
use crate::machine::{Copied, Digest, Errno, Event, Events, Machine, Moved, Stop, Wait};
use crate::pagemap::Mapped;
use ream_page::{BLOCK_PAGES, Block, Frame, Page, Pages, Run, Slot, StoreId};

const EINVAL: u16 = 22;

impl FakeMachine {
    /// Lets time pass and the program run, and notes the call.
    fn enter(&mut self, call: &'static str, a: u64, b: u64, c: u64) {
        self.counts.calls += 1;
        self.clock_us += 1;
        self.between();
        self.note(call, a, b, c);
    }

    pub(super) fn check_frames(&self, call: &str, frame: u32, pages: u32) {
        let end = frame as u64 + pages as u64;
        if end > self.staging.places.len() as u64 {
            self.fail(&std::format!("{call}: frames {frame} + {pages} are beyond the staging area"));
        }
        if (frame as u64) < self.staging.huge_start as u64 && end > self.staging.huge_start as u64 {
            self.fail(&std::format!("{call}: frames {frame} + {pages} cross from the small to the huge area"));
        }
    }

    fn frames_at_rest(&self, call: &str, frame: u32, pages: u32) {
        self.check_frames(call, frame, pages);
        if let Some(at) = (frame..frame + pages).find(|at| self.frame_use(*at) != Use::Nothing) {
            self.fail(&std::format!("{call}: frame {at} is under I/O"));
        }
    }

    /// Whether the kernel allows a move between `run` and the staging area.
    fn one_mapping(&self, run: Run, must_be_registered: bool) -> bool {
        let first = self.memory.cell(run.start);
        let mapping = self.memory.mapping(first.mapping);
        let alike = |page: Page| {
            let cell = self.memory.cell(page);
            cell.mapping == first.mapping && cell.registered == first.registered
        };
        let allowed = mapping.writable && !mapping.locked && (first.registered || !must_be_registered);
        first.mapping != 0 && allowed && pages_of(run).all(alike)
    }

    fn moves_whole(&self, from_frame: bool, frame: u32, page: Page, left: u32) -> bool {
        let aligned = left >= BLOCK_PAGES && page.in_block() == 0 && self.staging.covers_group(frame, left);
        let idle = |at: u32| self.frame_use(at) == Use::Nothing;
        aligned
            && if from_frame { self.staging.is_huge(frame) } else { self.staging.takes_huge(frame) }
            && (frame..frame + BLOCK_PAGES).all(idle)
    }

    fn moves_in(&mut self, frame: u32, page: Page, pages: u32) -> Moved {
        let mut done = 0;
        while done < pages {
            let (at, to) = (frame + done, page.plus(done));
            if self.memory.cell(to).content.is_some() {
                return Moved { pages: done, stop: Some(Stop::Exists) };
            }
            if self.frame_use(at) != Use::Nothing || self.random.one_in(self.script.busy) {
                return Moved { pages: done, stop: Some(Stop::Busy) };
            }
            let no_table = !self.memory.block(to.block()).table && self.memory.block_absent(to.block());
            if no_table && self.moves_whole(true, at, to, pages - done) {
                let contents = self.staging.take_huge(at);
                for (n, content) in contents.iter().enumerate() {
                    self.check(to.plus(n as u32), *content, "move_in");
                }
                self.memory.install_huge(to.block(), &contents);
                for n in 0..BLOCK_PAGES {
                    self.memory.cell_mut(to.plus(n)).node = self.staging.places[(at + n) as usize].node;
                }
                self.counts.huge_in += 1;
                done += BLOCK_PAGES;
                continue;
            }
            let (content, zero_page) = self.staging.take(at).unwrap_or_default();
            self.check(to, content, "move_in");
            self.memory.install(to, content, zero_page);
            self.memory.cell_mut(to).node = self.staging.places[at as usize].node;
            done += 1;
        }
        Moved { pages, stop: None }
    }

    fn moves_out(&mut self, page: Page, frame: u32, pages: u32) -> Moved {
        let mut done = 0;
        while done < pages {
            let (at, from) = (frame + done, page.plus(done));
            let cell = self.memory.cell(from);
            if cell.content.is_none() {
                return Moved { pages: done, stop: Some(Stop::Absent) };
            }
            if cell.pinned || cell.shared || self.random.one_in(self.script.busy) {
                return Moved { pages: done, stop: Some(Stop::Busy) };
            }
            let block = from.block();
            let held = |p: Page| self.memory.cell(p).pinned || self.memory.cell(p).shared;
            let whole = self.memory.is_huge(block) && self.moves_whole(false, at, from, pages - done);
            if whole && !pages_of(block.run()).any(held) {
                let contents = self.memory.remove_huge(block);
                self.staging.put_huge(at, &contents);
                for n in 0..BLOCK_PAGES {
                    self.staging.places[(at + n) as usize].node = self.memory.cell(from.plus(n)).node;
                }
                self.counts.huge_out += 1;
                done += BLOCK_PAGES;
                continue;
            }
            if let Some((content, zero_page)) = self.memory.remove(from) {
                self.staging.put(at, content, zero_page);
                self.staging.places[at as usize].node = cell.node;
            }
            done += 1;
        }
        Moved { pages, stop: None }
    }

    fn copy(&mut self, frame: Frame, page: Page, guard: bool) -> Copied {
        self.enter("copy_in", page.0, frame.0 as u64, guard as u64);
        self.check_frames("copy_in", frame.0, 1);
        let place = self.staging.places[frame.0 as usize];
        let Some(content) = place.content.filter(|_| !matches!(place.used_by, Use::Reading(_))) else {
            self.fail(&std::format!("copy_in: frame {} is empty or being read into", frame.0));
        };
        if let Some(refused) = self.may_put(page) {
            return refused;
        }
        self.check(page, content, "copy_in");
        self.memory.install(page, content, false);
        let cell = self.memory.cell_mut(page);
        (cell.node, cell.guarded) = (self.node, guard);
        self.counts.copies += 1;
        self.counts.guarded += guard as u64;
        self.wake_sleepers(Run { start: page, pages: 1 });
        self.account();
        self.between();
        Copied::Done
    }

    /// Whether one page may be put at `page` by copy or zeros.
    fn may_put(&mut self, page: Page) -> Option<Copied> {
        let cell = self.memory.cell(page);
        if cell.mapping == 0 || !cell.registered {
            Some(Copied::Gone)
        } else if !self.changes.is_empty() || self.random.one_in(self.script.no_memory) {
            Some(Copied::Failed)
        } else {
            cell.content.map(|_| Copied::Exists)
        }
    }

    fn report(&mut self, events: &mut Events) -> usize {
        let before = events.room();
        let limit = if self.random.one_in(self.script.trickle) { 1 } else { usize::MAX };
        if self.random.one_in(2) {
            self.report_io(events, limit);
        }
        self.report_asked(events, limit);
        let reported = before - events.room();
        if reported < limit {
            self.report_io(events, limit);
        }
        before - events.room()
    }

    /// Faults and changes of mappings, until the batch has grown by `limit`.
    fn report_asked(&mut self, events: &mut Events, limit: usize) {
        let before = events.room();
        let reported = |events: &Events| before - events.room();
        if self.stale.is_some() && self.random.one_in(4) && events.room() > 0 {
            events.push(self.stale.take().unwrap_or(Event::Io { tag: 0, result: 0 }));
        }
        while reported(events) < limit && events.room() > 0 {
            let Some(id) = self.unread.pop_front() else { break };
            let Some(Doing::Sleeps { page, access, guarded, .. }) = self.threads.get(&id).map(|t| t.doing) else {
                continue;
            };
            let write = access != super::threads::Access::Read;
            let event = if guarded { Event::Guarded { page } } else { Event::Fault { page, write, thread: id } };
            self.note("(fault read)", page.0, id as u64, 1);
            events.push(event);
            self.counts.faults += 1;
            if self.random.one_in(self.script.stale_fault) {
                self.stale = Some(event);
            }
        }
        // The kernel hands out changes of mappings after the faults, and only then lets their callers go on.
        while reported(events) < limit && events.room() > 0 && self.unread.is_empty() {
            let Some((event, map)) = self.changes.pop_front() else { break };
            self.note("(change read)", 0, 0, 0);
            events.push(event);
            if let (Event::Unmapped { run }, true) = (event, map) {
                self.map_next.push(run);
            }
        }
    }
}

impl Machine for FakeMachine {
    fn frames(&self) -> u32 {
        self.staging.places.len() as u32
    }

    fn huge_start(&self) -> u32 {
        self.staging.huge_start
    }

    fn move_in(&mut self, frame: Frame, page: Page, pages: u32) -> Moved {
        self.enter("move_in", page.0, frame.0 as u64, pages as u64);
        self.check_frames("move_in", frame.0, pages);
        for at in frame.0..frame.0 + pages {
            if let Use::Reading(tag) = self.frame_use(at) {
                self.fail(&std::format!("move_in: frame {at} is being read into by tag {tag}"));
            }
            if self.staging.places[at as usize].content.is_none() {
                self.fail(&std::format!("move_in: frame {at} is empty"));
            }
        }
        if !self.changes.is_empty() {
            return Moved { pages: 0, stop: Some(Stop::Busy) };
        }
        if !self.one_mapping(Run { start: page, pages: pages as u64 }, true) {
            return Moved { pages: 0, stop: Some(Stop::Mapping) };
        }
        let moved = self.moves_in(frame.0, page, pages);
        self.wake_sleepers(Run { start: page, pages: moved.pages as u64 });
        self.counts.moved_in += moved.pages as u64;
        self.account();
        self.between();
        moved
    }

    fn move_out(&mut self, page: Page, frame: Frame, pages: u32) -> Moved {
        self.enter("move_out", page.0, frame.0 as u64, pages as u64);
        self.frames_at_rest("move_out", frame.0, pages);
        if let Some(at) = (frame.0..frame.0 + pages).find(|at| self.staging.places[*at as usize].content.is_some()) {
            self.fail(&std::format!("move_out: frame {at} is populated"));
        }
        if !self.changes.is_empty() {
            return Moved { pages: 0, stop: Some(Stop::Busy) };
        }
        if !self.one_mapping(Run { start: page, pages: pages as u64 }, false) {
            return Moved { pages: 0, stop: Some(Stop::Mapping) };
        }
        let moved = self.moves_out(page, frame.0, pages);
        self.counts.moved_out += moved.pages as u64;
        self.counts.interrupting += self.anyone_is_awake() as u64;
        self.between();
        moved
    }

    fn copy_in(&mut self, frame: Frame, page: Page) -> Copied {
        self.copy(frame, page, false)
    }

    fn copy_run_in(&mut self, frame: Frame, page: Page, pages: u32, guard: bool) -> Moved {
        for done in 0..pages {
            let stop = match self.copy(frame.plus(done), page.plus(done), guard) {
                Copied::Done => continue,
                Copied::Exists => Stop::Exists,
                Copied::Gone => Stop::Mapping,
                Copied::Failed => Stop::Busy,
            };
            return Moved { pages: done, stop: Some(stop) };
        }
        Moved { pages, stop: None }
    }

    fn guards(&self) -> bool {
        self.script.guards
    }

    fn unguard(&mut self, run: Run) -> Copied {
        self.enter("unguard", run.start.0, 0, run.pages);
        let first = self.memory.cell(run.start);
        let alike = |page| {
            let cell = self.memory.cell(page);
            cell.mapping == first.mapping && cell.registered
        };
        let done = match (self.changes.is_empty(), first.mapping != 0 && pages_of(run).all(alike)) {
            (false, _) => Copied::Failed,
            (true, false) => Copied::Gone,
            (true, true) => {
                pages_of(run).for_each(|page| self.memory.cell_mut(page).guarded = false);
                Copied::Done
            }
        };
        self.wake_sleepers(run);
        self.between();
        done
    }

    fn drop_guarded(&mut self, runs: &[Run], dropped: &mut dyn FnMut(Run)) {
        self.enter("drop_guarded", runs.first().map_or(0, |run| run.start.0), 0, runs.len() as u64);
        if !self.changes.is_empty() || self.random.one_in(self.script.busy) {
            return;
        }
        // All are looked at before the first is dropped, so what is named twice is told of twice.
        let pages = runs.iter().flat_map(|run| pages_of(*run));
        let guarded: std::vec::Vec<Page> = pages.filter(|page| self.memory.cell(*page).guarded).collect();
        for page in guarded {
            self.counts.dropped += self.memory.remove(page).is_some() as u64;
            dropped(Run { start: page, pages: 1 });
        }
        self.between();
    }

    fn zero_in(&mut self, page: Page) -> Copied {
        self.enter("zero_in", page.0, 0, 1);
        if let Some(refused) = self.may_put(page) {
            return refused;
        }
        self.check(page, Content::ZERO, "zero_in");
        self.memory.install(page, Content::ZERO, true);
        self.counts.zero_ins += 1;
        self.between();
        Copied::Done
    }

    fn wake(&mut self, run: Run) {
        self.enter("wake", run.start.0, 0, run.pages);
        self.counts.wakes += 1;
        self.wake_sleepers(run);
        self.between();
    }

    fn present(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped) -> bool) {
        self.enter("present", run.start.0, 0, run.pages);
        let mut last: Option<(Run, Mapped)> = None;
        let mut goes_on = true;
        for page in pages_of(run) {
            let cell = self.memory.cell(page);
            self.counts.looked += 1;
            if cell.content.is_none() {
                continue;
            }
            let mapped = Mapped { huge: self.memory.is_huge(page.block()), zero: cell.zero_page, swapped: false };
            match &mut last {
                Some((so_far, kind)) if so_far.end() == page && *kind == mapped => so_far.pages += 1,
                _ => {
                    if let Some((done, kind)) = last.replace((Run { start: page, pages: 1 }, mapped)) {
                        goes_on = found(done, kind);
                    }
                }
            }
            if !goes_on {
                break;
            }
        }
        if let Some((done, kind)) = last.filter(|_| goes_on) {
            found(done, kind);
        }
        self.between();
    }

    fn register(&mut self, run: Run) -> Result<(), Errno> {
        self.enter("register", run.start.0, 0, run.pages);
        if run.pages == 0 || pages_of(run).any(|page| self.memory.cell(page).mapping == 0) {
            return Err(Errno(EINVAL));
        }
        for page in pages_of(run) {
            self.memory.set_registered(page, true);
        }
        self.between();
        Ok(())
    }

    fn unregister(&mut self, run: Run) -> Result<(), Errno> {
        self.enter("unregister", run.start.0, 0, run.pages);
        for page in pages_of(run) {
            self.memory.set_registered(page, false);
        }
        self.wake_sleepers(run);
        self.between();
        Ok(())
    }

    fn drop_table(&mut self, block: Block) {
        self.enter("drop_table", block.first().0, 0, BLOCK_PAGES as u64);
        if !self.memory.block_absent(block) {
            self.fail(&std::format!("drop_table: pages of block {:#x} are mapped and would be lost", block.0));
        }
        self.memory.block(block).table = false;
        self.between();
    }

    fn unshare(&mut self, tag: u32, pages: &Pages) -> bool {
        self.enter("unshare", pages.block.first().0, tag as u64, pages.runs().map(|run| run.pages).sum());
        let started = self.start_unshare(tag, pages);
        self.between();
        started
    }

    fn zero_frames(&mut self, frame: Frame, pages: u32) -> bool {
        self.enter("zero_frames", 0, frame.0 as u64, pages as u64);
        self.frames_at_rest("zero_frames", frame.0, pages);
        if self.random.one_in(self.script.no_memory) {
            return false;
        }
        self.populate(frame.0, pages);
        let mut at = frame.0;
        while at < frame.0 + pages {
            if self.staging.takes_huge(at) {
                if !self.staging.covers_group(at, frame.0 + pages - at) {
                    self.fail("zero_frames of less than a block in an empty huge frame: the kernel would populate it");
                }
                self.staging.put_huge(at, &[Content::ZERO; BLOCK_PAGES as usize]);
                at += BLOCK_PAGES;
            } else {
                self.staging.put(at, Content::ZERO, false);
                at += 1;
            }
        }
        self.counts.zeroed += pages as u64;
        self.account();
        true
    }

    fn empty_frames(&mut self, runs: &[(Frame, u32)]) {
        for (frame, pages) in runs {
            self.enter("empty_frames", 0, frame.0 as u64, *pages as u64);
            self.frames_at_rest("empty_frames", frame.0, *pages);
            let mut at = frame.0;
            while at < frame.0 + pages {
                let whole = self.staging.covers_group(at, frame.0 + pages - at);
                let count = if whole { BLOCK_PAGES } else { 1 };
                if whole && self.staging.is_huge(at) {
                    self.staging.take_huge(at);
                }
                for place in at..at + count {
                    self.staging.take(place);
                }
                if whole {
                    self.staging.forget_table(at);
                }
                at += count;
            }
        }
    }

    fn digest_then(&mut self, frame: Frame, _next: Option<Frame>) -> Digest {
        self.enter("digest", 0, frame.0 as u64, 1);
        self.check_frames("digest", frame.0, 1);
        let place = self.staging.places[frame.0 as usize];
        let Some(content) = place.content.filter(|_| !matches!(place.used_by, Use::Reading(_))) else {
            self.fail(&std::format!("digest: frame {} is empty or being read into", frame.0));
        };
        self.counts.digests += 1;
        Digest { hash: mix(content.0 ^ 0x5eed), zero: content == Content::ZERO }
    }

    fn read(&mut self, tag: u32, store: StoreId, slot: Slot, frame: Frame, pages: u32) {
        self.enter("read", tag as u64, frame.0 as u64, pages as u64);
        self.note("  from slot", store.0 as u64, slot.0 as u64, pages as u64);
        self.start_read(tag, store, slot, frame, pages);
        self.between();
    }

    fn write(&mut self, tag: u32, slot: Slot, parts: &[(Frame, u32)]) {
        self.enter("write", tag as u64, slot.0 as u64, parts.iter().map(|p| p.1 as u64).sum());
        if parts.len() > Self::PARTS {
            self.fail(&std::format!("write of {} runs of frames", parts.len()));
        }
        let mut frames = std::vec::Vec::new();
        for (frame, pages) in parts {
            self.note("  from frames", tag as u64, frame.0 as u64, *pages as u64);
            self.check_frames("write", frame.0, *pages);
            frames.extend(frame.0..frame.0 + pages);
        }
        self.start_write(tag, slot, frames);
        self.between();
    }

    fn reserve(&mut self, volume: u8, slots: u32) -> Result<(), Errno> {
        self.enter("reserve", volume as u64, slots as u64, 0);
        self.counts.reserves += 1;
        self.clock_us += 500;
        if self.random.one_in(self.script.reserve_full) {
            return Err(Errno(if self.random.one_in(4) { EIO } else { ENOSPC }));
        }
        if self.stores[0].borrow_mut().reserve(volume, slots) { Ok(()) } else { Err(Errno(ENOSPC)) }
    }

    fn punch(&mut self, slot: Slot, pages: u32) {
        self.enter("punch", slot.0 as u64, 0, pages as u64);
        let end = slot.0 + pages;
        let overlaps = |range: (u32, u32)| range.0 < end && slot.0 < range.1;
        if self.ops.iter().filter_map(|op| op.written_slots()).any(overlaps) {
            self.fail("punch of a slot that is being written");
        }
        if let Some(frozen) = self.stores[0].borrow().frozen.range(slot.0..end).next() {
            self.fail(&std::format!("punch of slot {frozen}, which a forked child may still read"));
        }
        for s in slot.0..end {
            self.stores[0].borrow_mut().punch(s);
        }
        self.counts.punched += pages as u64;
    }

    fn io_limit(&self) -> u32 {
        self.io_limit
    }

    fn suspend(&mut self) {
        self.standing = true;
    }

    fn resume(&mut self) {
        self.standing = false;
    }

    fn ask(&mut self, events: &mut Events) {
        self.enter("ask", 0, 0, 0);
        self.between();
        self.report_asked(events, usize::MAX);
    }

    fn poll(&mut self, wait: Wait, events: &mut Events) {
        if self.standing && self.ops.is_empty() {
            self.fail("the program stands still, and nothing is under way for which it should");
        }
        let micros = match wait {
            Wait::No => 0,
            Wait::Micros(n) => n,
            Wait::Forever => u64::MAX,
        };
        self.enter("poll", micros, 0, 0);
        self.counts.polls += 1;
        self.submit();
        let until = self.clock_us.saturating_add(micros);
        loop {
            if micros > 0 {
                self.run_all_woken();
                self.helper_works();
            }
            if self.report(events) > 0 || events.room() == 0 || self.clock_us >= until {
                break;
            }
            let helper_runs = self.helper_busy && self.threads.get(&HELPER).is_none_or(|t| t.doing == Doing::Runs);
            match self.next_finish() {
                Some(next) if next <= until => self.clock_us = self.clock_us.max(next),
                _ if helper_runs && micros > 0 => self.clock_us += 1,
                _ if micros != u64::MAX => self.clock_us = until,
                _ if self.anyone_sleeps() => self.fail("the pager sleeps forever while a thread waits for a page"),
                // Nothing to wait for: a real pager would sleep here.
                _ => break,
            }
        }
        self.between();
    }

    fn now_us(&mut self) -> u64 {
        self.clock_us += 1;
        self.clock_us
    }

    fn nodes(&self) -> u8 {
        self.nodes
    }

    fn nodes_of(&mut self, run: Run, found: &mut dyn FnMut(Run, u8)) {
        if self.nodes == 1 {
            self.fail("nodes_of on a machine with one node");
        }
        for page in pages_of(run).filter(|page| self.memory.cell(*page).content.is_some()) {
            found(Run { start: page, pages: 1 }, self.memory.cell(page).node);
        }
    }

    fn node_of_thread(&mut self, thread: u32) -> Option<u8> {
        (thread != 0).then_some((thread % self.nodes as u32) as u8)
    }

    fn prefer(&mut self, node: u8) {
        if node >= self.nodes || self.nodes == 1 {
            self.fail("prefer: a node that does not exist, or the only one");
        }
        self.node = node;
    }

    fn follow(&mut self, thread: Option<u32>) {
        self.note("follow", thread.map_or(0, u64::from), 0, 0);
    }
}
