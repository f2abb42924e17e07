//! A store with hardly more room than what it holds.

use crate::common::ops::Op;
use crate::common::world::World;
use crate::lived;
use ream_pager::Fetch;

#[test]
fn a_full_store_is_tried_again_before_the_program_is_stopped() {
    for seed in 1..4 {
        let mut world = lived(seed, 1000, Fetch::Auto, &[Op::Map(0, 2900)]);
        world.shard.machine_mut().set_store_slots(0, 1024);
        let mut at = 0;
        while at < 2900 && !world.shard.store_is_full() {
            assert!(world.apply(Op::Walk(0, at, 1, 1, true)));
            at += 1;
        }
        assert!((900..2900).contains(&at), "{at} pages were written when the store was full");
        world.shard.machine_mut().set_store_slots(0, 1 << 16);
        assert!(world.apply(Op::Walk(0, at, 2900 - at, 1, true)));
        assert_eq!(world.shard.fatal(), None);
        world.finish();
    }
}

/// Two areas of which a sixth fits into memory, changed at random, and a store with room for so many slots.
fn changed_at_random(seed: u64, prepare: impl Fn(&mut World)) -> World {
    let mut world = lived(seed, 1000, Fetch::Auto, &[Op::Map(0, 2900), Op::Map(1, 2900)]);
    prepare(&mut world);
    for round in 0..6 {
        for area in 0..2 {
            assert!(world.apply(Op::Walk(area, 0, 2900, 1, true)));
            assert!(world.apply(Op::Threads(area, 0, 2900, 8, 400, round)));
        }
        assert_eq!(world.shard.fatal(), None, "in round {round}");
    }
    world
}

/// A memory server counts whole segments, and has none for the last that the client believes to have.
#[test]
fn what_a_server_has_no_room_for_goes_where_holes_are() {
    for seed in 1..6 {
        let mut world = changed_at_random(seed, |world| {
            world.shard.machine_mut().claim_by(512);
            world.shard.machine_mut().set_store_slots(0, 12 * 512);
            world.shard.set_store_limit(14 * 512);
        });
        let counts = world.shard.machine().counts();
        assert!(counts.failed_io * 50 < counts.writes, "{} of {} writes were refused", counts.failed_io, counts.writes);
        world.finish();
    }
}

#[test]
fn on_a_full_disk_holes_are_filled() {
    for seed in 1..6 {
        let mut world = changed_at_random(seed, |world| world.shard.machine_mut().set_store_slots(0, 12 * 512));
        assert!(world.shard.machine().store_is_full(), "there was room for more than what was taken");
        world.finish();
    }
}

/// Without that it would be after 16 MiB that went elsewhere, and these are less.
#[test]
fn what_was_refused_is_tried_as_soon_as_a_server_is_back() {
    for (seed, back) in [(1, true), (2, true), (3, false)] {
        let mut world = changed_at_random(seed, |world| {
            world.shard.machine_mut().claim_by(512);
            world.shard.machine_mut().set_store_slots(0, 12 * 512);
            world.shard.set_store_limit(14 * 512);
        });
        assert_eq!(world.shard.machine().store_used(0), 12 * 512);
        world.shard.machine_mut().set_store_slots(0, 14 * 512);
        if back {
            world.shard.try_store_again();
        }
        assert!(world.apply(Op::Walk(0, 0, 1500, 1, true)));
        assert_eq!(world.shard.machine().store_used(0) > 12 * 512, back, "seed {seed}");
        world.finish();
    }
}

/// What was read back needs its place in the store no more.
#[test]
fn a_full_store_and_the_budget_hold_different_pages() {
    for seed in 1..6 {
        let mut world = lived(seed, 1000, Fetch::Auto, &[Op::Map(0, 3000)]);
        // With metadata these are about as many as both can hold.
        world.shard.machine_mut().set_store_slots(0, 4 * 512);
        assert!(world.apply(Op::Walk(0, 0, 3000, 1, true)));
        for round in 0..4 {
            assert!(world.apply(Op::Walk(0, 0, 3000, 1, false)) && world.apply(Op::Threads(0, 0, 3000, 4, 300, round)));
            assert_eq!(world.shard.fatal(), None, "seed {seed}, round {round}");
        }
        world.shard.machine_mut().set_store_slots(0, 1 << 16);
        world.shard.try_store_again();
        world.finish();
    }
}
