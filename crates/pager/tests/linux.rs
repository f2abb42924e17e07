//! The shard on the real kernel: a pager thread serves a test program's threads, whose data are four times the limit.
//! Needs a full userfaultfd (root); says so loudly and passes elsewhere.

use ream_page::{Page, Run};
use ream_pager::{Config, Counters, Fetch, Progress, Shard, Usage};
use ream_sys::digest::Key;
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::{Event, Events, LinuxConfig, LinuxMachine, Machine, Wait, file};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Instant;

const PAGE: usize = 4096;

static CPU: AtomicU64 = AtomicU64::new(0);

struct Paged {
    start: usize,
    bytes: usize,
    stop: Arc<AtomicBool>,
    /// Until it is false again: one page of every block counts as used much, and all of them are moved out.
    spot: Arc<AtomicBool>,
    pager: Option<std::thread::JoinHandle<u64>>,
    counters: &'static Counters,
}

/// Maps `bytes` and pages them within `limit` pages; `None` where the kernel does not allow it.
fn paged(bytes: usize, limit: u64) -> Option<Paged> {
    let start = memory::map(bytes, 2 << 20, Protection::ReadWrite).unwrap().as_ptr() as usize;
    // SAFETY: a hint about fresh memory.
    unsafe { memory::advise(start, bytes, Advice::HugePage).unwrap() };
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let spot = Arc::new(AtomicBool::new(false));
    let (stopping, spotting) = (stop.clone(), spot.clone());
    let (ready, wait) = mpsc::channel();
    let pager = std::thread::spawn(move || {
        let directory = std::env::var("REAM_STORE").unwrap_or("/var/tmp".into());
        let store = file::create_store(&std::ffi::CString::new(directory).unwrap()).unwrap();
        let frames = (limit as u32).next_multiple_of(512);
        let config = LinuxConfig {
            small_frames: frames,
            huge_blocks: frames / 512,
            store: store.fd,
            key: Key::draw().unwrap(),
            io_limit: 128,
            user_only: false,
            loans: None,
            moving: None,
            ask: ream_sys::user::nobody,
            large: |_| true,
            move_pages: true,
            uring: true,
        };
        let machine = match LinuxMachine::new(&config) {
            Ok(machine) => machine,
            Err(setup) => {
                ready.send(Some(format!("{setup:?}"))).unwrap();
                return 0;
            }
        };
        let mut shard = Shard::new(
            machine,
            Config { limit, slots: 1 << 24, fetch: Fetch::Auto, swap: ream_stats::Swap::REAM },
            counters,
        )
        .unwrap();
        shard.manage(Run::inside(start, bytes)).unwrap();
        ready.send(None).unwrap();
        let mut events = Events::new();
        let all = Run::inside(start, bytes);
        let mut cooling = Run { pages: 0, ..all };
        while !stopping.load(SeqCst) {
            if spotting.load(SeqCst) {
                if cooling.pages == 0 {
                    for page in (all.start.0 + 7..all.end().0).step_by(512) {
                        shard.set_usage(Run { start: Page(page), pages: 1 }, Usage::Keep);
                    }
                    shard.set_usage(all, Usage::Unknown);
                    cooling = all;
                }
                if shard.cool(&mut cooling) == Progress::Done {
                    cooling.pages = 0;
                    spotting.store(false, SeqCst);
                }
            }
            let more = shard.work();
            if shard.fatal().is_some() || shard.used() > limit + 256 {
                // The program's threads sleep for ever now: end them all.
                eprintln!("FAILED: {:?}, {} pages used of {limit}", shard.fatal(), shard.used());
                std::process::abort();
            }
            events.clear();
            shard.machine_mut().poll(if more { Wait::No } else { Wait::Micros(10_000) }, &mut events);
            for event in events.as_slice() {
                if !shard.event(*event) {
                    if let Event::Fault { page, .. } = event {
                        panic!("a fault at {page:?}, which is not managed");
                    }
                }
            }
        }
        shard.used()
    });
    match wait.recv().unwrap() {
        None => Some(Paged { start, bytes, stop, spot, pager: Some(pager), counters }),
        Some(why) => {
            eprintln!("SKIPPED: this kernel or user cannot page: {why}");
            None
        }
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let outcome = self.pager.take().unwrap().join();
        if !std::thread::panicking() {
            outcome.unwrap();
        }
        // SAFETY: the test is over.
        unsafe { memory::unmap(self.start as *mut u8, self.bytes).unwrap() };
    }
}

impl Paged {
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8);
        // SAFETY: inside the mapping, aligned, shared between threads as atomics only.
        unsafe { &*((self.start as *const AtomicU64).add(index)) }
    }
    fn words(&self) -> usize {
        self.bytes / 8
    }
}

fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn report(what: &str, paged: &Paged, bytes: usize, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 =
        text.rsplit(')').next().unwrap().split(' ').skip(12).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
    let before = CPU.swap(ticks, SeqCst);
    eprint!("cpu {:5.2} s ", (ticks - before) as f64 / 100.0);
    let c = paged.counters;
    eprintln!(
        "{what:24} {seconds:6.2} s {:7.0} MB/s; faults {} refaults {} rescues {} hits {} misses {} in {} MB out {} MB reads {} writes {} evictions {} clean {}",
        bytes as f64 / seconds / 1e6,
        c.faults.get(),
        c.refaults.get(),
        c.rescues.get(),
        c.ahead_hits.get(),
        c.ahead_misses.get(),
        c.bytes_in.get() >> 20,
        c.bytes_out.get() >> 20,
        c.reads.get(),
        c.writes.get(),
        c.evictions.get(),
        c.evictions_clean.get(),
    );
}

#[test]
fn four_times_the_limit_in_every_order() {
    let megabytes: usize = std::env::var("REAM_TEST_MB").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    let bytes = megabytes << 20;
    let Some(paged) = paged(bytes, (bytes / PAGE / 4) as u64) else { return };
    let words = paged.words();
    let began = Instant::now();
    for index in 0..words {
        paged.word(index).store(mix(index as u64), SeqCst);
    }
    report("ordered first write", &paged, bytes, began);
    let began = Instant::now();
    for index in 0..words {
        assert_eq!(paged.word(index).load(SeqCst), mix(index as u64), "word {index}");
    }
    report("ordered read", &paged, bytes, began);
    let began = Instant::now();
    for index in (0..words).rev() {
        assert_eq!(paged.word(index).load(SeqCst), mix(index as u64), "word {index}");
    }
    report("reverse read", &paged, bytes, began);
    let began = Instant::now();
    for index in 0..words {
        assert_eq!(paged.word(index).fetch_xor(1 << 63, SeqCst), mix(index as u64), "word {index}");
    }
    report("ordered read-modify-write", &paged, bytes, began);
    let began = Instant::now();
    let accesses = 50_000;
    for step in 0..accesses {
        let index = (mix(step) % words as u64) as usize;
        assert_eq!(paged.word(index).load(SeqCst), mix(index as u64) ^ 1 << 63, "word {index}");
    }
    report("random read", &paged, accesses as usize * PAGE, began);
    eprintln!("                         {:.1} us an access", began.elapsed().as_secs_f64() * 1e6 / accesses as f64);
    let began = Instant::now();
    for step in 0..accesses {
        let index = (mix(step + 7_000_000) % words as u64) as usize;
        let value = paged.word(index).load(SeqCst);
        assert_eq!(value & !(1 << 63), mix(index as u64) & !(1 << 63), "word {index}");
        paged.word(index).store(value ^ 1 << 63, SeqCst);
    }
    report("random read-modify-write", &paged, accesses as usize * PAGE, began);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let paged = &paged;
            scope.spawn(move || {
                for step in 0..accesses / 4 {
                    let index = (mix(step + thread * 1_000_003) % words as u64) as usize;
                    let value = paged.word(index).load(SeqCst);
                    assert_eq!(value & !(1 << 63), mix(index as u64) & !(1 << 63), "word {index}");
                }
            });
        }
    });
    report("random read, 16 threads", &paged, accesses as usize * 4 * PAGE, began);
    let began = Instant::now();
    for index in 0..words {
        let value = paged.word(index).load(SeqCst);
        assert_eq!(value & !(1 << 63), mix(index as u64) & !(1 << 63), "word {index}");
    }
    report("ordered read at the end", &paged, bytes, began);
    let _ = Page::containing(paged.start);
}

/// Running threads write while their pages are evicted, written back, rescued and read again: no write may be lost.
#[test]
fn running_writers_lose_nothing() {
    let bytes = 64 << 20;
    let Some(paged) = paged(bytes, 8192) else { return };
    let words = paged.words();
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let paged = &paged;
            scope.spawn(move || {
                // Each thread owns every fourth word and counts in it; half of the accesses go to a hot part.
                let mut expected = vec![0u64; words / threads];
                let mut seed = thread as u64 + 1;
                for _ in 0..400_000u64 {
                    seed = mix(seed);
                    let range = if seed & 1 == 0 { words / threads / 16 } else { words / threads };
                    let mine = (seed >> 8) as usize % range;
                    let word = paged.word(mine * threads + thread);
                    let value = word.load(SeqCst);
                    assert_eq!(value, expected[mine]);
                    expected[mine] = seed;
                    word.store(seed, SeqCst);
                }
                for (mine, value) in expected.iter().enumerate() {
                    assert_eq!(paged.word(mine * threads + thread).load(SeqCst), *value);
                }
            });
        }
    });
    assert!(paged.counters.bytes_in.get() > 0 && paged.counters.bytes_out.get() > 0);
}

