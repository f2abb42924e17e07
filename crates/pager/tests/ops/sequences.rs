//! Sequences of events that seldom come together, one a test: each was found to end badly once.

use crate::common::ops::Op;
use crate::common::world::World;
use ream_page::{Page, Run, State};
use ream_pager::{Fetch, Progress};
use ream_sys::{Events, Machine, Wait};

/// Distinct content in every page of an area, none of it zeros.
fn fill(world: &mut World, area: u8) {
    let run = world.run_of(area);
    for page in (run.start.0..run.end().0).map(Page) {
        let content = world.shard.machine_mut().fresh_content();
        let _ = world.shard.machine_mut().touch_write(1, page, content);
        // Not by turns of the world, in which what was moved out would be looked at as well.
        while world.shard.machine().sleeps_on(1).is_some() {
            let mut events = Events::new();
            world.shard.work();
            world.shard.machine_mut().poll(Wait::No, &mut events);
            for event in events.as_slice() {
                world.shard.event(*event);
            }
        }
    }
}

/// How long the device takes.
fn device(world: &mut World, micros: u64) {
    let script = &mut world.shard.machine_mut().script;
    (script.io_min_us, script.io_max_us) = (micros, micros + 100);
}

/// Two blocks are moved out whole, into huge frames side by side; then the mapping moves by a distance that is no multiple
/// of a block, so that a block has a part of each frame.
#[test]
fn pages_of_two_huge_frames_in_one_block() {
    for slow in [false, true] {
        for seed in 2..5 {
            for at in [435, 436, 600, 946, 947, 948] {
                let mut world = World::of(seed, 4000, Fetch::Auto);
                assert!(world.apply(Op::Map(0, 2048)));
                fill(&mut world, 0);
                let mut left = world.run_of(0);
                if slow {
                    device(&mut world, 1_000_000);
                    let _ = world.shard.cool(&mut left);
                    device(&mut world, 20);
                } else {
                    while world.shard.cool(&mut left) == Progress::Again {
                        assert!(world.apply(Op::Turns(1)));
                    }
                    assert!(world.apply(Op::Turns(200)));
                }
                assert!(world.apply(Op::Remap(0, 5)));
                for (first, pages) in [(at, 300), (520, 3), (0, 2048)] {
                    assert!(world.apply(Op::Walk(5, first, pages, 1, false)));
                }
                assert!(world.apply(Op::Map(3, 4000)) && world.apply(Op::Walk(3, 0, 4000, 1, true)));
                assert!(world.apply(Op::Walk(5, 0, 2048, 1, false)));
                world.finish();
            }
        }
    }
}

/// A file system with less space than the data need, but more than a quarter above it in holes of the store's file.
#[test]
fn what_is_free_within_the_file_is_used_when_it_cannot_grow() {
    for seed in 1..4 {
        for space in [2560, 2900, 3400] {
            let mut world = World::of(seed, 1500, Fetch::Lazy);
            assert!(world.apply(Op::Map(0, 2900)) && world.apply(Op::Space(space)));
            assert!(world.apply(Op::Walk(0, 0, 2900, 1, true)));
            for round in 1..60 {
                let alive = world.apply(Op::Threads(0, 0, 2900, 4, 300, round));
                let used = world.shard.slots_in_use();
                assert!(alive, "seed {seed}, {space} slots: stopped in round {round} with {used} of them in use");
            }
        }
    }
}

/// While a fork is prepared others take the room that it found; then the thread that forks touches a page.
#[test]
fn whoever_forks_is_served_when_others_have_taken_the_room() {
    for seed in 1..4 {
        let mut world = World::of(seed, 1500, Fetch::Lazy);
        assert!(world.apply(Op::Map(0, 2900)) && world.apply(Op::Walk(0, 0, 2900, 1, true)));
        while world.shard.prepare_fork(750) == Progress::Again {
            assert!(world.apply(Op::Turns(1)));
        }
        for round in 0..400 {
            assert!(world.apply(Op::Start(0, 0, 2900, 12, round)) && world.apply(Op::Turns(3)));
        }
        let run = world.run_of(0);
        let stored = |page: &Page| world.shard.whereabouts(Run { start: *page, pages: 1 }).stored == 1;
        let page = (run.start.0..run.end().0).map(Page).find(stored).expect("a page in the store");
        let _ = world.shard.machine_mut().touch_read(1, page);
        assert!(world.apply(Op::Turns(3000)));
        assert_eq!(world.shard.machine().sleeps_on(1), None, "seed {seed}");
    }
}

