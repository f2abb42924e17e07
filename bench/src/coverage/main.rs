//! The worker of `ream bench coverage`: an ordinary program that uses every kind of memory a program has, asks for large
//! pages nowhere, and prints how much of each kind is in RAM, and how much of that on large pages.

mod smaps;

use ream_page::Run;
use ream_sys::pagemap::Pagemap;
use std::cell::UnsafeCell;
use std::hint::black_box;

const MEBIBYTE: usize = 1 << 20;
const KIBIBYTE: usize = 1 << 10;
/// What is used of a stack of 8 MiB.
const STACK: usize = 7 * MEBIBYTE;

struct Static<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);
// SAFETY: used once, by the main thread.
unsafe impl<const BYTES: usize> Sync for Static<BYTES> {}

static BSS: Static<{ 64 * MEBIBYTE }> = Static(UnsafeCell::new([0; 64 * MEBIBYTE]));
static DATA: Static<{ 8 * MEBIBYTE }> = {
    let mut bytes = [0; 8 * MEBIBYTE];
    // One byte that is not zero keeps it out of .bss.
    bytes[0] = 1;
    Static(UnsafeCell::new(bytes))
};

/// What lies where, in KiB.
#[derive(Default)]
struct Sum {
    present: usize,
    large: usize,
}

/// Looks at memory and says what it found.
struct Observer(Pagemap);

impl Observer {
    fn new() -> Observer {
        match Pagemap::open(ream_sys::user::nobody) {
            Ok(map) if map.knows_large() => Observer(map),
            _ => {
                eprintln!("ream-bench-coverage: this kernel does not tell which pages are large (Linux 6.7 does)");
                std::process::exit(77)
            }
        }
    }

    fn add(&mut self, sum: &mut Sum, start: *const u8, bytes: usize) {
        self.0.walk(Run::covering(start.addr(), bytes), &mut |run, mapped| {
            sum.present += run.bytes() / KIBIBYTE;
            sum.large += if mapped.huge { run.bytes() / KIBIBYTE } else { 0 };
        });
    }

    fn say(&mut self, name: &str, parts: &[(*const u8, usize)]) {
        let mut sum = Sum::default();
        parts.iter().for_each(|(start, bytes)| self.add(&mut sum, *start, *bytes));
        println!("region {name} {} {}", sum.present, sum.large);
    }

    /// Blocks of about `size` bytes from malloc, `all` in sum, that stay.
    fn heap(&mut self, name: &str, size: usize, all: usize) {
        let mut blocks = Vec::with_capacity(all / size);
        for number in 0..all / size {
            let bytes = size - number % 7;
            // SAFETY: a block of that size, written within it, never freed.
            let block = unsafe {
                let block = libc::malloc(bytes).cast::<u8>();
                assert!(!block.is_null(), "memory for {name}");
                block.write_bytes(1, bytes);
                block
            };
            blocks.push((black_box(block).cast_const(), bytes));
        }
        self.say(name, &blocks);
    }

    /// Memory that the program maps itself, piece by piece, each touched before the next, as Python's heap is.
    fn mapped(&mut self, name: &str, size: usize, count: usize) {
        let mut pieces = Vec::with_capacity(count);
        for _ in 0..count {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a fresh mapping, written within it, never unmapped.
            let piece = unsafe {
                let piece = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
                assert!(piece != libc::MAP_FAILED, "memory for {name}");
                piece.cast::<u8>().write_bytes(1, size);
                piece.cast::<u8>()
            };
            pieces.push((piece.cast_const(), size));
        }
        self.say(name, &pieces);
    }

    /// Static data, written.
    fn fixed<const BYTES: usize>(&mut self, name: &str, memory: &Static<BYTES>) {
        let start = memory.0.get().cast::<u8>();
        // SAFETY: this is the only use.
        unsafe { black_box(start).write_bytes(1, BYTES) };
        self.say(name, &[(start.cast_const(), BYTES)]);
    }

    /// Uses so much of the stack, by frames of 64 KiB, and looks at it from below.
    #[inline(never)]
    fn stack(&mut self, name: &str, left: usize, top: *const u8) {
        let mut frame = [0u8; 64 * KIBIBYTE];
        black_box(&mut frame);
        let here = frame.as_ptr();
        match left.checked_sub(frame.len()) {
            Some(left) => self.stack(name, left, top),
            None => self.say(name, &[(here, top.addr() - here.addr())]),
        }
        black_box(&mut frame);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => {}
        [word, pages] if word == "return-pool" => return ream_bench::pool::give_back_when_orphaned(pages),
        _ => {
            eprintln!("usage: ream-bench-coverage [return-pool PAGES]");
            eprintln!("(it is started by ream bench)");
            std::process::exit(125)
        }
    }
    let mut observer = Observer::new();
    observer.fixed("bss", &BSS);
    observer.fixed("data", &DATA);
    observer.heap("main_600", 600, 24 * MEBIBYTE);
    observer.heap("main_100k", 100 * KIBIBYTE, 10 * MEBIBYTE);
    observer.heap("main_300k", 300 * KIBIBYTE, 12 * MEBIBYTE);
    observer.heap("main_3m", 3 * MEBIBYTE, 12 * MEBIBYTE);
    observer.heap("main_16m", 16 * MEBIBYTE, 16 * MEBIBYTE);
    observer.mapped("mapped_1m", MEBIBYTE, 64);
    let top = 0u8;
    observer.stack("main_stack", STACK, black_box(&raw const top));
    let thread = std::thread::Builder::new().stack_size(8 * MEBIBYTE).spawn(|| {
        let mut observer = Observer::new();
        observer.heap("thread_600", 600, 24 * MEBIBYTE);
        observer.heap("thread_100k", 100 * KIBIBYTE, 40 * MEBIBYTE);
        let top = 0u8;
        observer.stack("thread_stack", STACK, black_box(&raw const top));
        // While the thread's stack is there.
        smaps::say();
    });
    thread.expect("a thread").join().expect("it ends well");
}
