//! How much memory there is: RAM, what of it is available, and what the cgroups of this process allow.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup's limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupLimit {
    /// Bytes.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The memory of the machine, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// All RAM.
    pub total: u64,
    /// What programs could take now without swapping.
    pub available: u64,
    /// All swap space.
    pub swap_total: u64,
    /// The tightest limit of the cgroups of this process; `None` when they set none.
    pub cgroup: Option<CgroupLimit>,
    /// The least that one of these limits leaves, with its file; not more than what is tightest.
    pub left: Option<CgroupLimit>,
}

/// What is left to everything else in a cgroup with a limit, in bytes.
pub const CGROUP_MARGIN: u64 = 64 << 20;

impl Machine {
    /// Looks at the machine.
    ///
    /// # Errors
    /// What could not be read, in words.
    pub fn look() -> Result<Machine, String> {
        Machine::under(Path::new("/"))
    }

    /// The same, with another directory in the place of the root.
    pub fn under(root: &Path) -> Result<Machine, String> {
        let path = root.join("proc/meminfo");
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("/proc/meminfo: {}; is /proc mounted?", crate::failure::reason(&error)))?;
        let field = |name: &str| meminfo(&text, name);
        let total = field("MemTotal").ok_or("/proc/meminfo: no MemTotal")?;
        let limits = cgroup_limits(root, "memory", &["memory.max", "memory.high"], &["memory.limit_in_bytes"]);
        let left = limits
            .iter()
            .map(|limit| CgroupLimit { bytes: limit.bytes.saturating_sub(taken(&limit.file)), ..limit.clone() });
        Ok(Machine {
            total,
            available: field("MemAvailable").or(field("MemFree")).unwrap_or(total),
            swap_total: field("SwapTotal").unwrap_or(0),
            left: left.min_by_key(|left| left.bytes),
            cgroup: limits.into_iter().min_by_key(|limit| limit.bytes),
        })
    }

    /// The smaller of the RAM and the cgroup's limit.
    pub fn most(&self) -> u64 {
        self.cgroup.as_ref().map_or(self.total, |limit| limit.bytes.min(self.total))
    }
    /// 90 % of the smaller of what the cgroup leaves and the RAM that is available, and not more than what the cgroup leaves less
    /// the margin: 0 where others have taken all.
    pub fn automatic(&self) -> u64 {
        let left = self.left.as_ref().map_or(u64::MAX, |left| left.bytes);
        let part = (u128::from(left.min(self.available)) * 9 / 10) as u64;
        if self.left.is_some() { part.min(left.saturating_sub(CGROUP_MARGIN)) } else { part }
    }
    /// The largest budget that the cgroup allows; `None` without a limit.
    pub fn cap(&self) -> Option<u64> {
        self.cgroup.as_ref().map(|limit| limit.bytes.saturating_sub(CGROUP_MARGIN))
    }
}

fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A directory of a cgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// That of this process.
    pub directory: PathBuf,
    /// Where its hierarchy is mounted.
    pub top: PathBuf,
    /// Whether it is of version 2.
    pub unified: bool,
}

/// The cgroups that this process is in, by the controller and what lies under `root`.
pub fn groups_of(root: &Path, controller: &str) -> Vec<Group> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let (mounts, groups) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let group = match mount.kind {
            "cgroup2" => groups.lines().find_map(|line| line.strip_prefix("0::")),
            "cgroup" if mount.options.split(',').any(|option| option == controller) => {
                groups.lines().find_map(|line| {
                    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                    controllers.split(',').any(|name| name == controller).then_some(path)
                })
            }
            _ => continue,
        };
        let Some(group) = group else { continue };
        // In a container the mount shows a part of the tree, beginning at `mount.root`.
        let below = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let directory = top.join(below.strip_prefix("/").unwrap_or(below));
        found.push(Group { directory, top, unified: mount.kind == "cgroup2" });
    }
    found
}

