//! Replays walks of many kinds.

extern crate std;
use super::*;
use std::collections::BTreeMap;

/// Replays touches of pages, all absent at first, and counts faults and pages asked for but never touched.
fn replay(touches: impl Iterator<Item = u64>) -> (usize, usize, u32) {
    let mut streams = Streams::new(4096);
    let mut here: BTreeMap<u64, bool> = BTreeMap::new();
    let mut ahead: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    let (mut faults, mut largest) = (0, 0);
    for page in touches {
        if let Some(touched) = here.get_mut(&page) {
            *touched = true;
            continue;
        }
        faults += 1;
        let plan = streams.fault(page, |_| false);
        let (start, pages) = plan.demand;
        assert!(page >= start && page < start + pages as u64, "the demand misses the page");
        largest = largest.max(pages);
        let staged = ahead.contains_key(&page);
        if !staged {
            streams.forget_probe(&plan);
        }
        let (start, pages) = if staged && plan.probe > 0 { (page, plan.probe) } else { plan.demand };
        for page in (start..start + pages as u64).filter(|page| !staged || ahead.contains_key(page)) {
            here.entry(page).or_insert(false);
        }
        here.insert(page, true);
        for run in 1..=plan.follow.0 as i64 {
            let next = page.checked_add_signed(plan.follow.1 * run).unwrap();
            let Some((start, pages)) = ahead.get(&next).copied() else { break };
            for page in start..start + pages as u64 {
                here.entry(page).or_insert(false);
            }
        }
        for (start, pages) in plan.ahead() {
            for page in *start..start + *pages as u64 {
                ahead.insert(page, (*start, *pages));
            }
        }
    }
    let unread = ahead.keys().filter(|page| !here.contains_key(page)).count();
    let wasted = here.values().filter(|touched| !**touched).count();
    (faults, wasted + unread, largest)
}

#[test]
fn sequential_grows_to_whole_blocks() {
    let (faults, wasted, largest) = replay(10_000..110_000);
    assert_eq!(largest, 512);
    assert!(faults < 100_000 / 512 + 20, "{faults} faults");
    assert!(wasted <= 4096 + 1024, "{wasted} pages wasted");
}

#[test]
fn reverse_grows_as_well() {
    let (faults, wasted, largest) = replay((10_000..110_000).rev());
    assert_eq!(largest, 512);
    assert!(faults < 100_000 / 512 + 20, "{faults} faults");
    assert!(wasted <= 4096 + 1024, "{wasted} pages wasted");
}

#[test]
fn random_moves_single_pages() {
    let mut seed = 7u64;
    let touches = (0..20_000).map(move |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        1_000_000 + seed % 1_000_000
    });
    let (_, wasted, _) = replay(touches);
    assert!(wasted < 1_000, "{wasted} pages wasted");
}

#[test]
fn strides_are_followed() {
    for stride in [16i64, 64, -16] {
        let base = 1_000_000i64;
        let mut streams = Streams::new(4096);
        let mut asked = std::collections::BTreeSet::new();
        let mut missed = 0;
        for step in 0..1000 {
            let page = (base + step * stride) as u64;
            if !asked.contains(&page) {
                missed += 1;
            }
            let plan = streams.fault(page, |_| false);
            for (start, pages) in plan.ahead() {
                assert_eq!(*pages, 1);
                asked.insert(*start);
            }
        }
        assert!(missed < 6, "stride {stride}: {missed} not foreseen");
    }
}

#[test]
fn strided_runs_of_several_pages() {
    let touches = (0..500u64).flat_map(|run| (0..4u64).map(move |page| 1_000_000 + run * 64 + page));
    let (faults, wasted, _) = replay(touches);
    assert!(faults < 100, "{faults} faults for 500 runs");
    assert!(wasted < (RUNS as usize + 32) * 4, "{wasted} pages wasted");
}

