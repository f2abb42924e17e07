//! The loop that drives the shard, as the pager's thread does.

use super::{RELIEF, RESTLESS, World, state};
use ream_page::Run;
use ream_sys::{Event, Events, Machine, Wait};
use std::mem::replace;

impl World {
    pub(super) fn turns(&mut self, count: u16) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// One turn as the pager's thread does it: work, sleep until something happens, take the events.
    pub(super) fn turn(&mut self) {
        if self.shard.fatal().is_some() {
            return;
        }
        let mut more = self.shard.work();
        self.check();
        if !more && self.shard.starved() {
            // As the engine does when all that is left must stay: the helper that waits for a frame gets it.
            let limit = self.shard.limit();
            self.shard.set_limit(limit + RELIEF);
            self.allow();
            more = true;
        }
        let idle = self.shard.machine().in_flight() == 0 && !self.shard.machine().anyone_sleeps();
        self.restless = if more && idle { self.restless + 1 } else { 0 };
        if self.restless > RESTLESS {
            let counts: Vec<u64> = (0..9).map(|number| self.shard.count(state(number))).collect();
            let (used, limit, dump) = (self.shard.used(), self.shard.limit(), self.shard.machine().dump());
            panic!("the pager finds no rest: {used} used of {limit}, by state {counts:?}\n{dump}");
        }
        let wait = match (more, self.shard.waiting()) {
            (true, _) => Wait::No,
            (false, 0) => Wait::Forever,
            (false, _) => Wait::Micros(100),
        };
        self.take_events(wait);
    }

    pub(super) fn take_events(&mut self, wait: Wait) {
        if self.shard.fatal().is_some() {
            return;
        }
        let (mut events, mut asked) = (Events::new(), Events::new());
        self.machine().poll(wait, &mut events);
        let (mut index, mut arriving) = (0, false);
        while let Some(event) = events.as_slice().get(index).copied() {
            index += 1;
            if matches!(event, Event::Io { .. }) && !replace(&mut arriving, true) {
                let before = self.shard.machine().counts();
                self.shard.before_arrivals(&mut asked, &mut events);
                let after = self.shard.machine().counts();
                self.calm.0 += after.moved_out - before.moved_out;
                self.calm.1 += after.interrupting - before.interrupting;
            }
            if !self.shard.event(event) {
                if let Event::Fault { page, .. } = event {
                    self.machine().wake(Run { start: page, pages: 1 });
                }
            }
            self.check();
            if self.shard.fatal().is_some() {
                return;
            }
        }
    }
}
