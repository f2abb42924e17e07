//! Large pages: what the kernel's modes, pools, limits, file systems and build options let a program have.

use super::{Finding, Verdict};
use crate::machine::{self, Machine};
use crate::setup::SETUP;
use crate::shared;
use crate::tree::{Tree, chosen};
use ream_options::show_size;
use std::path::Path;
use std::process::{Command, Stdio};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Looks at all of it.
pub fn look(tree: &Tree, machine: &Machine) -> Vec<Finding> {
    let release = tree.setting("/proc/sys/kernel/osrelease").unwrap_or_default();
    let pools = pools(tree);
    let mut found = vec![transparent(tree), mid_size(tree), khugepaged(tree)];
    found.extend(pool_findings(&pools));
    found.extend([
        cgroup(tree, &pools),
        shared_memory(tree, machine),
        shared_large(tree),
        tickless(tree),
        program_files(tree, &release),
        kernel_options(tree, &release),
    ]);
    found
}

fn transparent(tree: &Tree) -> Finding {
    const NAME: &str = "large pages";
    let Some(mode) = tree.setting(&format!("{THP}/enabled")) else {
        return Finding::new(NAME, Verdict::Warn, "this kernel has no transparent large pages")
            .mend("a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y");
    };
    let word = |name: &str| tree.setting(&format!("{THP}/{name}")).map(|text| chosen(&text).to_owned());
    let mode = chosen(&mode);
    if !["always", "madvise"].contains(&mode) {
        return Finding::new(NAME, Verdict::Warn, format!("transparent large pages are off ({mode})")).mend(SETUP);
    }
    if let Some(file) = large_size_off(tree) {
        return Finding::new(NAME, Verdict::Warn, format!("transparent, {mode}, but {file} is never")).mend(SETUP);
    }
    let defrag = word("defrag").unwrap_or_default();
    let shared = word("shmem_enabled").unwrap_or_default();
    let text = format!("transparent, {mode}; defrag {defrag}, shared memory {shared}");
    match defrag.as_str() {
        "never" => Finding::new(NAME, Verdict::Warn, format!("{text}: only what is free in large pieces is used"))
            .mend(format!("echo madvise | sudo tee {THP}/defrag")),
        _ => Finding::ok(NAME, text),
    }
}

/// The file that keeps large pages from following the general mode, where kernels have modes by size (6.8).
pub fn large_size_off(tree: &Tree) -> Option<String> {
    let bytes = tree.count(&format!("{THP}/hpage_pmd_size")).unwrap_or(2 << 20);
    let file = format!("{THP}/hugepages-{}kB/enabled", bytes >> 10);
    let text = tree.setting(&file)?;
    (chosen(&text) == "never").then_some(file)
}

fn mid_size(tree: &Tree) -> Finding {
    const NAME: &str = "mid-size pages";
    let sizes = tree.numbered(THP, "hugepages-", "kB");
    let large = tree.count(&format!("{THP}/hpage_pmd_size")).unwrap_or(2 << 20) >> 10;
    let sizes: Vec<_> = sizes.into_iter().filter(|size| *size < large).collect();
    let size = |kib: &u64| show_size(*kib << 10).to_string();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return Finding::ok(NAME, "not in this kernel (6.8)");
    };
    let on: Vec<_> = sizes
        .iter()
        .filter_map(|kib| {
            let text = tree.setting(&format!("{THP}/hugepages-{kib}kB/enabled"))?;
            Some((kib, chosen(&text).to_owned())).filter(|(_, word)| word != "never")
        })
        .map(|(kib, word)| format!("{} {word}", size(kib)))
        .collect();
    match on.is_empty() {
        true => Finding::ok(NAME, format!("off, from {} to {}", size(first), size(last))),
        false => Finding::ok(NAME, on.join(", ")),
    }
}

