//! Compressed memory against a model: what is there, what lies below, and what a forked child may still read.

extern crate std;
use super::*;
use ream_stats::{Ledger, Process};
use std::boxed::Box;
use std::collections::HashMap;
use std::vec::Vec;

const SLOTS: u32 = 6000;
const SEGMENTS: u64 = 8;

type Page = [u8; PAGE_BYTES];

/// Numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// A page of a slot's: all but the first words compress, so that it takes from hardly anything to all of its size.
fn page(slot: u32, generation: u64) -> Page {
    let mut random = Random(u64::from(slot) << 32 | generation | 1);
    let noise = [0, 40, 250, 370, 512][random.bits() as usize % 5];
    let mut page = [slot as u8; PAGE_BYTES];
    page.chunks_exact_mut(8).take(noise).for_each(|word| word.copy_from_slice(&random.bits().to_le_bytes()));
    page[..8].copy_from_slice(&generation.to_le_bytes());
    page
}

/// An account with room for all segments.
fn room() -> Room {
    // SAFETY: atomics alone, valid as zeros.
    let (ledger, process) =
        unsafe { (Box::<Ledger>::new_zeroed().assume_init(), Box::<Process>::new_zeroed().assume_init()) };
    let room = Room { ledger: Box::leak(ledger), process: Box::leak(process) };
    room.give_back(SEGMENTS as usize * SEGMENT);
    room
}

struct World {
    zip: Zip,
    view: View,
    room: Room,
    has_below: bool,
    random: Random,
    /// What each slot holds, by its generation; 0: nothing.
    truth: Vec<u64>,
    below: HashMap<u32, Page>,
    /// Segment, slot and page of what is on its way below.
    leaving: Vec<(u32, u32, Page)>,
    /// Where what was there at the fork lies, while a child reads it.
    frozen: Vec<(u32, u64, u64)>,
    generation: u64,
    kept: u64,
    passed: u64,
    sunk: u64,
    risen: u64,
}

impl World {
    fn new(seed: u64, below: bool) -> World {
        let (zip, view) = Zip::new(SEGMENTS * SEGMENT as u64, SLOTS, below).unwrap();
        let (random, truth) = (Random(seed), std::vec![0; SLOTS as usize]);
        World {
            zip,
            view,
            room: room(),
            has_below: below,
            random,
            truth,
            below: HashMap::new(),
            leaving: Vec::new(),
            frozen: Vec::new(),
            generation: 0,
            kept: 0,
            passed: 0,
            sunk: 0,
            risen: 0,
        }
    }

    fn slot(&mut self) -> u32 {
        // Half of the touches go to a tenth of the slots.
        let bits = self.random.bits();
        (bits >> 8) as u32 % if bits % 2 == 0 { SLOTS } else { SLOTS / 10 }
    }

    fn write(&mut self, slot: u32) {
        self.generation += 1;
        let page = page(slot, self.generation);
        if self.zip.keep(&mut self.view, slot, &page, false, self.room) == Kept::Yes {
            self.kept += 1;
        } else if self.has_below {
            while let Some(at) = self.leaving.iter().position(|(_, other, _)| *other == slot) {
                self.arrive(at, true);
            }
            self.below.insert(slot, page);
            self.zip.forget(&mut self.view, slot, self.room);
            self.passed += 1;
        } else {
            // The write failed; the slot is given up.
            return self.free(slot);
        }
        self.truth[slot as usize] = self.generation;
    }

    fn free(&mut self, slot: u32) {
        self.zip.forget(&mut self.view, slot, self.room);
        self.truth[slot as usize] = 0;
    }

    fn read(&mut self, slot: u32) {
        let generation = self.truth[slot as usize];
        if generation == 0 {
            return;
        }
        let mut found = [0xee; PAGE_BYTES];
        let expected = page(slot, generation);
        if self.view.bring(slot, &mut found) {
            self.zip.note_read(&mut self.view, slot);
        } else {
            found = self.below[&slot];
            if self.zip.rises(&mut self.view, slot) {
                self.risen += u64::from(self.zip.keep(&mut self.view, slot, &found, true, self.room) == Kept::Yes);
            }
        }
        assert!(found == expected, "slot {slot}");
    }

