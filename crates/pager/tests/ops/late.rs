//! What was in RAM before paging began.

use crate::common::world::World;
use ream_page::{Page, Run, State};
use ream_pager::Fetch;

/// Whoever touches a new page when paging begins does not wait until gigabytes have been looked at; nor does that page count
/// for less than it is, or the budget for more.
#[test]
fn touches_are_served_before_all_is_learnt() {
    for seed in 1..6 {
        let mut world = World::roomy(seed, 4000, Fetch::Auto);
        world.map_late(0, 2900, 1, 64);
        assert!(world.shard.is_learning() && world.shard.used() >= 2900, "{} pages used", world.shard.used());
        world.map_late(1, 600, 3, 64);
        let turns = world.turns_for_a_write(1, 577);
        assert!(
            turns <= 3 && world.shard.is_learning(),
            "{turns} turns, {} pages known",
            world.shard.count(State::Resident)
        );
        assert!(world.shard.used() >= 3100, "{} pages used", world.shard.used());
        world.learn_all();
        let known = world.shard.whereabouts(world.run_of(0));
        assert_eq!(known.resident + known.staged + known.stored, 2900);
        world.finish();
    }
}

/// More than may be is evicted while the rest is still unknown.
#[test]
fn what_is_too_much_leaves_while_the_rest_is_learnt() {
    let mut world = World::roomy(3, 2000, Fetch::Auto);
    world.map_late(0, 2900, 1, 64);
    let mut written = 0;
    while world.shard.is_learning() {
        written = world.counters.bytes_out.get();
        world.learn_some();
    }
    assert!(written > 0, "nothing was written until all was known");
    world.finish();
}

/// Single pages all over a range are looked at once each, and not again for each few of them.
#[test]
fn single_pages_that_were_there_before_are_looked_at_once() {
    for (every, piece) in [(2, 8192), (1, 8192), (2, 100), (7, 300)] {
        let mut world = World::roomy(3, 4000, Fetch::Auto);
        let before = world.shard.machine().counts().looked;
        world.map_late(0, 2900, every, piece);
        world.learn_all();
        let looked = world.shard.machine().counts().looked - before;
        assert!(looked <= 2 * 2900, "{looked} looks at 2900 pages, one in {every} there");
        assert_eq!(world.shard.count(State::Resident), 2900u64.div_ceil(every as u64));
        world.finish();
    }
}

/// The program discards more single pages of a range that is still to be learnt than can be noted: then what lies before is
/// learnt, and no page is looked at again that the kernel has still to drop.
#[test]
fn more_holes_than_can_be_noted() {
    let mut world = World::roomy(3, 60_000, Fetch::Auto);
    let run = world.map_wide(40_000, 1);
    let holes = (0..run.pages).step_by(2);
    for page in holes.clone() {
        world.shard.discard(Run { start: Page(run.start.0 + page), pages: 1 });
    }
    while world.shard.is_learning() {
        world.shard.work();
    }
    let known = world.shard.whereabouts(run);
    assert_eq!(known.resident + known.staged + known.stored, run.pages - holes.count() as u64);
}
