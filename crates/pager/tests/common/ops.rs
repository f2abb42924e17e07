//! Operations of a random test run: what they are, how they are drawn, and how a failing list of them is made short.

use super::world::{MOST, World};
use ream_sys::fake::Random;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// One thing that the program or its surroundings do. Numbers are taken modulo what there is, so that a list stays
/// valid when some of it is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Area, pages: a new mapping comes under management.
    Map(u8, u16),
    /// Area, pages, pages written first: memory in use comes under management.
    MapLate(u8, u16, u16),
    /// The same with memory that a child shares already.
    MapShared(u8, u16, u16),
    /// Area, first page, touches, step, whether they write: one thread walks.
    Walk(u8, u16, u16, i16, bool),
    /// Area, first page, pages, threads, touches each, seed: threads touch pages of a window at random.
    Threads(u8, u16, u16, u8, u16, u16),
    /// Area, first page, pages, threads, seed: threads touch a page each, and are left asleep.
    Start(u8, u16, u16, u8, u16),
    /// Area, first page, pages: madvise by way of the pager.
    Discard(u8, u16, u16),
    /// Area, first page, pages: madvise behind the pager's back.
    DiscardUnheard(u8, u16, u16),
    /// Area, first page, pages: what is there is going to be overwritten while others compute, and given up before.
    Overwrite(u8, u16, u16),
    /// Whether a rank's turn begins or ends; whether what was noted down does not come back then, or is kept.
    Switch(bool, bool),
    /// Area, first page, pages: munmap by way of the pager.
    Unmap(u8, u16, u16),
    /// Area, first page, pages: munmap that the pager hears of from the kernel.
    UnmapUnheard(u8, u16, u16),
    /// Area, first page, pages: the same, and the program maps and uses the place again at once, unmanaged.
    MapOver(u8, u16, u16),
    /// Area: what is mapped there and not managed comes under management.
    Manage(u8),
    /// Area, target area: mremap.
    Remap(u8, u8),
    /// Area, target area: all of it is written and moved out, then mremap.
    RemapCold(u8, u8),
    /// Area, first page, pages, writable: mprotect.
    Protect(u8, u16, u16, bool),
    /// Area, first page, pages, locked: mlock.
    Lock(u8, u16, u16, bool),
    /// Area, first page, pages, held: the pager keeps blocks in place.
    Hold(u8, u16, u16, bool),
    /// Area, first page, pages, what: the program's wish, 0 for out of RAM, 1 for in, 2 to 5 for a usage,
    /// beyond for a volume of the store.
    Wish(u8, u16, u16, u8),
    /// Area, page: a device pins it and writes to it from time to time.
    Pin(u8, u16),
    /// The oldest pin ends.
    Unpin,
    /// Pages: the budget changes.
    Limit(u16),
    /// Slots: the store's file system has space for so many.
    Space(u16),
    /// How rough the machine is from now on.
    Rough(u8),
    /// Fork; whether the test goes on in the child.
    Fork(bool),
    /// A fork is prepared, and must find half of the budget free; then it does not take place.
    Prepare,
    /// Every child has ended.
    ChildrenGone,
    /// A stored page changes on the device.
    Corrupt(u16),
    /// First slot, slots: they answer EIO for good.
    Spoil(u16, u16),
    /// So many turns of the pager.
    Turns(u16),
}

/// Whether runs may contain what a program does not survive: a full disk, errors, a device that lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Survivable,
    Failing,
}

impl Op {
    /// Which bit of a run's choice allows it; `None` is always allowed.
    fn class(self) -> Option<u32> {
        Some(match self {
            Op::Map(..) | Op::Walk(..) | Op::Threads(..) | Op::Start(..) => return None,
            Op::MapLate(..) | Op::MapShared(..) => 0,
            Op::Discard(..) => 1,
            Op::DiscardUnheard(..) => 2,
            Op::Unmap(..) => 3,
            Op::UnmapUnheard(..) => 4,
            Op::MapOver(..) | Op::Manage(..) => 5,
            Op::Remap(..) | Op::RemapCold(..) => 6,
            Op::Protect(..) | Op::Lock(..) => 7,
            Op::Hold(..) => 8,
            Op::Pin(..) | Op::Unpin => 9,
            Op::Limit(..) => 10,
            Op::Rough(..) => 11,
            Op::Fork(..) | Op::Prepare | Op::ChildrenGone => 12,
            Op::Space(..) | Op::Spoil(..) => 13,
            Op::Corrupt(..) => 14,
            Op::Turns(..) => 15,
            Op::Wish(..) => 16,
            Op::Overwrite(..) | Op::Switch(..) => 17,
        })
    }
}

