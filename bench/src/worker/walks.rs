//! Walks over the data. Each goes on where it stopped in the slice before.

use crate::data::Data;
use ream_bench::content::{Random, Zipf, mix};
use ream_bench::work::{Slice, Walk};
use std::time::Instant;

/// Where each walk stands.
pub struct Walks {
    data: Data,
    ahead: u64,
    renewed: u64,
    reverse: u64,
    strided: u64,
    streams: u64,
    rounds: u64,
    /// Where each thread stands in its part.
    parts: Vec<u64>,
    random: u64,
    zipf: Option<Zipf>,
    phases: Phase,
}

struct Phase {
    place: u64,
    left: u64,
    at_random: bool,
    random: Random,
}

/// When a thread of a slice has done enough.
struct End {
    begun: Instant,
    seconds: f64,
    accesses: u64,
    /// Accesses between two looks at the clock.
    look: u64,
}

impl End {
    fn reached(&self, done: u64) -> bool {
        if self.accesses > 0 && done >= self.accesses {
            return true;
        }
        self.seconds > 0.0 && done % self.look == 0 && self.begun.elapsed().as_secs_f64() >= self.seconds
    }
}

/// Pages between two looks at the clock where they come in order, and where each may take long.
const IN_ORDER: u64 = 64;
const AT_RANDOM: u64 = 4;
/// Pages that are discarded at once; slices end where all have their content again.
const RENEWED: u64 = 512;

impl Walks {
    /// Over this data, each from its beginning.
    pub fn new(data: Data) -> Walks {
        let phases = Phase { place: 0, left: 0, at_random: true, random: Random(31) };
        Walks {
            data,
            ahead: 0,
            renewed: 0,
            reverse: 0,
            strided: 0,
            streams: 0,
            rounds: 0,
            parts: Vec::new(),
            random: 7,
            zipf: None,
            phases,
        }
    }

    /// Writes every page, in order, once.
    pub fn fill(&mut self) -> u64 {
        let pages = self.data.pages();
        (0..pages).for_each(|page| self.data.write(page));
        pages
    }

    /// Changes a word behind everybody's back, of the first page, and of the one that the skewed walk reads most: who verifies
    /// must find it.
    pub fn spoil(&mut self) {
        self.data.spoil(0);
        self.data.spoil(mix(0) % self.data.pages());
    }

    /// Touches pages at random, one at a time; the microseconds that each touch took which `missed` counts, as it tells after
    /// each.
    pub fn touches(&mut self, touches: u64, missed: &dyn Fn() -> u64) -> Vec<f64> {
        self.random += 100;
        let mut random = Random(self.random);
        let mut times = Vec::new();
        let mut before = missed();
        for _ in 0..touches {
            let page = random.below(self.data.pages());
            let begun = Instant::now();
            self.data.touch(page);
            let took = begun.elapsed();
            let now = missed();
            if now != before {
                times.push(took.as_secs_f64() * 1e6);
            }
            before = now;
        }
        times
    }