fn khugepaged(tree: &Tree) -> Finding {
    const NAME: &str = "khugepaged";
    let count = |name: &str| tree.count(&format!("{THP}/khugepaged/{name}"));
    match (count("pages_to_scan"), count("scan_sleep_millisecs")) {
        (Some(pages), Some(sleep)) => {
            Finding::ok(NAME, format!("looks at {} every {} ms", show_size(pages * 4096), sleep))
        }
        _ => Finding::ok(NAME, "not in this kernel"),
    }
}

/// The pool of one size on one node, in pages.
struct Pool {
    kib: u64,
    node: Option<u64>,
    total: u64,
    free: u64,
    /// Promised to mappings, not yet taken. Known for all nodes together only.
    reserved: u64,
    surplus: u64,
    /// Pages beyond the pool that may be taken on demand.
    overcommit: u64,
}

impl Pool {
    fn look(tree: &Tree, directory: &str, kib: u64, node: Option<u64>) -> Pool {
        let count = |name: &str| tree.count(&format!("{directory}/hugepages-{kib}kB/{name}")).unwrap_or(0);
        Pool {
            kib,
            node,
            total: count("nr_hugepages"),
            free: count("free_hugepages"),
            reserved: count("resv_hugepages"),
            surplus: count("surplus_hugepages"),
            overcommit: count("nr_overcommit_hugepages"),
        }
    }
    fn is_empty(&self) -> bool {
        self.total == 0 && self.overcommit == 0
    }
    fn size(&self) -> String {
        show_size(self.kib << 10).to_string()
    }
}

/// The pools of all sizes, and after each its parts on nodes where there are several.
fn pools(tree: &Tree) -> Vec<Pool> {
    const ALL: &str = "/sys/kernel/mm/hugepages";
    const NODES: &str = "/sys/devices/system/node";
    let nodes = tree.numbered(NODES, "node", "");
    let mut found = Vec::new();
    for kib in tree.numbered(ALL, "hugepages-", "kB") {
        found.push(Pool::look(tree, ALL, kib, None));
        for node in nodes.iter().filter(|_| nodes.len() > 1) {
            found.push(Pool::look(tree, &format!("{NODES}/node{node}/hugepages"), kib, Some(*node)));
        }
    }
    found
}

fn pool_findings(pools: &[Pool]) -> Vec<Finding> {
    const NAME: &str = "hugetlb pool";
    let whole: Vec<_> = pools.iter().filter(|pool| pool.node.is_none()).collect();
    if whole.is_empty() {
        return vec![Finding::ok(NAME, "this kernel has none; not needed")];
    }
    if whole.iter().all(|pool| pool.is_empty()) {
        let sizes = whole.iter().map(|pool| pool.size()).collect::<Vec<_>>().join(", ");
        return vec![Finding::ok(NAME, format!("empty ({sizes}); not needed"))];
    }
    let mut found = Vec::new();
    for pool in whole.into_iter().filter(|pool| !pool.is_empty()) {
        let Pool { total, free, reserved, surplus, overcommit, .. } = pool;
        let mut text = format!("{total} pages of {}, {free} free, {reserved} reserved", pool.size());
        if *overcommit != 0 || *surplus != 0 {
            text += &format!(", {surplus} of at most {overcommit} beyond the pool");
        }
        let nodes = pools.iter().filter(|part| part.kib == pool.kib).filter_map(|part| Some((part.node?, part)));
        let nodes: Vec<_> =
            nodes.map(|(node, part)| format!("node {node}: {}, {} free", part.total, part.free)).collect();
        if !nodes.is_empty() {
            text += &format!(" ({})", nodes.join("; "));
        }
        text += "; not available to anything else";
        found.push(match free.saturating_sub(*reserved) == 0 && *overcommit == 0 {
            true => {
                let option = if pool.kib >= 1 << 20 { "--hugetlb-1g" } else { "--hugetlb" };
                Finding::new(NAME, Verdict::Warn, format!("{text}: all in use")).mend(format!("{SETUP} {option} SIZE"))
            }
            false => Finding::ok(NAME, text),
        });
    }
    found
}

