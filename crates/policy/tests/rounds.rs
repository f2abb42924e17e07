//! Data that are gone through again and again, and do not find room: a part of them stays.

use ream_policy::replacement::{Queue, Trial, comes_round};
use std::collections::VecDeque;
use std::ops::Range;

const BLOCK: u64 = 512;

/// Whole blocks in a memory of `limit` of them, without what is staged: a block passes through the queues and comes back as in the
/// pager.
struct Memory {
    limit: usize,
    trial: Trial,
    queues: [VecDeque<usize>; 2],
    hot: Vec<bool>,
    mapped: Vec<bool>,
    /// The eviction clock when each left last.
    left: Vec<Option<u64>>,
    evictions: u64,
}

impl Memory {
    fn new(limit: usize, blocks: usize) -> Memory {
        Memory {
            limit,
            trial: Trial::default(),
            queues: Default::default(),
            hot: vec![false; blocks],
            mapped: vec![false; blocks],
            left: vec![None; blocks],
            evictions: 0,
        }
    }

    fn pages(&self, queue: Queue) -> u64 {
        self.queues[queue as usize].len() as u64 * BLOCK
    }

    /// Touches a block; whether it had to be read.
    fn touch(&mut self, block: usize) -> bool {
        if self.mapped[block] {
            return false;
        }
        let (new, hot) = (self.pages(Queue::New), self.pages(Queue::Hot));
        if let Some(left) = self.left[block] {
            let comes_round = comes_round(self.evictions - left, new + hot);
            if comes_round && self.hot[block] {
                self.trial.returned(BLOCK);
            }
            self.hot[block] = comes_round && self.trial.becomes_hot(self.hot[block], hot, new + hot);
        }
        self.mapped[block] = true;
        let queue = if self.hot[block] { Queue::Hot } else { Queue::New };
        self.queues[queue as usize].push_back(block);
        while self.queues.iter().map(VecDeque::len).sum::<usize>() > self.limit {
            let all = self.left.iter().filter(|left| left.is_some()).count() as u64 * BLOCK;
            self.trial.pass(self.evictions, all);
            let queue = self.trial.victim(self.pages(Queue::New), self.pages(Queue::Hot));
            let victim = self.queues[queue as usize].pop_front().unwrap();
            self.trial.evicted(queue, BLOCK);
            self.evictions += BLOCK;
            (self.mapped[victim], self.left[victim]) = (false, Some(self.evictions));
        }
        self.left[block].is_some()
    }

    /// Blocks read in each of so many passes.
    fn passes(&mut self, blocks: Range<usize>, passes: usize) -> Vec<usize> {
        (0..passes).map(|_| blocks.clone().filter(|block| self.touch(*block)).count()).collect()
    }
}

#[test]
fn a_part_of_what_comes_round_stays() {
    for (blocks, most) in [(330, 150), (400, 230), (600, 480)] {
        let mut memory = Memory::new(300, 1000);
        let reads = memory.passes(0..blocks, 24);
        // Least would be what does not fit: 30, 100 and 300 blocks. First in, first out reads all of them in each pass.
        let late = reads[12..].iter().sum::<usize>() / 12;
        assert!(late <= most, "{blocks} in 300: {reads:?}");
        // What comes after it and fits finds room, within a few passes.
        let reads = memory.passes(700..900, 8);
        assert!(reads[5..].iter().all(|reads| *reads == 0), "200 after {blocks}: {reads:?}");
    }
    // What is many times as large passes by.
    let mut memory = Memory::new(100, 3000);
    assert!(memory.passes(0..2000, 3)[1..].iter().all(|reads| *reads == 2000));
    assert_eq!(memory.pages(Queue::Hot), 0);
}
