//! The fake kernel against its own promises: contents travel, misuse panics, chance is decided by the seed,
//! and the races that the pager must survive do occur on it.

use ream_page::{Block, Frame, Page, Pages, Run, Slot, StoreId};
use ream_sys::fake::{Content, FakeMachine, Script, Shape, Touch};
use ream_sys::{Copied, Event, Events, Machine, Moved, Stop, Wait};

const BASE: Page = Page(512 * 1000);

fn run(offset: u64, pages: u64) -> Run {
    Run { start: Page(BASE.0 + offset), pages }
}

fn page(offset: u64) -> Page {
    Page(BASE.0 + offset)
}

/// A machine with so many registered pages.
fn machine(pages: u64) -> FakeMachine {
    let mut fake = FakeMachine::new(Shape { huge_groups: 2, ..Shape::default() });
    fake.map(run(0, pages));
    fake.register(run(0, pages)).unwrap();
    fake
}

fn poll(fake: &mut FakeMachine, wait: Wait) -> Vec<Event> {
    let mut events = Events::new();
    fake.poll(wait, &mut events);
    events.as_slice().to_vec()
}

/// Maps contents 100, 101, … by the program's own writes, each served with a zeroed frame.
fn fill(fake: &mut FakeMachine, offset: u64, pages: u64) {
    for n in 0..pages {
        assert_eq!(fake.touch_write(1, page(offset + n), Content(100 + offset + n)), Touch::Sleeps);
        assert_eq!(poll(fake, Wait::Forever).len(), 1);
        assert!(fake.zero_frames(Frame(0), 1));
        assert_eq!(fake.move_in(Frame(0), page(offset + n), 1), Moved { pages: 1, stop: None });
        fake.wake(run(offset + n, 1));
        while fake.sleeps_on(1).is_some() {
            poll(fake, Wait::Micros(1));
        }
        assert_eq!(fake.outcome(1), Touch::Hit(Content(100 + offset + n)));
    }
}

/// Runs `act` and returns the first line of its panic.
fn panics(act: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let cause = std::panic::catch_unwind(act).expect_err("must panic");
    let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
    text.lines().next().unwrap_or_default().to_string()
}

#[test]
fn a_page_goes_to_the_store_and_comes_back() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 4);
    assert_eq!(fake.move_out(page(0), Frame(10), 4), Moved { pages: 4, stop: None });
    assert_eq!(fake.mapped(page(0)), None);
    fake.reserve(0, 100).unwrap();
    fake.write(3, Slot(50), &[(Frame(12), 2), (Frame(10), 2)]);
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 3, result: 16384 }]);
    assert_eq!(fake.slot(StoreId::OWN, Slot(50)), Some(Content(102)));
    fake.empty_frames(&[(Frame(10), 4)]);
    assert_eq!(fake.memory_pages(), 0);
    fake.read(3, StoreId::OWN, Slot(52), Frame(20), 2);
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 3, result: 8192 }]);
    assert_eq!(fake.touch_read(1, page(1)), Touch::Sleeps);
    assert!(matches!(poll(&mut fake, Wait::Forever)[..], [Event::Fault { write: false, thread: 1, .. }]));
    assert_eq!(fake.move_in(Frame(20), page(0), 2).pages, 2);
    fake.wake(run(0, 2));
    while fake.sleeps_on(1).is_some() {
        poll(&mut fake, Wait::No);
    }
    assert_eq!(fake.outcome(1), Touch::Hit(Content(101)));
    let counts = fake.counts();
    assert_eq!((counts.pages_written, counts.pages_read, counts.faults), (4, 2, 5));
    // Four frames, or four mapped pages, were the most in use at a time.
    assert_eq!(fake.peak_pages(), 4);
}

#[test]
fn wrong_data_is_seen_when_it_is_mapped() {
    let wrong = || {
        let mut fake = machine(16);
        fill(&mut fake, 0, 2);
        assert_eq!(fake.move_out(page(0), Frame(0), 2).pages, 2);
        fake.move_in(Frame(0), page(1), 1);
    };
    assert!(panics(wrong).starts_with("wrong data by move_in"));
    let lost = || {
        let mut fake = machine(16);
        fill(&mut fake, 0, 1);
        fake.move_out(page(0), Frame(0), 1);
        fake.zero_in(page(0));
    };
    assert!(panics(lost).starts_with("wrong data by zero_in"));
    let never_written = || {
        let mut fake = machine(16);
        fake.reserve(0, 8).unwrap();
        fake.read(0, StoreId::OWN, Slot(3), Frame(0), 1);
        poll(&mut fake, Wait::Forever);
        fake.move_in(Frame(0), page(0), 1);
    };
    assert!(panics(never_written).starts_with("wrong data by move_in"));
    let deregistered = || {
        let mut fake = machine(16);
        fill(&mut fake, 0, 1);
        fake.move_out(page(0), Frame(0), 1);
        fake.unregister(run(0, 16)).unwrap();
        fake.touch_read(2, page(0));
    };
    assert!(panics(deregistered).starts_with("wrong data by the kernel"));
}