/// Threads that fault while a fork is prepared take nothing of what that gains.
#[test]
fn preparing_a_fork_gains_whatever_others_touch() {
    for seed in 1..4 {
        let mut world = World::of(seed, 1500, Fetch::Lazy);
        assert!(world.apply(Op::Map(0, 2900)) && world.apply(Op::Walk(0, 0, 2900, 1, true)));
        let mut round = 0;
        while world.shard.prepare_fork(750) == Progress::Again {
            round += 1;
            assert!(round < 5000, "seed {seed}: never ready");
            assert!(world.apply(Op::Start(0, 0, 2900, 12, round)) && world.apply(Op::Turns(1)));
        }
        let used = world.shard.used();
        assert!(used <= 750, "seed {seed}: {used} pages are used");
    }
}

/// Two older copies of a page are being written when its mapping moves: only the end of the later write concerns it.
#[test]
fn a_page_moves_while_two_copies_of_it_are_written() {
    for seed in 1..4 {
        let mut world = World::of(seed, 3000, Fetch::Lazy);
        assert!(world.apply(Op::Map(0, 64)));
        fill(&mut world, 0);
        device(&mut world, 500_000_000);
        let run = world.run_of(0);
        let _ = world.shard.cool(&mut { run });
        fill(&mut world, 0);
        assert!(world.apply(Op::Discard(0, 0, 64)));
        fill(&mut world, 0);
        let _ = world.shard.cool(&mut { run });
        fill(&mut world, 0);
        assert!(world.shard.machine().in_flight() >= 2, "not two writes at once");
        assert!(world.apply(Op::Remap(0, 5)));
        device(&mut world, 20);
        while world.shard.machine().in_flight() > 0 {
            assert!(world.apply(Op::Turns(1)));
        }
        assert!(world.shard.slots_in_use() <= 64 && world.shard.count(State::Writing) == 0);
        world.finish();
    }
}

/// What a call overwrote is wanted in the next turn, and in no later one, however turns begin.
#[test]
fn what_is_expected_is_forgotten_after_a_turn() {
    let mut world = World::of(1, 3000, Fetch::Auto);
    let begin = [Op::Map(0, 1500), Op::Map(1, 2900), Op::Walk(0, 0, 1500, 1, true)];
    assert!(begin.into_iter().all(|op| world.apply(op)));
    assert!(world.apply(Op::Overwrite(0, 1000, 500)) && world.apply(Op::Switch(false, false)));
    assert_eq!(world.shard.noted(), 1500);
    for turn in 1..4 {
        assert!(world.apply(Op::Switch(true, true)));
        assert!(world.apply(Op::Overwrite(1, 600 * turn, 500)) && world.apply(Op::Switch(false, false)));
        assert_eq!(world.shard.noted(), 1500, "turn {turn}");
    }
}

/// What is overwritten in every turn is wanted in every turn.
#[test]
fn what_is_overwritten_in_each_turn_is_expected_in_each() {
    let mut world = World::of(1, 3000, Fetch::Auto);
    assert!(world.apply(Op::Map(0, 1500)) && world.apply(Op::Walk(0, 0, 1500, 1, true)));
    for turn in 1..6 {
        assert!(world.apply(Op::Overwrite(0, 1000, 500)) && world.apply(Op::Switch(false, false)));
        assert_eq!(world.shard.noted(), 1500, "turn {turn}");
        assert!(world.apply(Op::Switch(true, true)));
    }
}

/// Nor does it become more when the list is kept, after turns in which little was done.
#[test]
fn what_is_expected_again_and_again_is_counted_once() {
    let mut world = World::of(1, 3000, Fetch::Auto);
    assert!(world.apply(Op::Map(0, 1500)) && world.apply(Op::Walk(0, 0, 1500, 1, true)));
    assert!(world.apply(Op::Overwrite(0, 1000, 500)) && world.apply(Op::Switch(false, false)));
    for turn in 1..1000 {
        world.shard.begin_turn();
        assert!(world.apply(Op::Overwrite(0, 1000, 500)));
        assert_eq!(world.shard.keep_noted(), 1500, "turn {turn}");
    }
    // Ranges that grow are one.
    for more in 1..400 {
        world.shard.begin_turn();
        assert!(world.apply(Op::Overwrite(0, 1000 - more, 500)));
        assert!(world.shard.keep_noted() <= 1500 + u64::from(more), "{more} more");
    }
}