fn cgroup(tree: &Tree, pools: &[Pool]) -> Finding {
    const NAME: &str = "hugetlb cgroup";
    let mut texts = Vec::new();
    let mut tight = None;
    for pool in pools.iter().filter(|pool| pool.node.is_none()) {
        // As the kernel writes sizes in names of files: 2MB, 1GB.
        let name = if pool.kib >= 1 << 20 { format!("{}GB", pool.kib >> 20) } else { format!("{}MB", pool.kib >> 10) };
        let files = [format!("hugetlb.{name}.max"), format!("hugetlb.{name}.rsvd.max")];
        let old = [format!("hugetlb.{name}.limit_in_bytes"), format!("hugetlb.{name}.rsvd.limit_in_bytes")];
        if let Some(limit) = machine::cgroup_limit(tree.root(), "hugetlb", &files, &old) {
            texts.push(format!("at most {} in pages of {}", show_size(limit.bytes), pool.size()));
            if limit.bytes < pool.total * (pool.kib << 10) {
                tight = Some(limit.file);
            }
        }
    }
    match (tight, texts.is_empty()) {
        (_, true) => Finding::ok(NAME, "sets no limit"),
        (None, false) => Finding::ok(NAME, texts.join(", ")),
        (Some(file), false) => {
            Finding::new(NAME, Verdict::Warn, format!("{}, less than the pool holds", texts.join(", ")))
                .mend(format!("a higher limit in {}", file.display()))
        }
    }
}

fn shared_memory(tree: &Tree, machine: &Machine) -> Finding {
    const NAME: &str = "shared memory";
    let count = |name: &str| tree.count(&format!("/proc/sys/{name}"));
    let (Some(largest), Some(pages)) = (count("kernel/shmmax"), count("kernel/shmall")) else {
        return Finding::ok(NAME, "this kernel has no System V segments");
    };
    let all = pages.saturating_mul(4096);
    let size = |bytes: u64| match bytes < machine.total {
        true => show_size(bytes).to_string(),
        false => "all RAM".to_owned(),
    };
    let group = match count("vm/hugetlb_shm_group") {
        Some(0) | None => "root".to_owned(),
        Some(group) => format!("group {group}"),
    };
    let text = format!(
        "segments up to {} (shmmax), {} together (shmall); large ones for {group} (hugetlb_shm_group)",
        size(largest),
        size(all)
    );
    match largest.min(all / 4096 * 4096) < machine.total / 4096 * 4096 {
        true => Finding::new(NAME, Verdict::Warn, text).mend(SETUP),
        false => Finding::ok(NAME, text),
    }
}

/// Large pages under shared memory, which are had on request only: without them nothing is amiss.
fn shared_large(tree: &Tree) -> Finding {
    const NAME: &str = "shared large pages";
    match shared::obstacle(tree).or_else(|| shared::files_obstacle(tree)) {
        None => Finding::ok(NAME, "for --pages=shm=huge, files in /dev/shm included"),
        Some(obstacle) => {
            Finding::ok(NAME, format!("{}; needed for --pages=shm=huge", obstacle.text)).mend(obstacle.mend)
        }
    }
}

fn tickless(tree: &Tree) -> Finding {
    let text = match tree.setting("/sys/devices/system/cpu/nohz_full") {
        Some(list) if !list.is_empty() && list != "(null)" => format!("{list} (nohz_full)"),
        _ => "none (nohz_full); not needed".to_owned(),
    };
    Finding::ok("tickless cores", text)
}

/// File systems that keep files in the page cache in large pieces, and since which kernel.
const LARGE_FOLIOS: [(&str, (u32, u32)); 4] =
    [("xfs", (5, 18)), ("erofs", (6, 2)), ("ext4", (6, 16)), ("btrfs", (7, 2))];

