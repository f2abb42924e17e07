//! Slots against what is known of them.

extern crate std;
use super::*;
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn whole_segments_are_aligned_and_contiguous() {
    let mut slots = Slots::new(4096).unwrap();
    let (slot, count) = slots.take(512).unwrap();
    assert_eq!((slot.0 % 512, count), (0, 512));
    let (small, _) = slots.take(3).unwrap();
    let (whole, count) = slots.take(512).unwrap();
    assert_eq!((whole.0 % 512, count), (0, 512));
    assert!(small.0 / 512 != whole.0 / 512);
}

#[test]
fn the_limit_rises_as_far_as_the_tables_reach() {
    let mut slots = Slots::new(8 * 512).unwrap();
    slots.set_limit(2 * 512);
    assert_eq!(slots.limit(), 2 * 512);
    assert!(slots.take(512).is_ok() && slots.take(512).is_ok());
    assert_eq!(slots.take(1), Err(SlotsFull));
    // What is used stays.
    slots.set_limit(512);
    assert_eq!(slots.limit(), 2 * 512);
    slots.set_limit(3 * 512 + 7);
    assert!(slots.take(512).is_ok());
    assert_eq!(slots.take(1), Err(SlotsFull));
    slots.stop_growing(3 * 512);
    slots.set_limit(u32::MAX);
    assert_eq!((slots.limit(), slots.take(512)), (8 * 512, Ok((Slot(3 * 512), 512))));
}

#[test]
fn the_segment_with_most_holes_is_filled_first() {
    let mut slots = Slots::new(8 * 512).unwrap();
    for _ in 0..4 {
        assert_eq!(slots.take(512).unwrap().1, 512);
    }
    for (segment, holes) in [(0, 130), (1, 200), (2, 400), (3, 150)] {
        assert!((0..holes).all(|slot| slots.free(Slot(segment * 512 + slot))));
    }
    assert_eq!(slots.take(64), Ok((Slot(2 * 512), 64)));
}

#[test]
fn small_runs_lie_side_by_side() {
    let mut slots = Slots::new(4096).unwrap();
    let (first, count) = slots.take(64).unwrap();
    assert_eq!(count, 64);
    assert_eq!(slots.take(64).unwrap(), (Slot(first.0 + 64), 64));
}

#[test]
fn random_use_against_a_set() {
    let mut slots = Slots::new(8 * 512).unwrap();
    let mut held: Vec<u32> = Vec::new();
    let mut set = BTreeSet::new();
    let mut seed = 42u64;
    let mut full = 0;
    for step in 0..60_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // Phases of filling and of emptying.
        if (seed >> 20) % 8 < if step / 7000 % 2 == 0 { 7 } else { 2 } {
            let want = [1, 7, 64, 512][(seed % 4) as usize];
            match slots.take(want) {
                Ok((start, count)) => {
                    assert!(count >= 1 && count <= want);
                    for slot in start.0..start.0 + count {
                        assert!(slot < slots.length() && set.insert(slot), "slot handed out twice");
                        held.push(slot);
                    }
                }
                Err(SlotsFull) => {
                    full += 1;
                    assert_eq!(set.len(), 8 * 512, "full although slots are free");
                }
            }
        } else {
            for _ in 0..(seed >> 8) % 200 {
                if held.is_empty() {
                    break;
                }
                let slot = held.swap_remove((seed >> 30) as usize % held.len());
                assert!(set.remove(&slot));
                slots.free(Slot(slot));
            }
        }
        assert_eq!(slots.in_use(), set.len() as u64);
    }
    assert!(full > 0, "the limit was never reached");
}

#[test]
fn space_that_is_not_needed_soon_is_given_back_once() {
    let mut slots = Slots::new(200 * 512).unwrap();
    let taken: Vec<Slot> = (0..120).map(|_| slots.take(512).unwrap().0).collect();
    let free = |slots: &mut Slots, some: &[Slot]| {
        for segment in some {
            (0..512).for_each(|index| _ = slots.free(segment.plus(index)));
        }
    };
    free(&mut slots, &taken[..30]);
    assert_eq!(slots.spare(), None);
    free(&mut slots, &taken[30..]);
    let spare: BTreeSet<u32> = core::iter::from_fn(|| slots.spare()).map(|(slot, _)| slot.0).collect();
    assert_eq!(spare.len(), 120 - 8);
    // What has space is handed out first, then the rest.
    let again: Vec<u32> = (0..120).map(|_| slots.take(512).unwrap().0.0).collect();
    assert!(again[..8].iter().all(|slot| !spare.contains(slot)));
    assert!(again[8..].iter().all(|slot| spare.contains(slot)));
    assert_eq!(slots.length(), 120 * 512);
    free(&mut slots, &taken[..1]);
    assert_eq!(slots.spare(), None);
}

