//! A program under the pager on the fake kernel: its mappings, its threads, and the loop that drives the shard.
//! The fake knows what every page must hold; this keeps what is mapped, what is managed, and the budget.

use super::ops::Op;
use ream_page::{Page, Run, Slot, StoreId};
use ream_pager::{Config, Counters, Fatal, Fetch, Progress, Shard};
use ream_stats::SwapProtocol;
use ream_sys::Wait;
use ream_sys::fake::{FakeMachine, Random, Script, Shape, Touch};

mod hardships;
mod late;
mod nodes;
mod turning;

/// Areas lie so far apart, in pages.
const SPAN: u64 = 8 * 512;
const AREAS: usize = 6;
/// Pages by which a budget is exceeded when nothing can be evicted and a thread waits.
const RELIEF: u64 = 64;
const BASE: u64 = 512 * 4096;
/// Pages of metadata per block, as the pager counts them.
const META: u64 = 3;
const THREAD: u32 = 1;
/// Most pages that cannot be moved at a time; they must fit every budget with room to spare.
const UNMOVABLE: usize = 64;

/// Most turns in a row that may ask for another one while nothing is under way.
const RESTLESS: u32 = 2000;

/// Most pages of a budget.
pub const MOST: u64 = 9000;

/// What is at one page of an area.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unmapped,
    Unmanaged,
    Managed,
}

pub struct World {
    pub shard: Shard<FakeMachine>,
    pub counters: &'static Counters,
    shape: Shape,
    /// Whole blocks can lie side by side in the staging area: there is room, and no page is written zeros.
    roomy: bool,
    random: Random,
    areas: [Vec<Place>; AREAS],
    /// Longest that the slow device of a rough script takes, microseconds.
    slow_us: u64,
    pins: Vec<Page>,
    /// Pages protected or locked.
    stiff: Vec<Page>,
    /// Most memory that may be in use: the budget, or less and less of what it was before the budget shrank.
    allowed: u64,
    /// Pages that were mapped when it was counted how many, and not counted; until all is learnt nobody knows of them.
    uncounted: u64,
    /// Copies that the machine had made at the last check.
    copies: u64,
    /// Pages that the pager counts no longer, and the program has not given up yet.
    discarding: u64,
    forks: u8,
    /// Turns in a row that asked for another one although nothing is under way.
    restless: u32,
    /// Pages moved out before what has arrived was looked at, and moves of these that interrupted a thread.
    pub calm: (u64, u64),
    /// A cause to stop has been put there.
    may_stop: bool,
    may_be_corrupt: bool,
}

fn shape(seed: u64, roomy: bool) -> Shape {
    let mut random = Random::new(seed ^ 0x5a5a);
    Shape {
        seed,
        small_frames: if roomy { MOST as u32 } else { 5000 } + 1024,
        huge_groups: if roomy { 20 } else { random.between(1, 12) as u32 },
        io_limit: random.between(24, 64) as u32,
        store_slots: 1 << 20,
        nodes: [1, 1, 2, 3][seed as usize % 4],
    }
}

