//! The machine that a benchmark runs on: what it is, for the report, and whether it is fit to be measured now.

use crate::content::mix;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Entries of the second-level data TLB for pages of 4 KiB and of 2 MiB, where the processor says so.
pub type Tlb = Option<(u64, u64)>;

/// The share of all processors that other programs may take.
const BUSY: f64 = 0.1;
/// How long one looks whether they do.
const LOOK: Duration = Duration::from_millis(1500);
/// MiB of RAM without which nothing is worth measuring.
const LEAST: u64 = 1536;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// MiB of a field of /proc/meminfo.
fn memory(field: &str) -> u64 {
    let text = read("/proc/meminfo");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// MiB of RAM that programs could take now: of the machine, and of the limits of this process's cgroups.
pub fn available() -> u64 {
    let groups = read("/proc/self/cgroup");
    let mut most = memory("MemAvailable");
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        let number = |name: &str| read(&format!("{root}{path}/{name}")).trim().parse::<u64>().ok();
        if let (Some(limit), Some(used)) = (number(limit), number(used)) {
            most = most.min(limit.saturating_sub(used) >> 20);
        }
    }
    most
}

/// The processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time since the start of the machine, in its own unit: of all, and of those that had nothing to do.
fn times() -> (u64, u64) {
    let text = read("/proc/stat");
    let line = text.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    let idle = numbers.iter().skip(3).take(2).sum();
    (numbers.iter().sum(), idle)
}

/// The share of all processors that is in use by whatever runs, over a moment.
pub fn busy() -> f64 {
    let (all, idle) = times();
    std::thread::sleep(LOOK);
    let (all, idle) = (times().0.saturating_sub(all), times().1.saturating_sub(idle));
    if all == 0 { 0.0 } else { 1.0 - (idle as f64 / all as f64).min(1.0) }
}

/// MiB that are free for this user on the file system of a directory.
pub fn free_disk(directory: &Path) -> Result<u64, String> {
    use std::os::unix::ffi::OsStrExt as _;
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
    // SAFETY: all-zero bytes are a valid statvfs, which outlives the call, as the path does.
    let (result, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut found), found)
    };
    match result {
        0 => Ok((found.f_bavail * found.f_frsize) >> 20),
        _ => Err(failed(std::io::Error::last_os_error())),
    }
}

/// Why the machine is not fit to be measured now; empty when it is. `disk` MiB are needed in `store`.
pub fn unfit(store: &Path, disk: u64, busy: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    let count = processors();
    if busy > BUSY {
        let used = busy * count as f64;
        let top = busiest().map_or(String::new(), |name| format!(" (most of it {name})"));
        reasons.push(format!("it is busy: {used:.1} of {count} processors are in use{top}"));
    }
    let available = available();
    if available < LEAST {
        reasons.push(format!("it is too small: {available} MiB of RAM are available, {LEAST} are needed"));
    }
    match free_disk(store) {
        Ok(free) if free < disk => {
            reasons
                .push(format!("{}: {free} MiB are free, {disk} are needed; name another by --store", store.display()));
        }
        Ok(_) => {}
        Err(why) => reasons.push(why),
    }
    reasons
}

/// The program that has used most processor time of late, by the kernel's own short memory: the one running now that has used
/// most in all.
fn busiest() -> Option<String> {
    let own = std::process::id();
    let running = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let used: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        (pid != own && fields.first() == Some(&"R")).then(|| (used, format!("{name}, process {pid}")))
    });
    running.max().map(|(_, name)| name)
}

/// A number that changes with the content of any of these files.
///
/// # Errors
/// One that cannot be read.
pub fn digest(files: &[&Path]) -> Result<String, String> {
    let mut sum = 0u64;
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        sum = mix(sum ^ bytes.len() as u64);
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            sum = mix(sum ^ u64::from_le_bytes(word));
        }
    }
    Ok(format!("{sum:016x}"))
}

/// The version of the C library.
fn c_library() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: returns a constant string with its zero.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    "not glibc".to_owned()
}

/// The machine in words and numbers.
pub fn describe(tlb: Tlb, store: &Path, busy: f64) -> Value {
    let processor = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = processor.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let model = field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| "unknown".into());
    let virtual_machine = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let mounts = read("/proc/self/mounts");
    let within = |place: &str| store.starts_with(place);
    let mount = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        Some((*words.first()?, *words.get(1)?, *words.get(2)?)).filter(|(_, place, _)| within(place))
    });
    let (device, _, kind) = mount.max_by_key(|(_, place, _)| place.len()).unwrap_or(("unknown", "", "unknown"));
    let system = read("/etc/os-release");
    let system =
        system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"');
    json!({
        "processor": model,
        "processors": processors(),
        "architecture": std::env::consts::ARCH,
        "virtual machine": virtual_machine,
        "RAM MiB": memory("MemTotal"),
        "RAM available MiB": available(),
        "swap MiB": memory("SwapTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "system": system,
        "C library": c_library(),
        "transparent large pages": setting("/sys/kernel/mm/transparent_hugepage/enabled"),
        "pool of large pages": read("/proc/sys/vm/nr_hugepages").trim(),
        "page-cluster of swap": read("/proc/sys/vm/page-cluster").trim(),
        "TLB entries 4 KiB": tlb.map(|(small, _)| small),
        "TLB entries 2 MiB": tlb.map(|(_, large)| large),
        "store": store.display().to_string(),
        "store's file system": kind,
        "store's device": device,
        "in use before, share of processors": (busy * 100.0).round() / 100.0,
        // SAFETY: takes nothing and cannot fail.
        "root": unsafe { libc::geteuid() } == 0,
    })
}

fn setting(path: &str) -> String {
    let text = read(path);
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("not there", |(chosen, _)| chosen).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let value = describe(Some((1, 2)), Path::new("/"), 0.123);
        assert_eq!(
            (&value["TLB entries 2 MiB"], &value["in use before, share of processors"]),
            (&json!(2), &json!(0.12))
        );
        assert!(value["RAM MiB"].as_u64() > Some(0) && value["kernel"].as_str().is_some_and(|kernel| kernel.len() > 2));
    }

    #[test]
    fn a_busy_machine_and_a_full_disk_are_refused() {
        let reasons = unfit(Path::new("/"), u64::MAX, 0.5);
        assert!(
            reasons.iter().any(|why| why.contains("busy")) && reasons.iter().any(|why| why.contains("MiB are free"))
        );
        assert!(unfit(Path::new("/no such place"), 0, 0.0)[0].contains("/no such place"));
    }

    #[test]
    fn a_digest_tells_files_apart() {
        let own = std::env::current_exe().unwrap();
        let one = digest(&[&own]).unwrap();
        assert_eq!(digest(&[&own]), Ok(one.clone()));
        assert_ne!(digest(&[&own, &own]), Ok(one));
        assert!(digest(&[Path::new("/no such file")]).is_err());
    }
}
