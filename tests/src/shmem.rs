//! The kernel's word on large pages for shared memory, set for a test and put back as it was; one test at a time.

use crate::skip;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

static ALONE: Mutex<()> = Mutex::new(());

/// The setting, while it is a test's. Taken after the pool, where a test needs both.
pub struct Shmem {
    before: String,
    _alone: MutexGuard<'static, ()>,
}

fn word() -> Option<String> {
    let text = fs::read_to_string(FILE).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

impl Shmem {
    /// Sets it; `None`, loudly, where that is not possible.
    pub fn set(wanted: &str) -> Option<Shmem> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = word() else {
            skip("large pages of shared memory", "not in this kernel");
            return None;
        };
        let shmem = Shmem { before, _alone: alone };
        if fs::write(FILE, wanted).is_ok() && word().as_deref() == Some(wanted) {
            return Some(shmem);
        }
        skip("large pages of shared memory", "only root can set shmem_enabled");
        None
    }
}

impl Drop for Shmem {
    fn drop(&mut self) {
        let _ = fs::write(FILE, &self.before);
    }
}