type Act = fn(&mut FakeMachine);

#[test]
fn misuse_of_frames_and_tags_panics() {
    let after_fill = |act: Act| {
        panics(move || {
            let mut fake = machine(600);
            fill(&mut fake, 0, 3);
            fake.reserve(0, 100).unwrap();
            fake.move_out(page(0), Frame(1), 1);
            act(&mut fake);
        })
    };
    let cases: [(Act, &str); 14] = [
        (|f| _ = f.move_in(Frame(2), page(0), 1), "move_in: frame 2 is empty"),
        (|f| _ = f.move_out(page(1), Frame(1), 1), "move_out: frame 1 is populated"),
        (|f| f.write(0, Slot(0), &[(Frame(2), 1)]), "write from frame 2, which is empty"),
        (|f| f.write(0, Slot(100), &[(Frame(1), 1)]), "write beyond the reserved slots: 100 + 1"),
        (|f| _ = f.digest(Frame(2)), "digest: frame 2 is empty or being read into"),
        (|f| _ = f.move_in(Frame(1535), page(0), 2), "move_in: frames 1535 + 2 are beyond the staging area"),
        (|f| _ = f.zero_frames(Frame(510), 4), "zero_frames: frames 510 + 4 cross from the small to the huge area"),
        (|f| f.read(32, StoreId::OWN, Slot(0), Frame(9), 1), "tag 32 with 0 operations in flight, the limit is 32"),
        (|f| f.read(0, StoreId(1), Slot(0), Frame(9), 1), "read from store 1, which does not exist"),
        (|f| f.drop_table(page(0).block()), "drop_table: pages of block 0x3e8 are mapped and would be lost"),
        (
            |f| {
                f.write(0, Slot(0), &[(Frame(1), 1)]);
                f.read(0, StoreId::OWN, Slot(9), Frame(9), 1);
            },
            "tag 0 is in use",
        ),
        (
            |f| {
                f.write(0, Slot(0), &[(Frame(1), 1)]);
                f.empty_frames(&[(Frame(1), 1)]);
            },
            "empty_frames: frame 1 is under I/O",
        ),
        (
            |f| {
                f.read(0, StoreId::OWN, Slot(0), Frame(1), 1);
                f.move_in(Frame(1), page(0), 1);
            },
            "move_in: frame 1 is being read into by tag 0",
        ),
        (
            |f| {
                f.move_out(page(1), Frame(2), 1);
                f.write(0, Slot(0), &[(Frame(1), 1)]);
                f.write(1, Slot(0), &[(Frame(2), 1)]);
            },
            "two writes in flight to one slot, tags 0 and 1",
        ),
    ];
    for (act, text) in cases {
        assert_eq!(after_fill(act), text);
    }
}

#[test]
fn a_frame_under_write_is_busy_and_can_be_copied() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 1);
    fake.reserve(0, 8).unwrap();
    fake.move_out(page(0), Frame(5), 1);
    fake.write(0, Slot(7), &[(Frame(5), 1)]);
    assert_eq!(fake.move_in(Frame(5), page(0), 1), Moved { pages: 0, stop: Some(Stop::Busy) });
    assert_eq!(fake.copy_in(Frame(5), page(0)), Copied::Done);
    assert_eq!(fake.copy_in(Frame(5), page(0)), Copied::Exists);
    assert_eq!(fake.memory_pages(), 2);
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 0, result: 4096 }]);
    fake.empty_frames(&[(Frame(5), 1)]);
    assert_eq!(fake.memory_pages(), 1);
}

