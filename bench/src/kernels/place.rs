//! Where the data of a computation lie: in the heap, in static data, or on a thread's stack.

use crate::compute::{Kernel, Outcome};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Bytes of static data, and most bytes on a stack.
const FIXED: usize = 256 << 20;
const BLOCK: usize = 2 << 20;

/// A kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Heap,
    Bss,
    Stack,
}

impl Place {
    pub fn named(name: &str) -> Option<Place> {
        match name {
            "heap" => Some(Place::Heap),
            "bss" => Some(Place::Bss),
            "stack" => Some(Place::Stack),
            _ => None,
        }
    }
}

type Words = [u64; FIXED / 8];

struct Static(UnsafeCell<Words>);
// SAFETY: used once, by one thread.
unsafe impl Sync for Static {}
static STATIC: Static = Static(UnsafeCell::new([0; FIXED / 8]));

/// How the program asks for large pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Not at all.
    Plain,
    /// By MADV_HUGEPAGE.
    Hand,
    /// By MAP_HUGETLB, from the kernel's pool; only for the heap.
    Pool,
}

impl How {
    pub fn named(name: &str) -> Option<How> {
        match name {
            "plain" => Some(How::Plain),
            "hand" => Some(How::Hand),
            "pool" => Some(How::Pool),
            _ => None,
        }
    }
}

/// Mapped memory for so many words that begins at a block.
fn mapped(words: usize, flags: i32) -> &'static mut [u64] {
    let length = (words * 8).next_multiple_of(BLOCK) + BLOCK;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags);
    // SAFETY: a fresh mapping that is never unmapped, and a part of it that begins at a block.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        assert!(start != libc::MAP_FAILED, "memory for {words} words: {}", std::io::Error::last_os_error());
        let start = start.cast::<u8>().add(start.align_offset(BLOCK));
        std::slice::from_raw_parts_mut(start.cast::<u64>(), words)
    }
}

/// What `work` returns for that much memory of that kind, at most 256 MiB but in the heap; its content is zero.
pub fn with(place: Place, bytes: usize, how: How, kernel: Kernel, corrupt: bool) -> Outcome {
    let work = move |memory: &mut [u64]| kernel(memory, corrupt);
    let words = bytes / 8;
    let hand = how == How::Hand;
    match place {
        Place::Heap if how == How::Pool => work(mapped(words, libc::MAP_HUGETLB)),
        Place::Heap if hand => {
            let memory = mapped(words, 0);
            advise(memory);
            work(memory)
        }
        Place::Heap => work(&mut vec![0; words]),
        Place::Bss => {
            // SAFETY: this is the only use.
            let memory = unsafe { &mut *STATIC.0.get() };
            let memory = &mut memory[..words.min(FIXED / 8)];
            if hand {
                advise(memory);
            }
            work(memory)
        }
        Place::Stack => {
            let thread = std::thread::Builder::new().stack_size(FIXED + (8 << 20));
            let thread = thread.spawn(move || on_the_stack(words.min(FIXED / 8), hand, work));
            thread.expect("a thread").join().expect("it ends well")
        }
    }
}

#[inline(never)]
fn on_the_stack(words: usize, hand: bool, work: impl Fn(&mut [u64]) -> Outcome) -> Outcome {
    if hand {
        let here = 0u8;
        let end = (&raw const here).addr() & !(BLOCK - 1);
        // SAFETY: below this frame, in this thread's own stack; advice loses nothing.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(end - FIXED), FIXED, libc::MADV_HUGEPAGE) };
    }
    fill_and_work(words, work)
}

#[inline(never)]
fn fill_and_work(words: usize, work: impl Fn(&mut [u64]) -> Outcome) -> Outcome {
    let mut memory: MaybeUninit<Words> = MaybeUninit::uninit();
    let start = memory.as_mut_ptr().cast::<u64>();
    // SAFETY: `words` are within the array, and written before they are used.
    let memory = unsafe {
        start.write_bytes(0, words);
        std::slice::from_raw_parts_mut(std::hint::black_box(start), words)
    };
    work(memory)
}

fn advise(memory: &mut [u64]) {
    let start = memory.as_mut_ptr().addr() & !4095;
    let bytes = memory.as_ptr_range().end.addr() - start;
    // SAFETY: advice loses nothing.
    unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), bytes, libc::MADV_HUGEPAGE) };
}
