//! Kernel swap as a comparison: a swap file beside the store and a memory cgroup with the same limit. A process of its
//! own takes all of it down again when the runner ends, however it ends; what even that process could not, the next
//! start does.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How many pages the kernel reads around a fault in swap, as a power of two.
pub(crate) const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const STATE: &str = "ream-bench-swap";

/// The number that a file of the kernel's holds, if it is there.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A new file that only its owner can read and write; whatever is there under this name, a link or another's file, is an error.
fn create(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Why a file of ours could not be made, and what to do.
fn not_made(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::AlreadyExists => "; it is not this program's: remove it, or give another --store",
        _ => "",
    };
    format!("{}: {error}{advice}", path.display())
}

/// What was set up, as written to the state file before it was.
struct State {
    file: PathBuf,
    group: PathBuf,
    cluster: String,
}

impl State {
    fn path(directory: &Path) -> PathBuf {
        directory.join(format!("{STATE}.state"))
    }

    /// What an earlier start has noted. Whoever can write to the directory can put a file of that name there: it counts only
    /// when it is ours, and names nothing but what [`Swap::new`] makes.
    fn load(directory: &Path) -> Option<State> {
        let mut options = fs::OpenOptions::new();
        let file =
            options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(State::path(directory)).ok()?;
        let of = file.metadata().ok()?;
        // SAFETY: geteuid always succeeds.
        let ours = of.is_file() && of.uid() == unsafe { libc::geteuid() } && of.mode() & 0o022 == 0;
        let text = io::read_to_string(file).ok().filter(|_| ours)?;
        let mut lines = text.lines();
        let (file, group, cluster) = (Path::new(lines.next()?), Path::new(lines.next()?), lines.next()?);
        let swaps =
            file.file_name()? == &*format!("{STATE}.swap") && file.parent()? == directory.canonicalize().ok()?;
        let number = group.file_name()?.to_str()?.strip_prefix(STATE)?.strip_prefix('-')?;
        let groups = number.parse::<u32>().is_ok() && group.parent()? == hierarchy()?.0;
        let state = State { file: file.into(), group: group.into(), cluster: cluster.into() };
        (swaps && groups && cluster.parse::<u32>().is_ok()).then_some(state)
    }

    fn save(&self, directory: &Path) -> io::Result<()> {
        let text = format!("{}\n{}\n{}\n", self.file.display(), self.group.display(), self.cluster);
        create(&State::path(directory))?.write_all(text.as_bytes())
    }
}

/// Swap that is on, and a cgroup to run programs in; taken down when dropped.
pub struct Swap {
    group: PathBuf,
    limit: PathBuf,
    most: PathBuf,
    directory: PathBuf,
    cleaner: Child,
}

/// Where a memory cgroup can be made, its file for the limit, and whether its files are version 1.
fn hierarchy() -> Option<(PathBuf, bool)> {
    let first = Path::new("/sys/fs/cgroup/memory");
    if first.join("memory.limit_in_bytes").exists() {
        return Some((first.to_owned(), true));
    }
    let second = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|name| name == "memory").then(|| (second.to_owned(), false))
}

/// A tool of the system, also where only root looks for it.
pub(crate) fn tool(name: &str) -> Command {
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
    Command::new(found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| name.into()))
}

/// Runs a tool; its words are the error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", text.trim())) }
}

