//! The real machine against the real kernel: every promise of the seam that a fake could only repeat.
//! Needs a full userfaultfd, so root, and Linux 6.8; says so and passes otherwise.

use ream_page::{BLOCK_BYTES, BLOCK_PAGES, Frame, PAGE_BYTES, Page, Run, Slot, StoreId};
use ream_sys::digest::Key;
use ream_sys::file::{self, Fd};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::syscall::{call3, call4, call5, number};
use ream_sys::uffd::Access;
use ream_sys::{Copied, Errno, Event, Events, LinuxConfig, LinuxMachine, Machine, Moved, Stop, Wait, process};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

const WHOLE: u32 = BLOCK_PAGES;

fn key() -> &'static Key {
    static KEY: OnceLock<&'static Key> = OnceLock::new();
    KEY.get_or_init(|| Key::draw().unwrap())
}

/// A machine, and a range of memory that plays the program's. The test's own thread is the pager, so it must not
/// touch absent pages of the range.
struct Bed {
    machine: LinuxMachine,
    start: *mut u8,
    pages: u32,
    store: Fd,
    /// Reported, but not yet waited for.
    news: Vec<Event>,
}

fn store() -> Fd {
    let directory = std::ffi::CString::new(std::env::temp_dir().as_os_str().as_encoded_bytes()).unwrap();
    file::create_store(&directory).unwrap().fd
}

/// 4 blocks of small frames, 4 of huge ones, and so many pages of memory, every one filled with its own pattern,
/// registered.
fn bed(pages: u32, kind: Advice) -> Option<Bed> {
    let store = store();
    let config =
        LinuxConfig { small_frames: 4 * WHOLE, huge_blocks: 4, store, key: key(), io_limit: 16, user_only: false };
    let machine = match LinuxMachine::new(&config) {
        Ok(machine) if machine.access() != Access::UserOnly => machine,
        Ok(_) => {
            eprintln!("SKIPPED: no full userfaultfd here; run as root");
            return None;
        }
        Err(setup) => {
            eprintln!("SKIPPED: cannot {}: errno {}", setup.what, setup.errno.0);
            return None;
        }
    };
    let bytes = pages as usize * PAGE_BYTES;
    // A page without access behind it keeps the range from merging with a neighbour's.
    let start = memory::map(bytes + PAGE_BYTES, BLOCK_BYTES, Protection::ReadWrite).unwrap().as_ptr();
    unsafe {
        memory::protect(start.add(bytes), PAGE_BYTES, Protection::None).unwrap();
        memory::advise(start.addr(), bytes, kind).unwrap();
    }
    let mut bed = Bed { machine, start, pages, store, news: Vec::new() };
    for index in 0..pages {
        bed.fill(index, index as u64);
    }
    let run = bed.run(0, pages);
    bed.machine.register(run).unwrap();
    Some(bed)
}

macro_rules! bed {
    ($pages:expr, $kind:expr) => {
        match bed($pages, $kind) {
            Some(bed) => bed,
            None => return,
        }
    };
}

fn pattern(seed: u64, word: usize) -> u64 {
    (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32 % 64) ^ word as u64
}