    fn sink(&mut self) {
        if !self.zip.begin() {
            return;
        }
        for _ in 0..64 {
            match self.zip.step(&mut self.view, self.room) {
                Step::Done => {}
                Step::End => return self.zip.pass_on(&self.view, self.room),
                Step::Sink(slot) => {
                    if self.leaving.len() > 200 || self.leaving.iter().any(|(_, other, _)| *other == slot) {
                        return;
                    }
                    let mut page = [0; PAGE_BYTES];
                    assert!(self.view.bring(slot, &mut page));
                    let segment = self.zip.sinks(&self.view);
                    self.leaving.push((segment, slot, page));
                }
            }
        }
    }

    fn arrive(&mut self, at: usize, well: bool) {
        let (segment, slot, page) = self.leaving.swap_remove(at);
        if well {
            self.below.insert(slot, page);
            self.sunk += 1;
        }
        self.zip.sank(&mut self.view, segment, slot, well, self.room);
    }

    fn freeze(&mut self) {
        while !self.leaving.is_empty() {
            self.arrive(0, true);
        }
        self.zip.freeze(&self.view, self.room);
        let here = (0..SLOTS).filter(|slot| self.view.has(*slot));
        self.frozen = here.map(|slot| (slot, self.view.entry(slot) & PLACE, self.truth[slot as usize])).collect();
    }

    fn thaw(&mut self) {
        for (slot, place, generation) in self.frozen.drain(..).filter(|(_, _, generation)| *generation > 0) {
            let mut found = [0; PAGE_BYTES];
            let (who, bytes) = self.view.record(place as usize).unwrap();
            assert!(who == slot && expand(bytes, &mut found) && found == page(slot, generation), "frozen slot {slot}");
        }
        self.zip.thaw(&self.view, self.room);
    }

    fn live(&mut self, steps: u32) {
        for _ in 0..steps {
            let slot = self.slot();
            match self.random.bits() % 100 {
                0..45 => self.write(slot),
                45..85 => self.read(slot),
                85..88 => (slot..SLOTS.min(slot + 20)).for_each(|slot| self.free(slot)),
                88..99 => {
                    self.sink();
                    for _ in 0..self.random.bits() % 40 {
                        if !self.leaving.is_empty() {
                            let at = self.random.bits() as usize % self.leaving.len();
                            let well = self.random.bits() % 10 > 0;
                            self.arrive(at, well);
                        }
                    }
                }
                _ if self.random.bits() % 8 > 0 => {}
                _ if self.frozen.is_empty() => self.freeze(),
                _ => self.thaw(),
            }
        }
        for slot in 0..SLOTS {
            self.read(slot);
        }
        self.thaw();
    }

    /// What is charged is what there is, and less than was granted.
    fn finish(&mut self) {
        while !self.leaving.is_empty() {
            self.arrive(0, true);
        }
        (0..SLOTS).for_each(|slot| self.free(slot));
        let charged = self.zip.segments.as_slice().iter().filter(|segment| !segment.is(State::None)).count() as u64;
        assert_eq!(self.room.ledger.zip_free() + charged * SEGMENT as u64, SEGMENTS * SEGMENT as u64);
        assert!(charged <= 6, "{charged} segments are kept of nothing");
    }
}

#[test]
fn what_is_kept_comes_back_wherever_it_went() {
    for seed in 1..7 {
        let mut world = World::new(seed, true);
        world.live(40_000);
        let World { kept, passed, sunk, risen, .. } = world;
        assert!(kept > 1000 && passed > 1000 && sunk > 1000 && risen > 100, "{kept} {passed} {sunk} {risen}");
        world.finish();
    }
}

#[test]
fn what_is_kept_comes_back_where_there_is_nothing_below() {
    for seed in 1..7 {
        let mut world = World::new(seed, false);
        world.live(40_000);
        assert!(world.kept > 5000, "{}", world.kept);
        world.finish();
    }
}
