//! The kernel's pool of pages of 2 MiB, filled for a test and put back as it was; one test at a time.

use crate::skip;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

static ALONE: Mutex<()> = Mutex::new(());

/// The pool, while it is a test's.
pub struct Pool {
    before: u64,
    /// Locked against other processes that run tests; let go when the pool has been put back.
    _locked: fs::File,
    _alone: MutexGuard<'static, ()>,
}

fn number(name: &str) -> Option<u64> {
    fs::read_to_string(format!("{DIRECTORY}/{name}")).ok()?.trim().parse().ok()
}

fn set(pages: u64) -> bool {
    fs::write(format!("{DIRECTORY}/nr_hugepages"), pages.to_string()).is_ok()
}

impl Pool {
    /// A pool with so many free pages; `None`, loudly, where that is not to be had.
    pub fn with_free(pages: u64) -> Option<Pool> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = fs::File::open(format!("{DIRECTORY}/nr_hugepages")).ok()?;
        // SAFETY: waits for a lock on a descriptor of our own.
        unsafe { libc::flock(locked.as_raw_fd(), libc::LOCK_EX) };
        let before = number("nr_hugepages")?;
        // Made before the first change, so that any outcome puts it back.
        let pool = Pool { before, _locked: locked, _alone: alone };
        if pool.leave_free(pages) {
            return Some(pool);
        }
        skip("a pool of large pages", "only root can fill it, with memory that is in one piece");
        None
    }

    /// Makes it larger or smaller, so that so many pages are free.
    pub fn leave_free(&self, pages: u64) -> bool {
        let (Some(total), Some(free)) = (number("nr_hugepages"), number("free_hugepages")) else { return false };
        set(total - free + pages) && self.free() == pages
    }

    /// Pages that are free and promised to somebody.
    pub fn promised(&self) -> u64 {
        number("resv_hugepages").unwrap_or(0)
    }

    /// Waits until so many are free again, and says how many are: the kernel takes pages back from a process that has ended, or
    /// has a moment to go, when it comes to that. What is lost stays lost.
    pub fn until_free(&self, pages: u64) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.free() != pages && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.free()
    }

    /// Pages that are free.
    pub fn free(&self) -> u64 {
        number("free_hugepages").unwrap_or(0)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        set(self.before);
    }
}