impl Bed {
    fn at(&self, index: u32) -> *mut u64 {
        self.start.wrapping_add(index as usize * PAGE_BYTES).cast()
    }
    fn page(&self, index: u32) -> Page {
        Page::containing(self.at(index).expose_provenance())
    }
    fn run(&self, index: u32, pages: u32) -> Run {
        Run { start: self.page(index), pages: pages as u64 }
    }
    fn fill(&mut self, index: u32, seed: u64) {
        for word in 0..512 {
            unsafe { self.at(index).add(word).write(pattern(seed, word)) };
        }
    }
    #[track_caller]
    fn check(&self, index: u32, seed: u64) {
        for word in 0..512 {
            let found = unsafe { self.at(index).add(word).read_volatile() };
            assert_eq!(found, pattern(seed, word), "page {index} word {word}");
        }
    }
    fn mapped(&mut self, index: u32, pages: u32) -> (u64, u64) {
        let (mut all, mut huge) = (0, 0);
        let run = self.run(index, pages);
        self.machine.present(run, &mut |part, large| {
            all += part.pages;
            huge += if large { part.pages } else { 0 };
        });
        (all, huge)
    }
    #[track_caller]
    fn out(&mut self, index: u32, frame: u32, pages: u32) {
        let moved = self.machine.move_out(self.page(index), Frame(frame), pages);
        assert_eq!(moved, Moved { pages, stop: None });
    }
    #[track_caller]
    fn back(&mut self, frame: u32, index: u32, pages: u32) {
        let moved = self.machine.move_in(Frame(frame), self.page(index), pages);
        assert_eq!(moved, Moved { pages, stop: None });
    }
    /// Polls until `wanted` finds its event.
    fn await_event<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let mut events = Events::new();
        loop {
            let found = self.news.iter().enumerate().find_map(|(at, event)| Some((at, wanted(event)?)));
            if let Some((at, found)) = found {
                self.news.remove(at);
                return found;
            }
            events.clear();
            self.machine.poll(Wait::Forever, &mut events);
            self.news.extend_from_slice(events.as_slice());
        }
    }
    fn await_io(&mut self, tag: u32) -> i32 {
        self.await_event(|event| match event {
            Event::Io { tag: found, result } if *found == tag => Some(*result),
            _ => None,
        })
    }
    fn await_fault(&mut self) -> (Page, bool, u32) {
        self.await_event(|event| match event {
            Event::Fault { page, write, thread } => Some((*page, *write, *thread)),
            _ => None,
        })
    }
    fn address(&self, index: u32) -> usize {
        self.at(index).expose_provenance()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let run = self.run(0, self.pages);
        let _ = self.machine.unregister(run);
        let _ = unsafe { memory::unmap(self.start, (self.pages as usize + 1) * PAGE_BYTES) };
        file::close(self.store);
    }
}

fn word_at(address: usize) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut(address)
}

#[test]
fn pages_move_out_and_back_unharmed() {
    let mut bed = bed!(2 * WHOLE, Advice::NoHugePage);
    for pages in [1, 16, 511, 512, 700] {
        bed.out(3, 5, pages);
        assert_eq!(bed.mapped(0, 2 * WHOLE), ((2 * WHOLE - pages) as u64, 0));
        bed.back(5, 3, pages);
        assert_eq!(bed.mapped(0, 2 * WHOLE), (2 * WHOLE as u64, 0));
    }
    for index in 0..2 * WHOLE {
        bed.check(index, index as u64);
    }
}

#[test]
fn huge_pages_stay_huge() {
    let mut bed = bed!(4 * WHOLE, Advice::HugePage);
    let (_, huge) = bed.mapped(0, 4 * WHOLE);
    if huge != 4 * WHOLE as u64 {
        eprintln!("SKIPPED: the kernel gave no large pages");
        return;
    }
    let first = bed.machine.huge_start();
    assert_eq!(first % WHOLE, 0);
    bed.out(0, first, 4 * WHOLE);
    assert_eq!(bed.mapped(0, 4 * WHOLE), (0, 0));
    bed.back(first, 0, 4 * WHOLE);
    assert_eq!(bed.mapped(0, 4 * WHOLE), (4 * WHOLE as u64, 4 * WHOLE as u64));
    for index in [0, 1, 511, 512, 2047] {
        bed.check(index, index as u64);
    }
}

#[test]
fn a_dropped_table_lets_a_block_stay_huge() {
    let mut bed = bed!(2 * WHOLE, Advice::HugePage);
    if bed.mapped(0, 2 * WHOLE).1 != 2 * WHOLE as u64 {
        eprintln!("SKIPPED: the kernel gave no large pages");
        return;
    }
    let first = bed.machine.huge_start();
    bed.out(0, first, WHOLE);
    // A 4 KiB page comes and goes, and leaves a page table behind.
    assert_eq!(bed.machine.zero_in(bed.page(7)), Copied::Done);
    bed.out(7, 0, 1);
    bed.machine.drop_table(bed.page(0).block());
    bed.back(first, 0, WHOLE);
    assert_eq!(bed.mapped(0, WHOLE), (WHOLE as u64, WHOLE as u64));
    // With pages in the block nothing is dropped.
    bed.machine.drop_table(bed.page(0).block());
    bed.check(9, 9);
}

