//! What makes a shard's life hard: mappings that cannot move, pinned pages, rough devices, forks.

use super::*;
use ream_pager::Usage;

/// Room in a volume: soon full, and grown in more than one step.
const VOLUME_SLOTS: u32 = 2048;

impl World {
    /// All pages of an area.
    pub fn run_of(&self, area: u8) -> Run {
        self.window(area, 0, SPAN as u16).expect("an area that is mapped")
    }

    /// What a program may wish of any part of its memory.
    pub(super) fn wish(&mut self, area: u8, first: u16, pages: u16, what: u8) {
        let Some(run) = self.window(area, first, pages) else { return };
        match what {
            0 => {
                let mut left = run;
                while self.shard.cool(&mut left) == Progress::Again {
                    self.turns(1);
                }
            }
            1 => self.shard.fetch_range(run),
            2 => self.shard.set_usage(run, Usage::Random),
            3 => self.shard.set_usage(run, Usage::Sequential),
            4 => self.shard.set_usage(run, Usage::Keep),
            5 => self.shard.set_usage(run, Usage::Unknown),
            _ => self.send_to(run, (what - 6) % 3, VOLUME_SLOTS),
        }
    }

    /// A range goes to a volume of the store, which has so much room if it is not there yet.
    pub fn send_to(&mut self, run: Run, volume: u8, slots: u32) {
        if volume > 0 && !self.shard.has_volume(volume) {
            self.machine().set_store_slots(volume, slots);
            self.shard.add_volume(volume, slots * 2).expect("memory");
        }
        self.shard.set_volume(run, volume).expect("few ranges");
    }

    /// The program gives the content of a run up.
    pub(super) fn discard(&mut self, run: Run) {
        self.give_up(run, |shard| shard.discard(run));
    }

    /// A call of MPI is going to overwrite a run, and others wait to compute.
    pub(super) fn overwrite(&mut self, run: Run) {
        let all = self.random.one_in(2);
        self.give_up(run, |shard| {
            shard.drop_stored(run, all);
            if !all {
                shard.discard(run);
            }
        });
    }

    fn give_up(&mut self, run: Run, tell: impl FnOnce(&mut Shard<FakeMachine>)) {
        self.machine().discard_begins(run);
        tell(&mut self.shard);
        // What the pager no longer counts is still mapped until the program's call.
        self.discarding = run.pages;
        self.allow();
        if self.random.one_in(2) {
            self.take_events(Wait::No);
        }
        self.machine().discard(run);
        self.machine().discard_ends(run);
        self.discarding = 0;
        self.allow();
    }

    /// A rank's turn begins, with what it had coming back or without, or ends: then what it has in RAM is noted down, or what
    /// was noted before is kept.
    pub(super) fn switch(&mut self, begun: bool, kept: bool) {
        if begun {
            self.shard.begin_turn();
        }
        match (begun, kept) {
            (true, false) => self.shard.begin_bringing(),
            (true, true) => {}
            (false, true) => _ = self.shard.keep_noted(),
            (false, false) => _ = self.shard.note_resident(),
        }
    }

    /// An area moves that has just been written and moved out wholly.
    pub(super) fn remap_cold(&mut self, area: u8, to: u8) {
        self.walk(area, 0, SPAN as u16, 1, true);
        if self.shard.fatal().is_none() {
            self.wish(area, 0, SPAN as u16, 0);
        }
        self.remap(area, to);
    }

    /// Every page can be evicted: none is left when there is no budget at all.
    pub(super) fn squeeze(&mut self) {
        let before = self.shard.limit();
        for _ in 0..20_000 {
            // Only the helper that makes pages ours alone may need one meanwhile.
            let asleep = self.shard.machine().anyone_sleeps();
            self.shard.set_limit(if asleep { before } else { 0 });
            self.allow();
            self.turn();
            let left: u64 = [2, 6, 7, 8].iter().map(|s| self.shard.count(state(*s))).sum();
            if left == 0 || self.shard.fatal().is_some() || self.may_stop {
                self.shard.set_limit(before);
                self.allow();
                return;
            }
        }
        let count = [2, 6, 7, 8].map(|s| (state(s), self.shard.count(state(s))));
        panic!("pages that cannot be evicted: {count:?}\n{}", self.shard.machine().dump());
    }