/// A reader of whole blocks that comes to read 4 of every 64 pages is found out, wherever in a block these lie.
#[test]
fn a_stream_that_skips_is_probed_and_shrinks() {
    for offset in [0, 5, 12, 37, 60] {
        let mut streams = Streams::new(8192);
        let mut here = std::collections::BTreeSet::new();
        let mut read = std::collections::BTreeSet::new();
        let mut asked = 0;
        let some = |run: u64| (0..4).map(move |page| 102_400 + offset + run * 64 + page);
        for page in (0..100_000u64).chain((0..8000u64).flat_map(some)) {
            if page == 102_400 + offset + 4000 * 64 {
                asked = read.len();
            }
            if here.contains(&page) {
                continue;
            }
            let plan = streams.fault(page, |page| here.contains(&page));
            let whole = !read.contains(&page);
            if whole {
                streams.forget_probe(&plan);
            }
            let (start, pages) = if plan.probe > 0 && !whole { (page, plan.probe) } else { plan.demand };
            here.extend(start..start + pages as u64);
            read.extend(start..start + pages as u64);
            for (start, pages) in plan.ahead() {
                read.extend(*start..*start + *pages as u64);
            }
        }
        let second_half = read.len() - asked;
        assert!(
            second_half < 4000 * 4 + 2000,
            "{second_half} pages read for 16000, {offset} from the start of a block"
        );
    }
}

/// Whoever reads everything goes on as before when a probe ends at pages that are in memory already.
#[test]
fn a_probe_that_ends_at_mapped_pages_finds_who_reads_everything() {
    let mut streams = Streams::new(8192);
    let mapped = |page: u64| page % 16 < 3;
    let (mut until, mut singles) = (0, 0);
    for page in (0..400_000u64).filter(|page| !mapped(*page)) {
        if page < until {
            continue;
        }
        let plan = streams.fault(page, mapped);
        let (start, pages) = if plan.probe > 0 { (page, plan.probe) } else { plan.demand };
        until = start + pages as u64;
        singles += (page > 10_000 && pages == 1) as u32;
    }
    assert!(singles < 8, "{singles} times anew");
}

/// Every 16th page of what others have read in order, or at the same stride but one page before, and then left.
#[test]
fn a_strided_walk_passes_where_others_stopped() {
    let mut streams = Streams::new(8192);
    let places: std::vec::Vec<u64> = (0..12).map(|place| 1_000_000 + place * 5000).collect();
    for start in &places {
        (0..3000).for_each(|page| _ = streams.fault(start + page, |_| false));
    }
    for start in &places {
        (0..60).for_each(|step| _ = streams.fault(start + 3200 + step * 16, |_| false));
    }
    let mut asked = 0;
    for step in 0..4000 {
        let plan = streams.fault(1_000_000 + 1 + step * 16, |_| false);
        asked += plan.demand.1 + plan.ahead().iter().map(|(_, pages)| pages).sum::<u32>();
    }
    assert!(asked < 3 * 4000, "{asked} pages asked for 4000");
}

#[test]
fn what_was_taken_back_is_asked_for_again() {
    for down in [false, true] {
        let mut streams = Streams::new(4096);
        let page = |step: u64| if down { 100_000 - step } else { 100_000 + step };
        let plan = (0..40).map(|step| streams.fault(page(step), |_| false)).find(|plan| plan.ahead_len >= 3).unwrap();
        let (start, pages) = plan.ahead()[1];
        streams.take_back(&plan, 1);
        let (at, count) = plan.demand;
        let again = streams.fault(if down { at - 1 } else { at + count as u64 }, |_| false);
        let lost = if down { start + pages as u64 - 1 } else { start };
        let mut extents = again.ahead().iter().chain(core::iter::once(&again.demand));
        let covered = extents.any(|(start, pages)| (*start..*start + *pages as u64).contains(&lost));
        assert!(covered, "down: {down}; {lost} is lost: {again:?}");
    }
}

#[test]
fn four_interleaved_streams() {
    let touches = (0..40_000u64).flat_map(|step| (0..4u64).map(move |s| 1_000_000 + s * 1_000_000 + step));
    let (faults, wasted, largest) = replay(touches);
    assert_eq!(largest, 512);
    assert!(faults < 4 * (40_000 / 512 + 20), "{faults} faults");
    assert!(wasted < 4 * 5200, "{wasted} pages wasted");
}