/// Draws the next operation of a run that leaves out half of the kinds, `choice` says which: what happens often
/// together with few others goes deeper than a bit of everything.
fn draw(random: &mut Random, kind: Kind, choice: u64) -> Op {
    loop {
        let op = draw_any(random, kind, 1 + (choice >> 40) % 6);
        if op.class().is_none_or(|bit| choice >> bit & 1 != 0) {
            return op;
        }
    }
}

fn draw_any(random: &mut Random, kind: Kind, areas: u64) -> Op {
    let area = random.below(areas) as u8;
    let first = random.below(3000) as u16;
    let few = random.between(1, 80) as u16;
    let many = random.between(1, 1500) as u16;
    let some = if random.one_in(2) { few } else { many };
    let yes = random.one_in(2);
    match random.below(100) {
        0..=7 => Op::Map(area, random.between(1, 3000) as u16),
        8..=11 if few % 4 == 0 => Op::MapShared(area, random.between(1, 3000) as u16, many),
        8..=11 => Op::MapLate(area, random.between(1, 3000) as u16, many),
        12..=34 => Op::Walk(area, first, many, [1, 1, 1, -1, 7, 64, 129][random.below(7) as usize], yes),
        35..=48 => Op::Threads(area, first, some, random.between(1, 12) as u8, few, random.below(1000) as u16),
        49..=58 => Op::Start(area, first, some, random.between(1, 12) as u8, random.below(1000) as u16),
        59..=60 => Op::Discard(area, first, some),
        61..=62 => Op::Overwrite(area, first, some),
        63..=64 => Op::Switch(yes, few % 2 == 0),
        65..=67 => Op::DiscardUnheard(area, first, some),
        68..=70 => Op::Unmap(area, first, some),
        71..=72 => Op::UnmapUnheard(area, first, some),
        73 => Op::MapOver(area, first, some),
        74 => Op::Manage(area),
        75..=77 => Op::Remap(area, random.below(areas + 1) as u8),
        // The last area does not begin at a block.
        78 => Op::RemapCold(area, if yes { 5 } else { random.below(areas + 1) as u8 }),
        79..=80 => Op::Protect(area, first, random.between(1, 16) as u16, yes),
        81 => Op::Lock(area, first, random.between(1, 16) as u16, yes),
        82 => Op::Hold(area, first, random.between(1, 16) as u16, yes),
        83 => Op::Pin(area, first),
        84 => Op::Unpin,
        85 => Op::Limit(random.between(600, 5000) as u16),
        86 => Op::Limit(random.between(600, MOST) as u16),
        87..=89 => Op::Rough(random.below(4) as u8),
        90..=92 => Op::Fork(yes),
        93 => Op::ChildrenGone,
        94..=95 if kind == Kind::Failing => Op::Space(random.between(1, 12_000) as u16),
        96 if kind == Kind::Failing => Op::Corrupt(first),
        97 if kind == Kind::Failing => Op::Spoil(first, few),
        99 => Op::Wish(area, first, some, random.below(9) as u8),
        98 if kind == Kind::Failing => Op::Rough(random.between(4, 6) as u8),
        _ => Op::Turns(few),
    }
}

/// Plays a list of operations on a world of this seed, to the end and beyond: everything is read back and let go.
pub fn play(seed: u64, ops: &[Op]) {
    let mut world = World::new(seed);
    if seed % 3 == 0 {
        world.shard.machine_mut().claim_by(512);
    }
    for op in ops {
        if !world.apply(*op) {
            // The pager stopped for a cause that was put there: what is mapped is still right.
            return;
        }
    }
    world.finish();
}

thread_local! {
    /// Whether panics of this thread are expected, and not worth a message each.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

fn silence_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                loud(info);
            }
        }));
    });
}

fn fails(seed: u64, ops: &[Op]) -> Option<String> {
    silence_expected_panics();
    SILENT.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| play(seed, ops)));
    SILENT.set(false);
    let cause = outcome.err()?;
    let text = cause.downcast_ref::<String>().cloned();
    Some(text.or_else(|| cause.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
}

/// Draws and plays a list of so many operations. If it fails, makes the list short and panics with it as code.
pub fn fuzz(seed: u64, steps: usize, kind: Kind) {
    let mut random = Random::new(seed);
    let choice = random.bits();
    let mut ops: Vec<Op> = (0..steps).map(|_| draw(&mut random, kind, choice)).collect();
    let Some(mut text) = fails(seed, &ops) else { return };
    let mut tries = 600;
    let mut chunk = ops.len() / 2;
    while chunk > 0 && tries > 0 {
        let mut at = 0;
        while at < ops.len() && tries > 0 {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            tries -= 1;
            match fails(seed, &fewer) {
                Some(shorter) => (ops, text) = (fewer, shorter),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    let list: Vec<String> = ops.iter().map(|op| format!("Op::{op:?}")).collect();
    panic!("{text}\n\nas a test:\n\n    play({seed}, &[{}]);\n", list.join(", "));
}