#[test]
fn a_hole_stops_the_move_and_the_count_is_exact() {
    let mut bed = bed!(64, Advice::NoHugePage);
    bed.out(20, 100, 1);
    let moved = bed.machine.move_out(bed.page(0), Frame(200), 64);
    assert_eq!(moved, Moved { pages: 20, stop: Some(Stop::Absent) });
    assert_eq!(bed.mapped(0, 64).0, 43);
    let moved = bed.machine.move_out(bed.page(20), Frame(300), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Absent) });
    // An empty frame has nothing to give.
    let moved = bed.machine.move_in(Frame(400), bed.page(0), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Absent) });
    bed.back(200, 0, 20);
    bed.back(100, 20, 1);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

#[test]
fn a_present_page_is_not_overwritten() {
    let mut bed = bed!(64, Advice::NoHugePage);
    bed.out(0, 0, 32);
    let moved = bed.machine.move_in(Frame(0), bed.page(16), 32);
    assert_eq!(moved, Moved { pages: 16, stop: Some(Stop::Exists) });
    let moved = bed.machine.move_in(Frame(16), bed.page(40), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Exists) });
    assert_eq!(bed.machine.copy_in(Frame(16), bed.page(40)), Copied::Exists);
    assert_eq!(bed.machine.zero_in(bed.page(40)), Copied::Exists);
    (16..32).for_each(|index| bed.check(index, index as u64 - 16));
    bed.check(32, 32);
    bed.check(40, 40);
}

#[test]
fn protected_and_foreign_pages_stay_where_they_are() {
    let mut bed = bed!(64, Advice::NoHugePage);
    unsafe { memory::protect(bed.at(30).cast(), 4 * PAGE_BYTES, Protection::Read).unwrap() };
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    assert_eq!(moved, Moved { pages: 30, stop: Some(Stop::Mapping) });
    let moved = bed.machine.move_out(bed.page(32), Frame(100), 8);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
    bed.check(33, 33);
    // Across the end of the range.
    let moved = bed.machine.move_out(bed.page(60), Frame(100), 8);
    assert_eq!(moved, Moved { pages: 4, stop: Some(Stop::Mapping) });
    // Two mappings that differ in nothing that matters are crossed.
    unsafe { memory::advise(bed.address(40), 8 * PAGE_BYTES, Advice::DontFork).unwrap() };
    bed.out(34, 200, 24);
    bed.back(200, 34, 24);
    bed.check(39, 39);
    bed.check(40, 40);
    // Nothing is mapped at address 0.
    let moved = bed.machine.move_out(Page(0), Frame(300), 1);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
    // Frames that do not exist.
    let frames = bed.machine.frames();
    let moved = bed.machine.move_out(bed.page(40), Frame(frames - 1), 2);
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Mapping) });
}