#[test]
fn a_woken_thread_finds_the_page_or_faults_again() {
    let mut fake = machine(16);
    assert_eq!(fake.touch_read(1, page(3)), Touch::Sleeps);
    assert_eq!(poll(&mut fake, Wait::Forever).len(), 1);
    // Waking without serving the page only brings the next fault.
    fake.wake(run(0, 16));
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Fault { page: page(3), write: false, thread: 1 }]);
    assert_eq!(fake.zero_in(page(3)), Copied::Done);
    // Serving it without waking leaves the thread asleep.
    for _ in 0..50 {
        assert!(poll(&mut fake, Wait::Micros(100)).is_empty());
    }
    assert!(fake.sleeps_on(1).is_some());
    // A signal lets it look again.
    fake.signal(1);
    assert_eq!(fake.outcome(1), Touch::Hit(Content::ZERO));
    assert_eq!(fake.memory_pages(), 0);
    assert_eq!(fake.touch_write(1, page(3), Content(7)), Touch::Hit(Content(7)));
    assert_eq!(fake.memory_pages(), 1);
}

#[test]
fn sleeping_forever_on_a_sleeper_is_found() {
    let forever = || {
        let mut fake = machine(16);
        fake.touch_read(1, page(3));
        poll(&mut fake, Wait::Forever);
        poll(&mut fake, Wait::Forever);
    };
    assert_eq!(panics(forever), "the pager sleeps forever while a thread waits for a page");
    let forgotten = || {
        let mut fake = machine(16);
        fake.script.patience_calls = 1000;
        fake.touch_read(1, page(3));
        loop {
            poll(&mut fake, Wait::Micros(1));
        }
    };
    assert!(panics(forgotten).starts_with("thread 1 sleeps on page"));
    // With nobody asleep and nothing in flight it returns.
    assert!(poll(&mut machine(1), Wait::Forever).is_empty());
}

#[test]
fn pins_shared_pages_and_mappings_refuse_moves() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 8);
    assert!(fake.pin(page(2)));
    assert!(!fake.pin(page(9)));
    assert_eq!(fake.move_out(page(0), Frame(0), 8), Moved { pages: 2, stop: Some(Stop::Busy) });
    fake.device_write(page(2), Content(77));
    fake.unpin(page(2));
    fake.share(run(3, 1));
    assert_eq!(fake.move_out(page(2), Frame(2), 2), Moved { pages: 1, stop: Some(Stop::Busy) });
    assert!(fake.unshare(31, &Pages::from(run(3, 2))));
    assert!(!fake.unshare(30, &Pages::from(run(3, 2))), "one helper");
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 31, result: 0 }]);
    assert_eq!(fake.move_out(page(3), Frame(3), 1).stop, None);
    assert_eq!(fake.move_out(page(9), Frame(9), 1).stop, Some(Stop::Absent));
    fake.protect(run(5, 1), false);
    assert_eq!(fake.move_out(page(4), Frame(9), 2), Moved { pages: 0, stop: Some(Stop::Mapping) });
    assert_eq!(fake.move_out(page(5), Frame(9), 1), Moved { pages: 0, stop: Some(Stop::Mapping) });
    assert_eq!(fake.touch_write(1, page(5), Content(1)), Touch::Fatal);
    assert_eq!(fake.touch_read(1, page(5)), Touch::Hit(Content(105)));
    fake.lock(run(4, 1), true);
    assert_eq!(fake.move_out(page(4), Frame(9), 1).stop, Some(Stop::Mapping));
    assert_eq!(fake.move_in(Frame(0), page(6), 1), Moved { pages: 0, stop: Some(Stop::Exists) });
    assert_eq!(fake.frame(Frame(2)), Some(Content(77)));
}

#[test]
fn the_helper_sleeps_on_absent_pages_like_anyone() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 2);
    fake.share(run(0, 2));
    assert!(fake.unshare(4, &Pages::from(run(0, 2))));
    fake.discard(run(1, 1));
    let events = poll(&mut fake, Wait::Forever);
    assert!(matches!(events[..], [Event::Fault { write: true, .. }]), "{events:?}");
    assert_eq!(fake.zero_in(page(1)), Copied::Done);
    fake.wake(run(1, 1));
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 4, result: 0 }]);
}

#[test]
fn unmapping_holds_the_caller_until_the_pager_hears() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 4);
    fake.touch_read(2, page(9));
    fake.unmap_and_map(run(0, 4));
    assert!(!fake.unmap_is_done());
    // Until the message is read the kernel refuses; the fault is handed out first.
    assert_eq!(fake.move_out(page(8), Frame(0), 1), Moved { pages: 0, stop: Some(Stop::Busy) });
    assert_eq!(fake.zero_in(page(9)), Copied::Failed);
    let events = poll(&mut fake, Wait::Forever);
    let fault = Event::Fault { page: page(9), write: false, thread: 2 };
    assert_eq!(events, [fault, Event::Unmapped { run: run(0, 4) }]);
    assert!(fake.unmap_is_done());
    // The new mapping is there before the pager could act on the message.
    fake.present(run(0, 1), &mut |_, _| true);
    assert!(fake.mapped_pages(run(0, 4)) > 0);
    assert_eq!(fake.zero_in(page(0)), Copied::Gone);
}