/// The tightest limit along the paths of this process's cgroups, by the controller that sets it and the files of its
/// limits in version 2 and version 1.
pub fn cgroup_limit<T: AsRef<Path>>(root: &Path, controller: &str, two: &[T], one: &[T]) -> Option<CgroupLimit> {
    cgroup_limits(root, controller, two, one).into_iter().min_by_key(|limit| limit.bytes)
}

/// All limits along these paths.
fn cgroup_limits<T: AsRef<Path>>(root: &Path, controller: &str, two: &[T], one: &[T]) -> Vec<CgroupLimit> {
    let mut limits = Vec::new();
    for Group { mut directory, top, unified } in groups_of(root, controller) {
        let files = if unified { two } else { one };
        loop {
            for name in files {
                let file = directory.join(name);
                let Ok(text) = fs::read_to_string(&file) else { continue };
                // "max", and v1's rounded-down 2^63, mean none.
                if let Some(bytes) = text.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 62) {
                    limits.push(CgroupLimit { bytes, file });
                }
            }
            if directory == top || !directory.pop() {
                break;
            }
        }
    }
    limits
}

/// What a cgroup's processes have taken and would not give back for the asking, in bytes: all but cached files. `limit` is the
/// file of its limit.
fn taken(limit: &Path) -> u64 {
    let read = |name: &str| fs::read_to_string(limit.with_file_name(name)).unwrap_or_default();
    let unified = limit.file_name().is_some_and(|name| name != "memory.limit_in_bytes");
    // Version 1 counts what is in groups below apart from what is in all.
    let (used, files) = match unified {
        true => ("memory.current", ["active_file", "inactive_file", "slab_reclaimable"].as_slice()),
        false => ("memory.usage_in_bytes", ["total_active_file", "total_inactive_file"].as_slice()),
    };
    let text = read("memory.stat");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let cached = lines.filter(|(name, _)| files.contains(name)).filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
    read(used).trim().parse::<u64>().unwrap_or(0).saturating_sub(cached.sum())
}

/// The kind of the file system that holds a path: that of the mount nearest above it.
pub fn file_system_kind(root: &Path, path: &Path) -> Option<String> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let above = mounts.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count()).map(|mount| mount.kind.to_owned())
}

/// The options of the file system that is mounted at `point` itself, the last one mounted there.
pub fn mount_options(root: &Path, point: &Path) -> Option<String> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let there = mounts.lines().rev().filter_map(Mount::parse).find(|mount| mount.point == point);
    there.map(|mount| mount.options.to_owned())
}

/// A line of mountinfo.
struct Mount<'a> {
    root: PathBuf,
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut what = what.split(' ');
        Some(Mount {
            root: unescape(place.next()?),
            point: unescape(place.next()?),
            kind: what.next()?,
            options: what.nth(1)?,
        })
    }
}