/// First and second number of a kernel's release.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn program_files(tree: &Tree, release: &str) -> Finding {
    const NAME: &str = "program files";
    let Some(kind) = machine::file_system_kind(tree.root(), Path::new("/usr")) else {
        return Finding::ok(NAME, "file system not known");
    };
    match LARGE_FOLIOS.iter().find(|(name, _)| *name == kind) {
        Some((_, since)) if version(release) >= *since => {
            Finding::ok(NAME, format!("/usr is on {kind}, which can hold code in large pages"))
        }
        Some((_, (major, minor))) => {
            let text = format!("/usr is on {kind}, which holds code in large pages from Linux {major}.{minor} on");
            Finding::new(NAME, Verdict::Warn, text).mend(format!("Linux {major}.{minor} or later"))
        }
        // What lies below, or whether it has a switch of its own, cannot be told from its name.
        None => Finding::ok(NAME, format!("/usr is on {kind}; whether code can be on large pages there is not known")),
    }
}

/// Options of the kernel's build that matter, and what is missing without them.
const OPTIONS: [(&str, &str); 6] = [
    ("TRANSPARENT_HUGEPAGE", "large pages"),
    ("HUGETLBFS", "pools"),
    ("USERFAULTFD", "paging"),
    ("IO_URING", "io_uring"),
    ("CGROUP_HUGETLB", ""),
    ("BINFMT_MISC", "marked binaries"),
];

fn kernel_options(tree: &Tree, release: &str) -> Finding {
    const NAME: &str = "kernel options";
    let config = tree.setting(&format!("/boot/config-{release}")).or_else(|| unpacked(&tree.at("/proc/config.gz")));
    let Some(config) = config else {
        return Finding::ok(NAME, "not readable here (/proc/config.gz, /boot/config-*)");
    };
    let set = |name: &str| {
        let lines = config.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.strip_prefix(name));
        lines.into_iter().any(|rest| matches!(rest, "=y" | "=m"))
    };
    let files = match set("READ_ONLY_THP_FOR_FS") {
        true => "READ_ONLY_THP_FOR_FS is set: code can be gathered on large pages later, too",
        false => "READ_ONLY_THP_FOR_FS is not set: code gets large pages when it is read, not later",
    };
    let lacks: Vec<_> = OPTIONS.iter().filter(|(name, what)| !what.is_empty() && !set(name)).collect();
    if lacks.is_empty() {
        return Finding::ok(NAME, files);
    }
    let list = |text: fn(&(&str, &str)) -> String| lacks.iter().map(|lack| text(lack)).collect::<Vec<_>>().join(", ");
    Finding::new(NAME, Verdict::Warn, format!("no {}; {files}", list(|(_, what)| (*what).to_owned())))
        .mend(format!("a kernel with {}", list(|(name, _)| format!("CONFIG_{name}=y"))))
}