#[test]
fn remapped_pages_take_content_and_registration_along() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 4);
    fake.move_out(page(1), Frame(0), 1);
    fake.remap(run(0, 16), page(5000));
    let events = poll(&mut fake, Wait::Forever);
    assert_eq!(events, [Event::Remapped { from: page(0), to: page(5000), pages: 16 }]);
    assert_eq!(fake.touch_read(1, page(5000)), Touch::Hit(Content(100)));
    assert_eq!(fake.move_in(Frame(0), page(1), 1).stop, Some(Stop::Mapping));
    assert_eq!(fake.move_in(Frame(0), page(5001), 1).stop, None);
    assert_eq!(fake.touch_read(1, page(0)), Touch::Fatal);
}

#[test]
fn large_pages_travel_whole_or_split() {
    let mut fake = FakeMachine::new(Shape { huge_groups: 2, ..Shape::default() });
    fake.map_huge(run(0, 1024));
    let (first, second) = (page(0).block(), Block(page(0).block().0 + 1));
    assert_eq!(fake.touch_write(1, page(7), Content(1)), Touch::Hit(Content(1)));
    assert!(fake.is_huge(first));
    assert_eq!((fake.memory_pages(), fake.unregistered_pages()), (0, 512));
    fake.register(run(0, 1024)).unwrap();
    assert_eq!((fake.memory_pages(), fake.unregistered_pages()), (512, 0));
    assert_eq!(fake.move_out(page(0), Frame(512), 512).pages, 512);
    assert_eq!(fake.counts().huge_out, 1);
    assert_eq!(fake.move_in(Frame(512), page(0), 512).pages, 512);
    assert!(fake.is_huge(first));
    // A small page that was there leaves its table behind, and the next large page is split.
    assert_eq!(fake.zero_in(page(512)), Copied::Done);
    fake.discard(run(512, 1));
    assert!(fake.zero_frames(Frame(1024), 512));
    assert_eq!(fake.move_in(Frame(1024), page(512), 512).pages, 512);
    assert!(!fake.is_huge(second));
    assert_eq!(fake.counts().splits, 1);
    // Without the table it arrives whole.
    assert_eq!(fake.move_out(page(512), Frame(0), 512).pages, 512);
    fake.drop_table(second);
    fake.empty_frames(&[(Frame(1024), 512)]);
    assert!(fake.zero_frames(Frame(1024), 512));
    assert_eq!(fake.move_in(Frame(1024), page(512), 512).pages, 512);
    assert!(fake.is_huge(second));
    let mut found = Vec::new();
    fake.discard(run(515, 1));
    fake.present(run(0, 1024), &mut |r, mapped| {
        found.push((r.start.0 - BASE.0, r.pages, mapped.huge));
        true
    });
    assert_eq!(found, [(0, 512, true), (512, 3, false), (516, 508, false)]);
}

#[test]
fn injected_failures_occur_and_are_reported() {
    let mut fake = machine(64);
    fill(&mut fake, 0, 8);
    assert_eq!(fake.move_out(page(0), Frame(0), 8).pages, 8);
    fake.reserve(0, 64).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    fake.script = Script { short: 4, interrupted: 4, write_error: 4, write_full: 4, ..Script::calm() };
    for _ in 0..200 {
        fake.write(0, Slot(0), &[(Frame(0), 8)]);
        match poll(&mut fake, Wait::Forever)[..] {
            [Event::Io { tag: 0, result }] => seen.insert(if result > 0 && result < 32768 { 1 } else { result }),
            ref other => panic!("{other:?}"),
        };
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [-28, -11, -5, -4, 1, 32768]);
    fake.script = Script::calm();
    fake.spoil_slot(Slot(3), true);
    fake.write(0, Slot(0), &[(Frame(0), 8)]);
    assert_eq!(poll(&mut fake, Wait::Forever), [Event::Io { tag: 0, result: -5 }]);
    fake.set_store_slots(0, 64);
    assert!(fake.reserve(0, 65).is_err());
    fake.punch(Slot(8), 1);
    assert_eq!(fake.store_used(0), 63);
    assert!(fake.reserve(0, 65).is_ok());
}

