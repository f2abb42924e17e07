//! Random lists of operations on a shard over the fake kernel, which knows what every page must hold. A list that
//! fails is made short and printed as code; those that ever failed are kept below as tests.
//!
//! `REAM_FUZZ_SEED` sets the first seed, `REAM_FUZZ_RUNS` the number of runs, `REAM_FUZZ_STEPS` the operations of each.

mod common;

use common::ops::{Kind, Op, fuzz, play};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: not a number")))
}

fn many(kind: Kind) {
    let first = number("REAM_FUZZ_SEED", 1);
    let steps = number("REAM_FUZZ_STEPS", 60) as usize;
    for seed in first..first + number("REAM_FUZZ_RUNS", 25) {
        fuzz(seed, steps, kind);
    }
}

#[test]
fn what_a_program_survives() {
    many(Kind::Survivable);
}

#[test]
fn what_a_program_may_not_survive() {
    many(Kind::Failing);
}

#[test]
fn a_simple_life() {
    play(1, &[Op::Map(0, 3000), Op::Walk(0, 0, 3000, 1, true), Op::Walk(0, 0, 3000, 1, false)]);
}

#[test]
fn mappings_move_while_their_pages_are_written_back() {
    for seed in 1..30 {
        let life = [Op::Walk(0, 0, 2000, 1, true), Op::Threads(0, 0, 2000, 12, 60, 5), Op::Remap(0, 1)];
        let later = [Op::Walk(1, 0, 2000, 1, true), Op::Turns(50), Op::Threads(1, 0, 2000, 12, 60, 6), Op::Remap(1, 0)];
        play(seed, &[&[Op::Rough(3), Op::Map(0, 2000)][..], &life, &later, &life, &later].concat());
    }
}

/// Hundreds of queue entries whose pages were discarded lie between those that can be evicted.
#[test]
fn a_fork_finds_half_of_the_budget_free() {
    for seed in 1..10 {
        let first = [Op::Limit(3500), Op::Map(0, 3000), Op::Map(1, 3000), Op::Walk(1, 0, 1000, 1, true)];
        let between = [Op::Walk(0, 0, 900, 3, true), Op::Walk(1, 1000, 1900, 1, true), Op::Discard(0, 0, 3000)];
        play(seed, &[&first[..], &between, &[Op::Prepare]].concat());
    }
}

#[test]
fn what_a_child_reads_is_not_overwritten() {
    for seed in 1..10 {
        let all = |write| Op::Walk(0, 0, 3000, 1, write);
        let life = [all(true), all(false), all(true), all(false)];
        let family = [Op::Fork(false), Op::ChildrenGone, Op::Fork(false), Op::Fork(true)];
        let mut ops = vec![Op::Map(0, 3000)];
        for member in family {
            ops.extend(life);
            ops.push(member);
        }
        play(seed, &ops);
    }
}