/// Paths in mountinfo write blanks and the like as three octal digits.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    800 kB\nSwapTotal: 7 kB\n";

    /// A directory that looks like a root, removed when dropped.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, mounts: &str, groups: &str, files: &[(&str, &str)]) -> Root {
            let root = std::env::temp_dir().join(format!("ream-machine-{name}-{}", std::process::id()));
            let write = |path: &str, text: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/meminfo", MEMINFO);
            write("proc/self/mountinfo", mounts);
            write("proc/self/cgroup", groups);
            for (path, text) in files {
                write(path, text);
            }
            Root(root)
        }
        fn limit(&self) -> Option<u64> {
            Machine::under(&self.0).unwrap().cgroup.map(|limit| limit.bytes)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";

    #[test]
    fn version_two_takes_the_tightest_ancestor() {
        let root = Root::new(
            "v2",
            V2,
            "0::/a/b\n",
            &[
                ("sys/fs/cgroup/a/memory.max", "5000000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.high", "7000000\n"),
            ],
        );
        assert_eq!(root.limit(), Some(5_000_000));
    }

    #[test]
    fn version_one_knows_its_own_infinity() {
        let file = "sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        let groups = "5:devices:/y\n4:cpu,memory:/x\n0::/\n";
        assert_eq!(Root::new("v1a", V1, groups, &[(file, "9223372036854771712\n")]).limit(), None);
        assert_eq!(Root::new("v1b", V1, groups, &[(file, "4096000\n")]).limit(), Some(4_096_000));
    }

    #[test]
    fn in_a_container_the_mount_is_a_part_of_the_tree() {
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let files = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "123456789\n")];
        assert_eq!(Root::new("c1", mounts, "4:memory:/docker/abc\n", &files).limit(), Some(123_456_789));
        // The group lies outside of what is mounted: what the mount shows is all that can be known.
        assert_eq!(Root::new("c2", mounts, "4:memory:/other\n", &files).limit(), Some(123_456_789));
        assert_eq!(Root::new("c3", "", "4:memory:/docker/abc\n", &files).limit(), None);
    }

    #[test]
    fn amounts() {
        let root = Root::new("m", V2, "0::/\n", &[]);
        let machine = Machine::under(&root.0).unwrap();
        assert_eq!((machine.total, machine.available, machine.swap_total), (1000 << 10, 800 << 10, 7 << 10));
        assert_eq!(machine.automatic(), 720 << 10);
        assert_eq!((machine.most(), machine.cap()), (1000 << 10, None));
        let limit = |bytes| Some(CgroupLimit { bytes, file: PathBuf::new() });
        let (cgroup, left) = (limit(1 << 30), limit(1 << 30));
        let machine = Machine { total: 8 << 30, available: 6 << 30, swap_total: 0, cgroup, left };
        assert_eq!(machine.most(), 1 << 30);
        assert_eq!(machine.automatic(), (1u64 << 30) * 9 / 10);
        assert_eq!(machine.cap(), Some((1 << 30) - (64 << 20)));
        let machine = Machine { cgroup: limit(1 << 20), left: limit(1 << 20), ..machine };
        assert_eq!((machine.cap(), machine.automatic()), (Some(0), 0));
    }

    #[test]
    fn what_others_have_taken_is_not_left() {
        let stat = "anon 5\nactive_file 1000\ninactive_file 2000\nslab_reclaimable 500\n";
        let files = [
            ("sys/fs/cgroup/a/memory.max", "90000\n"),
            ("sys/fs/cgroup/a/memory.current", "85000\n"),
            ("sys/fs/cgroup/a/memory.stat", stat),
            ("sys/fs/cgroup/a/b/memory.max", "50000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "9000\n"),
        ];
        // The group above leaves less than the one with the tighter limit.
        let root = Root::new("left2", V2, "0::/a/b\n", &files);
        let machine = Machine::under(&root.0).unwrap();
        let file = root.0.join("sys/fs/cgroup/a/memory.max");
        assert_eq!(machine.cgroup.unwrap().bytes, 50_000);
        assert_eq!(machine.left, Some(CgroupLimit { bytes: 90_000 - (85_000 - 3500), file }));
        let stat = "cache 9\nactive_file 7\ntotal_active_file 1000\ntotal_inactive_file 2000\n";
        let files = [
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096000\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4000000\n"),
            ("sys/fs/cgroup/memory/x/memory.stat", stat),
        ];
        let left = |files: &[_]| {
            let root = Root::new("left1", V1, "4:memory:/x\n", files);
            Machine::under(&root.0).unwrap().left.map(|left| left.bytes)
        };
        assert_eq!(left(&files), Some(99_000));
        // What cannot be read counts as nothing.
        assert_eq!(left(&files[..1]), Some(4_096_000));
        // More than the limit.
        assert_eq!(left(&[files[0], ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "5000000\n")]), Some(0));
    }

    #[test]
    fn blanks_in_mount_points() {
        assert_eq!(unescape("/a\\040b\\134"), PathBuf::from("/a b\\"));
        assert_eq!(unescape("/a\\04"), PathBuf::from("/a\\04"));
    }
}
