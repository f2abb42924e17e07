//! The set of ranges against a model: an array of labels, one for each page.

extern crate std;

use std::vec;
use std::vec::Vec;

use super::*;

fn run(start: u64, pages: u64) -> Run {
    Run { start: Page(start), pages }
}

fn all(regions: &Regions) -> Vec<Run> {
    let mut list = Vec::new();
    let mut from = Page(0);
    loop {
        let mut piece = [run(0, 0); 7];
        let len = regions.copy_from(from, &mut piece);
        list.extend_from_slice(&piece[..len]);
        if len < piece.len() {
            return list;
        }
        from = piece[len - 1].end();
    }
}

#[test]
fn touching_ranges_of_one_kind_join() {
    let mut regions = Regions::new();
    regions.insert(run(10, 5), Kind::Large).unwrap();
    regions.insert(run(20, 5), Kind::Large).unwrap();
    regions.insert(run(15, 5), Kind::Large).unwrap();
    assert_eq!(all(&regions), [run(10, 15)]);
    regions.insert(run(25, 1), Kind::Small).unwrap();
    assert_eq!(all(&regions), [run(10, 15), run(25, 1)]);
    regions.remove(run(12, 4));
    assert_eq!(all(&regions), [run(10, 2), run(16, 9), run(25, 1)]);
    assert_eq!(regions.total(), 12);
    let mut told = Vec::new();
    regions.each(&mut |run| told.push(run));
    assert_eq!(told, all(&regions));
    assert_eq!(regions.next_from(Page(13)), Some((run(16, 9), Kind::Large)));
    assert_eq!(regions.next_from(Page(26)), None);
    let mut one = [run(0, 0)];
    assert_eq!(regions.copy_from(Page(17), &mut one), 1);
    assert_eq!(one, [run(17, 8)]);
}

#[test]
fn random_changes_agree_with_a_model() {
    const PAGES: u64 = 6000;
    let mut regions: Regions = Regions::new();
    let mut model: Vec<Option<Kind>> = vec![None; PAGES as usize];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut most = 0;
    for step in 0..40_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // Mostly small ranges, so that several leaves fill; now and then a large one that empties many.
        let longest = if seed >> 56 == 0 { PAGES / 2 } else { 3 };
        let start = (seed >> 8) % PAGES;
        let pages = ((seed >> 24) % (longest + 1)).min(PAGES - start);
        let label = if seed & 2 == 0 { Kind::Small } else { Kind::Mapped };
        let add = seed % 4 != 0;
        if add {
            regions.insert(run(start, pages), label).unwrap();
        } else {
            regions.remove(run(start, pages));
        }
        model[start as usize..(start + pages) as usize].fill(add.then_some(label));
        let page = (seed >> 40) % PAGES;
        assert_eq!(regions.kind_of(Page(page)), model[page as usize], "step {step}");
        if step % 500 == 0 {
            let list = all(&regions);
            most = most.max(list.len());
            let mut seen: Vec<Option<Kind>> = vec![None; PAGES as usize];
            for found in &list {
                let label = regions.kind_of(found.start);
                seen[found.start.0 as usize..found.end().0 as usize].fill(label);
            }
            assert_eq!(seen, model, "step {step}");
            assert_eq!(regions.total(), model.iter().flatten().count() as u64);
            for pair in list.windows(2) {
                let joined =
                    pair[0].end() == pair[1].start && regions.kind_of(pair[0].start) == regions.kind_of(pair[1].start);
                assert!(pair[0].end() <= pair[1].start && !joined, "step {step}: {pair:?}");
            }
        }
    }
    assert!(most > 6 * FULL, "only {most} ranges at once");
    regions.remove(run(0, PAGES));
    assert_eq!((regions.total(), regions.used), (0, 0));
}

#[test]
fn hundreds_of_thousands_fit() {
    let mut regions = Regions::new();
    for index in 0..300_000u64 {
        // A permutation: neighbours do not come one after the other.
        let place = index * 77_777 % 300_000;
        regions.insert(run(place * 2, 1), Kind::Large).unwrap();
    }
    assert_eq!(regions.total(), 300_000);
    assert!(regions.contains(Page(599_998)) && !regions.contains(Page(599_999)));
    regions.insert(run(0, 600_000), Kind::Large).unwrap();
    assert_eq!(all(&regions), [run(0, 600_000)]);
}