/// As many threads as a large machine has, each of which walks through memory of its own.
#[test]
fn hundreds_of_interleaved_streams() {
    for (count, down) in [(50, false), (200, false), (200, true)] {
        let place = |stream: u64, step: u64| {
            let base = 1_000_000 + stream * 1_000_003;
            if down { base + 4000 - step } else { base + step }
        };
        let touches = (0..4000u64).flat_map(|step| (0..count).map(move |stream| place(stream, step)));
        let (faults, _, _) = replay(touches);
        assert!(faults < count as usize * 90, "{count} streams, down: {down}: {faults} faults");
    }
}

/// What was put off goes on where it was, however often, and in either direction; who was put off at first begins nothing twice.
#[test]
fn what_was_put_off_goes_on_where_it_was() {
    for down in [false, true] {
        let mut streams = Streams::new(4096);
        let page = |step: u64| if down { 100_000 - step } else { 100_000 + step };
        let plan = (0..20).map(|step| streams.fault(page(step), |_| false)).find(|plan| plan.demand.1 >= 16).unwrap();
        let (start, pages) = plan.demand;
        let at = if down { start - 1 } else { start + pages as u64 };
        let mut plan = streams.fault(at, |_| false);
        for _ in 0..5 {
            streams.put_off(&plan, at);
            plan = streams.fault_again(at, |_| false);
            assert!(plan.in_stream && plan.demand.1 >= 16, "down: {down}, {plan:?}");
        }
    }
    let mut streams = Streams::new(4096);
    let plan = streams.fault(500, |_| false);
    streams.put_off(&plan, 500);
    assert_eq!(streams.fault_again(500, |_| false).demand, (500, 1));
    assert!(streams.fault(501, |_| false).in_stream);
}

/// Of an extent that came in part the rest is asked for where it begins, and no larger one before all of it came.
#[test]
fn a_stream_goes_on_where_its_demand_ended() {
    for down in [false, true] {
        let mut streams = Streams::new(4096);
        let page = |step: u64| if down { 100_000 - step } else { 100_000 + step };
        let plan = (0..20).map(|step| streams.fault(page(step), |_| false)).find(|plan| plan.demand.1 >= 16).unwrap();
        let (start, pages) = plan.demand;
        let next = if down { start + pages as u64 - 4 } else { start + 4 };
        if down {
            streams.reached(&plan, next, start + pages as u64);
        } else {
            streams.reached(&plan, start, next);
        }
        let at = if down { next - 1 } else { next };
        let again = streams.fault(at, |_| false);
        assert!(again.in_stream, "down: {down}");
        let rest = if down { (start, (at - start) as u32 + 1) } else { (at, pages - 4) };
        assert_eq!(again.demand, rest, "down: {down}");
    }
}

/// Random faults between those of a stream, more than the table holds, do not end it; and what they displace is no stream.
#[test]
fn a_stream_among_random_faults() {
    let mut seed = 7u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (1 << 32) + (seed >> 34)
    };
    let mut streams = Streams::new(4096);
    let (mut until, mut faults) = (0, 0);
    for page in 10_000..30_000u64 {
        if page < until {
            continue;
        }
        let plan = streams.fault(page, |_| false);
        faults += 1;
        until = plan.demand.0 + plan.demand.1 as u64;
        let asked: u32 = (0..100).map(|_| streams.fault(random(), |_| false).demand.1).sum();
        assert!(asked < 110, "{asked} pages for 100 random faults");
    }
    assert!(faults < 20_000 / 512 + 20, "{faults} faults");
}

/// Streams that lie closer to each other than a stride may be long.
#[test]
fn near_streams_in_turns() {
    let touches = (0..8000u64).flat_map(|step| (0..3u64).map(move |s| 1_000_000 + s * 2500 * 4 + step));
    let (faults, wasted, largest) = replay(touches);
    assert_eq!(largest, 512);
    assert!(faults < 3 * (8000 / 512 + 20), "{faults} faults");
    assert!(wasted < 3 * 5200, "{wasted} pages wasted");
    let rows = (0..2000u64).flat_map(|step| (0..3u64).map(move |row| 1_000_000 + row * 2500 + step));
    let (faults, wasted, _) = replay(rows);
    assert!(faults < 3 * 40, "{faults} faults");
    assert!(wasted < 3 * 5200, "{wasted} pages wasted");
}