/// Has a command begin in the cgroup whose entrance this is.
///
/// # Errors
/// The entrance cannot be opened.
pub fn join(command: &mut Command, entrance: &Path) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).open(entrance);
    let file = file.map_err(|error| format!("{}: {error}", entrance.display()))?;
    // SAFETY: only write(), which is async-signal-safe, on a descriptor that the closure owns.
    unsafe {
        command.pre_exec(move || match libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    Ok(())
}

impl Swap {
    /// Sets up a swap file of `bytes` bytes in `directory` and a cgroup limited to `limit` bytes. `worker` is the
    /// program that cleans up.
    ///
    /// # Errors
    /// What is missing: root, the cgroup, room, or the tools.
    pub fn new(directory: &Path, bytes: u64, limit: u64, worker: &Path) -> Result<Swap, String> {
        clean(directory);
        let (root, first) = hierarchy().ok_or("no memory cgroup can be made here")?;
        let directory = directory.canonicalize().map_err(|error| format!("{}: {error}", directory.display()))?;
        let state = State {
            file: directory.join(format!("{STATE}.swap")),
            group: root.join(format!("{STATE}-{}", std::process::id())),
            cluster: fs::read_to_string(CLUSTER).map_err(|error| format!("{CLUSTER}: {error}"))?.trim().to_owned(),
        };
        state.save(&directory).map_err(|error| not_made(&State::path(&directory), &error))?;
        // The cleaner waits for the end of its standard input, which ends with this process.
        let mut command = Command::new(worker);
        command.arg("clean-swap").arg(&directory).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let cleaner = command.spawn().map_err(|error| format!("{}: {error}", worker.display()))?;
        let (name, most) =
            if first { ("memory.limit_in_bytes", "memory.max_usage_in_bytes") } else { ("memory.max", "memory.peak") };
        let (limit_file, most) = (state.group.join(name), state.group.join(most));
        let swap = Swap { group: state.group.clone(), limit: limit_file, most, directory, cleaner };
        fs::create_dir(&state.group).map_err(|error| format!("{}: {error}", state.group.display()))?;
        swap.limit(limit)?;
        let written = (|| {
            let mut file = create(&state.file)?;
            // Written, not only reserved: swap files must have no holes, on any file system.
            let zeros = vec![0u8; 4 << 20];
            let mut left = bytes;
            while left > 0 {
                let part = left.min(zeros.len() as u64);
                file.write_all(&zeros[..part as usize])?;
                left -= part;
            }
            file.sync_all()
        })();
        written.map_err(|error| not_made(&state.file, &error))?;
        run(tool("mkswap").arg(&state.file))?;
        run(tool("swapon").arg(&state.file))?;
        Ok(swap)
    }

    /// The file into which a process writes `0` to join the cgroup.
    pub fn entrance(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }

    /// Limits the cgroup to so many bytes; no process is in it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn limit(&self, bytes: u64) -> Result<(), String> {
        fs::write(&self.limit, bytes.to_string()).map_err(|error| format!("{}: {error}", self.limit.display()))
    }

    /// The most bytes that the cgroup held since it was made; `None` where the kernel does not keep that.
    pub fn most_used(&self) -> Option<u64> {
        number(&self.most)
    }

    /// Sets how many pages (as a power of two) the kernel reads around a fault.
    pub fn cluster(&self, power: u32) {
        let _ = fs::write(CLUSTER, power.to_string());
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
        clean(&self.directory);
    }
}

/// The cleaner: waits until standard input ends, then takes down what the state file names.
pub fn clean_when_orphaned(directory: &Path) {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    clean(directory);
}

/// Takes down what an earlier start set up in `directory`, if anything.
pub fn clean(directory: &Path) {
    let Some(state) = State::load(directory) else { return };
    for _ in 0..200 {
        let list = fs::read_to_string(state.group.join("cgroup.procs")).unwrap_or_default();
        let processes: Vec<i32> = list.lines().filter_map(|line| line.parse().ok()).filter(|id| *id > 1).collect();
        if processes.is_empty() {
            break;
        }
        for process in processes {
            // SAFETY: kill only sends a signal, to a process in the cgroup that the runner made for its own.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let name = state.file.to_string_lossy();
    let on = || {
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        swaps.lines().any(|line| line.split_whitespace().next() == Some(&*name))
    };
    if on() {
        // Two may be at it at the same time: a cleaner, and the next start.
        if let (Err(error), true) = (run(tool("swapoff").arg(&state.file)), on()) {
            eprintln!("ream bench: swap stays on: {error}");
            return;
        }
    }
    let _ = fs::remove_file(&state.file);
    let _ = fs::remove_dir(&state.group);
    let _ = fs::write(CLUSTER, &state.cluster);
    let _ = fs::remove_file(State::path(directory));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_not_ours_is_not_believed() {
        let Some((root, _)) = hierarchy() else { return };
        let directory = std::env::temp_dir().join(format!("ream-bench-state-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let directory = directory.canonicalize().unwrap();
        let (swap, group) = (directory.join("ream-bench-swap.swap"), root.join("ream-bench-swap-1"));
        let believed = |file: &Path, group: &Path, cluster: &str| {
            let _ = fs::remove_file(State::path(&directory));
            State { file: file.into(), group: group.into(), cluster: cluster.into() }.save(&directory).unwrap();
            State::load(&directory).is_some()
        };
        assert!(!believed(Path::new("/etc/passwd"), &group, "3"));
        assert!(!believed(&swap, &directory.join("ream-bench-swap-1"), "3"));
        assert!(!believed(&swap, &root, "3") && !believed(&swap, &group, "3 4"));
        assert!(believed(&swap, &group, "3"));
        let path = State::path(&directory);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(State::load(&directory).is_none());
        fs::rename(&path, directory.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(directory.join("elsewhere"), &path).unwrap();
        assert!(State::load(&directory).is_none() && create(&path).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_maximum_that_is_not_kept_is_not_known() {
        assert!(number(Path::new("/proc/sys/vm/swappiness")).is_some());
        assert!(number(Path::new("/nowhere/memory.peak")).is_none() && number(Path::new("/proc/version")).is_none());
    }
}
