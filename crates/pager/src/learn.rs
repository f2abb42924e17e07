//! What was in RAM before paging began is learnt piece by piece, while faults are served: to look at gigabytes of pages takes
//! longer than a thread should wait. Until a block has been looked at its pages are Zero in the table, though some are mapped;
//! so a block is learnt before a fault in it is served, a range before the program changes it, and all of it before a fork.

use crate::shard::Shard;
use crate::table::{blocks, pages};
use ream_page::{BLOCK_PAGES, Page, Run, State, Step};
use ream_sys::memory::MapSlice;
use ream_sys::{Errno, Machine, Mapped};

/// Ranges that can be put off; more are learnt at once.
const RANGES: usize = 16 * 1024;
/// Pages learnt between two looks at what threads wait for; as many are asked for at once at first, and more where few are found.
const PIECE: u64 = 16 * BLOCK_PAGES as u64;
const MOST: u64 = 512 * BLOCK_PAGES as u64;
/// Runs that one question is answered with.
const ANSWERS: usize = 512;
/// What a question costs at least, in pages.
const QUESTION: u64 = 64;

/// Ranges that have not been looked at, in ascending order, each from its first page to before its last.
pub(crate) struct Unlearnt {
    ranges: MapSlice<(u64, u64)>,
    len: usize,
    /// Those before this place have been.
    next: usize,
    /// Pages believed to be in them, which are counted as used already.
    expected: u64,
    /// Pages asked for at once.
    window: u64,
    /// Pages learnt at once.
    piece: u64,
}

impl Unlearnt {
    pub(crate) fn new() -> Result<Unlearnt, Errno> {
        Ok(Unlearnt { ranges: MapSlice::new(RANGES)?, len: 0, next: 0, expected: 0, window: PIECE, piece: PIECE })
    }

    fn open(&self) -> &[(u64, u64)] {
        self.ranges.as_slice().get(self.next..self.len).unwrap_or(&[])
    }

    fn push(&mut self, run: Run) -> bool {
        let last = self.open().last().map_or(0, |range| range.1);
        match self.ranges.get_mut(self.len).filter(|_| run.start.0 >= last) {
            Some(place) => *place = (run.start.0, run.end().0),
            None => return false,
        }
        self.len += 1;
        true
    }

    /// The first part of a run at or after `from` that has not been looked at.
    fn part(&self, run: Run, from: Page) -> Option<Run> {
        let open = self.open();
        let first = open.partition_point(|range| range.1 <= from.0);
        let (start, end) = *open.get(first)?;
        let (start, end) = (start.max(from.0), end.min(run.end().0));
        (start < end).then(|| Run { start: Page(start), pages: end - start })
    }

    /// A run is not looked at any more. Returns false when there is no room to note that.
    fn cut(&mut self, run: Run) -> bool {
        while let Some(part) = self.part(run, run.start) {
            let at = self.next + self.open().partition_point(|range| range.1 <= part.start.0);
            let Some((start, end)) = self.ranges.get(at).copied() else { return false };
            let (before, after) = ((start, part.start.0), (part.end().0, end));
            match (before.0 < before.1, after.0 < after.1) {
                (true, true) => {
                    if self.len == self.ranges.len() {
                        return false;
                    }
                    self.len += 1;
                    let list = self.ranges.as_mut_slice();
                    list.copy_within(at..self.len - 1, at + 1);
                    if let Some([one, other]) = list.get_mut(at..at + 2) {
                        (*one, *other) = (before, after);
                    }
                }
                (false, false) => {
                    self.ranges.as_mut_slice().copy_within(at + 1..self.len, at);
                    self.len -= 1;
                }
                (is_before, _) => {
                    if let Some(place) = self.ranges.get_mut(at) {
                        *place = if is_before { before } else { after };
                    }
                }
            }
        }
        true
    }
}

impl<M: Machine> Shard<M> {
    /// Takes a range over as [`Shard::manage`] does; what is mapped in it is learnt by and by. Ranges come in ascending order.
    pub fn manage_later(&mut self, run: Run) -> Result<(), Errno> {
        if run.pages == 0 {
            return Ok(());
        }
        self.table.reserve(run)?;
        self.machine.register(run)?;
        self.table.prepare(run)?;
        self.charge_blocks();
        if !self.unlearnt.push(run) {
            self.learn(run);
        }
        Ok(())
    }

    /// So many pages are believed to be in what was to be learnt later: they are used, until it is known better.
    pub fn expect(&mut self, pages: u64) {
        self.used += pages;
        self.unlearnt.expected += pages;
    }

    /// So many pages are learnt between two looks at what threads wait for.
    pub fn learn_in_pieces_of(&mut self, pages: u64) {
        (self.unlearnt.piece, self.unlearnt.window) = (pages, pages);
    }

    /// Whether something is still to be learnt.
    pub fn is_learning(&self) -> bool {
        self.unlearnt.next < self.unlearnt.len
    }