    /// mprotect or mlock of a few pages, or its end.
    pub(super) fn stiffen(
        &mut self,
        area: u8,
        first: u16,
        pages: u16,
        movable: bool,
        act: fn(&mut FakeMachine, Run, bool),
    ) {
        let room = UNMOVABLE - self.stiff.len().min(UNMOVABLE);
        let Some(run) = self.window(area, first, pages) else { return };
        let mapped = (0..run.pages).all(|n| *self.place(Page(run.start.0 + n)) != Place::Unmapped);
        if !mapped || !movable && room < run.pages as usize {
            return;
        }
        self.stiff.extract_pages(|page| run.contains(*page));
        if !movable {
            self.stiff.extend((0..run.pages).map(|n| Page(run.start.0 + n)));
        }
        if movable {
            // Of both kinds: it is not on the list any more.
            self.machine().protect(run, true);
            self.machine().lock(run, false);
        } else {
            act(self.machine(), run, false);
        }
    }

    pub(super) fn pin(&mut self, area: u8, page: u16) {
        let Some(run) = self.window(area, page, 1) else { return };
        if self.pins.len() >= UNMOVABLE || *self.place(run.start) == Place::Unmapped || self.pins.contains(&run.start) {
            return;
        }
        self.touch(THREAD, run.start, true);
        self.serve(THREAD);
        if self.shard.fatal().is_none() && self.machine().pin(run.start) {
            self.pins.push(run.start);
        }
    }

    pub(super) fn devices_write(&mut self) {
        for page in self.pins.clone() {
            if self.shard.machine().is_pinned(page) && self.random.one_in(2) {
                let content = self.machine().fresh_content();
                self.machine().device_write(page, content);
            }
        }
    }

    pub(super) fn rough(&mut self, level: u8) {
        let rough = Script { patience_calls: 300_000, ..Script::rough() };
        self.may_stop |= level >= 4;
        self.machine().script = match level {
            0 => Script { patience_calls: 300_000, ..Script::calm() },
            1 => rough,
            2 => Script { discard: 20, ..rough },
            3 => Script { io_max_us: self.slow_us, signal: 4, crowd: 8, crowd_threads: 12, ..rough },
            4 => Script { write_error: 20, write_full: 10, ..rough },
            5 => Script { read_error: 6, write_error: 6, ..rough },
            _ => Script { reserve_full: 3, ..rough },
        };
    }

    pub(super) fn fork(&mut self, child: bool) {
        let limit = self.shard.limit();
        if self.forks < 20 && self.prepared() {
            self.forked(child);
            self.shard.set_limit(limit);
            self.allow();
        }
    }

    pub(super) fn prepare(&mut self) {
        let limit = self.shard.limit();
        if self.prepared() {
            let (used, half) = (self.shard.used(), limit / 2);
            assert!(used <= half, "{used} pages are used, half of the limit is {half}");
            self.shard.freeze();
            self.shard.go_on();
            self.shard.set_limit(limit);
            self.allow();
        }
    }

    /// Prepares a fork. False when the shard has stopped.
    fn prepared(&mut self) -> bool {
        let half = self.shard.limit() / 2;
        for _ in 0..20_000 {
            if self.shard.fatal().is_some() {
                return false;
            }
            if self.shard.prepare_fork(half) == Progress::Done {
                return true;
            }
            self.turn();
        }
        panic!("the fork is never ready\n{}", self.shard.machine().dump());
    }

    pub(super) fn forked(&mut self, child: bool) {
        self.forks += 1;
        self.shard.freeze();
        let parent = StoreId(self.forks);
        let seed = self.random.bits();
        // In every other child the program has chosen where its memory comes from: that is one node for the pager.
        let shape = Shape { seed, nodes: if seed % 2 == 0 { 1 } else { self.shape.nodes }, ..self.shape };
        let mut machine = self.machine().fork(THREAD, shape, parent);
        if !child {
            drop(machine);
            self.shard.go_on();
            return;
        }
        // In the child no other thread runs until it is registered.
        let script = std::mem::replace(&mut machine.script, Script::calm());
        self.shard.become_child(machine, parent, 1 << 16, counters()).expect("memory");
        // One volume is had again, the other is not.
        self.machine().set_store_slots(1, VOLUME_SLOTS);
        self.shard.add_volume(1, VOLUME_SLOTS).expect("memory");
        self.pins.clear();
        for area in 0..AREAS as u8 {
            self.each_run(area, 0, SPAN as u16, Place::Managed, |world, run| {
                world.shard.register_again(run).expect("registration");
            });
        }
        self.machine().script = script;
        self.allow();
    }
}
