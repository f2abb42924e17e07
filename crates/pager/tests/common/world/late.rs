//! Memory that was in use before it came under management, and is learnt by and by.

use super::*;

impl World {
    /// It was counted before, at a time when it was more or less.
    pub(super) fn manage_later(&mut self, run: Run) {
        let piece = self.random.between(1, 300);
        let mapped = self.machine().mapped_pages(run);
        let counted = mapped * self.random.between(3, 5) / 4;
        self.uncounted += mapped.saturating_sub(counted);
        self.learn_later(run, counted, piece);
        self.turn();
        self.allow();
    }

    fn learn_later(&mut self, run: Run, counted: u64, piece: u64) {
        self.shard.learn_in_pieces_of(piece);
        self.shard.expect(counted);
        self.shard.manage_later(run).expect("registration");
        self.set(run, Place::Managed);
        self.allow();
    }

    /// A new mapping of which every so many pages have been written comes under management, to be learnt in such pieces.
    pub fn map_late(&mut self, area: u8, pages: u16, every: usize, piece: u64) {
        let index = area as usize;
        self.areas[index] = vec![Place::Unmanaged; pages as usize];
        let run = Run { start: World::page(index, 0), pages: pages as u64 };
        self.machine().map(run);
        for offset in (0..pages as usize).step_by(every) {
            let content = self.machine().fresh_content();
            self.machine().touch_write(THREAD, World::page(index, offset), content);
        }
        let counted = self.machine().mapped_pages(run);
        self.learn_later(run, counted, piece);
    }

    /// A mapping larger than areas are, beside them, all of it written, to be learnt in such pieces.
    pub fn map_wide(&mut self, pages: u64, piece: u64) -> Run {
        let run = Run { start: Page(BASE + AREAS as u64 * SPAN * 2), pages };
        self.machine().map(run);
        for index in 0..pages {
            let content = self.machine().fresh_content();
            self.machine().touch_write(THREAD, run.start.plus(index as u32), content);
        }
        self.shard.learn_in_pieces_of(piece);
        self.shard.expect(pages);
        self.shard.manage_later(run).expect("registration");
        run
    }

    /// A thread writes to a page, and turns are made until it runs. How many those were.
    pub fn turns_for_a_write(&mut self, area: u8, index: usize) -> u32 {
        self.touch(THREAD, World::page(area as usize, index), true);
        let mut turns = 0;
        while self.shard.machine().sleeps_on(THREAD).is_some() {
            self.turn();
            turns += 1;
        }
        turns
    }

    /// One turn.
    pub fn learn_some(&mut self) {
        self.turn();
    }

    /// Turns until all is learnt.
    pub fn learn_all(&mut self) {
        while self.shard.is_learning() {
            self.turn();
        }
    }
}