/// Bytes of the mapping that lie on large pages.
fn on_large_pages(paged: &Paged) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let starts = |line: &&str| line.starts_with(&format!("{:x}-", paged.start));
    let lines = text.lines().skip_while(|line| !starts(line));
    let line = lines.clone().find(|line| line.starts_with("AnonHugePages:")).expect("a mapping");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok()).expect("a number") << 10
}

/// One word of a mapping that [`filled`] has made.
fn look(paged: &Paged, index: usize) {
    assert_eq!(paged.word(index).load(SeqCst), mix(index as u64), "word {index}");
}

/// 256 MiB within 64, filled and read once in order; and the pages of the limit.
fn filled() -> Option<(Paged, u64)> {
    let limit = 16384;
    let paged = paged(256 << 20, limit)?;
    for index in 0..paged.words() {
        paged.word(index).store(mix(index as u64), SeqCst);
    }
    look_through(&paged, 0..paged.words());
    Some((paged, limit))
}

fn look_through(paged: &Paged, part: std::ops::Range<usize>) {
    part.step_by(8).for_each(|index| look(paged, index));
}

/// The share of the limit that is on large pages after each of six ordered passes over everything.
fn shares_of_passes(paged: &Paged, limit: u64) -> Vec<f64> {
    let share = |_| {
        look_through(paged, 0..paged.words());
        on_large_pages(paged) as f64 / (limit as usize * PAGE) as f64
    };
    let shares = (0..6).map(share).collect();
    eprintln!("of the limit on large pages after each pass: {shares:?}");
    shares
}

/// Single pages that were used much once do not split, for ever after, the blocks that they come back in.
#[test]
fn blocks_read_in_order_stay_whole() {
    let Some((paged, limit)) = filled() else { return };
    let words = paged.words();
    for part in 0..16 {
        look_through(&paged, words / 16 * part..words / 16 * (part + 1));
        paged.spot.store(true, SeqCst);
        while paged.spot.load(SeqCst) {
            std::thread::yield_now();
        }
    }
    let shares = shares_of_passes(&paged, limit);
    // Nothing else is resident but what is staged, at most a quarter.
    assert!(shares.iter().skip(2).all(|share| *share > 0.55), "{shares:?}");
}

/// What random touches leave, single pages here and there that were used much, does not split the blocks of whoever reads
/// everything in order for ever after: it stays while everything is read once, and gives way then.
#[test]
fn blocks_are_whole_again_after_random_touches() {
    let Some((paged, limit)) = filled() else { return };
    let words = paged.words();
    let mut seed = 1;
    for _ in 0..3 * words * 8 / PAGE {
        seed = mix(seed);
        // Half of the touches go to what memory holds, so that it proves to be used.
        let range = if seed & 1 == 0 { words / 8 } else { words };
        look(&paged, (seed >> 8) as usize % range);
    }
    let shares = shares_of_passes(&paged, limit);
    // Nothing else is resident but what is staged, at most a quarter.
    assert!(shares.iter().skip(3).all(|share| *share > 0.55), "{shares:?}");
}

/// Of data that are gone through again and again a part stays in memory, where first in, first out would read all of them each
/// time; and gives way to what is used after them.
#[test]
fn a_part_of_what_comes_round_stays() {
    let Some(paged) = paged(160 << 20, 16384) else { return };
    let half = paged.words() / 2;
    let fill = |part: std::ops::Range<usize>| {
        part.for_each(|index| paged.word(index).store(mix(index as u64), SeqCst));
    };
    let passes = |part: std::ops::Range<usize>, passes: usize| -> Vec<f64> {
        let pass = |_| {
            let before = paged.counters.bytes_in.get();
            look_through(&paged, part.clone());
            (paged.counters.bytes_in.get() - before) as f64 / (part.len() * 8) as f64
        };
        (0..passes).map(pass).collect()
    };
    fill(0..half);
    let shares = passes(0..half, 12);
    eprintln!("read of 80 MiB within 64 in each pass: {shares:?}");
    assert!(shares[6..].iter().sum::<f64>() / 6.0 < 0.8, "{shares:?}");
    let next = half..half + half / 2;
    fill(next.clone());
    let shares = passes(next, 10);
    eprintln!("read of 40 MiB after them: {shares:?}");
    assert!(shares[7..].iter().all(|share| *share < 0.1), "{shares:?}");
}