    /// Does one slice and returns the pages accessed.
    pub fn slice(&mut self, slice: &Slice) -> u64 {
        let begun = Instant::now();
        let share = slice.accesses.div_ceil(slice.threads.max(1));
        let end = |look| End { begun, seconds: slice.seconds, accesses: share, look };
        let data = &self.data;
        let pages = data.pages();
        match slice.walk {
            Walk::Sequential => one(&end(IN_ORDER), || data.read(next(&mut self.ahead, pages))),
            Walk::Overwrite => one(&end(IN_ORDER), || data.write(next(&mut self.ahead, pages))),
            Walk::Change => one(&end(IN_ORDER), || data.change(next(&mut self.ahead, pages))),
            Walk::Reverse => one(&end(IN_ORDER), || data.read(pages - 1 - next(&mut self.reverse, pages))),
            Walk::Strided { pages: run, step } => one(&end(IN_ORDER), || {
                let turn = self.strided;
                self.strided += 1;
                data.read(strided(turn, run, step, pages));
            }),
            Walk::Streams => one(&end(IN_ORDER), || {
                let turn = self.streams;
                self.streams += 1;
                let quarter = pages / 4;
                data.read(turn % 4 * quarter + turn / 4 % quarter);
            }),
            Walk::Parts => {
                let (threads, end) = (slice.threads.max(1), end(IN_ORDER));
                self.parts.resize(threads as usize, 0);
                let (part, end) = (pages / threads, &end);
                std::thread::scope(|scope| {
                    let places = (0..).zip(&mut self.parts);
                    let started: Vec<_> = places
                        .map(|(me, place)| scope.spawn(move || one(end, || data.read(me * part + next(place, part)))))
                        .collect();
                    started.into_iter().map(|thread| thread.join().expect("a thread of the slice")).sum()
                })
            }
            Walk::Rounds(first) => {
                let first = first.clamp(1, pages);
                one(&end(IN_ORDER), || data.read(next(&mut self.rounds, first)))
            }
            Walk::Random => {
                self.random += 100;
                many(slice.threads, self.random, &end(AT_RANDOM), |_, random| data.read_lines(random.below(pages)))
            }
            Walk::RandomChange => {
                self.random += 100;
                let threads = slice.threads;
                // Neighbouring pages belong to different threads, so that each page has one writer.
                many(threads, self.random, &end(AT_RANDOM), |me, random| {
                    data.change(random.below(pages / threads) * threads + me);
                })
            }
            Walk::Hot(hot) => {
                self.random += 100;
                let hot = hot.clamp(1, pages);
                many(slice.threads, self.random, &end(IN_ORDER), |_, random| data.read_lines(random.below(hot)))
            }
            Walk::Zipf => {
                let zipf = self.zipf.get_or_insert_with(|| Zipf::new(pages, ZIPF_SEED));
                one(&end(AT_RANDOM), || data.read_lines(zipf.draw()))
            }
            Walk::Lines => {
                let ahead = &mut self.ahead;
                one(&end(IN_ORDER), || data.read_lines(next(ahead, pages)))
            }
            Walk::Renew => {
                let renewed = &mut self.renewed;
                one(&end(RENEWED), || {
                    let page = next(renewed, pages);
                    if page % RENEWED == 0 {
                        data.discard(page, RENEWED);
                    }
                    data.write(page);
                })
            }
            Walk::Phases => {
                let phases = &mut self.phases;
                one(&end(AT_RANDOM), || data.read(phases.next(pages)))
            }
        }
    }
}

/// The runner computes the same trace for its simulation of exact LRU.
pub use ream_bench::lru::ZIPF_SEED;

fn next(cursor: &mut u64, pages: u64) -> u64 {
    let now = *cursor;
    *cursor = (now + 1) % pages;
    now
}

/// The page of the walk's step `turn`: `run` pages at every multiple of `step`, the whole shifted by `run` each round.
fn strided(turn: u64, run: u64, step: u64, pages: u64) -> u64 {
    let per_round = pages / step * run;
    let (round, turn) = (turn / per_round, turn % per_round);
    (turn / run * step + turn % run + round * run % step) % pages
}

impl Phase {
    fn next(&mut self, pages: u64) -> u64 {
        if self.left == 0 {
            self.at_random = !self.at_random;
            self.left = if self.at_random { ream_bench::rows::PHASE_RANDOM } else { ream_bench::rows::PHASE_ORDERED };
        }
        self.left -= 1;
        if self.at_random { self.random.below(pages) } else { next(&mut self.place, pages) }
    }
}

fn one(end: &End, mut access: impl FnMut()) -> u64 {
    let mut done = 0;
    while !end.reached(done) {
        access();
        done += 1;
    }
    done
}

fn many(threads: u64, seed: u64, end: &End, access: impl Fn(u64, &mut Random) + Sync) -> u64 {
    let work = |me: u64| {
        let mut random = Random(seed + me);
        one(end, || access(me, &mut random))
    };
    if threads <= 1 {
        return work(0);
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|me| scope.spawn(move || work(me))).collect();
        started.into_iter().map(|thread| thread.join().expect("a thread of the slice")).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strided_walk_comes_everywhere_once() {
        let mut seen = vec![0; 1024];
        (0..1024).for_each(|turn| seen[strided(turn, 4, 64, 1024) as usize] += 1);
        assert!(seen.iter().all(|count| *count == 1));
        assert_eq!(strided(4, 4, 64, 1024), 64);
    }
}
