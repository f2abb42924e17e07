//! Pages that were only read leave without being moved out, whatever happens to them meanwhile.

use crate::common::ops::Op;
use crate::common::world::World;
use ream_pager::{Fetch, Usage};

/// Two areas in the store, of which single pages are wanted, and a rough machine.
fn world(seed: u64) -> World {
    let mut world = World::of(seed, 1500, Fetch::Auto);
    for op in [Op::Map(0, 2900), Op::Walk(0, 0, 2900, 1, true)] {
        assert!(world.apply(op));
    }
    world
}

fn looked_through(world: &mut World, area: u8, times: u16) -> u64 {
    let run = world.run_of(area);
    world.shard.set_usage(run, Usage::Random);
    let before = world.shard.machine().counts().dropped;
    for first in 0..times {
        assert!(world.apply(Op::Walk(area, first * 3 % 13, 220, 13, false)));
    }
    world.shard.machine().counts().dropped - before
}

#[test]
fn what_was_only_read_leaves_where_it_is() {
    // Where much was touched again just then, hardly any do: one seed in thirty.
    let mut all = 0;
    for seed in 1..8 {
        let mut world = world(seed);
        looked_through(&mut world, 0, 13);
        all += looked_through(&mut world, 0, 13);
        world.finish();
    }
    assert!(all > 7 * 300, "{all} pages");
}

#[test]
fn what_was_read_and_is_written_to_is_kept() {
    let mut dropped = 0;
    for seed in 1..8 {
        let mut world = world(seed);
        for round in 0..6u16 {
            dropped += looked_through(&mut world, 0, 9);
            // Some of what is guarded then.
            let (first, few) = (round * 431 % 2000, 40 + round * 20);
            assert!(world.apply(Op::Walk(0, first, few, 7, true)));
            assert!(world.apply(Op::Threads(0, first, 700, 4, 8, round + 1)));
            let change = match round {
                1 => Op::DiscardUnheard(0, first, 300),
                2 => Op::Discard(0, first, 300),
                3 => Op::Fork(false),
                4 => Op::Pin(0, first),
                _ => Op::Limit(1400 - round * 20),
            };
            assert!(world.apply(change));
        }
        world.finish();
    }
    assert!(dropped > 7 * 100, "{dropped} pages");
}

#[test]
fn mappings_move_while_their_pages_are_guarded() {
    let mut dropped = 0;
    for seed in 1..8 {
        let mut world = world(seed);
        for round in 0..4u16 {
            let area = (round % 2) as u8;
            looked_through(&mut world, area, 9);
            assert!(world.apply(Op::Remap(area, 1 - area)));
            assert!(world.apply(Op::Walk(1 - area, round * 100, 200, 3, true)));
        }
        dropped += world.shard.machine().counts().dropped;
        world.finish();
    }
    assert!(dropped > 300, "{dropped} pages");
}

/// Nobody serves while the copy is made, so that nothing may be protected then, whatever has become of guarded pages before.
#[test]
fn nothing_is_guarded_when_the_copy_is_made() {
    for seed in 1..8 {
        let mut world = world(seed);
        looked_through(&mut world, 0, 9);
        assert!(world.apply(Op::Remap(0, 1)));
        assert!(world.apply(Op::Fork(false)));
        looked_through(&mut world, 1, 9);
        assert!(world.apply(Op::Walk(1, 100, 60, 7, true)));
        assert!(world.apply(Op::Fork(false)));
        world.finish();
    }
}

/// Single pages that were read just now, here and there, leave before others when a stream asks for their blocks.
#[test]
fn what_stands_in_the_way_of_a_stream_leaves() {
    // In which blocks depends on what else is under way.
    let mut all = 0;
    for seed in 1..12 {
        let mut world = World::roomy(seed, 8000, Fetch::Auto);
        for area in 0..4 {
            assert!(world.apply(Op::Map(area, 4000)) && world.apply(Op::Walk(area, 0, 4000, 1, true)));
        }
        let run = world.run_of(0);
        world.shard.set_usage(run, Usage::Random);
        assert!(world.apply(Op::Walk(0, 1024, 40, 71, false)));
        world.shard.set_usage(run, Usage::Unknown);
        let before = world.shard.machine().counts().dropped;
        assert!(world.apply(Op::Walk(0, 0, 2400, 1, false)));
        all += world.shard.machine().counts().dropped - before;
        world.finish();
    }
    assert!(all > 120, "{all} pages");
}
