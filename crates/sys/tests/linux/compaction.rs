//! The kernel migrates pages all the while, where the test may ask for it.

use ream_page::PAGE_BYTES;
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::{file, process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Compacts memory until it is dropped.
pub struct Compaction {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    filler: usize,
}

const FILLER: usize = 256 << 20;

impl Compaction {
    /// `None`, loudly, where that is not allowed.
    pub fn begin() -> Option<Compaction> {
        let Ok(switch) = file::open(c"/proc/sys/vm/compact_memory", file::flags::WRITE, 0) else {
            eprintln!("SKIPPED: not allowed to compact memory");
            return None;
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let compactor = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                file::write(switch, b"1").unwrap();
                process::sleep_us(2000);
            }
            file::close(switch);
        });
        let filler = memory::map(FILLER, PAGE_BYTES, Protection::ReadWrite).unwrap().as_ptr();
        // SAFETY: fresh memory.
        unsafe { memory::advise(filler.expose_provenance(), FILLER, Advice::NoHugePage) }.unwrap();
        for page in 0..FILLER / PAGE_BYTES {
            // SAFETY: in the same memory.
            unsafe { filler.add(page * PAGE_BYTES).write_volatile(1) };
        }
        Some(Compaction { stop, thread: Some(compactor), filler: filler.expose_provenance() })
    }

    /// Makes more and more holes in memory, so that there is something to migrate: every 64th page, others each time.
    pub fn thin_out(&self, time: usize) {
        for page in (time % 64..FILLER / PAGE_BYTES).step_by(64) {
            // SAFETY: nobody uses what is in it.
            unsafe { memory::advise(self.filler + page * PAGE_BYTES, PAGE_BYTES, Advice::DontNeed) }.unwrap();
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        // SAFETY: nobody uses it any more.
        unsafe { memory::unmap(std::ptr::with_exposed_provenance_mut(self.filler), FILLER) }.unwrap();
    }
}