fn counters() -> &'static Counters {
    Box::leak(Box::new(Counters::new()))
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed ^ 0x77);
        let roomy = seed % 4 == 3;
        let limit = match random.below(2) {
            _ if roomy => random.between(3000, MOST),
            0 => random.between(600, 1500),
            _ => random.between(1500, 5000),
        };
        let fetch = [Fetch::Auto, Fetch::Auto, Fetch::Lazy, Fetch::Aggressive][random.below(4) as usize];
        World::with(seed, random, limit, fetch, roomy)
    }

    /// One with this limit, in pages, that fetches so.
    pub fn of(seed: u64, limit: u64, fetch: Fetch) -> World {
        World::with(seed, Random::new(seed), limit, fetch, false)
    }

    /// The same, where blocks can lie side by side in the staging area.
    pub fn roomy(seed: u64, limit: u64, fetch: Fetch) -> World {
        World::with(seed, Random::new(seed), limit, fetch, true)
    }

    fn with(seed: u64, random: Random, limit: u64, fetch: Fetch, roomy: bool) -> World {
        // The upper half of a seed is the protocol.
        let swap = SwapProtocol::from_u32((seed >> 32) as u32).knobs();
        let counters = counters();
        let shape = shape(seed, roomy);
        let mut machine = FakeMachine::new(shape);
        machine.script = Script { patience_calls: 300_000, ..Script::calm() };
        let shard = Shard::new(machine, Config { limit, slots: 1 << 16, fetch, swap }, counters).expect("memory");
        World {
            shard,
            counters,
            shape,
            roomy,
            random,
            areas: Default::default(),
            // A thousand interrupted threads wait for one read after the other under DLM's first protocol: for minutes, at 20 ms.
            slow_us: if swap.in_flight == 1 { 500 } else { 20_000 },
            pins: Vec::new(),
            stiff: Vec::new(),
            allowed: limit,
            uncounted: 0,
            copies: 0,
            discarding: 0,
            forks: 0,
            restless: 0,
            calm: (0, 0),
            may_stop: false,
            may_be_corrupt: false,
        }
    }

    fn machine(&mut self) -> &mut FakeMachine {
        self.shard.machine_mut()
    }

    /// Carries out one operation. Returns false when the pager has stopped for a cause that was put there.
    pub fn apply(&mut self, op: Op) -> bool {
        match op {
            Op::Map(area, pages) => self.map(area, pages, 0, false),
            Op::MapLate(area, pages, written) => self.map(area, pages, written, false),
            Op::MapShared(area, pages, written) => self.map(area, pages, written, true),
            Op::Walk(area, first, touches, step, write) => self.walk(area, first, touches, step, write),
            Op::Threads(area, first, pages, threads, touches, seed) => {
                if let Some(run) = self.window(area, first, pages) {
                    self.threads(run, threads, touches, seed);
                }
            }
            Op::Start(area, first, pages, threads, seed) => {
                if let Some(run) = self.window(area, first, pages) {
                    self.start(run, threads, &mut Random::new(seed as u64));
                }
            }
            Op::Discard(area, first, pages) => self.each_run(area, first, pages, Place::Managed, World::discard),
            Op::Overwrite(area, first, pages) => {
                self.each_run(area, first, pages, Place::Managed, World::overwrite);
            }
            Op::Switch(begun, kept) => self.switch(begun, kept),
            Op::DiscardUnheard(area, first, pages) => {
                self.each_run(area, first, pages, Place::Managed, |world, run| world.machine().discard(run));
            }
            Op::Unmap(area, first, pages) => {
                self.each_run(area, first, pages, Place::Managed, |world, run| world.unmap(run, true, false));
            }
            Op::UnmapUnheard(area, first, pages) => {
                self.each_run(area, first, pages, Place::Managed, |world, run| world.unmap(run, false, false));
            }
            Op::MapOver(area, first, pages) => {
                self.each_run(area, first, pages, Place::Managed, |world, run| world.unmap(run, false, true));
            }
            Op::Manage(area) => self.each_run(area, 0, SPAN as u16, Place::Unmanaged, World::manage),
            Op::Remap(area, to) => self.remap(area, to),
            Op::RemapCold(area, to) => self.remap_cold(area, to),
            Op::Protect(area, first, pages, writable) => {
                self.stiffen(area, first, pages, writable, |m, run, on| m.protect(run, on));
            }
            Op::Lock(area, first, pages, locked) => {
                self.stiffen(area, first, pages, !locked, |m, run, on| m.lock(run, !on));
            }
            Op::Hold(area, first, pages, held) => {
                if let Some(run) = self.window(area, first, pages) {
                    self.shard.hold(run, held);
                    self.turns(20);
                    // Held blocks need not fit the budget, so holds do not last.
                    self.shard.hold(run, false);
                }
            }
            Op::Wish(area, first, pages, what) => self.wish(area, first, pages, what),
            Op::Pin(area, page) => self.pin(area, page),
            Op::Unpin => {
                if !self.pins.is_empty() {
                    let page = self.pins.remove(0);
                    self.machine().unpin(page);
                }
            }
            Op::Limit(pages) => {
                self.shard.set_limit(pages as u64);
                self.allow();
            }
            Op::Space(slots) => {
                self.may_stop = true;
                self.machine().set_store_slots(0, slots as u32);
            }
            Op::Rough(level) => self.rough(level),
            Op::Fork(child) => self.fork(child),
            Op::Prepare => self.prepare(),
            Op::ChildrenGone => {
                self.machine().children_gone();
                self.shard.thaw();
            }
            Op::Corrupt(which) => {
                self.may_be_corrupt = true;
                self.machine().corrupt_any(which as usize);
            }
            Op::Spoil(first, slots) => {
                self.may_stop = true;
                for slot in first..first.saturating_add(slots) {
                    self.machine().spoil_slot(Slot(slot as u32), true);
                }
            }
            Op::Turns(count) => self.turns(count),
        }
        self.devices_write();
        self.shard.fatal().is_none()
    }

    /// Everything is read once more, then let go; nothing may be left over.
    pub fn finish(&mut self) {
        let patience = self.machine().script.patience_calls;
        self.machine().script = Script { patience_calls: patience, ..Script::calm() };
        while let Some(page) = self.pins.pop() {
            self.machine().unpin(page);
        }
        for page in std::mem::take(&mut self.stiff) {
            if *self.place(page) != Place::Unmapped {
                self.machine().protect(Run { start: page, pages: 1 }, true);
                self.machine().lock(Run { start: page, pages: 1 }, false);
            }
        }
        self.rest();
        self.squeeze();
        for area in 0..AREAS as u8 {
            self.walk(area, 0, self.areas[area as usize].len() as u16, 1, false);
        }
        self.rest();
        if self.shard.fatal().is_some() {
            return;
        }
        self.machine().children_gone();
        self.shard.thaw();
        for area in 0..AREAS as u8 {
            self.each_run(area, 0, SPAN as u16, Place::Unmanaged, World::manage);
            self.each_run(area, 0, SPAN as u16, Place::Managed, |world, run| world.unmap(run, true, false));
        }
        self.rest();
        if self.shard.fatal().is_some() {
            return;
        }
        for state in [2, 3, 4, 5, 6, 7, 8].map(state) {
            assert_eq!(self.shard.count(state), 0, "pages left over in state {state:?}");
        }
        assert_eq!(self.shard.slots_in_use(), 0, "slots left over");
        self.shard.set_limit(0);
        self.shard.work();
        assert_eq!((self.shard.used(), self.machine().populated_frames()), (0, 0), "frames or metadata left over");
    }

    /// Turns until nothing is in flight and nobody sleeps.
    fn rest(&mut self) {
        for _ in 0..100_000 {
            if self.shard.fatal().is_some() {
                return;
            }
            self.turn();
            let machine = self.shard.machine();
            let idle = machine.in_flight() == 0 && !machine.anyone_sleeps() && self.shard.waiting() == 0;
            if idle && self.restless == 0 && !self.shard.is_learning() {
                return;
            }
        }
        panic!("the pager does not come to rest\n{}", self.shard.machine().dump());
    }

    /// What holds between any two calls.
    fn check(&mut self) {
        match self.shard.fatal() {
            None => {}
            Some(Fatal::Corrupt(..)) if self.may_be_corrupt => return,
            Some(Fatal::Read(_) | Fatal::StoreFull(_)) if self.may_stop => return,
            Some(other) => panic!("the pager stopped: {other:?}\n{}", self.shard.machine().dump()),
        }
        let pages = self.pages_in_use();
        // A page that is touched while it is being written is there twice until that ends.
        let copies = self.shard.machine().counts().copies;
        self.allowed += copies.saturating_sub(core::mem::replace(&mut self.copies, copies));
        if self.shard.is_learning() {
            self.allowed = self.allowed.max(pages.min(self.shard.limit() + self.uncounted));
        } else {
            self.uncounted = 0;
        }
        // Beside rounding, a block of each area may be touched again whose metadata did not count for the moment.
        if pages > self.allowed + self.allowed / 50 + META * AREAS as u64 {
            let (used, limit, dump) = (self.shard.used(), self.shard.limit(), self.shard.machine().dump());
            panic!("{pages} pages in use, {used} known to the pager, {limit} the budget\n{dump}");
        }
        self.allowed = self.allowed.min(pages.max(self.shard.used()).max(self.shard.limit()) + self.discarding);
    }

    fn pages_in_use(&self) -> u64 {
        let machine = self.shard.machine();
        machine.memory_pages() + META * machine.blocks_with_memory()
    }

    /// What is in use now may be in use: something outside the pager's power has just changed.
    fn allow(&mut self) {
        // A page that maps the kernel's zero page is counted by the pager, and takes memory when it is written.
        self.allowed = self.pages_in_use().max(self.shard.used()).max(self.shard.limit()) + self.discarding;
    }

    pub fn page(area: usize, index: usize) -> Page {
        Page(BASE + area as u64 * SPAN + offset(area) + index as u64)
    }

    /// A run inside what the area has, mapped or not.
    fn window(&self, area: u8, first: u16, pages: u16) -> Option<Run> {
        let area = area as usize % AREAS;
        let len = self.areas[area].len();
        let first = first as usize % len.max(1);
        let pages = (pages as usize).min(len - first.min(len));
        (pages > 0).then_some(Run { start: World::page(area, first), pages: pages as u64 })
    }

    fn place(&mut self, page: Page) -> &mut Place {
        let area = ((page.0 - BASE) / SPAN) as usize;
        let index = ((page.0 - BASE) % SPAN - offset(area)) as usize;
        &mut self.areas[area][index]
    }

    fn set(&mut self, run: Run, to: Place) {
        for n in 0..run.pages {
            *self.place(Page(run.start.0 + n)) = to;
        }
    }

    /// Calls `act` for each longest run of such places in the window.
    fn each_run(&mut self, area: u8, first: u16, pages: u16, of: Place, mut act: impl FnMut(&mut World, Run)) {
        let Some(window) = self.window(area, first, pages) else { return };
        let mut at = window.start.0;
        while at < window.end().0 {
            let start = at;
            while at < window.end().0 && *self.place(Page(at)) == of {
                at += 1;
            }
            if at > start {
                act(self, Run { start: Page(start), pages: at - start });
                if self.shard.fatal().is_some() {
                    return;
                }
            } else {
                at += 1;
            }
        }
    }

    fn map(&mut self, area: u8, pages: u16, written: u16, shared: bool) {
        let area = area as usize % AREAS;
        if self.areas[area].iter().any(|p| *p != Place::Unmapped) {
            return;
        }
        let pages = (pages as usize).clamp(1, (SPAN - offset(area)) as usize);
        self.areas[area] = vec![Place::Unmanaged; pages];
        let run = Run { start: World::page(area, 0), pages: pages as u64 };
        self.machine().map_huge(run);
        for _ in 0..written {
            let page = Page(run.start.0 + self.random.below(run.pages));
            if self.pages_in_use() + self.machine().unregistered_pages() > self.shard.limit() {
                break;
            }
            let content = self.machine().fresh_content();
            self.machine().touch_write(THREAD, page, content);
        }
        if shared {
            self.machine().share(run);
            self.shard.set_forked();
        }
        if written > 0 && self.random.below(3) == 0 {
            self.manage_later(run);
        } else {
            self.manage(run);
        }
    }

    fn manage(&mut self, run: Run) {
        self.shard.manage(run).expect("registration");
        self.set(run, Place::Managed);
        self.allow();
        self.turn();
        self.allow();
    }

    fn walk(&mut self, area: u8, first: u16, touches: u16, step: i16, write: bool) {
        let area = area as usize % AREAS;
        let len = self.areas[area].len() as i64;
        let mut at = first as i64;
        for _ in 0..touches {
            if len == 0 || self.shard.fatal().is_some() {
                return;
            }
            at = at.rem_euclid(len);
            if self.areas[area][at as usize] != Place::Unmapped {
                self.touch(THREAD, World::page(area, at as usize), write);
                self.serve(THREAD);
            }
            at += step as i64;
        }
    }

    fn touch(&mut self, thread: u32, page: Page, write: bool) -> Touch {
        if !write {
            return self.machine().touch_read(thread, page);
        }
        let content = match self.random.below(8) {
            _ if self.roomy => self.machine().fresh_content(),
            0 => ream_sys::fake::Content::ZERO,
            1 => self.machine().expected(page),
            _ => self.machine().fresh_content(),
        };
        self.machine().touch_write(thread, page, content)
    }

    /// Turns until the thread runs.
    fn serve(&mut self, thread: u32) {
        while self.shard.machine().sleeps_on(thread).is_some() && self.shard.fatal().is_none() {
            self.turn();
        }
    }

    fn threads(&mut self, run: Run, threads: u8, touches: u16, seed: u16) {
        let mut random = Random::new(seed as u64);
        for _ in 0..touches {
            self.start(run, threads, &mut random);
            self.turn();
        }
        for thread in 2..2 + threads as u32 {
            self.serve(thread);
        }
    }

    /// Each of the threads that runs touches a page.
    fn start(&mut self, run: Run, threads: u8, random: &mut Random) {
        for thread in 2..2 + threads as u32 {
            let page = Page(run.start.0 + random.below(run.pages));
            let write = random.one_in(2);
            let asleep = self.shard.machine().sleeps_on(thread).is_some();
            if !asleep && *self.place(page) != Place::Unmapped {
                self.touch(thread, page, write);
            }
        }
        if random.one_in(2) {
            self.take_events(Wait::No);
        }
    }

    /// The program's threads leave a run alone that is about to go.
    fn vacate(&mut self, run: Run) {
        self.machine().leave_alone(run);
        while self.shard.machine().anyone_sleeps_in(run) && self.shard.fatal().is_none() {
            self.turn();
        }
        let gone = |page: &Page| run.contains(*page);
        for page in self.pins.extract_pages(gone) {
            self.machine().unpin(page);
        }
        self.stiff.extract_pages(gone);
    }

    fn unmap(&mut self, run: Run, heard: bool, map_over: bool) {
        self.vacate(run);
        if self.shard.fatal().is_some() {
            return;
        }
        if heard {
            self.shard.release(run);
        }
        if map_over {
            self.machine().unmap_and_map(run);
        } else {
            self.machine().unmap(run);
        }
        self.set(run, if map_over { Place::Unmanaged } else { Place::Unmapped });
        self.wait_for_changes();
    }

    fn wait_for_changes(&mut self) {
        while !self.shard.machine().unmap_is_done() && self.shard.fatal().is_none() {
            // Even a busy pager reads its messages.
            self.turn();
        }
        self.allow();
        self.take_events(Wait::No);
        self.allow();
    }

    fn remap(&mut self, area: u8, to: u8) {
        let (area, to) = (area as usize % AREAS, to as usize % AREAS);
        let len = self.areas[area].len();
        let run = Run { start: World::page(area, 0), pages: len as u64 };
        let managed = self.areas[area].iter().all(|p| *p == Place::Managed);
        let free = self.areas[to].iter().all(|p| *p == Place::Unmapped) && len as u64 <= SPAN - offset(to);
        if len == 0 || area == to || !managed || !free || !self.machine().is_one_mapping(run) {
            return;
        }
        self.vacate(run);
        if self.shard.fatal().is_some() {
            return;
        }
        self.machine().remap(run, World::page(to, 0));
        self.areas[to] = std::mem::take(&mut self.areas[area]);
        self.wait_for_changes();
    }
}

/// Areas begin at different places of a block.
fn offset(area: usize) -> u64 {
    [0, 1, 300, 0, 511, 77][area]
}

fn state(number: u64) -> ream_page::State {
    ream_page::Word(number).state()
}

/// Takes what passes out of a list of pages.
trait ExtractPages {
    fn extract_pages(&mut self, pass: impl Fn(&Page) -> bool) -> Vec<Page>;
}

impl ExtractPages for Vec<Page> {
    fn extract_pages(&mut self, pass: impl Fn(&Page) -> bool) -> Vec<Page> {
        let (taken, kept) = self.drain(..).partition(|page| pass(page));
        *self = kept;
        taken
    }
}
