//! Memory cgroups for the runs of a comparison, one for each: what all processes of a run held together. A process of its
//! own takes them away when the comparison ends, however it ends.

use crate::machine::groups_of;
use crate::{child, os};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name under which the command is the process that takes cgroups away.
pub const SWEEPER: &str = "ream-sweeper";
/// How long what a run left may take to end by itself: Ream's agent is the last to go.
const GRACE: Duration = Duration::from_secs(3);

/// Where cgroups are made, and those that are there.
pub struct Groups {
    below: PathBuf,
    unified: bool,
    made: u32,
    /// Whose processes may not have ended yet, and since when they should have.
    leaving: Vec<(PathBuf, Instant)>,
    /// The sweeper hears of this process's end by it.
    _alive: OwnedFd,
}

/// The cgroup of one run.
pub struct Group {
    path: PathBuf,
    unified: bool,
}

impl Groups {
    /// Looks for a place; `None` where this user has none, or where being in it would change more than what is counted.
    pub fn find() -> Option<Groups> {
        let (below, unified) = groups_of(Path::new("/"), "memory").into_iter().find_map(|group| {
            let unified = group.unified;
            let below = if unified { unified_place(group) } else { Some(group.directory) }?;
            let tried = below.join(name(std::process::id(), 0));
            let peak = if unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
            fs::create_dir(&tried).ok()?;
            let usable = tried.join(peak).is_file();
            let usable = usable && fs::OpenOptions::new().write(true).open(tried.join("cgroup.procs")).is_ok();
            let _ = fs::remove_dir(&tried);
            usable.then_some((below, unified))
        })?;
        let (reader, writer) = os::pipe().ok()?;
        let (_report, unread) = os::pipe().ok()?;
        let directory = CString::new(below.as_os_str().as_bytes()).ok()?;
        let (own_name, pid) = (CString::new(SWEEPER).ok()?, CString::new(std::process::id().to_string()).ok()?);
        os::start_detached(c"/proc/self/exe", &[&own_name, &directory, &pid], &reader, &unread, None).ok()?;
        Some(Groups { below, unified, made: 0, leaving: Vec::new(), _alive: writer })
    }

    /// Makes the next one.
    pub fn make(&mut self) -> std::io::Result<Group> {
        self.made += 1;
        let path = self.below.join(name(std::process::id(), self.made));
        fs::create_dir(&path)?;
        Ok(Group { path, unified: self.unified })
    }

    /// Gives one back whose run has ended.
    pub fn give_back(&mut self, group: Group) {
        self.leaving.push((group.path, Instant::now()));
        self.leaving.retain(|(path, since)| !left(path, since.elapsed() > GRACE));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.leaving.is_empty() && begun.elapsed() < 2 * GRACE {
            self.leaving.retain(|(path, since)| !left(path, since.elapsed() > GRACE));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Group {
    /// The file into which a process writes `0` to join.
    pub fn entrance(&self) -> std::io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))
    }

    /// The most that its processes ever held together, in bytes: their pages, page tables, and cached pages of files.
    pub fn peak(&self) -> Option<u64> {
        let name = if self.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }
}

fn name(process: u32, number: u32) -> String {
    format!("ream-compare-{process}-{number}")
}

/// Below which cgroup of version 2 one with a count of its own may be made: the nearest that gives its children the memory
/// controller. None where that would lift a limit that this process is under.
fn unified_place(group: crate::machine::Group) -> Option<PathBuf> {
    let mut directory = group.directory;
    loop {
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        if read("cgroup.subtree_control").split_whitespace().any(|name| name == "memory") {
            return Some(directory);
        }
        let limits = ["memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus", "pids.max"];
        let free = limits.iter().all(|name| {
            let text = read(name);
            text.trim().is_empty() || text.starts_with("max")
        });
        if !free || directory == group.top || !directory.pop() {
            return None;
        }
    }
}

/// Takes a cgroup away if its processes have ended, or `now` that they must; returns whether it is gone.
fn left(group: &Path, now: bool) -> bool {
    if now {
        // Only what this comparison started, and what that started, is in there.
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        processes.lines().filter_map(|line| line.parse().ok()).for_each(child::kill);
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// The sweeper's life: waits for the end of the comparison, then takes away what it could not.
pub fn sweep(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    os::set_name(c"ream-sweeper");
    os::ignore_signals_of_groups();
    let (Some(below), Some(process)) = (arguments.next(), arguments.next()) else { return crate::failure::OWN };
    let (Ok(alive), Ok(process)) = (os::inherited(3), process.to_string_lossy().parse()) else {
        return crate::failure::OWN;
    };
    os::wait_readable(std::iter::once(alive.as_raw_fd()), None);
    let _ = fs::File::from(alive).read(&mut [0]);
    let prefix = name(process, 0);
    let prefix = &prefix[..prefix.len() - 1];
    let begun = Instant::now();
    while begun.elapsed() < 2 * GRACE {
        let entries = fs::read_dir(&below).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        // Nobody waits for results any more.
        let gone: Vec<bool> = ours.map(|entry| left(&entry.path(), true)).collect();
        if gone.iter().all(|gone| *gone) {
            return 0;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    crate::failure::OWN
}