#[test]
fn what_was_refused_is_tried_again_after_a_while() {
    let mut slots = Slots::new(20 * 512).unwrap();
    let taken: Vec<Slot> = (0..16).map(|_| slots.take(512).unwrap().0).collect();
    // For the next there is no space.
    let (refused, count) = slots.take(64).unwrap();
    let refuse = |slots: &mut Slots| {
        for index in 0..count {
            slots.refuse(refused.plus(index));
            assert!(slots.free(refused.plus(index)));
        }
    };
    refuse(&mut slots);
    assert_eq!(slots.take(64), Err(SlotsFull), "new segments are not asked for either");
    // Holes are filled instead, those of the segment with most first.
    (0..10).for_each(|index| assert!(slots.free(taken[3].plus(index))));
    (0..60).for_each(|index| assert!(slots.free(taken[5].plus(index))));
    assert_eq!((slots.take(64), slots.take(64)), (Ok((taken[5], 60)), Ok((taken[3], 10))));
    let mut found = 70;
    let again = loop {
        (0..64).for_each(|index| assert!(slots.free(taken[7].plus(index))));
        let (slot, count) = slots.take(64).unwrap();
        if slot.0 / 512 != taken[7].0 / 512 {
            break slot;
        }
        found += count;
    };
    assert_eq!((again, found), (refused, 70 + (PATIENCE - 70).div_ceil(64) * 64));
    refuse(&mut slots);
    (0..64).for_each(|index| assert!(slots.take(1).unwrap().0 == taken[7].plus(index)));
    assert_eq!(slots.take(64), Err(SlotsFull));
    // And at once when there may be room.
    slots.grow_again();
    assert_eq!(slots.take(64), Ok((refused, 64)));
    assert_eq!(slots.take(512), Ok((refused.plus(512), 512)));
}

#[test]
fn a_file_that_could_not_grow_is_tried_again_after_a_while() {
    let mut slots = Slots::new(20 * 512).unwrap();
    let taken: Vec<Slot> = (0..4).map(|_| slots.take(512).unwrap().0).collect();
    slots.stop_growing(4 * 512);
    assert_eq!(slots.take(64), Err(SlotsFull));
    for _ in 0..PATIENCE / 64 {
        (0..64).for_each(|index| assert!(slots.free(taken[1].plus(index))));
        assert_eq!(slots.take(64), Ok((taken[1], 64)));
    }
    assert_eq!(slots.take(64), Ok((Slot(4 * 512), 64)));
}

#[test]
fn an_abandoned_slot_is_not_handed_out_again() {
    let mut slots = Slots::new(512).unwrap();
    let (start, _) = slots.take(512).unwrap();
    slots.abandon(start.plus(7));
    assert_eq!(slots.in_use(), 511);
    for index in (0..512).filter(|index| *index != 7) {
        slots.free(start.plus(index));
    }
    assert_eq!(slots.in_use(), 0);
    let mut count = 0;
    while let Ok((first, found)) = slots.take(64) {
        assert!(!(first.0..first.0 + found).contains(&(start.0 + 7)));
        count += found;
    }
    assert_eq!(count, 511);
}

#[test]
fn frozen_slots_wait_for_the_last_lease() {
    let mut slots = Slots::new(512).unwrap();
    let (start, count) = slots.take(512).unwrap();
    assert_eq!(count, 512);
    slots.freeze();
    assert!(!slots.may_overwrite(start));
    slots.free(start);
    slots.free(start.plus(1));
    assert_eq!(slots.take(1), Err(SlotsFull));
    slots.thaw(&mut |_| {});
    assert!(slots.may_overwrite(start.plus(2)));
    assert_eq!(slots.in_use(), 510);
    assert_eq!(slots.take(2), Ok((start, 2)));
}