/// Touches that are withheld wait, whether of what is stored or of what never was; what is in RAM does not.
#[test]
fn withheld_touches_wait() {
    let mut world = World::of(1, 1500, Fetch::Lazy);
    assert!(world.apply(Op::Map(0, 2900)) && world.apply(Op::Walk(0, 0, 2400, 1, true)));
    let run = world.run_of(0);
    let of = |world: &World, wanted: u64| {
        let is = |page: &Page| world.shard.whereabouts(Run { start: *page, pages: 1 }).stored == wanted;
        (run.start.0..run.start.0 + 2400).map(Page).find(is)
    };
    let (stored, fresh) = (of(&world, 1).expect("a page in the store"), Page(run.start.0 + 2500));
    for page in [stored, fresh] {
        world.shard.withhold(true);
        let _ = world.shard.machine_mut().touch_read(1, page);
        assert!(world.apply(Op::Turns(3000)));
        assert!(world.shard.machine().sleeps_on(1).is_some() && world.shard.waiting() > 0 && !world.shard.starved());
        world.shard.withhold(false);
        assert!(world.apply(Op::Turns(3000)));
        assert_eq!(world.shard.machine().sleeps_on(1), None);
    }
    world.finish();
}

/// The errand that a fork waits for needs a frame itself, where all that is left is shared with another child.
#[test]
fn errands_that_a_fork_waits_for_get_a_frame() {
    let unmapped = [Op::Unmap(0, 2713, 1244), Op::Unmap(0, 679, 978), Op::Pin(0, 239)];
    let first = [Op::Start(0, 991, 39, 3, 614), Op::Remap(0, 1), Op::Start(0, 363, 27, 1, 661)];
    let last = [Op::RemapCold(0, 0), Op::RemapCold(0, 5), Op::Fork(true)];
    crate::play(8589943697, &[&[Op::Map(0, 1985), Op::Fork(false)], &unmapped[..], &first, &last].concat());
}

/// Blocks of which some pages were written anew lie in a few pieces of the store: each is put together on a large page again,
/// although parts of it arrive, and are touched, before others.
#[test]
fn blocks_in_few_pieces_come_back_on_large_pages() {
    const BLOCKS: u64 = 7;
    const PASSES: u64 = 3;
    const SEEDS: u64 = 8;
    let (mut whole, mut away, mut pieces, mut reads) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = in_pieces(seed);
        let run = world.run_of(0);
        let all = |area, write| Op::Walk(area, 0, 4000, 1, write);
        let mut pass = |write| {
            for area in 1..4 {
                assert!(world.apply(all(area, false)));
            }
            let before = world.shard.machine().counts();
            let stays = world.shard.whereabouts(run).resident / 512;
            assert!(world.apply(all(0, write)));
            let after = world.shard.machine().counts();
            (after.huge_in - before.huge_in, after.reads - before.reads, BLOCKS - stays)
        };
        pieces += pass(false).1;
        for _ in 0..PASSES {
            let (came_whole, _, were_away) = pass(false);
            whole += came_whole;
            away += were_away;
        }
        pass(true);
        // It was written side by side.
        reads += pass(false).1;
        world.finish();
    }
    // A few stay in memory, of those that came whole first.
    assert!(whole * 5 > away * 2 && away > SEEDS * BLOCKS * PASSES / 2, "{whole} of {away} blocks");
    assert!(reads * 4 < pieces * 3, "{reads} reads, {pieces} before");
}

