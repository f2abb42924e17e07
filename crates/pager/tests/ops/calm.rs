//! Single pages that were changed are moved out while all threads wait for pages, so that hardly any move interrupts one.

use crate::common::ops::Op;
use crate::common::world::World;
use ream_pager::Fetch;

#[test]
fn single_pages_leave_while_nobody_runs() {
    let (mut moves, mut calm, mut interrupting) = (0, 0, 0);
    for seed in 1..8 {
        let mut world = World::roomy(seed, 3000, Fetch::Auto);
        for area in 0..3 {
            assert!(world.apply(Op::Map(area, 4000)) && world.apply(Op::Walk(area, 0, 4000, 1, true)));
        }
        let at_random = [0, 1, 2].map(|area| Op::Threads(area, 0, 4000, 12, 600, 3));
        // What lies side by side leaves first.
        assert!(at_random.iter().all(|op| world.apply(*op)));
        let before = (world.shard.machine().counts().moved_out, world.calm);
        assert!(at_random.iter().all(|op| world.apply(*op)));
        moves += world.shard.machine().counts().moved_out - before.0;
        calm += world.calm.0 - before.1.0;
        interrupting += world.calm.1 - before.1.1;
        world.finish();
    }
    // The fake machine reports much of what arrives where nobody waits any more.
    assert!(calm * 10 > moves, "{calm} of {moves} pages left while nobody ran");
    assert!(interrupting * 50 < calm, "{interrupting} of {calm} interrupted a thread");
}