#[test]
fn a_pinned_page_is_busy_until_released() {
    let mut bed = bed!(64, Advice::NoHugePage);
    // A registered buffer of somebody else's io_uring is the strongest pin there is.
    let mut parameters = [0u32; 30];
    let ring = unsafe { call3(number::__NR_io_uring_setup, 1, parameters.as_mut_ptr().expose_provenance(), 0) };
    let Ok(ring) = ring else {
        eprintln!("SKIPPED: no io_uring");
        return;
    };
    let buffer = [bed.address(10), PAGE_BYTES];
    let list = buffer.as_ptr().expose_provenance();
    unsafe { call4(number::__NR_io_uring_register, ring, 0, list, 1) }.unwrap();
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    assert_eq!(moved, Moved { pages: 10, stop: Some(Stop::Busy) });
    bed.check(10, 10);
    unsafe { call4(number::__NR_io_uring_register, ring, 1, 0, 0) }.unwrap();
    file::close(Fd(ring as i32));
    // Released asynchronously: soon.
    let mut done = 10;
    while done < 64 {
        process::sleep_us(1000);
        done += bed.machine.move_out(bed.page(done), Frame(done), 64 - done).pages;
    }
    bed.back(0, 0, 64);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

#[test]
fn copies_and_zeros_appear_where_nothing_was() {
    let mut bed = bed!(16, Advice::NoHugePage);
    bed.out(0, 0, 16);
    assert_eq!(bed.machine.copy_in(Frame(3), bed.page(3)), Copied::Done);
    assert_eq!(bed.machine.zero_in(bed.page(4)), Copied::Done);
    bed.check(3, 3);
    assert_eq!(unsafe { bed.at(4).read_volatile() }, 0);
    assert_eq!(bed.mapped(0, 16).0, 2);
    // The frame is still there.
    bed.back(5, 5, 1);
    assert_eq!(bed.machine.move_in(Frame(3), bed.page(6), 1).pages, 1);
    bed.check(6, 3);
    let run = bed.run(0, 16);
    bed.machine.unregister(run).unwrap();
    assert_eq!(bed.machine.copy_in(Frame(7), bed.page(7)), Copied::Gone);
    assert_eq!(bed.machine.zero_in(bed.page(8)), Copied::Gone);
    assert_eq!(bed.machine.move_in(Frame(7), bed.page(7), 1), Moved { pages: 0, stop: Some(Stop::Mapping) });
}

#[test]
fn a_range_belongs_to_one_machine() {
    let mut one = bed!(16, Advice::NoHugePage);
    let mut other = bed!(16, Advice::NoHugePage);
    let run = one.run(0, 16);
    assert_eq!(other.machine.register(run), Err(Errno::BUSY));
    one.machine.unregister(run).unwrap();
    other.machine.register(run).unwrap();
    other.machine.unregister(run).unwrap();
}

#[test]
fn frames_are_zeroed_emptied_and_hashed() {
    let mut bed = bed!(16, Advice::NoHugePage);
    let zero = {
        assert!(bed.machine.zero_frames(Frame(100), 3));
        bed.machine.digest(Frame(101))
    };
    assert!(zero.zero);
    bed.out(0, 104, 1);
    let first = bed.machine.digest(Frame(104));
    assert!(!first.zero && first != zero);
    // Populated and empty ones alike.
    assert!(bed.machine.zero_frames(Frame(100), 8));
    for frame in 100..108 {
        assert_eq!(bed.machine.digest(Frame(frame)), zero);
    }
    bed.back(100, 0, 1);
    assert_eq!(unsafe { bed.at(0).read_volatile() }, 0);
    bed.machine.empty_frames(Frame(100), 8);
    bed.out(1, 104, 4);
    assert!(!bed.machine.digest(Frame(104)).zero);
    let huge = bed.machine.huge_start();
    assert!(bed.machine.zero_frames(Frame(huge), WHOLE));
    assert_eq!(bed.machine.digest(Frame(huge + 511)), zero);
    assert!(!bed.machine.zero_frames(Frame(bed.machine.frames()), 1));
}

#[test]
fn the_store_gives_back_what_it_got() {
    let mut bed = bed!(64, Advice::NoHugePage);
    bed.machine.reserve(128).unwrap();
    bed.out(0, 0, 64);
    let digests: Vec<_> = (0..64).map(|frame| bed.machine.digest(Frame(frame))).collect();
    // Written in three parts and out of order, read in one.
    bed.machine.write(0, Slot(10), &[(Frame(40), 24), (Frame(0), 8), (Frame(8), 32)]);
    assert_eq!(bed.await_io(0), 64 * PAGE_BYTES as i32);
    bed.machine.read(1, StoreId::OWN, Slot(10), Frame(500), 64);
    assert_eq!(bed.await_io(1), 64 * PAGE_BYTES as i32);
    let order: Vec<u32> = (40..64).chain(0..40).collect();
    for (place, frame) in order.iter().enumerate() {
        assert_eq!(bed.machine.digest(Frame(500 + place as u32)), digests[*frame as usize]);
    }
    bed.back(500, 0, 64);
    bed.check(0, 40);
    bed.check(24, 0);
    bed.check(63, 39);
    // Every tag at once.
    for tag in 0..bed.machine.io_limit() {
        bed.machine.read(tag, StoreId::OWN, Slot(10 + tag), Frame(600 + tag), 1);
    }
    let mut missing: u32 = (1 << bed.machine.io_limit()) - 1;
    while missing != 0 {
        let tag = bed.await_event(|event| match event {
            Event::Io { tag, result } if missing & 1 << tag != 0 => {
                assert_eq!(*result, PAGE_BYTES as i32);
                missing &= !(1 << tag);
                Some(*tag)
            }
            _ => None,
        });
        assert_eq!(bed.machine.digest(Frame(600 + tag)), digests[order[tag as usize] as usize]);
    }
}

#[test]
fn failures_of_the_store_are_reported() {
    let mut bed = bed!(16, Advice::NoHugePage);
    bed.machine.reserve(4).unwrap();
    bed.machine.read(0, StoreId::OWN, Slot(0), Frame(0), 8);
    assert_eq!(bed.await_io(0), 4 * PAGE_BYTES as i32, "short at the end of the file");
    bed.machine.read(1, StoreId(9), Slot(0), Frame(0), 1);
    assert_eq!(bed.await_io(1), Errno::BADF.negative());
    let frames = bed.machine.frames();
    bed.machine.read(2, StoreId::OWN, Slot(0), Frame(frames), 1);
    assert_eq!(bed.await_io(2), Errno::FAULT.negative());
    bed.machine.write(3, Slot(0), &[]);
    assert_eq!(bed.await_io(3), Errno::FAULT.negative());
    // A store that cannot be written.
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", bed.store.0)).unwrap();
    let reader = file::open(&path, file::flags::READ | file::flags::DIRECT, 0).unwrap();
    bed.machine.add_store(StoreId::OWN, reader);
    bed.out(0, 50, 1);
    bed.machine.write(4, Slot(0), &[(Frame(50), 1)]);
    assert_eq!(bed.await_io(4), Errno::BADF.negative());
    // An ancestor's store.
    bed.machine.add_store(StoreId(9), reader);
    bed.machine.read(5, StoreId(9), Slot(1), Frame(7), 2);
    assert_eq!(bed.await_io(5), 2 * PAGE_BYTES as i32);
    file::close(reader);
}

#[test]
fn a_punch_never_erases_what_is_written_after_it() {
    let mut bed = bed!(64, Advice::NoHugePage);
    bed.machine.reserve(8192).unwrap();
    bed.out(0, 0, 64);
    for round in 0..20 {
        let slot = Slot(round * 64);
        bed.machine.write(0, slot, &[(Frame(0), 64)]);
        bed.await_io(0);
        bed.machine.punch(Slot(0), 8192);
        bed.machine.write(0, slot, &[(Frame(0), 64)]);
        assert_eq!(bed.await_io(0), 64 * PAGE_BYTES as i32);
        bed.machine.read(1, StoreId::OWN, slot, Frame(100), 64);
        assert_eq!(bed.await_io(1), 64 * PAGE_BYTES as i32);
        for index in 0..64 {
            assert_eq!(bed.machine.digest(Frame(100 + index)), bed.machine.digest(Frame(index)), "round {round}");
        }
    }
    // What lies beside it was punched.
    bed.machine.read(1, StoreId::OWN, Slot(0), Frame(100), 1);
    bed.await_io(1);
    assert!(bed.machine.digest(Frame(100)).zero);
}

#[test]
fn faults_name_page_kind_and_thread() {
    let mut bed = bed!(64, Advice::NoHugePage);
    bed.out(0, 0, 64);
    for (index, write) in [(5u32, false), (6, true)] {
        let address = bed.address(index);
        static WHO: AtomicU64 = AtomicU64::new(0);
        let toucher = thread::spawn(move || {
            WHO.store(process::thread_id() as u64, Ordering::Release);
            unsafe {
                if write {
                    word_at(address).add(1).write_volatile(1);
                }
                word_at(address).read_volatile()
            }
        });
        let (page, wrote, who) = bed.await_fault();
        assert_eq!((page, wrote), (bed.page(index), write));
        assert_eq!(who as u64, WHO.load(Ordering::Acquire));
        bed.machine.follow(Some(who));
        bed.back(index, index, 1);
        bed.machine.wake(bed.run(index, 1));
        assert_eq!(toucher.join().unwrap(), pattern(index as u64, 0));
        bed.machine.follow(None);
    }
}

#[test]
fn more_faults_than_a_batch_holds_are_all_reported() {
    let threads = 3 * Events::CAPACITY as u32;
    let mut bed = bed!(threads, Advice::NoHugePage);
    bed.out(0, 0, threads);
    let base = bed.address(0);
    let touchers: Vec<_> = (0..threads as usize)
        .map(|index| {
            let touch = move || unsafe { word_at(base + index * PAGE_BYTES).read_volatile() };
            thread::Builder::new().stack_size(64 << 10).spawn(touch).unwrap()
        })
        .collect();
    let mut events = Events::new();
    let mut seen = vec![false; threads as usize];
    while seen.iter().any(|seen| !seen) {
        events.clear();
        bed.machine.poll(Wait::Forever, &mut events);
        for event in events.as_slice() {
            if let Event::Fault { page, .. } = event {
                let index = (page.0 - bed.page(0).0) as u32;
                assert!(!std::mem::replace(&mut seen[index as usize], true), "reported twice");
            }
        }
        // Nobody is answered before everybody has asked, so that batches fill.
        if seen.iter().all(|seen| *seen) {
            bed.back(0, 0, threads);
            let run = bed.run(0, threads);
            bed.machine.wake(run);
        }
    }
    for (index, toucher) in touchers.into_iter().enumerate() {
        assert_eq!(toucher.join().unwrap(), pattern(index as u64, 0));
    }
}

#[test]
fn unmapping_and_remapping_are_reported() {
    let mut bed = bed!(64, Advice::NoHugePage);
    let (gone, moved) = (bed.address(8), bed.address(16));
    let unmapper = thread::spawn(move || unsafe { memory::unmap(word_at(gone).cast(), 4 * PAGE_BYTES) });
    let run = bed.await_event(|event| match event {
        Event::Unmapped { run } => Some(*run),
        _ => None,
    });
    assert_eq!(run, bed.run(8, 4));
    unmapper.join().unwrap().unwrap();
    assert_eq!(bed.machine.move_out(bed.page(9), Frame(0), 1), Moved { pages: 0, stop: Some(Stop::Mapping) });

    bed.out(17, 17, 1);
    const MAYMOVE: usize = 1;
    let mover = thread::spawn(move || unsafe {
        let place = memory::remap(word_at(moved).cast(), 8 * PAGE_BYTES, 32 * PAGE_BYTES, MAYMOVE, 0).unwrap();
        let place = place.cast::<u64>();
        // Page 1 is absent, and registration has come along.
        let found = (place.read_volatile(), place.add(512).read_volatile());
        memory::unmap(place.cast(), 32 * PAGE_BYTES).unwrap();
        found
    });
    let (from, to, pages) = bed.await_event(|event| match event {
        Event::Remapped { from, to, pages } => Some((*from, *to, *pages)),
        _ => None,
    });
    assert_eq!((from, pages), (bed.page(16), 8));
    let (page, ..) = bed.await_fault();
    assert_eq!(page, to.plus(1));
    let back = bed.machine.move_in(Frame(17), page, 1);
    assert_eq!(back, Moved { pages: 1, stop: None });
    bed.machine.wake(Run { start: page, pages: 1 });
    // The old place was reported as unmapped too.
    let old = bed.await_event(|event| match event {
        Event::Unmapped { run } => Some(*run),
        _ => None,
    });
    assert_eq!(old, bed.run(16, 8));
    bed.await_event(|event| matches!(event, Event::Unmapped { run } if run.start == to).then_some(()));
    assert_eq!(mover.join().unwrap(), (pattern(16, 0), pattern(17, 0)));
}

#[test]
fn moves_and_copies_go_on_while_an_unmap_waits_to_be_heard() {
    let mut bed = bed!(64, Advice::NoHugePage);
    for round in 0..10u32 {
        let (gone, left) = (bed.address(40 + round), bed.page(40 + round));
        let unmapper = thread::spawn(move || unsafe { memory::unmap(word_at(gone).cast(), PAGE_BYTES) });
        // Until the message is queued; it is not read before the moves.
        while ream_sys::memory::is_mapped(left.address()) {
            process::sleep_us(100);
        }
        process::sleep_us(2000);
        bed.out(0, 0, 8);
        assert_eq!(bed.machine.copy_in(Frame(1), bed.page(1)), Copied::Done);
        bed.machine.empty_frames(Frame(1), 1);
        bed.out(1, 1, 1);
        bed.back(0, 0, 8);
        let run = bed.await_event(|event| match event {
            Event::Unmapped { run } => Some(*run),
            _ => None,
        });
        assert_eq!(run.start, left);
        unmapper.join().unwrap().unwrap();
    }
    (0..8).for_each(|index| bed.check(index, index as u64));
}

#[test]
fn pages_shared_with_a_child_are_busy_until_unshared() {
    let mut bed = bed!(64, Advice::NoHugePage);
    // clone(SIGCHLD), as fork does; the child only waits for its end.
    let child = unsafe { call5(number::__NR_clone, 17, 0, 0, 0, 0) }.unwrap();
    if child == 0 {
        loop {
            process::sleep_us(1_000_000);
        }
    }
    let moved = bed.machine.move_out(bed.page(0), Frame(0), 64);
    let wanted = bed.run(0, 64);
    let accepted = bed.machine.unshare(3, wanted);
    let result = if accepted { bed.await_io(3) } else { -1 };
    let again = bed.machine.move_out(bed.page(0), Frame(0), 64);
    let hole = bed.machine.unshare(4, wanted);
    process::kill(child as u32, 9).unwrap();
    unsafe { call4(number::__NR_wait4, child, 0, 0, 0) }.unwrap();
    assert_eq!(moved, Moved { pages: 0, stop: Some(Stop::Busy) });
    assert!(accepted);
    assert_eq!(result, 0);
    assert_eq!(again, Moved { pages: 64, stop: None });
    assert!(!hole, "absent pages are not for the helper");
    bed.back(0, 0, 64);
    (0..64).for_each(|index| bed.check(index, index as u64));
}

#[test]
fn the_staging_area_is_not_in_a_child() {
    let mut bed = bed!(16, Advice::NoHugePage);
    bed.out(0, 0, 16);
    let child = unsafe { call5(number::__NR_clone, 17, 0, 0, 0, 0) }.unwrap();
    if child == 0 {
        // Touching a frame there is a segmentation fault, which the parent sees in the status.
        bed.machine.digest(Frame(0));
        process::end_process(0);
    }
    let mut status = 0u32;
    unsafe { call4(number::__NR_wait4, child, (&raw mut status).expose_provenance(), 0, 0) }.unwrap();
    assert_eq!(status & 0x7f, 11);
}

#[test]
fn polling_ends_when_told() {
    let mut bed = bed!(16, Advice::NoHugePage);
    let mut events = Events::new();
    bed.machine.poll(Wait::No, &mut events);
    assert!(events.as_slice().is_empty());
    let before = bed.machine.now_us();
    // Polls may end early; many of them may not end late without end.
    for _ in 0..10 {
        bed.machine.poll(Wait::Micros(2000), &mut events);
    }
    assert!(events.as_slice().is_empty());
    assert!(bed.machine.now_us() > before + 2000);
}

/// Two threads count up in every page while the pager moves the pages out, compares them with the store by hash, and
/// brings back the store's content where the hash says that nothing changed. A write that the hash missed is a count
/// that goes backwards.
#[test]
fn no_write_is_lost_between_moves() {
    const PAGES: u32 = 8;
    const ROUNDS: u32 = 3000;
    let mut bed = bed!(PAGES, Advice::NoHugePage);
    bed.machine.reserve(PAGES).unwrap();
    static STOP: AtomicBool = AtomicBool::new(false);
    static LOST: AtomicUsize = AtomicUsize::new(0);
    let base = bed.address(0);
    let writers: Vec<_> = (0..2usize)
        .map(|lane| {
            thread::spawn(move || {
                let mut counts: [u64; PAGES as usize] = std::array::from_fn(|index| pattern(index as u64, lane));
                let mut seed = 88_172_645_463_325_252u64 + lane as u64;
                while !STOP.load(Ordering::Relaxed) {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let index = (seed % PAGES as u64) as usize;
                    let word = word_at(base + index * PAGE_BYTES + lane * 8);
                    let found = unsafe { word.read_volatile() };
                    if found != counts[index] {
                        LOST.fetch_add(1, Ordering::Relaxed);
                        STOP.store(true, Ordering::Relaxed);
                    }
                    counts[index] = found.wrapping_add(1);
                    unsafe { word.write_volatile(counts[index]) };
                    for _ in 0..seed >> 32 & 0x3ff {
                        std::hint::spin_loop();
                    }
                }
            })
        })
        .collect();
    let mut stored: [Option<u64>; PAGES as usize] = [None; PAGES as usize];
    let (mut clean, mut dirty, mut faults) = (0, 0, 0);
    let mut events = Events::new();
    for round in 0..ROUNDS {
        // Several times in a row, so that some have not been written in between.
        let index = round / 4 % PAGES;
        let slot = Slot(index);
        // Staging frames: the page's own, and one to read back into.
        let (frame, other) = (Frame(2 * index), Frame(2 * index + 1));
        let moved = bed.machine.move_out(bed.page(index), frame, 1);
        if moved.stop == Some(Stop::Busy) {
            continue;
        }
        assert_eq!(moved, Moved { pages: 1, stop: None });
        let digest = bed.machine.digest(frame);
        if stored[index as usize] == Some(digest.hash) {
            clean += 1;
            bed.machine.read(0, StoreId::OWN, slot, other, 1);
            assert_eq!(bed.await_io(0), PAGE_BYTES as i32);
            assert_eq!(bed.machine.digest(other), digest);
            bed.machine.empty_frames(frame, 1);
            while bed.machine.move_in(other, bed.page(index), 1).stop == Some(Stop::Busy) {}
        } else {
            dirty += 1;
            bed.machine.write(0, slot, &[(frame, 1)]);
            assert_eq!(bed.await_io(0), PAGE_BYTES as i32);
            stored[index as usize] = Some(digest.hash);
            while bed.machine.move_in(frame, bed.page(index), 1).stop == Some(Stop::Busy) {}
        }
        bed.machine.wake(bed.run(index, 1));
        if round % 7 != 0 {
            continue;
        }
        events.clear();
        bed.machine.poll(Wait::Micros(200), &mut events);
        // What was reported while reads and writes were waited for are faults as well.
        faults += events.as_slice().len() + std::mem::take(&mut bed.news).len();
        if STOP.load(Ordering::Relaxed) {
            break;
        }
    }
    STOP.store(true, Ordering::Relaxed);
    let run = bed.run(0, PAGES);
    bed.machine.wake(run);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(LOST.load(Ordering::Relaxed), 0, "writes were lost");
    assert!(clean > 50 && dirty > 50 && faults > 0, "the race was not run: {clean} clean, {dirty} dirty");
}
