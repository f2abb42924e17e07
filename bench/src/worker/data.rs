//! The worker's data: one allocation, its pages' generations, and the four things one does to a page.

use ream_bench::content::{PAGE, WORDS, Words};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One large allocation and what each of its pages must hold. Threads may use it together as long as no page is
/// written by one while another uses it; the workloads see to that.
pub struct Data {
    base: *mut u64,
    generations: &'static [AtomicU32],
}

// SAFETY: `base` points to memory that is never freed; the workloads give each page to one thread at a time when any
// writes to it.
unsafe impl Sync for Data {}

impl Data {
    /// Allocates by malloc. The generations lie in shared memory, which no memory budget of Ream's covers and which so
    /// does not disturb what is measured.
    ///
    /// # Panics
    /// When there is no memory.
    pub fn new(pages: usize) -> Data {
        // SAFETY: plain allocations; the results are checked before use. A shared anonymous mapping is zeroed, which is
        // a valid array of AtomicU32, and is never unmapped.
        unsafe {
            let block = libc::malloc((pages + 1) * PAGE);
            assert!(!block.is_null(), "malloc of {pages} pages");
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let table = libc::mmap(std::ptr::null_mut(), pages * 4, protection, flags, -1, 0);
            assert!(table != libc::MAP_FAILED, "memory for {pages} generations");
            let base = block.cast::<u8>().add(block.align_offset(PAGE)).cast::<u64>();
            Data { base, generations: std::slice::from_raw_parts(table.cast(), pages) }
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.generations.len() as u64
    }

    fn of(&self, page: u64) -> (*mut u64, Words, &AtomicU32) {
        let generation = &self.generations[page as usize];
        // SAFETY: `page` is below the number of pages (checked by the line above), so the result is inside the block.
        let words = unsafe { self.base.add(page as usize * WORDS) };
        (words, Words::of(page), generation)
    }

    fn wrong(&self, page: u64) -> ! {
        eprintln!("ream-bench-worker: page {page} holds wrong data");
        std::process::abort();
    }

    /// Reads and verifies every word.
    #[inline(always)]
    pub fn read(&self, page: u64) {
        let (words, content, generation) = self.of(page);
        let generation = u64::from(generation.load(Relaxed));
        let mut wrong = 0;
        for i in 0..WORDS {
            // SAFETY: inside the page.
            wrong |= unsafe { words.add(i).read() } ^ content.word(i as u64).wrapping_add(generation);
        }
        if wrong != 0 {
            self.wrong(page);
        }
    }

    /// Reads and verifies one word of every cache line.
    #[inline(always)]
    pub fn read_lines(&self, page: u64) {
        let (words, content, generation) = self.of(page);
        let generation = u64::from(generation.load(Relaxed));
        let mut wrong = 0;
        for i in (0..WORDS).step_by(8) {
            // SAFETY: inside the page.
            wrong |= unsafe { words.add(i).read() } ^ content.word(i as u64).wrapping_add(generation);
        }
        if wrong != 0 {
            self.wrong(page);
        }
    }

    /// Overwrites every word with the next generation, without a look at the old ones.
    #[inline(always)]
    pub fn write(&self, page: u64) {
        let (words, content, generation) = self.of(page);
        let next = generation.load(Relaxed).wrapping_add(1);
        generation.store(next, Relaxed);
        for i in 0..WORDS {
            // SAFETY: inside the page.
            unsafe { words.add(i).write(content.word(i as u64).wrapping_add(u64::from(next))) };
        }
    }

    /// Reads, verifies and increments every word.
    #[inline(always)]
    pub fn change(&self, page: u64) {
        let (words, content, generation) = self.of(page);
        let before = u64::from(generation.load(Relaxed));
        generation.store(before as u32 + 1, Relaxed);
        let mut wrong = 0;
        for i in 0..WORDS {
            // SAFETY: inside the page.
            unsafe {
                let word = words.add(i).read();
                wrong |= word ^ content.word(i as u64).wrapping_add(before);
                words.add(i).write(word.wrapping_add(1));
            }
        }
        if wrong != 0 {
            self.wrong(page);
        }
    }

    /// Changes a word that nobody expects to change, and never back.
    pub fn spoil(&self, page: u64) {
        let (words, ..) = self.of(page);
        // SAFETY: inside the page, which nobody else uses.
        unsafe { *words += 1 << 40 };
    }

    /// Gives the content of pages up; they hold zeros until they are written.
    pub fn discard(&self, page: u64, count: u64) {
        let (words, ..) = self.of(page);
        let count = count.min(self.pages() - page) as usize;
        // SAFETY: pages of the block, whose content nobody wants any more.
        let done = unsafe { libc::madvise(words.cast(), count * PAGE, libc::MADV_DONTNEED) };
        assert!(done == 0, "madvise: {}", std::io::Error::last_os_error());
    }

    /// Reads and verifies a single word.
    #[inline(always)]
    pub fn touch(&self, page: u64) {
        let (words, content, generation) = self.of(page);
        // SAFETY: inside the page.
        let word = unsafe { words.read_volatile() };
        if word != content.word(0).wrapping_add(u64::from(generation.load(Relaxed))) {
            self.wrong(page);
        }
    }
}
