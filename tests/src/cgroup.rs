//! A memory cgroup (version 1 or 2) for one run: what the run's processes hold together, measured by the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A cgroup of its own, removed when dropped.
pub struct Cgroup {
    path: PathBuf,
    unified: bool,
}

impl Cgroup {
    /// Makes one, or `None` where the tests may not.
    pub fn new() -> Option<Cgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ream-tests-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let first = Path::new("/sys/fs/cgroup/memory");
        if first.join("memory.limit_in_bytes").exists() {
            let path = first.join(name);
            return fs::create_dir(&path).ok().map(|()| Cgroup { path, unified: false });
        }
        let second = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(second.join("cgroup.subtree_control")).unwrap_or_default();
        if controllers.split_whitespace().any(|name| name == "memory") {
            let path = second.join(name);
            return fs::create_dir(&path).ok().map(|()| Cgroup { path, unified: true });
        }
        None
    }

    /// The file into which a process writes `0` to join.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Limits the memory to `bytes`; returns false when the kernel refuses.
    pub fn limit(&self, bytes: u64) -> bool {
        let name = if self.unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(self.path.join(name), bytes.to_string()).is_ok()
    }

    /// The most memory that its processes ever held together, in bytes: their pages, their page tables, and what
    /// they brought into the page cache.
    pub fn peak(&self) -> Option<u64> {
        let name = if self.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