#[test]
fn a_forked_child_shares_memory_and_reads_its_parents_store() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 3);
    fake.reserve(0, 8).unwrap();
    fake.move_out(page(2), Frame(0), 1);
    fake.write(0, Slot(5), &[(Frame(0), 1)]);
    poll(&mut fake, Wait::Forever);
    let mut child = fake.fork(1, Shape { seed: 2, ..Shape::default() }, StoreId(1));
    assert_eq!(fake.touch_write(1, page(0), Content(1)), Touch::Hit(Content(1)));
    assert_eq!(child.touch_read(1, page(0)), Touch::Hit(Content(100)));
    assert_eq!(child.move_out(page(1), Frame(0), 1).stop, Some(Stop::Busy));
    child.register(run(0, 16)).unwrap();
    child.read(0, StoreId(1), Slot(5), Frame(0), 1);
    poll(&mut child, Wait::Forever);
    assert_eq!(child.move_in(Frame(0), page(2), 1).stop, None);
    let overwritten = std::panic::AssertUnwindSafe(|| fake.write(0, Slot(5), &[(Frame(0), 1)]));
    assert_eq!(panics(overwritten), "write to slot 5, which a forked child may still read");
}

#[test]
fn discards_under_way_allow_both_and_then_settle() {
    let mut fake = machine(16);
    fill(&mut fake, 0, 3);
    fake.move_out(page(0), Frame(0), 3);
    fake.discard_begins(run(0, 3));
    assert_eq!(fake.move_in(Frame(0), page(0), 1).stop, None);
    assert_eq!(fake.zero_in(page(1)), Copied::Done);
    fake.touch_write(1, page(1), Content(9));
    fake.discard(run(0, 2));
    fake.discard_ends(run(0, 3));
    assert_eq!(fake.expected(page(1)), Content::ZERO);
    let late = panics(std::panic::AssertUnwindSafe(|| _ = fake.move_in(Frame(2), page(2), 1)));
    assert!(late.starts_with("wrong data"), "{late}");
}

#[test]
fn the_ceiling_holds_at_every_moment() {
    let over = || {
        let mut fake = machine(16);
        fake.set_ceiling(Some(3));
        assert!(fake.zero_frames(Frame(0), 2));
        fake.copy_in(Frame(0), page(0));
        fake.copy_in(Frame(0), page(1));
    };
    assert_eq!(panics(over), "4 pages in use, over the ceiling of 3");
}

/// Evicts and brings back pages under running threads. By writing what was moved out nothing is lost; the naive
/// protocol, which takes a page for clean because it was clean when it was installed, is caught.
#[test]
fn running_threads_catch_the_naive_protocol() {
    let rounds = |naive: bool| {
        let mut fake = machine(16);
        fill(&mut fake, 0, 8);
        fake.reserve(0, 8).unwrap();
        fake.script.write = 2;
        for round in 0..50 {
            assert_eq!(fake.move_out(page(0), Frame(0), 8).pages, 8);
            if !naive || round == 0 {
                fake.write(0, Slot(0), &[(Frame(0), 8)]);
                poll(&mut fake, Wait::Forever);
            }
            fake.read(0, StoreId::OWN, Slot(0), Frame(8), 8);
            poll(&mut fake, Wait::Forever);
            assert_eq!(fake.move_in(Frame(8), page(0), 8).pages, 8);
            fake.empty_frames(&[(Frame(0), 8)]);
        }
    };
    rounds(false);
    assert!(panics(|| rounds(true)).starts_with("wrong data by move_in"));
}

#[test]
fn one_seed_decides_everything() {
    let play = |seed: u64| {
        let mut fake = FakeMachine::new(Shape { seed, ..Shape::default() });
        fake.map(run(0, 64));
        fake.register(run(0, 64)).unwrap();
        fake.script = Script { stale_fault: 3, ..Script::rough() };
        let mut events = Vec::new();
        for _ in 0..3000 {
            for event in poll(&mut fake, Wait::Micros(10)) {
                if let Event::Fault { page, .. } = event {
                    while fake.zero_in(page) == Copied::Failed {}
                    fake.wake(Run { start: page, pages: 1 });
                }
                events.push(event);
            }
        }
        (events, fake.counts(), fake.memory_pages())
    };
    assert_eq!(play(5), play(5));
    assert_ne!(play(5).0, play(6).0);
    assert!(play(5).1.faults > 50, "the crowd touches most pages");
    assert!(play(5).0.len() as u64 > play(5).1.faults, "some faults are reported twice");
}