/// Threads have changed pages at random: the store holds them in the order in which they left. An ordered pass comes by them page
/// by page, and they leave as blocks, so that passes after it read them as such.
#[test]
fn what_lies_scattered_is_put_side_by_side_by_ordered_passes() {
    let (mut first, mut last) = (0, 0);
    for seed in 0..4 {
        let mut world = World::roomy(seed, 4000, Fetch::Auto);
        let pass = |world: &mut World, write| {
            let before = world.shard.machine().counts().reads;
            for area in 0..4 {
                assert!(world.apply(Op::Walk(area, 0, 4000, 1, write)));
            }
            world.shard.machine().counts().reads - before
        };
        for area in 0..4 {
            assert!(world.apply(Op::Map(area, 4000)));
        }
        pass(&mut world, true);
        for round in 0..3 {
            for area in 0..4 {
                assert!(world.apply(Op::Threads(area, 0, 4000, 8, 200, round * 4 + area as u16)));
            }
        }
        first += pass(&mut world, false);
        pass(&mut world, false);
        pass(&mut world, false);
        last += pass(&mut world, false);
        world.finish();
    }
    assert!(last * 2 < first, "{last} reads, {first} at first");
}

/// The same where few segments or none can be added for it, input and output end early, and threads change what is on its way.
#[test]
fn what_lies_scattered_is_kept_where_there_is_no_room_to_put_it_side_by_side() {
    for seed in 0..8 {
        let mut world = World::roomy(seed, 4000, Fetch::Auto);
        for area in 0..4 {
            assert!(world.apply(Op::Map(area, 4000)) && world.apply(Op::Walk(area, 0, 4000, 1, true)));
        }
        assert!(world.apply(Op::Space(if seed % 2 == 0 { 16_400 } else { 17_000 })));
        for round in 0..4 {
            for area in 0..4 {
                assert!(world.apply(Op::Threads(area, 0, 4000, 8, 200, round * 4 + area as u16)));
            }
            if round == 2 {
                // The file is half empty from here on.
                assert!(world.apply(Op::Discard(2, 0, 4000)) && world.apply(Op::Discard(3, 0, 4000)));
            }
            let script = &mut world.shard.machine_mut().script;
            script.short = 10;
            for area in 0..4 {
                assert!(world.apply(Op::Start((area + 1) % 4, 0, 4000, 12, round)));
                assert!(world.apply(Op::Walk(area, 0, 4000, 1, seed % 4 == 3)));
            }
        }
        world.finish();
    }
}

/// A world of four areas, whose budget is half of them and whose blocks lie in a few pieces each.
fn in_pieces(seed: u64) -> World {
    let mut world = World::roomy(seed, 8000, Fetch::Auto);
    for area in 0..4 {
        assert!(world.apply(Op::Map(area, 4000)) && world.apply(Op::Walk(area, 0, 4000, 1, true)));
    }
    for area in 0..4 {
        assert!(world.apply(Op::Walk(area, 0, 30, 131, true)));
    }
    world
}

/// The kernel has no memory for every other fresh large frame: none is taken for populated that is not.
#[test]
fn blocks_in_few_pieces_without_memory_for_large_pages() {
    for seed in 0..12 {
        let mut world = in_pieces(seed);
        for round in 0..4 {
            assert!(world.apply(Op::Threads(1, 0, 4000, 8, 60, round)));
            let script = &mut world.shard.machine_mut().script;
            (script.no_memory, script.read_error, script.short) = (2, 20, 10);
            for area in 0..4 {
                assert!(world.apply(Op::Walk(area, 0, 4000, 1, false)));
            }
            world.shard.machine_mut().script.no_memory = 0;
        }
        world.finish();
    }
}

/// A page that was touched, and waits for the rest of its block, is discarded: whoever sleeps on it wakes up all the same.
#[test]
fn what_waits_for_the_rest_of_its_block_and_is_discarded() {
    for seed in 0..12 {
        let mut world = in_pieces(seed);
        let script = &mut world.shard.machine_mut().script;
        (script.io_min_us, script.io_max_us) = (10, 20_000);
        for (area, index) in (0..4).flat_map(|area| (0..4000).map(move |index| (area, index))) {
            let _ = world.shard.machine_mut().touch_read(1, World::page(area, index));
            let mut turns = 0;
            while world.shard.machine().sleeps_on(1).is_some() {
                world.learn_some();
                turns += 1;
                assert!(turns < 3000, "seed {seed}, page {index}: asleep");
                if turns == 1 + seed % 6 && world.shard.machine().sleeps_on(1).is_some() {
                    assert!(world.apply(Op::Discard(area as u8, index as u16, 1)));
                }
            }
        }
        world.finish();
    }
}