    /// Learns the next piece, if something is still to be learnt: then there may be more to evict.
    pub(crate) fn learn_more(&mut self) -> bool {
        let mut left = self.unlearnt.piece;
        while let Some((start, end)) = self.unlearnt.open().first().copied().filter(|_| left > 0) {
            let run = Run { start: Page(start), pages: end - start };
            let found = self.learn_part(run, run.start, left);
            left = left.saturating_sub(found.1.max(QUESTION));
            match self.unlearnt.ranges.get_mut(self.unlearnt.next) {
                Some(range) if found.0.0 < end => range.0 = found.0.0,
                _ => self.unlearnt.next += 1,
            }
            self.barren = false;
        }
        if !self.is_learning() && (self.unlearnt.len > 0 || self.unlearnt.expected > 0) {
            // What has gone since it was counted.
            self.used = self.used.saturating_sub(self.unlearnt.expected);
            (self.unlearnt.len, self.unlearnt.next, self.unlearnt.expected) = (0, 0, 0);
        }
        self.is_learning()
    }

    /// Learns what has not been looked at of a run, now.
    pub fn know(&mut self, run: Run) {
        let mut from = run.start;
        while let Some(part) = self.unlearnt.part(run, from) {
            self.learn(part);
            from = part.end();
        }
    }

    /// The same before the program changes the run behind the table's back: nor is it looked at later.
    pub(crate) fn know_for_good(&mut self, run: Run) {
        if self.is_learning() {
            self.know(run);
            while !self.unlearnt.cut(run) && self.learn_more() {}
        }
    }

    /// Notes the pages of a run that are mapped and believed to be Zero.
    pub(crate) fn learn(&mut self, run: Run) {
        let mut at = run.start;
        while at.0 < run.end().0 {
            at = self.learn_part(run, at, u64::MAX).0;
        }
    }

    /// Begins at `at`, and goes on until so many pages have been found, or one question is answered. How far it came, and how
    /// many it has found.
    fn learn_part(&mut self, run: Run, at: Page, most: u64) -> (Page, u64) {
        // The machine cannot be used while it answers.
        let mut found = [(Page(0), 0u64, Mapped::default()); ANSWERS];
        let (mut len, mut count) = (0, 0);
        let asked = Run { start: at, pages: (run.end().0 - at.0).min(self.unlearnt.window) };
        let mut next = asked.end();
        self.machine.present(asked, &mut |part, mapped| {
            let Some(place) = found.get_mut(len).filter(|_| count < most) else {
                next = part.start;
                return false;
            };
            let taken = part.pages.min(most - count);
            *place = (part.start, taken, mapped);
            len += 1;
            count += taken;
            if taken < part.pages {
                next = part.start.plus(taken as u32);
            }
            taken == part.pages
        });
        // A large piece of which much is there takes its time; and what was not asked for to the end would be asked for again.
        let few = next == asked.end() && count < asked.pages / 8;
        self.unlearnt.window =
            if few { (asked.pages * 2).clamp(self.unlearnt.piece, MOST) } else { self.unlearnt.piece };
        for (start, count, mapped) in found.iter().take(len).copied() {
            for (block, part) in blocks(Run { start, pages: count }) {
                self.found(part);
                self.shared_zeros += part.pages * mapped.zero as u64;
                if mapped.huge && part.pages == BLOCK_PAGES as u64 {
                    if let Some(meta) = self.table.meta_mut(block) {
                        meta.set_huge(true);
                    }
                }
            }
        }
        (next, count)
    }

    fn found(&mut self, run: Run) {
        let mut start = run.start;
        let mut count = 0;
        for page in pages(run) {
            if self.table.word(page).state() == State::Zero {
                self.step(page, Step::Fill);
                match self.unlearnt.expected {
                    0 => self.used += 1,
                    _ => self.unlearnt.expected -= 1,
                }
                if count == 0 {
                    start = page;
                }
                count += 1;
            } else if count > 0 {
                self.enqueue(start, count, false);
                count = 0;
            }
        }
        if count > 0 {
            self.enqueue(start, count, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, pages: u64) -> Run {
        Run { start: Page(start), pages }
    }

    #[test]
    fn ranges_are_cut() {
        let mut unlearnt = Unlearnt::new().unwrap();
        assert!(unlearnt.push(run(100, 50)) && unlearnt.push(run(150, 50)) && unlearnt.push(run(300, 10)));
        assert!(!unlearnt.push(run(5, 1)), "out of order");
        assert_eq!(unlearnt.part(run(0, 1000), Page(0)), Some(run(100, 50)));
        assert_eq!(unlearnt.part(run(120, 10), Page(120)), Some(run(120, 10)));
        assert_eq!(unlearnt.part(run(200, 100), Page(200)), None);
        assert!(unlearnt.cut(run(120, 10)));
        assert_eq!(unlearnt.open(), [(100, 120), (130, 150), (150, 200), (300, 310)]);
        assert!(unlearnt.cut(run(140, 165)) && unlearnt.cut(run(0, 101)));
        assert_eq!(unlearnt.open(), [(101, 120), (130, 140), (305, 310)]);
        assert!(unlearnt.cut(run(0, 1000)) && unlearnt.open().is_empty());
    }
}