/// What a compressed file holds, by the system's gzip.
fn unpacked(file: &Path) -> Option<String> {
    let gzip = ["/usr/bin/gzip", "/bin/gzip"].into_iter().find(|path| Path::new(path).exists())?;
    let input = std::fs::File::open(file).ok()?;
    let mut command = Command::new(gzip);
    command.arg("-dc").env_clear().stdin(input).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory that looks like a root, removed when dropped.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Root {
            let root = Root(std::env::temp_dir().join(format!("ream-large-{name}-{}", std::process::id())));
            for (path, text) in files {
                root.write(path, text);
            }
            root
        }
        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        fn tree(&self) -> Tree {
            Tree::new(&self.0)
        }
        fn look(&self) -> Vec<Finding> {
            look(&self.tree(), &Machine { total: 8 << 30, available: 8 << 30, swap_total: 0, cgroup: None, left: None })
        }
        fn find(&self, name: &str) -> Finding {
            self.look().into_iter().find(|finding| finding.name == name).unwrap()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";

    #[test]
    fn modes() {
        let root = Root::new("modes", &[(ENABLED, "always [madvise] never\n")]);
        let base = "sys/kernel/mm/transparent_hugepage";
        root.write(&format!("{base}/defrag"), "always defer [madvise] never");
        root.write(&format!("{base}/shmem_enabled"), "always [advise] never");
        root.write(&format!("{base}/hugepages-64kB/enabled"), "always inherit [madvise] never");
        root.write(&format!("{base}/hugepages-128kB/enabled"), "always inherit madvise [never]");
        root.write(&format!("{base}/hugepages-2048kB/enabled"), "always [inherit] madvise never");
        root.write(&format!("{base}/khugepaged/pages_to_scan"), "4096\n");
        root.write(&format!("{base}/khugepaged/scan_sleep_millisecs"), "10000\n");
        assert_eq!(
            root.find("large pages"),
            Finding::ok("large pages", "transparent, madvise; defrag madvise, shared memory advise")
        );
        assert_eq!(root.find("mid-size pages").text, "64 KiB madvise");
        assert_eq!(root.find("khugepaged").text, "looks at 16 MiB every 10000 ms");
        root.write(&format!("{base}/hugepages-64kB/enabled"), "[never]");
        assert_eq!(root.find("mid-size pages").text, "off, from 64 KiB to 128 KiB");
        root.write(&format!("{base}/defrag"), "always [never]");
        assert_eq!(root.find("large pages").verdict, Verdict::Warn);
        root.write(&format!("{base}/hugepages-2048kB/enabled"), "always inherit madvise [never]");
        let finding = root.find("large pages");
        assert!(finding.text.contains("hugepages-2048kB/enabled is never") && finding.mend == SETUP, "{finding:?}");
        root.write(ENABLED, "always madvise [never]\n");
        assert_eq!(root.find("large pages").mend, SETUP);
        assert_eq!(Root::new("none", &[("x", "")]).find("large pages").verdict, Verdict::Warn);
    }

    #[test]
    fn pools_by_size_and_node() {
        let root = Root::new("pools", &[("x", "")]);
        assert!(root.find("hugetlb pool").text.contains("none"));
        for (size, pages) in [(2048, "0"), (1 << 20, "0")] {
            root.write(&format!("sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), pages);
        }
        assert_eq!(root.find("hugetlb pool"), Finding::ok("hugetlb pool", "empty (2 MiB, 1 GiB); not needed"));
        let base = "sys/kernel/mm/hugepages/hugepages-2048kB";
        for (name, pages) in [("nr", "8"), ("free", "6"), ("resv", "2"), ("surplus", "1"), ("nr_overcommit", "5")] {
            root.write(&format!("{base}/{name}_hugepages"), pages);
        }
        for (node, pages) in [(0, "8"), (1, "0")] {
            let path = format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
            root.write(&path, pages);
        }
        let finding = root.find("hugetlb pool");
        let text = "8 pages of 2 MiB, 6 free, 2 reserved, 1 of at most 5 beyond the pool (node 0: 8, 0 free; node 1: 0, \
                    0 free); not available to anything else";
        assert_eq!((finding.text.as_str(), finding.verdict), (text, Verdict::Ok));
        root.write(&format!("{base}/nr_overcommit_hugepages"), "0");
        root.write(&format!("{base}/free_hugepages"), "2");
        let finding = root.find("hugetlb pool");
        assert_eq!((finding.verdict, finding.mend), (Verdict::Warn, format!("{SETUP} --hugetlb SIZE")));
    }

    #[test]
    fn limits_of_cgroups_on_pools() {
        let root = Root::new("cgroup", &[("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8")]);
        assert_eq!(root.find("hugetlb cgroup").text, "sets no limit");
        root.write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        root.write("proc/self/cgroup", "0::/a\n");
        root.write("sys/fs/cgroup/a/hugetlb.2MB.max", "33554432\n");
        assert_eq!(root.find("hugetlb cgroup"), Finding::ok("hugetlb cgroup", "at most 32 MiB in pages of 2 MiB"));
        root.write("sys/fs/cgroup/a/hugetlb.2MB.max", "2097152\n");
        let finding = root.find("hugetlb cgroup");
        assert!(finding.verdict == Verdict::Warn && finding.mend.contains("hugetlb.2MB.max"), "{finding:?}");
    }

    #[test]
    fn segments() {
        let root = Root::new("segments", &[("x", "")]);
        root.write("proc/sys/kernel/shmmax", "18446744073692774399\n");
        root.write("proc/sys/kernel/shmall", "18446744073692774399\n");
        root.write("proc/sys/vm/hugetlb_shm_group", "77\n");
        let finding = root.find("shared memory");
        assert!(finding.verdict == Verdict::Ok && finding.text.contains("group 77"), "{finding:?}");
        root.write("proc/sys/kernel/shmmax", "33554432\n");
        let finding = root.find("shared memory");
        assert!(finding.text.contains("up to 32 MiB") && finding.mend == SETUP, "{finding:?}");
    }

    #[test]
    fn large_pages_of_shared_memory() {
        let mounts = |options| format!("40 24 0:27 / /dev/shm rw - tmpfs tmpfs rw{options}\n");
        let root = Root::new("shared", &[("x", "")]);
        assert!(root.find("shared large pages").text.starts_with("this kernel has no"));
        let file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
        root.write(file, "always within_size advise [never] deny force\n");
        assert_eq!(root.find("shared large pages").mend, SETUP);
        root.write(file, "always within_size [advise] never deny force\n");
        root.write("proc/self/mountinfo", &mounts(""));
        assert_eq!(root.find("shared large pages").mend, "mount -o remount,huge=advise /dev/shm");
        root.write("proc/self/mountinfo", &mounts(",huge=advise"));
        let finding = root.find("shared large pages");
        assert!(finding.mend.is_empty() && finding.verdict == Verdict::Ok, "{finding:?}");
    }

    #[test]
    fn file_systems_and_kernels() {
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 254:1 / /usr rw - xfs /dev/vdb rw\n";
        let root = Root::new("files", &[("proc/self/mountinfo", mounts), ("proc/sys/kernel/osrelease", "6.1.0-18\n")]);
        assert_eq!(root.find("program files").verdict, Verdict::Ok);
        root.write("proc/self/mountinfo", mounts.lines().next().unwrap());
        let finding = root.find("program files");
        assert!(finding.text.contains("ext4") && finding.mend == "Linux 6.16 or later", "{finding:?}");
        root.write("proc/sys/kernel/osrelease", "6.18.44\n");
        assert_eq!(root.find("program files").verdict, Verdict::Ok);
        root.write("proc/self/mountinfo", "27 1 0:5 / / rw - overlay overlay rw\n");
        assert!(root.find("program files").text.contains("overlay"));
    }

    #[test]
    fn options_of_the_kernel() {
        let root = Root::new("options", &[("proc/sys/kernel/osrelease", "6.1\n")]);
        assert!(root.find("kernel options").text.starts_with("not readable"));
        let all: String = OPTIONS.iter().map(|(name, _)| format!("CONFIG_{name}=y\n")).collect();
        root.write("boot/config-6.1", &all);
        let finding = root.find("kernel options");
        assert!(finding.verdict == Verdict::Ok && finding.text.contains("FS is not set"), "{finding:?}");
        root.write("boot/config-6.1", &all.replace("CONFIG_HUGETLBFS=y", "# CONFIG_HUGETLBFS is not set"));
        assert_eq!(root.find("kernel options").mend, "a kernel with CONFIG_HUGETLBFS=y");
        // As the kernel offers it: packed.
        std::fs::remove_file(root.0.join("boot/config-6.1")).unwrap();
        root.write("config", &(all + "CONFIG_READ_ONLY_THP_FOR_FS=y\n"));
        let Ok(status) = Command::new("gzip").arg(root.0.join("config")).status() else { return };
        assert!(status.success());
        std::fs::rename(root.0.join("config.gz"), root.0.join("proc/config.gz")).unwrap();
        assert!(root.find("kernel options").text.contains("FS is set"));
    }

    #[test]
    fn cores_without_ticks() {
        let root = Root::new("cores", &[("sys/devices/system/cpu/nohz_full", "2-7\n")]);
        assert_eq!(root.find("tickless cores").text, "2-7 (nohz_full)");
        root.write("sys/devices/system/cpu/nohz_full", "  (null)\n");
        assert!(root.find("tickless cores").text.starts_with("none"));
    }
}
